"""Runs that are fitted to their minutes, and what is said of a run before its first update."""

import json
import re
import tomllib
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.recipe import load_recipe
from macaron.tasks.run import pace_of, run
from macaron.train import pace, stopping
from macaron.train.loop import Trainer
from macaron.train.pace import FEW, PLANNED, WARM_UP_SHARE, Pace, fitted
from macaron.train.settings import TrainSettings

MINUTES = ("--set", "train.max_updates=", "--set", "train.schedule=cosine", "--minutes", "0.1")


def settings_of(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((out / "recipe.toml").read_text())["train"]
    return found


@given(st.floats(0.5, 1000), st.floats(1e-3, 60), st.floats(1e-3, 60), st.integers(0, 10_000), st.floats(0, 20))
def test_a_fitted_run_ends_in_time_and_has_left_its_warm_up(
    minutes: float, update: float, validation: float, warmup: int, elapsed: float
):
    settings = TrainSettings(max_minutes=minutes, warmup=warmup, schedule="cosine")
    new = fitted(settings, Pace(update, validation, 100), elapsed, ())
    updates = new.max_updates or 0
    assert updates >= 1
    assert new.warmup <= min(warmup, max(1, round(WARM_UP_SHARE * updates)))
    assert new.max_minutes == minutes  # still the cap
    if updates > 1:
        validations = -(-updates // new.validate_every)
        assert updates * update + validations * validation <= PLANNED * (60 * minutes - elapsed) + 1e-6


def test_what_the_user_has_set_stays_but_for_a_warm_up_that_is_too_long():
    settings = TrainSettings(max_minutes=10, warmup=8000, validate_every=7, log_every=3)
    new = fitted(settings, Pace(0.1, 1.0, 100), 0.0, {"warmup", "validate_every", "log_every"})
    assert (new.validate_every, new.log_every) == (7, 3)
    assert new.warmup == round((new.max_updates or 0) / 10)
    assert fitted(TrainSettings(max_minutes=10, warmup=5), Pace(0.1, 1.0, 100), 0.0, ()).warmup == 5


def test_a_trial_changes_nothing(recipe: Path, same_run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings = ["train.ema=0.9", "train.clip_norm=1.0"]
    run(load_recipe(recipe, settings), tmp_path / "plain", False)
    measured: list[Pace] = []
    monkeypatch.setattr("macaron.tasks.run.fit", lambda trainer, *_: measured.append(pace.measure(trainer, 0.3)))
    run(load_recipe(recipe, settings), tmp_path / "measured", False)
    assert len(measured) == 1
    assert measured[0].update > 0
    assert measured[0].validation > 0
    same_run(tmp_path / "plain", tmp_path / "measured")


def test_pace_without_a_run(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = pace_of(load_recipe(recipe), 0.2)
    assert min(found.update, found.validation) > 0
    assert found.epoch >= 1
    assert not list(tmp_path.glob("checkpoints"))


def test_minutes_fit_the_run_and_a_resumed_run_uses_the_same_numbers(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """With a clock of which thirty milliseconds are over whenever it is looked at: every machine is equally fast."""
    out, calls = tmp_path / "run", count()
    monkeypatch.setattr(Trainer, "elapsed", lambda _: 0.03 * next(calls))
    changes = ["train.max_updates=", "train.schedule=cosine", "train.max_minutes=0.1", "train.warmup=100000"]
    chosen = load_recipe(recipe, changes)
    run(chosen, out, False)
    said, stored = capfd.readouterr().err, settings_of(out)
    updates = json.loads((out / "summary.json").read_text())["update"]
    planned = stored["max_updates"]
    assert 20 < 0.8 * planned <= updates <= planned  # validating and saving also look at the clock
    assert f"Fitted to 0.1 minutes: {planned:,} updates" in said
    assert ("are too few to learn from" in said) == (planned < FEW)
    assert stored["warmup"] == round(planned / 10)
    assert stored["max_minutes"] == 0.1
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rates = [line["learning_rate"] for line in lines if "learning_rate" in line]
    assert rates[-1] < 0.05 * max(rates)  # the schedule has come to its end
    # The same command goes on with these numbers, whatever the pace is now.
    run(chosen, out, True)
    said = capfd.readouterr().err
    assert "Fitted" not in said
    assert "is finished" in said
    assert settings_of(out) == stored


def test_a_run_killed_before_its_first_checkpoint_keeps_the_fitted_numbers(recipe: Path, server: Any, tmp_path: Path):
    out = tmp_path / "run"
    server.run(
        "train", recipe, "--out", out, *MINUTES, code=-9, kill_at=["macaron.train.loop.Trainer._after_update", 2]
    )
    stored = settings_of(out)
    assert stored["max_updates"] > 0
    server.run("train", recipe, "--out", out, *MINUTES, "--resume")
    assert settings_of(out) == stored
    assert json.loads((out / "summary.json").read_text())["update"] <= stored["max_updates"]


def test_minutes_beside_another_limit_fit_nothing(recipe: Path, server: Any, tmp_path: Path):
    said = server.run("train", recipe, "--out", tmp_path / "run", "--minutes", "60")
    assert "Fitted" not in said
    assert settings_of(tmp_path / "run")["max_updates"] == 31


def test_what_is_said_before_the_first_update(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    def said(*settings: str) -> str:
        before = f"train.max_updates=3 train.log_every=100 {' '.join(settings)}".split()
        run(load_recipe(recipe, before), tmp_path / str(len(list(tmp_path.iterdir()))), False)
        return capfd.readouterr().err

    text = said("train.warmup=100")
    assert "warning: the run ends after 3 updates, inside its warm-up of 100" in text
    assert "Set train.warmup=1" in text
    assert text.index("warning") < text.index("parameters")
    assert "warning" not in said("train.warmup=1")
    monkeypatch.setattr(pace, "DAY", 1e-6)
    monkeypatch.setattr(pace, "products", lambda *_: 1e3)

    def days(*settings: str) -> int:
        found = re.search(r"3 updates take about ([\d,]+) days", said("train.warmup=1", *settings))
        assert found
        return int(found[1].replace(",", ""))

    plain = days()
    for settings, passes in (((), 2.0), (("train.consistency_from=0.5",), 1.5)):
        assert days("train.consistency=simcut", *settings) == pytest.approx(passes * plain, rel=1e-6)
    with pytest.raises(MacaronError, match="time ran out before the first update"):
        said("train.warmup=1", "train.max_minutes=1e-9")
    assert "make them the only limit: --set train.max_updates=" in capfd.readouterr().err


def test_an_estimate_comes_before_the_first_logged_line(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(stopping, "ESTIMATE_AFTER", 0.0)
    run(load_recipe(recipe, ["train.log_every=100"]), tmp_path / "run", False)
    assert "update 1: about " in (said := capfd.readouterr().err)
    assert said.count("at the pace so far") == 1


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes_agree_on_the_fitted_numbers(how: str, recipe: Path, server: Any, tmp_path: Path):
    out = tmp_path / "run"
    server.run_group(2, "train", recipe, "--out", out, *MINUTES, "--set", f"train.distributed={how}")
    stored = settings_of(out)
    assert 0 < json.loads((out / "summary.json").read_text())["update"] <= stored["max_updates"]
