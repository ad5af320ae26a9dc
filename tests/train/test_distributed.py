"""Several processes: the same numbers, whoever computes them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from macaron.train.distributed import Processes

# Three micro-batches cannot be shared out evenly, and the last update of an epoch has fewer.
SETTINGS = [
    *("--set", "train.accumulate=3", "--set", "train.log_every=1", "--set", "train.max_updates=21"),
    *("--set", "model.dropout=0", "--set", "model.attention_dropout=0", "--set", "model.activation_dropout=0"),
    *("--set", "train.ema=0.9", "--set", "train.average=2", "--set", "train.clip_norm=1"),
    *("--set", "train.bleu_sentences=3"),
    # Some gradients (of key biases) are zero but for rounding, which Adam would turn into steps of full size.
    *("--set", "train.epsilon=1e-3"),
]
FSDP = ("--set", "train.distributed=fsdp")


@pytest.fixture(scope="module")
def alone(recipe: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    server.run("train", recipe, "--out", run, *SETTINGS)
    return run


def compare(one: Path, other: Path, metrics: Any) -> float:
    """Assert that two runs agree; returns the largest difference between losses."""
    ours, theirs = metrics(one), metrics(other)
    assert [record["update"] for record in ours] == [record["update"] for record in theirs]
    worst = 0.0
    for record, other_record in zip(ours, theirs, strict=True):
        a, b = (each.get("final", {}).get("candidates", each) for each in (record, other_record))
        numbers = [key for key, value in a.items() if isinstance(value, float)]
        worst = max(worst, *(abs(a[key] - b[key]) for key in numbers))
    assert worst < 1e-6
    for name in ("model/model.safetensors", "checkpoints/update-00000021/optimiser.safetensors"):
        first, second = load_file(one / name), load_file(other / name)
        assert first.keys() == second.keys()
        assert max(float((first[key] - second[key]).abs().max()) for key in first) < 1e-5
    return worst


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one_with_the_usual_epsilon(
    recipe: Path, server: Any, metrics: Any, tmp_path: Path
):
    # Rounding, which depends on who adds what, is amplified by Adam: after some hundred updates it is more.
    usual = [*SETTINGS, "--set", "train.epsilon=1e-8"]
    server.run("train", recipe, "--out", tmp_path / "one", *usual)
    server.run_group(2, "train", recipe, "--out", tmp_path / "two", *usual)
    pairs = zip(metrics(tmp_path / "one"), metrics(tmp_path / "two"), strict=True)
    losses = [(one["loss"], two["loss"]) for one, two in pairs if "loss" in one]
    assert len(losses) == 21
    assert max(abs(one - two) for one, two in losses) < 1e-6


@pytest.mark.parametrize("how", [(), FSDP], ids=["ddp", "fsdp"])
def test_two_processes_are_one(how: Any, recipe: Path, alone: Path, server: Any, metrics: Any, tmp_path: Path):
    run = tmp_path / "run"
    server.run_group(2, "train", recipe, "--out", run, *SETTINGS, *how)
    worst = compare(alone, run, metrics)
    print(f"largest difference between one process and two: {worst:.2e}")


@pytest.mark.parametrize(
    "stages",
    [
        pytest.param([(1, ()), (2, ())], id="1-2"),
        pytest.param([(2, ()), (1, ())], id="2-1"),
        pytest.param([(2, FSDP), (3, ()), (2, FSDP)], id="2 fsdp-3 ddp-2 fsdp"),
    ],
)
@pytest.mark.slow
def test_resume_with_other_processes(stages: Any, recipe: Path, alone: Path, server: Any, metrics: Any, tmp_path: Path):
    run = tmp_path / "run"
    for (world, how), updates in zip(stages, (5, 12, 21)[-len(stages) :], strict=True):
        arguments = ("train", recipe, "--out", run, *SETTINGS, *how, "--set", f"train.max_updates={updates}")
        if world == 1:
            server.run(*arguments, "--resume")
        else:
            server.run_group(world, *arguments, "--resume")
    compare(alone, run, metrics)


def test_gradients_are_summed_during_the_backward_pass(
    recipe: Path, alone: Path, server: Any, metrics: Any, tmp_path: Path
):
    """Where steps are recorded; here a recording computes what it recorded. It goes on after a signal and a resume."""
    run = tmp_path / "run"
    arguments = (
        "train",
        recipe,
        "--out",
        run,
        *SETTINGS,
        "--set",
        "train.batching=pack",
        "--set",
        "train.row_tokens=24",
    )
    server.run("train", recipe, "--out", tmp_path / "one", *arguments[4:])
    commands = server.group(2, *arguments, recorded="yes")
    commands[0].until(run / "metrics.jsonl", 9)
    commands[1].send(signal.SIGTERM)
    assert [command.wait() for command in commands] == [130, 143]
    text = server.run_group(2, *arguments, "--resume", recorded="yes")
    assert "summed during the backward pass" in text
    compare(tmp_path / "one", run, metrics)


def test_a_signal_to_one_stops_all(recipe: Path, alone: Path, server: Any, metrics: Any, tmp_path: Path):
    run = tmp_path / "run"
    arguments = ("train", recipe, "--out", run, *SETTINGS)
    commands = server.group(2, *arguments)
    commands[0].until(run / "metrics.jsonl", 3)
    commands[1].send(signal.SIGTERM)
    assert [command.wait() for command in commands] == [130, 143]
    server.run_group(2, *arguments, "--resume")
    compare(alone, run, metrics)


def end(speaker: Any, *others: Any) -> str:
    """Do as torchrun: when one has failed, end the others. Returns what all have printed."""
    assert speaker.wait() == 1
    for command in others:
        command.send(signal.SIGTERM)
    assert [command.wait() for command in others] == [-signal.SIGTERM] * len(others)
    text = "".join(command.text for command in (speaker, *others))
    assert "Traceback" not in text
    assert text.count("macaron: ") == 1, text
    return text


def test_too_few_micro_batches(recipe: Path, server: Any, tmp_path: Path):
    """What all processes meet is said once, by the first."""
    text = end(*server.group(2, "train", recipe, "--out", tmp_path / "run", "--set", "train.accumulate=1"))
    assert "macaron: --set train.accumulate=1: 2 processes cannot share 1 micro-batch(es) per update" in text
    assert "set train.accumulate to 2 or" in text
    assert not (tmp_path / "run").exists()


def test_what_one_process_meets_alone_it_says_itself(recipe: Path, server: Any, tmp_path: Path):
    big = ("--set", "model.preset=macaron-big", "--set", "model.hidden_size=1024")
    arguments = ("train", recipe, "--out", tmp_path / "run", *big)
    first, second = server.group(2, *arguments, last={"limit": ["RLIMIT_AS", 300 << 20]})
    said = end(second, first)
    assert f"macaron: process 1: {recipe}, line 14: out of memory with train.batch_tokens = 256" in said


def test_a_process_that_vanishes(recipe: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    first, second = server.group(2, "train", recipe, "--out", run, "--set", "train.max_updates=100000")
    first.until(run / "metrics.jsonl", 3)
    second.send(signal.SIGKILL)
    assert second.wait() == -signal.SIGKILL
    assert "macaron: another process of this run has ended" in end(first)


def test_turns_cover_everything_once_in_equal_numbers():
    for world in range(1, 5):
        for count in range(12):
            shares = [Processes(rank, world).turns(count) for rank in range(world)]
            assert len({len(share) for share in shares}) == 1
            assert sorted(i for share in shares for i, counts in share if counts) == list(range(count))


@pytest.mark.parametrize(
    "changes",
    [
        ["model.tying=depth", "model.encoder_layers=2", 'model.prologue=[["G", 0.5]]'],
        ["model.scheme=lie-fg", 'model.prologue=[["G", 0.5]]', 'model.decoder_epilogue=[["G", 0.5]]'],
    ],
    ids=["tied", "ends"],
)
@pytest.mark.slow
def test_sharding_other_models(changes: list[str], recipe: Path, server: Any, metrics: Any, tmp_path: Path):
    settings = [*SETTINGS, *(part for each in changes for part in ("--set", each)), "--set", "train.max_updates=4"]
    server.run("train", recipe, "--out", tmp_path / "alone", *settings)
    server.run_group(2, "train", recipe, "--out", tmp_path / "fsdp", *settings, *FSDP)
    losses = [[record["loss"] for record in metrics(tmp_path / name) if "loss" in record] for name in ("alone", "fsdp")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.slow
def test_torchrun(recipe: Path, alone: Path, metrics: Any, tmp_path: Path):
    """The real thing: SIGTERM to torchrun saves and stops all; resumed, it ends like one process."""
    run = tmp_path / "run"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "macaron", "train", str(recipe), "--out", str(run), *SETTINGS]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    while not (run / "metrics.jsonl").exists() or (run / "metrics.jsonl").read_bytes().count(b"\n") < 3:
        assert process.poll() is None
        time.sleep(0.002)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    go_on = "continue with: torchrun --standalone --nproc-per-node 2 -m macaron train --resume --out "
    assert errors.count(go_on) == 1
    assert any((run / "checkpoints").glob("update-*"))
    done = subprocess.run([*command, "--resume"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    compare(alone, run, metrics)


@pytest.mark.slow
def test_torchrun_says_what_is_wrong_once(tmp_path: Path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
    command += ["-m", "macaron", "train", "nowhere.toml", "--out", str(tmp_path / "run")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.count("macaron: nowhere.toml: no such recipe") == 1
    assert "macaron: process" not in done.stderr
