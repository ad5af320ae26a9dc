"""``macaron report`` as a user calls it."""

import json
import subprocess
import sys

import pytest

from macaron.cli import main


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["macaron", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            main()
        output = capsys.readouterr()
        return int(left.value.code or 0), output.out, output.err

    return call


@pytest.fixture
def young(tmp_path):
    """A run with two lines of metrics."""
    folder = tmp_path / "run"
    folder.mkdir()
    lines = [{"update": u, "nll": 9 - u, "loss": 9 - u, "tokens_per_second": 10.0 * u, "seconds": u} for u in (1, 2)]
    (folder / "recipe.toml").touch()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def test_the_page_is_in_the_run_or_where_it_is_wanted(run, young, tmp_path):
    assert run(young) == (0, "", f"wrote {young / 'report.html'}\n")
    other = tmp_path / "pages" / "mine.html"
    assert run(young, "--out", other, "--no-samples") == (0, "", f"wrote {other}\n")
    assert "Samples" in (young / "report.html").read_text()
    assert "Samples" not in other.read_text()


def test_mistakes_get_one_clear_line(run, young, tmp_path):
    code, out, err = run(tmp_path / "none")
    assert (code, out) == (1, "")
    assert (
        err
        == f"macaron: {tmp_path / 'none'}: no such folder. Give the folder of a run, as macaron train --out made it.\n"
    )
    code, _, err = run(tmp_path)
    assert code == 1
    assert "is not the folder of a run" in err
    code, _, err = run(young, "--out", "page.pdf")
    assert (code, err) == (2, "macaron: page.pdf: a page is FILE.html\n")
    code, _, err = run(young, "--out", young / "metrics.jsonl" / "a.html")
    assert code == 1
    assert "Choose another path" in err
    (young / "recipe.toml").write_text("not toml")
    code, _, err = run(young)
    assert code == 1
    assert "recipe.toml: not valid TOML" in err


def test_importing_the_verb_is_light():
    code = "import sys, macaron.cli.lab; print([n for n in ('torch', 'numpy', 'macaron.lab') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
