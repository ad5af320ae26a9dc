"""Stopped anywhere and resumed: the same bits as never stopped."""

import json
import os
import random
import shlex
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from macaron.seal import seal
from sealing import unseal

# Everything that a run carries along: dropout, accumulation, running mean, averaging, best, patience, clipping, BLEU.
ALL = [
    *("--set", "train.ema=0.9", "--set", "train.average=3", "--set", "train.patience=20"),
    *("--set", "train.clip_norm=1.0", "--set", "train.bleu_sentences=2", "--set", "model.dropout=0.2"),
]


@pytest.fixture(scope="module")
def whole(recipe: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    server.run("train", recipe, "--out", run, *ALL)
    return run


def test_the_run_itself(whole: Path, metrics: Any):
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["update"] == 31
    assert set(summary["candidates"]) <= {"last", "best", "average of 3", "running mean"}
    assert {"last", "average of 3", "running mean"} <= set(summary["candidates"])
    assert summary["final_model"] == min(summary["candidates"], key=summary["candidates"].get)
    # Checkpoints at 8, 16, 24 and at the end; three are averaged. The epoch ends in between.
    kept = sorted(path.name for path in (whole / "checkpoints").iterdir() if path.name.startswith("update"))
    assert kept == ["update-00000016", "update-00000024", "update-00000031"]
    state = json.loads((whole / "checkpoints" / kept[-1] / "state.json").read_text())
    assert state["progress"]["epoch"] > 1
    assert state["progress"]["batch"] > 0
    records = metrics(whole)
    assert [r["update"] for r in records if "valid_loss" in r] == [10, 20, 30, 31]
    assert all("valid_sacrebleu" in r for r in records if "valid_loss" in r)
    # A line of the log is of as many updates as any other, whatever the epochs.
    assert [r["update"] for r in records if "targets" in r] == [7, 14, 21, 28]
    assert {"epoch", "loss", "nll", "learning_rate", "gradient_norm"} <= set(records[0])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_by_a_signal(number: int, recipe: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path):
    run = tmp_path / "a run's folder"
    command = server.start("train", recipe, "--out", run, *ALL)
    command.until(run / "metrics.jsonl", 2)
    command.send(number)
    command.send(number)  # as torchrun and timeout do
    assert command.wait() == 128 + number
    assert not (run / "model").exists()
    # What it says continues the run: the folder is enough.
    said = shlex.split(command.text.partition("; continue with: ")[2])
    assert said == ["macaron", "train", "--resume", "--out", str(run)]
    server.run(*said[1:])
    same_run(whole, run)
    # What the first start ran on is still there.
    first, second = json.loads((run / "environment.json").read_text())
    assert (first["update"], "--resume" in first["command"]) == (0, False)
    assert 0 < second["update"] < 31
    assert "--resume" in second["command"]
    assert first["packages"] == second["packages"]


def test_killed_at_random_moments(recipe: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path):
    """Whatever the moment, and however often: writing a checkpoint, validating, finishing."""
    run, generator = tmp_path / "run", random.Random(3)
    for attempt in range(12):
        command = server.start("train", recipe, "--out", run, *ALL, "--resume")
        time.sleep(generator.uniform(0.1, 0.5))
        command.send(signal.SIGKILL)
        assert command.wait() in (0, -signal.SIGKILL), (attempt, command.text)
    server.run("train", recipe, "--out", run, *ALL, "--resume")
    same_run(whole, run)
    assert not list(run.rglob(".*"))


CRASHES = [
    ("macaron.files._sync", 2),  # a checkpoint is half written
    ("macaron.train.checkpoint.remove", 1),  # written, the old ones not yet removed
    ("macaron.train.checkpoint.prune", 5),  # likewise, at the end
    ("macaron.train.loop.Trainer._validate", 2),
    ("macaron.train.checkpoint.candidates", 1),  # the end
    ("safetensors.torch.save_file", 1),  # the model folder is half written
]


@pytest.mark.parametrize(("place", "call"), CRASHES)
def test_killed_at_the_worst_moments(
    place: str, call: int, recipe: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path
):
    run = tmp_path / "run"
    code = server.start("train", recipe, "--out", run, *ALL, kill_at=[place, call]).wait()
    assert code == -signal.SIGKILL
    server.run("train", recipe, "--out", run, *ALL, "--resume")
    same_run(whole, run)


def test_a_finished_run_is_left_alone(recipe: Path, whole: Path, server: Any):
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in whole.rglob("*")}
    assert "is finished" in server.run("train", recipe, "--out", whole, *ALL, "--resume")
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in whole.rglob("*")} == before


