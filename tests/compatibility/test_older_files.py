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


@pytest.mark.parametrize("kind", ["pairs", "text"])
def test_a_stopped_run_goes_on_to_the_same_numbers(kind: str, old: Path, server: Any):
    expected = EXPECTED["runs"][kind]
    run = old / f"stopped-{kind}"
    server.run("train", f"{kind}.toml", "--out", run.name, "--resume", cwd=str(old))
    records = [record for record in json_lines((run / "metrics.jsonl").read_text()) if "final" not in record]
    assert len(records) == len(expected["records"])
    after = 0
    for ours, theirs in zip(records, expected["records"], strict=True):
        after += theirs["update"] > expected["stopped_at"]
        for key, value in theirs.items():
            # The same order, dropout, optimiser and rates; rounding differs between processors. Weights are not
            # compared: the gradient of a key's bias is rounding noise, which Adam scales to full steps.
            assert ours[key] == pytest.approx(value, rel=1e-5), (theirs["update"], key)
    assert after >= 8
    final = json.loads((run / "summary.json").read_text())
    assert final["candidates"]["last"] == pytest.approx(expected["final_valid_loss"], rel=1e-5)
    assert (run / "model" / "model.safetensors").is_file()


def test_a_stopped_run_of_other_data_is_refused(old: Path, server: Any):
    """The old digest of the training data is still compared."""
    for language in ("de", "en"):
        path = old / "corpus" / f"train.{language}"
        path.write_text("".join(reversed(path.read_text(encoding="utf-8").splitlines(keepends=True))))
    server.run("prepare", "pairs.toml", cwd=str(old))
    said = server.run("train", "pairs.toml", "--out", "stopped-pairs", "--resume", cwd=str(old), code=1)
    assert "training data" in said


def test_stopped_runs_can_be_used(old: Path, server: Any):
    """Their checkpoints lack configuration and tokenizer, which are made from the recipe and the data."""
    (old / "lines").write_text("Guten Morgen.\n")
    said = server.run("translate", "stopped-pairs", "-i", "lines", cwd=str(old))
    assert "using its checkpoint of update 100 (the best so far)" in said
    examples = "".join(
        f"{text}\t{label}\n" for text, label in [("A sad father.", "no"), ("The clever cook.", "yes")] * 4
    )
    (old / "examples.tsv").write_text(f"text\tlabel\n{examples}")
    files = ("--train", "examples.tsv", "--dev", "examples.tsv", "--epochs", 1, "--device", "cpu", "--out", "tuned")
    said = server.run("finetune", "stopped-text", *files, cwd=str(old))
    assert "using its checkpoint of update 51 (the last)" in said
    assert (old / "tuned" / "model" / "config.json").is_file()
    # They go on as before.
    server.run("train", "--resume", "--out", "stopped-text", cwd=str(old))
    assert (old / "stopped-text" / "model" / "config.json").is_file()
