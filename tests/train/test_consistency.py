"""A consistency loss through the real command: it begins in the middle of a run, which repeats as any other does."""

import signal
from pathlib import Path
from typing import Any

import pytest

from macaron.json_files import Record, read_json
from macaron.recipe import load_recipe
from macaron.settings import load_toml
from macaron.tasks.translation import TranslationTask
from macaron.train import pace
from macaron.train.distributed import Processes
from macaron.train.loop import Trainer

BEGINS = 13  # of 31 updates
SIMCUT = [
    *("--set", "train.consistency=simcut", "--set", "train.consistency_from=0.4", "--set", "train.cut=0.2"),
    *("--set", "model.dropout=0.2", "--set", "train.ema=0.9", "--set", "train.log_every=1"),
    *("--set", "train.epsilon=1e-3"),  # processes add in another order, which Adam would amplify
]
PACKED = ["--set", "train.batching=pack", "--set", "train.row_tokens=24"]


@pytest.fixture(scope="module")
def whole(recipe: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    server.run("train", recipe, "--out", run, *SIMCUT)
    return run


def test_it_begins_where_it_should_and_is_logged(whole: Path, metrics: Any):
    logged = {record["update"]: record["divergence"] for record in metrics(whole) if "divergence" in record}
    assert list(logged) == list(range(1, 32))
    assert [update for update, value in logged.items() if value] == list(range(BEGINS + 1, 32))
    validated = [record for record in metrics(whole) if "valid_loss" in record]
    assert validated
    assert not any("valid_divergence" in record for record in validated)
    assert "KL per token (nats)" in (whole / "report.html").read_text()
    candidates = read_json(whole / "summary.json", Record)["candidates"]
    assert candidates["last"] == next(record["valid_loss"] for record in validated if record["update"] == 31)


# Killed before it begins, and resumed there; killed after it has begun, and resumed before or after.
@pytest.mark.parametrize("update", [11, 15, 20])
def test_resumed(update: int, recipe: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path):
    run = tmp_path / "run"
    place = ["macaron.train.optimiser.Optimiser.step", update]
    assert server.start("train", recipe, "--out", run, *SIMCUT, kill_at=place).wait() == -signal.SIGKILL
    server.run("train", recipe, "--out", run, *SIMCUT, "--resume")
    same_run(whole, run)


def close(one: Path, other: Path, metrics: Any) -> None:
    losses = [
        [(record["loss"], record["divergence"]) for record in metrics(run) if "loss" in record] for run in (one, other)
    ]
    assert len(losses[0]) == 31
    for ours, theirs in zip(*losses, strict=True):
        assert ours == pytest.approx(theirs, abs=1e-5)


@pytest.mark.parametrize("how", [[], ["--set", "train.distributed=fsdp"]], ids=["ddp", "fsdp"])
def test_two_processes(how: list[str], recipe: Path, whole: Path, server: Any, metrics: Any, tmp_path: Path):
    server.run_group(2, "train", recipe, "--out", tmp_path / "run", *SIMCUT, *how)
    close(whole, tmp_path / "run", metrics)


def test_recorded_steps_are_recorded_again(recipe: Path, server: Any, metrics: Any, tmp_path: Path):
    """Without the consistency loss and with it, alone and in two processes."""
    given = ("train", recipe, *SIMCUT, *PACKED, "--out")
    server.run(*given, tmp_path / "plain")
    server.run(*given, tmp_path / "recorded", recorded="yes")
    close(tmp_path / "plain", tmp_path / "recorded", metrics)
    text = server.run_group(2, *given, tmp_path / "two", recorded="yes")
    assert "summed during the backward pass" in text
    close(tmp_path / "plain", tmp_path / "two", metrics)


def test_another_length_would_move_its_beginning(recipe: Path, whole: Path, server: Any):
    text = server.run("train", recipe, "--out", whole, *SIMCUT, "--set", "train.max_updates=40", "--resume", code=1)
    assert "train.max_updates was 31, is 40. It decides when train.consistency begins. Use" in text


def test_a_run_fitted_to_its_minutes(recipe: Path, server: Any, metrics: Any, tmp_path: Path):
    run = tmp_path / "run"
    limits = ("--set", "train.max_updates=", "--set", "train.max_minutes=0.05")
    # Early: where other programs take the processor, the time may be over before the planned updates are.
    early = ("--set", "train.consistency_from=0.1")
    server.run("train", recipe, "--out", run, *SIMCUT, *limits, *early)
    planned = load_toml(run / "recipe.toml")[0]["train"]["max_updates"]
    found = [record["divergence"] > 0 for record in metrics(run) if "divergence" in record]
    assert found == [number / planned >= 0.1 for number in range(len(found))]
    assert True in found


def test_a_trial_has_updates_of_both_kinds(recipe: Path, tmp_path: Path):
    """In the proportion that they will have in the run."""
    loaded, seen = load_recipe(recipe, ["train.consistency=simcut", "train.consistency_from=0.75"]), []
    task = TranslationTask(loaded)

    def note(module: Any, given: Any) -> None:
        if module.training:
            seen.append(given[0].consistent)

    task.module.register_forward_pre_hook(note)
    pace.measure(Trainer(task, loaded.train, tmp_path, Processes()), 0.5)
    updates = len(seen) / 2
    assert abs(sum(seen) / len(seen) - 0.25) < 5 / updates


def test_r_drop_without_dropout(recipe: Path, server: Any, tmp_path: Path):
    still = [part for name in ("", "attention_", "activation_") for part in ("--set", f"model.{name}dropout=0")]
    given = ("train", recipe, "--out", tmp_path / "run", *still, "--set", "train.consistency=r-drop")
    assert "compares two copies with different dropout, and this model has none" in server.run(*given, code=1)
    server.run(*given, "--set", "train.word_dropout=0.1", "--set", "train.max_updates=3")