def test_a_longer_run_is_as_if_it_had_been_longer_from_the_start(
    recipe: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path
):
    run = tmp_path / "run"
    for updates in (5, 19, 31):
        server.run("train", recipe, "--out", run, *ALL, "--set", f"train.max_updates={updates}", "--resume")
    same_run(whole, run)


def test_a_schedule_that_ends_with_the_run_cannot_be_given_another_end(recipe: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    cosine = ("--set", "train.schedule=cosine", "--set", "train.max_updates=4")
    server.run("train", recipe, "--out", run, *cosine)
    text = server.run("train", recipe, "--out", run, "--set", "train.schedule=cosine", "--resume", code=1)
    assert "train.max_updates was 4, is 31" in text
    assert "cosine" in text


def test_another_recipe_is_refused(recipe: Path, whole: Path, server: Any):
    text = server.run(
        "train",
        recipe,
        "--out",
        whole,
        *ALL,
        "--resume",
        "--set",
        "train.learning_rate=0.1",
        "--set",
        "model.encoder_layers=2",
        code=1,
    )
    assert "train.learning_rate was 0.003, is 0.1" in text
    assert "model.encoder_layers was 1, is 2" in text


def test_other_data_are_refused(recipe: Path, toy: Path, whole: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    unseal(run)
    (run / "summary.json").unlink()
    text = server.run("train", recipe, "--out", run, *ALL, "--resume", "--set", "train.batching=pack", code=1)
    assert "train.batching was 'auto'" in text
    state = max((run / "checkpoints").glob("update-*")) / "state.json"
    state.write_text(state.read_text().replace('"training data": "', '"training data": "0'))
    text = server.run("train", recipe, "--out", run, *ALL, "--resume", code=1)
    assert "was trained on something else: training data was" in text
    # The same data in another place are the same.
    shutil.copytree(toy, tmp_path / "moved")
    state.write_text(state.read_text().replace('"training data": "0', '"training data": "'))
    server.run("train", recipe, "--out", run, *ALL, "--resume", "--set", f"data.out={tmp_path / 'moved'}")


def test_other_tokens_of_the_same_lengths_are_refused(
    recipe: Path, toy: Path, whole: Path, server: Any, tmp_path: Path
):
    run, other = tmp_path / "run", tmp_path / "other"
    shutil.copytree(whole, run)
    (run / "summary.json").unlink()
    shutil.copytree(toy, other)
    store = bytearray((other / "train.tgt.ids").read_bytes())
    first = next(i for i in range(0, len(store), 2) if store[i : i + 2] != store[:2])
    store[:2], store[first : first + 2] = store[first : first + 2], store[:2]
    (other / "train.tgt.ids").write_bytes(store)
    seal(other)
    arguments = ("train", recipe, "--out", run, *ALL, "--resume", "--set", f"data.out={other}")
    assert "was trained on something else: training data was" in server.run(*arguments, code=1)


def test_a_checkpoint_of_another_format_is_refused(recipe: Path, whole: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "summary.json").unlink()
    for path in (run / "checkpoints").glob("*/state.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "format": 3}))
    unseal(run)
    text = server.run("train", recipe, "--out", run, *ALL, "--resume", code=1)
    assert "a checkpoint of format 3, this version reads 4. Resume with the version that wrote it" in text


def test_nothing_to_resume_starts_afresh_and_a_full_folder_is_refused(
    recipe: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path
):
    text = server.run("train", recipe, "--out", whole, *ALL, code=1)
    assert "is not empty: continue with --resume, or give another --out" in text
    run = tmp_path / "run"
    leftover = run / "checkpoints" / ".update-00000008.partial"
    leftover.mkdir(parents=True)
    (leftover / "weights.safetensors").write_bytes(b"half")
    (run / "metrics.jsonl").write_text('{"update": 7, "loss": 1.0}\n{"upda')
    server.run("train", recipe, "--out", run, *ALL, "--resume")
    assert not leftover.exists()
    same_run(whole, run)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: os.truncate(folder / "weights.safetensors", 1000), "not a complete checkpoint"),
        (lambda folder: os.truncate(folder / "optimiser.safetensors", 5), "not a complete checkpoint"),
        (lambda folder: (folder / "optimiser.safetensors").unlink(), "not a complete checkpoint"),
        (lambda folder: (folder / "state.json").write_text("{"), "state.json: not valid JSON"),
        (lambda folder: (folder / "state.json").write_text("[]"), "must be a section"),
        (lambda folder: (folder / "state.json").write_text('{"format": 99}'), "format 99"),
    ],
)
def test_a_damaged_checkpoint(damage: Any, words: str, recipe: Path, whole: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "summary.json").unlink()
    last = run / "checkpoints" / "update-00000031"
    unseal(last)
    damage(last)
    text = server.run("train", recipe, "--out", run, *ALL, "--resume", code=1)
    assert str(last) in text
    assert words in text
    assert "Traceback" not in text
    assert f"Remove {last}: the run is then resumed from update-00000024" in text or "another --out" in text


