"""What an older version wrote still works: model folders, prepared folders, stopped runs (fixtures/README.md)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FIXTURES = Path(__file__).with_name("fixtures")
EXPECTED: dict[str, Any] = json.loads((FIXTURES / "expected.json").read_text(encoding="utf-8"))


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of everything the older version wrote."""
    return Path(shutil.copytree(FIXTURES, tmp_path / "old"))


def test_a_model_folder_translates_as_before(macaron: Callable[..., Any], tmp_path: Path):
    expected = EXPECTED["translations"]
    source = write_lines(tmp_path / "source", [each["source"] for each in expected])
    done = macaron(
        "translate", FIXTURES / "translation", "-i", source, "--json", "--one-per-line", "--nbest", 2, "--device", "cpu"
    )
    assert done.returncode == 0, done.stderr
    found = json_lines(done.stdout)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for one, other in zip(ours["translations"], theirs["translations"], strict=True):
            assert one["text"] == other["text"]
            assert one["tokens"] == other["tokens"]
            # Float32 sums in another order on another processor: the best two hypotheses are 0.01 or more apart.
            assert one["score"] == pytest.approx(other["score"], abs=1e-4)


def test_a_classifier_predicts_as_before(macaron: Callable[..., Any], tmp_path: Path):
    expected = EXPECTED["predictions"]
    texts = write_lines(tmp_path / "texts", [each["text"] for each in expected])
    done = macaron("predict", FIXTURES / "classifier", "-i", texts, "--json", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    for ours, theirs in zip(json_lines(done.stdout), expected, strict=True):
        assert ours["label"] == theirs["label"]
        assert ours["probability"] == pytest.approx(theirs["probability"], abs=1e-4)


@pytest.mark.parametrize("kind", ["pairs", "text"])
def test_a_prepared_folder_is_up_to_date(kind: str, old: Path, server: Any):
    before = {path: path.read_bytes() for path in (old / kind).rglob("*") if path.is_file()}
    said = server.run("prepare", f"{kind}.toml", cwd=str(old))
    assert "up to date" in said
    after = {path: path.read_bytes() for path in (old / kind).rglob("*") if path.is_file()}
    # Only the times of the inputs may be noted anew: a copy has others.
    assert {path for path in before if before[path] != after.get(path)} <= {old / kind / "prepared.json"}
    assert after.keys() == before.keys()


def test_a_stopped_run_is_refused(old: Path, server: Any):
    again = ["train", "pairs.toml", "--out", "stopped-pairs", "--resume"]
    said = server.run(*again, cwd=str(old), code=1)
    assert "train.row_tokens" in said  # it had another default
    said = server.run(*again, "--set", "train.row_tokens=192", cwd=str(old), code=1)
    assert "a checkpoint of format 1, this version reads 4. Resume with the version that wrote it" in said
    # Its recipe may have settings that there are no more.
    said = server.run("train", "text.toml", "--out", "stopped-text", "--resume", cwd=str(old), code=1)
    assert "stopped-text/recipe.toml, line 54: unknown key 'pretrain.attention'" in said


def test_a_stopped_run_is_no_model(old: Path, server: Any):
    (old / "lines").write_text("Guten Morgen.\n")
    said = server.run("translate", "stopped-pairs", "-i", "lines", cwd=str(old), code=1)
    assert "this checkpoint of an earlier version lacks config.json and the tokenizer" in said
