"""The end of a run: which weights become the model."""

from pathlib import Path

from torch import Tensor

from macaron.train import checkpoint
from macaron.train.checkpoint import Progress

Weights = dict[str, Tensor]


def candidates(folder: Path, progress: Progress, last: Weights, mean: Weights, average: int) -> dict[str, Weights]:
    """All weights that may become the final model, by name.

    :param last: the weights at the end
    :param mean: their running mean; empty without one
    :param average: how many checkpoints to average
    """
    found: dict[str, Weights] = {"last": last}
    if progress.best_update not in (None, progress.update):
        assert progress.best_update is not None
        found["best"] = checkpoint.weights_of(checkpoint.best_path(folder, progress.best_update))
    kept = checkpoint.to_average(folder, average)
    if len(kept) > 1:
        found[f"average of {len(kept)}"] = checkpoint.average(kept)
    if mean:
        found["running mean"] = mean
    return found
