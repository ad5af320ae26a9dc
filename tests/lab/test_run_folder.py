"""The curves of a run: short lines of the training log are merged, and nothing else changes."""

import json
import tempfile
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.lab.run_folder import RunFolder


def run_of(folder: Path, lines: list[dict]) -> RunFolder:
    (folder / "recipe.toml").touch()
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RunFolder(folder)


def line(update: int, targets: int, nll: float, speed: float = 100.0) -> dict:
    return {"update": update, "epoch": 1, "nll": nll, "targets": targets, "learning_rate": update / 1000} | {
        "tokens_per_second": speed,
        "seconds": float(update),
    }


def test_the_short_last_window_of_an_epoch_is_no_spike(tmp_path: Path):
    """An epoch of 101 updates, logged every 50: its last line is of one update."""
    lines = [line(50, 5000, 3.0), line(100, 5000, 2.5), line(101, 40, 9.0, 10.0), line(150, 4900, 2.2)]
    run = run_of(tmp_path, [*lines[:3], {"update": 101, "valid_nll": 2.6, "seconds": 102.0}, *lines[3:]])
    mean = (40 * 9.0 + 4900 * 2.2) / 4940
    assert run.values("nll") == [(50, 3.0), (100, 2.5), (150, pytest.approx(mean))]
    assert run.values("valid_nll") == [(101, 2.6)]
    assert run.values("learning_rate")[-1] == (150, 0.15)  # of the last update, not a mean
    seconds = 40 / 10 + 4900 / 100
    assert run.values("tokens_per_second")[-1] == (150, pytest.approx(4940 / seconds))
    assert len(run.metrics) == 5  # the log itself is as it was written


def test_the_last_window_of_a_run_joins_the_one_before(tmp_path: Path):
    run = run_of(tmp_path, [line(50, 5000, 3.0), line(100, 5000, 2.0), line(101, 50, 9.0)])
    assert run.values("nll") == [(50, 3.0), (101, pytest.approx((5000 * 2.0 + 50 * 9.0) / 5050))]


def test_whole_epochs_are_no_short_windows(tmp_path: Path):
    """A line for each epoch, all of one size: each is drawn, though none is as long as log_every."""
    run = run_of(tmp_path, [line(5 * i, 500, 3.0 / i) for i in range(1, 9)])
    assert run.values("nll") == [(5 * i, 3.0 / i) for i in range(1, 9)]


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0.1, 9)), min_size=1, max_size=40))
def test_merging_keeps_every_target_and_its_loss(windows: list[tuple[int, float]]):
    lines = [line(i + 1, targets, nll) for i, (targets, nll) in enumerate(windows)]
    with tempfile.TemporaryDirectory() as folder:
        run = run_of(Path(folder), lines)
    targets, losses = run.values("targets"), run.values("nll")
    assert [x for x, _ in targets] == [x for x, _ in losses]
    assert targets[-1][0] == len(windows)
    assert sum(count for _, count in targets) == sum(count for count, _ in windows)
    total = sum(count * nll for (_, count), (_, nll) in zip(targets, losses, strict=True))
    assert total == pytest.approx(sum(count * nll for count, nll in windows))
    least = median(count for count, _ in windows) / 2
    assert len(targets) == 1 or all(count >= least for _, count in targets)
