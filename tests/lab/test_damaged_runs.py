"""Damaged run folders: a page that says what was left out, or a message that names the file."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from macaron.errors import MacaronError
from macaron.lab.report import write_report
from macaron.lab.run_folder import RunFolder, is_number

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"
TRAINED: dict[str, Any] = {
    "metrics.jsonl": [{"update": 4, "loss": 1.0}],
    "environment.json": [{"update": 0, "gpu": None, "machine": "x", "processes": 1, "packages": {"torch": "2"}}],
    "summary.json": {
        **{"update": 4, "seconds": 1.5, "final_model": "last"},
        **{"candidates": {"last": 1.0}, "candidate_scores": {"last": 9.0}},
    },
}
ODD = (None, "x", 1e300, float("nan"), [[1]], {"a": 1})


def write(folder: Path, files: dict[str, Any]) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "recipe.toml").touch()
    for name, content in files.items():
        values = content if name.endswith(".jsonl") else [content]
        (folder / name).write_text("".join(json.dumps(value) + "\n" for value in values))
    return folder


def variants(value: Any) -> Iterator[Any]:
    """A value with each of its parts replaced by each odd one, or removed."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            for odd in (*ODD, *variants(value[key])):
                changed = value.copy()
                changed[key] = odd
                yield changed
            changed = value.copy()
            del changed[key]
            yield changed


def report(run: Path, out: Path) -> None:
    """The page is complete, or the message names the folder."""
    try:
        write_report(run, out)
    except MacaronError as error:
        said = str(error)
    else:
        said = f"{run} {out.read_text(encoding='utf-8')[-8:]}"
        assert said.strip().endswith("</html>")
    assert str(run) in said


def test_values_of_another_kind(tmp_path: Path):
    run = write(tmp_path / "run", TRAINED)
    report(run, tmp_path / "page.html")
    for name, value in TRAINED.items():
        for changed in variants(value):
            write(run, {**TRAINED, name: changed})
            report(run, tmp_path / "page.html")


def test_what_others_use_has_its_type_or_is_left_out(tmp_path: Path):
    for name in ("environment.json", "summary.json"):
        for changed in variants(TRAINED[name]):
            found = RunFolder(write(tmp_path / "run", {**TRAINED, name: changed}))
            packages = [start.get("packages", {}) for start in found.starts]
            assert all(isinstance(version, str) for each in packages for version in each.values())
            hash(tuple((start.get("gpu"), start.get("machine"), start.get("processes")) for start in found.starts))
            hash(found.summary.get("final_model"))
            assert all(loss is None or is_number(loss) for loss in found.summary.get("candidates", {}).values())


CONTENTS = (b"", b"\xff\xfe\0", b"null\n", b"[]\n", b'"x"\n', b"5\n", b"{}\n", b'{"update": Infinity}\n', b"{" * 10)


@pytest.mark.parametrize("name", ["recipe.toml", "metrics.jsonl", "environment.json", "summary.json"])
def test_files_of_another_kind(name: str, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(FIXTURES / "stopped-pairs", run)
    shutil.rmtree(run / "checkpoints")
    good = (run / name).read_bytes() if (run / name).exists() else b'{"update": 3, "candidates": {"last": 1.0}}\n'
    for content in (*CONTENTS, good[: len(good) // 2], good[:-1], good + good, good[:20] + b"\xff" + good[20:]):
        (run / name).write_bytes(content)
        report(run, tmp_path / "page.html")
    (run / name).unlink()
    report(run, tmp_path / "page.html")
    (run / name).mkdir()
    report(run, tmp_path / "page.html")


def test_sections_of_a_recipe_that_are_none(tmp_path: Path):
    (tmp_path / "recipe.toml").write_text("train = 5\nmodel = []\n[data]\nout = -1\n")
    assert RunFolder(tmp_path).settings == {"data": {"out": -1}}
    report(tmp_path, tmp_path / "page.html")


def test_numbers():
    assert [value for value in (0, 1.5, -3, 10**400, 1e300, True, "1", None) if is_number(value)] == [0, 1.5, -3]
