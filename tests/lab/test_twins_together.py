"""Twins that differ in any setting, and several of them trained at a time, through the real command."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from macaron.errors import UsageError
from macaron.lab.compare.comparison import compare
from macaron.lab.twins import NUMBERS, PAGE, make_twins
from macaron.recipe import Recipe, load_recipe

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "macaron", *map(str, arguments)]


def processes_of(folder: Path) -> dict[int, str]:
    """The commands of all processes that name a folder."""
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:  # it has ended meanwhile
            continue
        if str(folder) in text:
            found[int(path.parent.name)] = text
    return found


def same(one: Path, other: Path) -> bool:
    ours, theirs = (load_file(run / "model" / "model.safetensors") for run in (one, other))
    return ours.keys() == theirs.keys() and all(tensor.equal(theirs[key]) for key, tensor in ours.items())


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two schemes with two rates, one run after the other: the set and what was printed."""
    out = tmp_path_factory.mktemp("twins") / "alone"
    arguments = command(*varied(recipe), "--out", out)  # on one thread, as several at a time
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


def varied(recipe: Path) -> list[object]:
    return ["twins", recipe, "--schemes", "lie-fg,sws", "--vary", "train.learning_rate=0.01,3e-3"]


RUNS = [f"{scheme}-learning_rate={rate}-seed1" for rate in ("0.01", "3e-3") for scheme in ("lie-fg", "sws")]


def test_a_setting_is_varied_on_purpose(alone: tuple[Path, str]):
    out, said = alone
    found = json.loads((out / NUMBERS).read_text())
    labels = [kind["label"] for kind in found["kinds"]]
    assert labels == [f"{s}, learning_rate={rate}" for rate in ("0.01", "3e-3") for s in ("lie-fg", "sws")]
    assert [Path(run["folder"]).name for kind in found["kinds"] for run in kind["runs"]] == RUNS
    assert all(pair["fairness"]["fair"] for pair in found["comparisons"])
    assert "varied on purpose (--vary): train.learning_rate" in found["comparisons"][1]["fairness"]["cautions"]
    assert "varied on purpose (--vary): train.learning_rate" in (out / PAGE).read_text()
    assert said.splitlines()[0] == found["verdict"]
    rates = [load_recipe(out / name / "recipe.toml").train.learning_rate for name in RUNS]
    assert rates == [0.01, 0.01, 0.003, 0.003]


def test_at_a_time_they_are_those_of_one_after_the_other(recipe: Path, alone: tuple[Path, str], tmp_path: Path):
    out = tmp_path / "set"
    arguments = command(*varied(recipe), "--jobs", 3, "--out", out)
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.replace(str(out), "") == alone[1].replace(str(alone[0]), "")
    assert all(same(alone[0] / name, out / name) for name in RUNS)
    for name in ("lie-fg, learning_rate=0.01, seed 1", "sws, learning_rate=3e-3, seed 1"):
        assert re.search(rf"^{name}: .*final model", done.stderr, re.MULTILINE), done.stderr
    # Finished runs are not begun again.
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/model/*")}
    again = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)
    assert again.stdout == done.stdout
    assert "4 of 4 runs are finished" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    # Another recipe in the same folders would be other twins.
    other = subprocess.run([*arguments, "--set", "train.warmup=3"], capture_output=True, text=True, check=False)
    assert other.returncode == 1
    assert "was started with another recipe" in other.stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_stopped_they_leave_nothing_running_and_go_on_exactly(number: signal.Signals, recipe: Path, tmp_path: Path):
    arguments = ["twins", recipe, "--vary", "train.label_smoothing=0.0,0.1", "--set", "train.checkpoint_every=5"]
    arguments += ["--budget", "200"]
    out = tmp_path / "set"
    environment = ENVIRONMENT | {"CUDA_VISIBLE_DEVICES": "3,5"}
    started = command(*arguments, "--jobs", 2, "--out", out)
    process = subprocess.Popen(started, stderr=subprocess.PIPE, text=True, env=environment)
    deadline = time.monotonic() + 120
    seen: set[str] = set()  # GPUs, by turns
    while not list(out.glob("*/checkpoints/update-*")) or len(seen) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        for pid in (pid for pid, text in processes_of(out).items() if " train " in text):
            with suppress(OSError):
                seen.update(re.findall(r"CUDA_VISIBLE_DEVICES=(\w+)\0", Path(f"/proc/{pid}/environ").read_text()))
        time.sleep(0.01)
    process.send_signal(number)
    assert process.stderr is not None
    text = process.stderr.read()
    assert process.wait() == 128 + number, text
    assert seen == {"3", "5"}
    assert not processes_of(out)
    assert "Traceback" not in text
    assert re.search(r"macaron: stopped while training 2 runs at a time.* Continue with: .*--jobs 2 --out", text)
    for update, name in re.findall(r"macaron: stopped at update ([\d,]+);.*/(\S+)$", text, re.MULTILINE):
        *_, last = sorted(path.name for path in out.glob(f"{name}/checkpoints/update-*"))
        assert int(last.removeprefix("update-")) == int(update.replace(",", ""))
    assert subprocess.run(command(*arguments, "--jobs", 2, "--out", out), env=ENVIRONMENT, check=False).returncode == 0
    whole = tmp_path / "whole"
    assert subprocess.run(command(*arguments, "--out", whole), env=ENVIRONMENT, check=False).returncode == 0
    names = [f"label_smoothing={value}-seed1" for value in ("0.0", "0.1")]
    assert all(same(whole / name, out / name) for name in names)