def test_a_batch_beyond_the_epoch(recipe: Path, whole: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints" / "update-00000031")
    last = run / "checkpoints" / "update-00000024"
    unseal(last)
    content = json.loads((last / "state.json").read_text())
    content["progress"] |= {"batch": 10**11, "batches": 10**12}
    (last / "state.json").write_text(json.dumps(content))
    text = server.run("train", recipe, "--out", run, *ALL, "--resume", code=1)
    assert f"{last}: progress.batch must be below" in text
    assert "the recipe has other batches (train.batch_tokens), or it is damaged. Start a new run" in text


def test_a_flipped_bit_in_a_checkpoint(recipe: Path, whole: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "summary.json").unlink()
    last = run / "checkpoints" / "update-00000031"
    for name, place in (("weights.safetensors", -50), ("optimiser.safetensors", -50), ("state.json", 40)):
        good = (last / name).read_bytes()
        damaged = bytearray(good)
        damaged[place] ^= 4
        (last / name).write_bytes(damaged)
        text = server.run("train", recipe, "--out", run, *ALL, "--resume", code=1)
        assert f"{last / name}: damaged (changed since it was written" in text
        assert f"Remove {last}: the run is then resumed from update-00000024." in text
        (last / name).write_bytes(good)
    # The same folder as a model: what it is loaded from is verified.
    shutil.rmtree(run / "model")
    text = server.run("verify", run)
    assert f"{last}: " in text
    best = max((run / "checkpoints").glob("best-*"))
    (best / "tokenizer.json").write_text((best / "tokenizer.json").read_text() + " ")
    text = server.run("translate", run, "--device", "cpu", code=1)
    assert f"{best / 'tokenizer.json'}: damaged" in text


def test_the_remedy_for_a_damaged_checkpoint_works(
    recipe: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path
):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints" / "update-00000031")
    server.run("train", recipe, "--out", run, *ALL, "--resume")
    # The oldest checkpoint that the average needs is still there: the run that went on ends in the same bits.
    same_run(whole, run)


def test_the_best_weights_before_an_older_checkpoint_are_gone(recipe: Path, whole: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "summary.json").unlink()
    shutil.rmtree(run / "checkpoints" / "update-00000031")
    # No validation comes before this end, so nothing takes their place.
    text = server.run("train", recipe, "--out", run, *ALL, "--resume", "--set", "train.max_updates=25")
    assert "best-00000020 is missing: the best weights will be chosen among those to come" in text
    assert "best" not in json.loads((run / "summary.json").read_text())["candidates"]


def test_a_foreign_checkpoint(recipe: Path, whole: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    (run / "recipe.toml").unlink()
    (run / "summary.json").unlink()
    text = server.run("train", recipe, "--out", run, *ALL, "--resume", "--set", "model.hidden_size=16", code=1)
    assert "update-00000031: another model's" in text
