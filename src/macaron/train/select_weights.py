"""The end of a run: which weights become the final model."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from macaron.train import checkpoint
from macaron.train.checkpoint import RunState

Weights = dict[str, Tensor]


def candidates(folder: Path, state: RunState, last: Weights, mean: Weights, average: int) -> dict[str, Weights]:
    """All weights that may become the final model, by name.

    :param folder: that of the checkpoints
    :param last: the weights at the end
    :param mean: their running mean; may be empty
    :param average: number of checkpoints to average
    """
    found: dict[str, Weights] = {"last": last}
    if state.best_update is not None and state.best_update != state.update:
        found["best"] = checkpoint.weights_of(checkpoint.best_path(folder, state.best_update))
    kept = to_average(folder, average)
    if len(kept) > 1:
        found[f"average of {len(kept)}"] = average_of(kept)
    if mean:
        found["running mean"] = mean
    return found


def select(found: dict[str, Weights], validate: Callable[[Weights], float]) -> tuple[str, dict[str, float]]:
    """The name of the weights with the lowest validation loss, and the losses of all.

    :param found: the candidates, by name
    :param validate: returns the validation loss of weights
    """
    losses = {name: validate(weights) for name, weights in found.items()}
    return min(losses, key=lambda name: losses[name] if math.isfinite(losses[name]) else math.inf), losses


def to_average(folder: Path, count: int) -> list[Path]:
    """The last ``count`` checkpoints: the newest, and before it those that were scheduled."""
    found = checkpoint.checkpoints(folder)
    due = [path for path in found[:-1] if checkpoint.scheduled(path)]
    return [*due, *found[-1:]][-count:] if count else []


def average_of(folders: list[Path]) -> Weights:
    """The mean of several checkpoints' weights, summed in float64."""
    total: Weights = {}
    dtypes: dict[str, torch.dtype] = {}
    for folder in folders:
        for name, tensor in checkpoint.weights_of(folder).items():
            dtypes[name] = tensor.dtype
            total[name] = tensor.double() + total[name] if name in total else tensor.double()
    return {name: (tensor / len(folders)).to(dtypes[name]) for name, tensor in total.items()}