def test_one_fails_and_the_others_are_kept(recipe: Path, tmp_path: Path):
    out = tmp_path / "set"
    (out / "learning_rate=0.01-seed1").mkdir(parents=True)
    (out / "learning_rate=0.01-seed1" / "checkpoints").write_text("in the way")
    arguments = command("twins", recipe, "--vary", "train.learning_rate=0.01,0.02", "--jobs", 2, "--out", out)
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "macaron: 1 of 2 runs failed, the others are kept:\nlearning_rate=0.01, seed 1: " in done.stderr
    assert (out / "learning_rate=0.02-seed1" / "model" / "config.json").is_file()
    (out / "learning_rate=0.01-seed1" / "checkpoints").unlink()
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "1 of 2 runs are finished" in done.stderr


def test_settings_are_varied_for_models_that_start_from_one(
    recipe: Path, alone: tuple[Path, str], tmp_path: Path, macaron: Callable[..., Any]
):
    source, out, path = alone[0] / RUNS[0], tmp_path / "set", tmp_path / "recipe.toml"
    path.write_text(re.sub(r"(?s)\[model\].*\[train\]", f'[model]\nfrom = "{source}"\n[train]', recipe.read_text()))
    arguments = ["twins", path, "--vary", "train.label_smoothing=0.0,0.1", "--jobs", 2, "--out", out]
    done = macaron(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"seed 1: starts from {source} (") == 2
    first, other = (json.loads((run / "model" / "config.json").read_text()) for run in (source, *out.glob("*0.1-*")))
    assert first["scheme"] == other["scheme"] == "lie-fg"
    assert "2 of 2 runs are finished" in macaron(*arguments).stderr
    refused = macaron(*arguments, "--schemes", "lie-fg,sws")
    assert "model.from: twins differ in their schemes" in refused.stderr


