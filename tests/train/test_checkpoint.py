"""A checkpoint's numbers are checked before they are used."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from macaron.errors import MacaronError
from macaron.seal import seal
from macaron.train import checkpoint
from macaron.train.checkpoint import Checkpoint, RunState
from macaron.train.optimiser import Optimiser
from macaron.train.settings import TrainSettings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    state = RunState(update=3, epoch=1, batch=3, batches=5, seconds=1.5, log_losses=[1.0, 2.0])
    path = tmp_path / "checkpoints" / "update-00000003"
    checkpoint.save(path, Checkpoint({"w": torch.ones(2)}, {}, state, {"tokenizer": "x"}))
    return path


def test_a_checkpoint_comes_back(folder: Path):
    found = checkpoint.load(folder)
    assert found.state == RunState(update=3, epoch=1, batch=3, batches=5, seconds=1.5, log_losses=[1.0, 2.0])
    checkpoint.require_same(folder, found, {"w": (2,)}, {"tokenizer": "x"}, losses=2)
    with pytest.raises(MacaronError, match=r"state\.json: progress\.log_losses must have 3 numbers"):
        checkpoint.require_same(folder, found, {"w": (2,)}, {"tokenizer": "x"}, losses=3)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("update", "3", "progress.update must be a whole number, not '3'"),
        ("update", 4, "progress.update is 4"),
        ("epoch", 0, "progress.epoch must be at least 1"),
        ("epoch", 10**15, "progress.epoch must be at most 1,073,741,824"),
        ("batch", 6, "progress.batch is above progress.batches"),
        ("seconds", None, "progress.seconds must be a number"),
        ("seconds", -1.0, "progress.seconds must be at least 0"),
        ("parts", 10**9, "progress.parts must be at most 4,096"),
        ("log_losses", 1.0, "progress.log_losses must be a list"),
        ("log_losses", [None], r"progress.log_losses\[0\] must be a number"),
        ("best_updates", 1, "unknown key 'progress.best_updates'; did you mean 'best_update'"),
    ],
)
def test_a_state_that_cannot_be_is_refused(key: str, value: object, message: str, folder: Path):
    file = folder / "state.json"
    content = json.loads(file.read_text())
    content["progress"][key] = value
    file.write_text(json.dumps(content))
    seal(folder)
    with pytest.raises(MacaronError, match=message) as caught:
        checkpoint.load(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda each: each.pop("weight|exp_avg"), "there is no exp_avg of 'weight'"),
        (lambda each: each.update({"weight|exp_avg": torch.zeros(3)}), "exp_avg of 'weight' is damaged"),
        (lambda each: each.update({"weight|exp_avg": each["weight|exp_avg"].double()}), "exp_avg of 'weight'"),
        (lambda each: each["weight|exp_avg_sq"].fill_(-1), "exp_avg_sq of 'weight' is damaged"),
        (lambda each: each["weight|exp_avg"].fill_(torch.nan), "exp_avg of 'weight' is damaged"),
        (lambda each: each.update({"bias|step": torch.tensor(-1.0)}), "step of 'bias' is damaged"),
        (lambda each: each.update({"bias|step": torch.zeros(1)}), "step of 'bias' is damaged"),
        (lambda each: each.pop("bias|mean"), "there is no mean of 'bias'"),
    ],
)
def test_moments_that_cannot_be_are_refused(damage: Callable[[dict[str, Any]], Any], message: str):
    module = nn.Linear(2, 3)
    optimiser = Optimiser(module, TrainSettings(max_updates=1, ema=0.9))
    module(torch.ones(1, 2)).sum().backward()
    optimiser.step(0.1, 0)
    tensors = optimiser.tensors()
    optimiser.load(tensors)
    damage(tensors)
    with pytest.raises(MacaronError, match=rf"FOLDER: .*{message}"):
        optimiser.load(tensors, "FOLDER")
