"""The verbs of ``macaron ode``, as a user calls them."""

import json
import os
import signal
import subprocess
import sys

import pytest

from macaron.cli import main
from macaron.ode import names, scheme


@pytest.fixture
def run(monkeypatch, capsys):
    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["macaron", "ode", *arguments])
        with pytest.raises(SystemExit) as left:
            main()
        output = capsys.readouterr()
        return int(left.value.code or 0), output.out, output.err

    return call


def test_list(run):
    code, out, _ = run("list")
    assert code == 0
    for name in names():
        assert name in out
    assert "transformer" in out
    assert "macaron" in out


def test_list_json(run):
    _, out, _ = run("list", "--json")
    rows = json.loads(out)["schemes"]
    assert [row["name"] for row in rows] == list(names())
    assert [row["order"] for row in rows] == [scheme(name).order for name in names()]


def test_show(run):
    code, out, _ = run("show", "macaron")
    assert code == 0
    for line in (
        "x1 = x + 1/2 γ G(x, t)",
        "x2 = x1 + γ F(x1, t)",
        "x' = x2 + 1/2 γ G(x2, t + 1/2 γ)",
        "γ²/2 (1/2 G'G + F'F)",
        "exact 3, euler 2, midpoint 3",
        "2 G (feed-forward), 1 F (self-attention)",
    ):
        assert line in out


def test_show_a_weighted_sum(run):
    _, out, _ = run("show", "parallel")
    assert "x' = a + b - x" in out
    _, out, _ = run("show", "sws")
    assert "x' = 1/2 a + 1/2 b" in out


@pytest.mark.parametrize("name", names())
def test_show_every_scheme(run, name):
    code, out, _ = run("show", name, "--json")
    data = json.loads(out)
    assert code == 0
    assert data["order"] == scheme(name).order
    assert data["expected_local_order"]["euler"] == 2
    assert scheme({"name": data["name"], "branches": data["branches"]}) == scheme(name)


def test_show_a_scheme_of_ones_own(run):
    text = '{"name": "mine", "branches": [{"weight": 1, "steps": [["A", 0.5], ["B", 1], ["A", 0.5]]}]}'
    code, out, _ = run("show", text)
    assert code == 0
    assert "order          2" in out


def test_orders(run):
    code, out, err = run("orders", "lie-fg", "macaron", "--json")
    assert (code, err) == (0, "")
    first, second = json.loads(out)["schemes"]
    assert (first["name"], first["order"], second["name"], second["order"]) == ("lie-fg", 1, "strang-gfg", 2)
    assert second["local_order"]["exact"] == pytest.approx(3, abs=0.15)
    assert second["local_order"]["euler"] == pytest.approx(2, abs=0.15)
    code, table, _ = run("orders", "macaron")
    assert code == 0
    assert "3.00" in table


def test_plot(run, tmp_path):
    out = tmp_path / "new" / "orders.html"
    code, _, _ = run("plot", "--out", str(out), "lie-fg:euler")
    assert code == 0
    assert '>lie-fg (Transformer), euler</th><td class="number">2.00</td>' in out.read_text()


def test_trajectories(run, tmp_path):
    out = tmp_path / "new" / "a.html"
    code, stdout, err = run("trajectories", "--out", str(out), "--steps", "2", "lie-fg:euler")
    assert (code, stdout, err) == (0, "", f"wrote {out}\n")
    assert out.stat().st_size > 10_000


def test_trajectories_that_cannot_be(run, tmp_path):
    code, _, err = run("trajectories", "--out", str(tmp_path / "a.pdf"))
    assert code == 2
    assert err.endswith("a page is FILE.html\n")
    code, _, err = run("trajectories", "--out", str(tmp_path / "a.html"), "--steps", "3")
    assert (code, err) == (2, "macaron: --steps is one of 1, 2, 4, 8, 16, 32, not 3\n")
    code, _, err = run("trajectories", "--out", str(tmp_path / "a.html"), "strang")
    assert (code, err.count("\n")) == (1, 1)
    assert list(tmp_path.iterdir()) == []


def test_mistakes_get_one_clear_line(run, tmp_path):
    code, out, err = run("show", "strang")
    assert (code, out) == (1, "")
    assert err.startswith("macaron: unknown scheme 'strang'; did you mean 'strang-gfg'")
    code, _, err = run("plot", "--out", str(tmp_path / "orders.pdf"))
    assert code == 2
    assert err.endswith("a page is FILE.html\n")
    code, _, _ = run("plot")
    assert code == 2


@pytest.mark.parametrize(
    "text", ["[" * 3000, '[{"weight": 1, "steps": [["F", ' + "1" * 5000 + "]]}]}"], ids=["deep", "long"]
)
def test_absurd_json_gets_one_clear_line(run, text):
    code, out, err = run("show", '{"name": "a", "branches": ' + text)
    assert (code, out) == (1, "")
    assert err.startswith("macaron: a scheme was expected as JSON: not valid JSON")
    assert err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["list"], ["list", "--json"], ["show", "macaron"], ["orders", "macaron"]])
def test_a_reader_that_went_away_is_no_error(arguments):
    """`macaron ode list | true`, with certainty: nobody holds the other end."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "from macaron.cli import main; main()", "ode", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c(run, monkeypatch):
    monkeypatch.setattr("macaron.ode.measure.expected_local_order", lambda *_: signal.raise_signal(signal.SIGINT))
    assert run("orders") == (130, "", "macaron: stopped by Ctrl-C\n")


@pytest.mark.parametrize(
    ("module", "heavy"),
    [("macaron.ode", ["torch", "scipy", "matplotlib"]), ("macaron.cli.ode", ["torch", "numpy", "macaron.ode"])],
)
def test_importing_is_light(module, heavy):
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