def test_a_failure_in_training_and_a_killed_run_say_so(recipe: Path, tmp_path: Path):
    out = tmp_path / "set"
    arguments = ["twins", recipe, "--vary", "train.learning_rate=1e9,0.01", "--set", "train.warmup=1", "--jobs", 2]
    arguments = command(*arguments, "--budget", 2000, "--out", out)
    process = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    deadline = time.monotonic() + 120
    while not list(out.glob("learning_rate=0.01-seed1/checkpoints/update-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (trained,) = (pid for pid, text in processes_of(out).items() if " train " in text and "=0.01-seed1 " in text)
    os.kill(trained, signal.SIGKILL)
    assert process.stderr is not None
    *_, text = process.stderr.read().partition("macaron: 2 of 2 runs failed, the others are kept:\n")
    assert process.wait() == 1
    # The recipe that the run was started with was a temporary file: it is not named.
    assert re.search(r"^learning_rate=1e9, seed 1: the loss is not finite at or before update \d", text, re.MULTILINE)
    assert re.search(r"^learning_rate=0\.01, seed 1: killed by SIGKILL$", text, re.MULTILINE)
    assert not processes_of(out)


def test_a_table_of_runs_of_several_times(recipe: Path, tmp_path: Path):
    """Kinds are found by what was varied, whichever command has trained a run."""

    def train(seeds: int, *values: str) -> None:
        variants = [({"model.dropout": value}, load_recipe(recipe, [f"model.dropout={value}"])) for value in values]
        plan = make_twins(load_recipe(recipe), [], seeds, tmp_path, variants=variants, say=lambda _: None)
        plan.train()

    train(3, "0.1", "0.2")
    train(2, "0.3", "0.4")
    train(3, "0.3", "0.4")
    names = ["0.2", "0.1", "0.3"]
    result = compare([tmp_path / f"dropout={name}-seed{seed}" for seed in (3, 1, 2) for name in names], trials=100)
    assert [(kind.label, len(kind.runs)) for kind in result.kinds] == [(f"dropout={name}", 3) for name in names]
    assert not any(pair.fairness.unfair for pair in result.pairs)
    assert [pair.decide[0].comparisons for pair in result.pairs] == [4, 4]  # two pairs, two metrics


def with_rate(recipe: Recipe, rate: float) -> Recipe:
    return replace(recipe, train=replace(recipe.train, learning_rate=rate))


def test_minutes_are_measured_at_a_time(recipe: Path, tmp_path: Path):
    timed = load_recipe(recipe, ["train.max_updates=", "train.max_minutes=0.02"])
    said: list[str] = []
    variants = [({"train.learning_rate": f"{rate}"}, with_rate(timed, rate)) for rate in (0.01, 0.02)]
    plan = make_twins(timed, [], 2, tmp_path / "set", variants=variants, jobs=3, say=said.append).plan
    assert said[-1].startswith("pace: ")
    assert said[-1].count(" and ") == 1
    assert len({own.train.max_updates for _, own, _ in plan}) == 1
    found = [(own.train.learning_rate, own.train.seed, own.train.max_minutes) for _, own, _ in plan]
    assert found == [(0.01, 1, None), (0.02, 1, None), (0.01, 2, None), (0.02, 2, None)]


def test_refusals(recipe: Path, tmp_path: Path, macaron: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    def refused(words: str, *arguments: object) -> None:
        done = macaron("twins", recipe, *arguments, "--out", tmp_path / "set")
        assert done.returncode != 0
        assert words in done.stderr, done.stderr
        assert not (tmp_path / "set").exists()

    scheme = "model.scheme=lie-fg,sws"
    refused("at least two values", "--vary", "train.learning_rate=1e-3")
    refused("at least two values", "--vary", "train.learning_rate=1e-3,")
    refused("the same data", "--vary", "data.out=a,b")
    refused("the same data", "--vary", "train.seed=1,2")
    refused("--vary train.learning_rat=1: unknown key", "--vary", "train.learning_rat=1,2")
    refused("--vary train.label_smoothing=2", "--vary", "train.label_smoothing=0.1,2")
    refused("gives label_smoothing=0.1 twice", "--vary", "train.label_smoothing=0.1,0.1")
    # The same value in other words, and values that something else replaces.
    twice = "gives learning_rate=1e-2 twice: learning_rate=0.01 is the same run; leave one out"
    refused(twice, "--vary", "train.learning_rate=0.01,1e-2")
    refused("the same run; --budget replaces all limits", "--vary", "train.max_updates=3,6", "--budget", 3)
    twice = "gives lie-fg, scheme=sws twice: lie-fg, scheme=lie-fg is the same run"
    refused(twice, "--schemes", "lie-fg,sws", "--vary", scheme)
    minutes = ["--vary", "train.max_minutes=1,2", "--set", "train.max_updates="]
    refused("vary train.max_updates instead", *minutes)
    refused("differ in size", "--vary", "model.hidden_size=32,64")
    refused("at least two, separated by commas", "--schemes", "lie-fg")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UsageError, match="torchrun one run in several processes"):
        make_twins(load_recipe(recipe), ["lie-fg", "sws"], 1, tmp_path / "set", jobs=2)


def test_values_may_hold_commas(recipe: Path, tmp_path: Path, macaron: Callable[..., Any]):
    scheme = 'model.encoder_ends=[["G", 0.5]],[]'
    done = macaron("twins", recipe, "--vary", scheme, "--out", tmp_path / "set")
    assert '--vary model.encoder_ends=[["G", 0.5]]: unknown key' in done.stderr
