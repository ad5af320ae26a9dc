"""``macaron train`` as a user meets it: what it says, how it ends, what it refuses."""

import itertools
import json
import os
import pty
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forked import macaron_text
from macaron.data.prepare import prepare
from macaron.errors import MacaronError
from macaron.recipe import data_recipe, load_recipe
from macaron.tasks.run import run

COMMAND = [sys.executable, "-m", "macaron", "train"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
RECIPE = """
[data]
out = "{data}"
[model]
preset = "macaron-tiny"
hidden_size = 16
num_attention_heads = 2
intermediate_size = 32
encoder_layers = 1
decoder_layers = 1
[train]
batch_tokens = 128
warmup = 5
max_updates = 12
log_every = 4
device = "cpu"
[decode]
beam = 1
max_length = 8
"""


def prepared(folder: Path, pairs: int, state: str = "raw", **changes: Any) -> Path:
    generator = random.Random(1)
    for name, count in (("train", pairs), ("valid", 12)):
        lines = [[str(generator.randrange(10)) for _ in range(generator.randint(2, 6))] for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    settings = {
        "source_lang": "src",
        "target_lang": "tgt",
        "out": str(folder / "prepared"),
        "root": str(folder),
        "vocab_size": 280 if state == "raw" else 40,
        "pipeline": state,
        "remove_duplicates": False,
        "remove_overlap": "none",
        "train": [{"path": "train", "state": state}],
        "valid": [{"path": "valid", "state": state}],
    }
    return prepare(data_recipe({"data": {**settings, **changes}}), workers=1).data.folder


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(data=prepared(folder, 60)))
    return path


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_plain_lines_where_nobody_watches(recipe: Path, tmp_path: Path):
    out = tmp_path / "run [1]"
    done = macaron_text("train", recipe, "--out", out, "--set", "train.tensorboard=true", "--set", "train.ema=0.5")
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "\x1b" not in done.stderr
    line = next(line for line in done.stderr.splitlines() if line.startswith("update 4 "))
    for words in ("epoch 1", "loss ", "lr 6.00e-04", "tokens/s", " left"):
        assert words in line
    assert "final model: " in done.stderr
    assert f"in {out}/model" in done.stderr
    assert {path.name for path in out.iterdir()} == {
        *("recipe.toml", "environment.json", "metrics.jsonl", "checkpoints", "model", "summary.json", "tensorboard"),
        "report.html",
    }
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    assert {"loss", "learning_rate", "tokens_per_second", "valid_loss"} <= set(events.Tags()["scalars"])
    assert events.Scalars("loss")[0].step == 4


def test_a_display_where_somebody_watches(recipe: Path, tmp_path: Path):
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, str(recipe), "--out", str(tmp_path / "run")], stdout=follower, stderr=follower, env=ENVIRONMENT
    )
    os.close(follower)
    shown = b""
    try:
        while block := os.read(leader, 65536):
            shown += block
    except OSError:  # how a terminal says that the other side is gone
        pass
    os.close(leader)
    assert process.wait() == 0
    text = shown.decode()
    assert "\x1b[" in text
    assert "valid loss" in text
    assert "final model" in text
    assert "Traceback" not in text


def test_limits(recipe: Path, tmp_path: Path):
    run(load_recipe(recipe, ["train.max_epochs=2", "train.max_updates=1000"]), tmp_path / "epochs", False)
    summary = json.loads((tmp_path / "epochs" / "summary.json").read_text())
    assert summary["epoch"] == 3
    assert summary["update"] < 1000
    # The rate of a schedule by epochs falls within epochs too, and comes to its end.
    by_epochs = tmp_path / "epochs.toml"
    by_epochs.write_text(recipe.read_text().replace("max_updates = 12", "max_epochs = 2"))
    rates = ["train.schedule=linear", "train.log_every=1", "train.warmup=0", "train.max_minutes=60"]
    run(load_recipe(by_epochs, rates), tmp_path / "linear", False)
    found = [record["learning_rate"] for record in records(tmp_path / "linear") if "learning_rate" in record]
    assert all(b < a for a, b in itertools.pairwise(found))
    assert found[-1] < 2 * found[0] / len(found)
    # A limit that lies in the past: nothing is trained, so nothing is written as a model; but it can go on.
    out = tmp_path / "time"
    with pytest.raises(MacaronError, match="before the first update: nothing is trained; raise train"):
        run(load_recipe(recipe, ["train.max_minutes=1e-9"]), out, False, started=0.0)
    assert not (out / "model").exists()
    assert not (out / "summary.json").exists()
    run(load_recipe(recipe, ["train.max_minutes=60"]), out, True)
    assert json.loads((out / "summary.json").read_text())["update"] == 12


