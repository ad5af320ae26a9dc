"""What ends a run, and what only stops it: the schedule's length is the first limit given."""

import json
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from macaron.recipe import load_recipe
from macaron.tasks.run import run
from macaron.train import stopping
from macaron.train.checkpoint import RunState
from macaron.train.loop import Trainer
from macaron.train.settings import TrainSettings

HALF_AN_EPOCH = RunState(update=30, epoch=2, batch=5, batches=10)  # after one and a half
COSINE = ("--set", "train.schedule=cosine")


@pytest.mark.parametrize(
    ("given", "scheduled", "done"),
    [
        ({"max_updates": 100}, 0.3, 0.3),
        ({"max_epochs": 3}, 0.5, 0.5),
        ({"max_minutes": 10}, 0.8, 0.8),
        ({"max_minutes": 10, "max_updates": 100}, 0.3, 0.8),
        ({"max_epochs": 3, "max_minutes": 10}, 0.5, 0.8),
        ({"max_epochs": 3, "max_updates": 100}, 0.3, 0.5),
        ({"max_minutes": 4, "max_updates": 100}, 0.3, 1.0),
        ({"max_updates": 20, "max_epochs": 3}, 1.0, 1.0),
    ],
)
def test_the_first_limit_is_the_length_and_any_ends_the_run(given: dict[str, Any], scheduled: float, done: float):
    settings = TrainSettings(**given)
    shares = stopping.shares(settings, HALF_AN_EPOCH, 480.0)
    assert (shares[0], max(shares)) == pytest.approx((scheduled, done))
    assert stopping.over(settings, HALF_AN_EPOCH, 480.0) == (done == 1.0)


@pytest.mark.parametrize(
    ("given", "ended"),
    [
        ({"max_updates": 30}, None),
        ({"max_minutes": 8, "max_updates": 30}, None),
        ({"max_minutes": 8}, None),
        (
            {"max_minutes": 8, "max_updates": 1200},
            "train.max_minutes = 8 has ended the run at 2 % of train.max_updates = 1,200",
        ),
        (
            {"max_epochs": 1, "max_updates": 60},
            "train.max_epochs = 1 has ended the run at 50 % of train.max_updates = 60",
        ),
        ({"max_epochs": 2, "patience": 4}, "train.patience = 4 has ended the run at 75 % of train.max_epochs = 2"),
    ],
)
def test_a_run_that_ends_early_says_why(given: dict[str, Any], ended: str | None):
    state = replace(HALF_AN_EPOCH, validations_without_gain=4)
    found = stopping.early_end(TrainSettings(**given), state, 480.0, "macaron train --resume --out run")
    key = ended and ended.split()[0]
    assert found == (ended and f"{ended}. To go on, raise it: macaron train --resume --out run --set {key}=N")


@pytest.mark.parametrize(
    ("given", "fixed"),
    [
        ({"max_updates": 9, "max_minutes": 1.0}, ("max_updates",)),
        ({"max_epochs": 9, "max_minutes": 1.0}, ("max_updates", "max_epochs")),
        ({"max_minutes": 1.0}, ("max_updates", "max_epochs", "max_minutes")),
    ],
)
def test_which_limits_a_schedule_is_bound_to(given: dict[str, Any], fixed: tuple[str, ...]):
    for schedule in ("linear", "cosine"):
        assert TrainSettings(**given, schedule=schedule).fixed_limits == fixed
    for schedule in ("constant", "inverse-sqrt"):
        assert TrainSettings(**given, schedule=schedule).fixed_limits == ()


@pytest.mark.parametrize("schedule", [pytest.param("linear", marks=pytest.mark.slow), "cosine"])
def test_a_cap_that_does_not_stop_the_run_changes_nothing(schedule: str, recipe: Path, same_run: Any, tmp_path: Path):
    """Most of the cap's time is over when the run begins, as on a machine that is very slow at first."""
    settings = [f"train.schedule={schedule}", "train.max_updates=24"]
    run(load_recipe(recipe, settings), tmp_path / "free", False)
    capped = load_recipe(recipe, [*settings, "train.max_minutes=60"])
    run(capped, tmp_path / "capped", False, started=time.monotonic() - 50 * 60)
    same_run(tmp_path / "free", tmp_path / "capped")


def test_a_run_that_the_cap_has_stopped_goes_on_as_if_it_had_not(
    recipe: Path,
    server: Any,
    same_run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
):
    settings = (*COSINE, "--set", "train.max_updates=60", "--set", "train.ema=0.9")
    assert "has ended" not in server.run("train", recipe, "--out", tmp_path / "whole", *settings)
    out = tmp_path / "run"
    calls = count()
    with monkeypatch.context() as patch:  # a clock of which a second is over whenever it is looked at
        patch.setattr(Trainer, "elapsed", lambda _: float(next(calls)))
        run(load_recipe(recipe, [*settings[1::2], "train.max_minutes=0.5"]), out, False)
    assert 0 < json.loads((out / "summary.json").read_text())["update"] < 60
    assert "train.max_minutes = 0.5 has ended the run at" in (said := capfd.readouterr().err)
    assert said.index("has ended") < said.index("final model")
    server.run("train", recipe, "--out", out, *settings, "--set", "train.max_minutes=60", "--resume")
    same_run(tmp_path / "whole", out)


def test_another_length_of_the_schedule_is_refused(recipe: Path, server: Any, tmp_path: Path):
    out, text = tmp_path / "run", recipe.read_text()
    by_epochs = tmp_path / "epochs.toml"
    by_epochs.write_text(text.replace("max_updates = 31", "max_epochs = 1"))
    server.run("train", by_epochs, "--out", out, *COSINE)
    for more, was in (("max_epochs=2", "max_epochs was 1, is 2"), ("max_updates=40", "max_updates was None, is 40")):
        arguments = (*COSINE, "--set", f"train.{more}", "--resume")
        assert f"train.{was}" in server.run("train", by_epochs, "--out", out, *arguments, code=1)
    # A cap is no length: it may come and go.
    server.run("train", by_epochs, "--out", out, *COSINE, "--set", "train.max_minutes=60", "--resume")