def test_patience(recipe: Path, tmp_path: Path):
    """A rate so small that nothing is gained: the first validation is the best, two more are waited for."""
    settings = ["train.patience=2", "train.validate_every=1", "train.learning_rate=1e-30", "train.warmup=0"]
    run(load_recipe(recipe, [*settings, "train.weight_decay=0"]), tmp_path / "run", False)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["update"] == 3
    assert {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()} == {"best-00000001", "update-00000003"}


def test_kinds_of_bleu(recipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run(load_recipe(recipe, ["train.bleu_sentences=5", "train.max_updates=2"]), tmp_path / "raw", False)
    found = [record for record in records(tmp_path / "raw") if "valid_sacrebleu" in record]
    assert found
    assert all(record["bleu_sentences"] == 5 for record in found)
    assert all(record["bleu_definition"].startswith("sacreBLEU nrefs:1|case:mixed") for record in found)
    said = capsys.readouterr().err
    assert said.count("BLEU of the first 5 validation sentences: sacreBLEU nrefs:1|case:mixed") == 1
    (tmp_path / "moses.toml").write_text(RECIPE.format(data=prepared(tmp_path, 60, "moses")))
    run(load_recipe(tmp_path / "moses.toml", ["train.bleu_sentences=5"]), tmp_path / "moses", False)
    found = [record for record in records(tmp_path / "moses") if "valid_tokenised_bleu" in record]
    assert found
    # The pipeline lower-cases, though decode.lower is not set.
    definition = "tokenised BLEU (case-insensitive, moses tokens as given, compound-split no)"
    assert {record["bleu_definition"] for record in found} == {definition}
    assert not any(
        "bleu" in key and key.startswith("valid_bleu") for each in records(tmp_path / "moses") for key in each
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["train.max_length=2"], "all 60 training pairs are longer than train.max_length = 2 tokens"),
        (["train.row_tokens=2", "train.batching=pack"], "longer than train.row_tokens = 2 tokens"),
        (["data.out=nowhere"], "nowhere/prepared.json: no such file"),
        (["model.vocab_size=20"], "model.vocab_size 20 is less than the data's 272"),
        (["model.preset=bert-tiny"], "holds data for translation, but the recipe"),
        (["train.device=cuda"], "no GPU"),
    ],
)
def test_refusals(settings: list[str], message: str, recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    if "model.preset=bert-tiny" in settings:
        text = recipe.read_text()
        recipe = tmp_path / "recipe.toml"
        recipe.write_text(text[: text.index("[model]")] + "[train]\nmax_updates = 1\n")
    with pytest.raises(MacaronError, match=message):
        run(load_recipe(recipe, settings), tmp_path / "run", False)
    assert not (tmp_path / "run").exists()


def test_empty_and_missing_data(recipe: Path, tmp_path: Path):
    (tmp_path / "valid").mkdir()
    data = prepared(tmp_path / "valid", 60, valid=[], valid_every=0)
    with pytest.raises(MacaronError, match="no validation data; prepare it with --valid"):
        run(load_recipe(recipe, [f"data.out={data}"]), tmp_path / "run", False)


def test_a_folder_that_cannot_be_written(recipe: Path, tmp_path: Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(MacaronError, match="file is a file: give a folder"):
        run(load_recipe(recipe, []), tmp_path / "file", False)
    with pytest.raises(MacaronError, match=r"file/run cannot be written: Not a directory\. Choose another path"):
        run(load_recipe(recipe, []), tmp_path / "file" / "run", False)


def test_a_run_is_continued_by_its_folder_alone(recipe: Path, tmp_path: Path):
    out = tmp_path / "run"
    missing = macaron_text("train", "--resume", "--out", out)
    assert (missing.returncode, out.exists()) == (1, False)
    assert f"{out}: no run to continue, there is no {out / 'recipe.toml'}" in missing.stderr
    assert macaron_text("train", "--out", out).returncode == 2
    done = macaron_text("train", recipe, "--resume", "--out", out, "--set", "train.max_updates=4")
    assert done.returncode == 0, done.stderr
    assert f"{out}: no run to continue, so a new one starts" in done.stderr
    done = macaron_text("train", "--resume", "--out", out, "--set", "train.max_updates=6")
    assert done.returncode == 0, done.stderr
    assert "resumed at update 4" in done.stderr
    assert json.loads((out / "summary.json").read_text())["update"] == 6
    refused = macaron_text("train", "--resume", "--out", out, "--set", "train.warmup=7")
    assert refused.returncode == 1
    assert "train.warmup was 5, is 7" in refused.stderr
    # Finished: nothing is trained, and the limit that was set is the run's own. A kill may have come before the report.
    (out / "report.html").unlink()
    assert "is finished" in macaron_text("train", "--resume", "--out", out).stderr
    assert (out / "report.html").is_file()
