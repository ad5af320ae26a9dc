"""GLUE's metrics, and its average by the official definition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macaron.data.glue import TASKS
from macaron.errors import MacaronError

Numbers = NDArray[np.float64]


def _both(predicted: ArrayLike, expected: ArrayLike) -> tuple[Numbers, Numbers]:
    ours, truth = np.asarray(predicted, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if ours.shape != truth.shape or ours.ndim != 1 or not len(ours):
        raise MacaronError(f"{ours.size} predictions for {truth.size} labels cannot be scored")
    return ours, truth


def accuracy(predicted: ArrayLike, expected: ArrayLike) -> float:
    """The share of correct answers."""
    ours, truth = _both(predicted, expected)
    return float(np.mean(ours == truth))


def f1(predicted: ArrayLike, expected: ArrayLike) -> float:
    """The harmonic mean of precision and recall of class 1; 0 where it is never predicted correctly."""
    ours, truth = (side == 1 for side in _both(predicted, expected))
    correct = float(np.sum(ours & truth))
    return 2 * correct / float(np.sum(ours) + np.sum(truth)) if correct else 0.0


def matthews(predicted: ArrayLike, expected: ArrayLike) -> float:
    """Matthews' correlation of two classes: Pearson's of the indicators of class 1."""
    ours, truth = (side == 1 for side in _both(predicted, expected))
    return round(pearson(ours, truth), 12)  # a perfect prediction scores exactly 1


def pearson(predicted: ArrayLike, expected: ArrayLike) -> float:
    """Pearson's correlation; 0 where one side does not vary, or is not finite (a training that diverged)."""
    ours, truth = _both(predicted, expected)
    if not np.isfinite(ours).all():
        return 0.0
    return float(np.corrcoef(ours, truth)[0, 1]) if np.ptp(ours) and np.ptp(truth) else 0.0


def spearman(predicted: ArrayLike, expected: ArrayLike) -> float:
    """Pearson's correlation of the ranks; equal values share the mean of their ranks."""
    from scipy.stats import rankdata  # imported late: it takes a second

    return pearson(*map(rankdata, _both(predicted, expected)))


_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    metric.__name__: metric for metric in (accuracy, f1, matthews, pearson, spearman)
}


def score(metrics: Sequence[str], predicted: ArrayLike, expected: ArrayLike) -> dict[str, float]:
    """Metrics by name, in per cent."""
    return {name: 100 * _METRICS[name](predicted, expected) for name in metrics}


def task_score(scores: Mapping[str, Mapping[str, float]]) -> float:
    """The one number of a task: its metrics are averaged first, then its development or test sets (MNLI's two).

    :param scores: set, metric, value
    """
    return float(np.mean([np.mean(list(metrics.values())) for metrics in scores.values()]))


@dataclass(frozen=True)
class Average:
    """The GLUE average, or the tasks that it lacks.

    :param glue: the official one, over all nine tasks, including WNLI; None if one is missing
    :param glue_without_wnli: over the other eight, as in Devlin et al.; None if one is missing
    :param mean_of_given: over the given tasks: not comparable with any published number
    """

    glue: float | None
    glue_without_wnli: float | None
    mean_of_given: float | None
    missing: tuple[str, ...]

    def __str__(self) -> str:
        if self.glue is not None:
            return f"GLUE {self.glue:.1f} (nine tasks), {self.glue_without_wnli:.1f} without WNLI"
        missing = ", ".join(TASKS[name].title for name in self.missing)
        if self.glue_without_wnli is not None:
            return f"GLUE without WNLI {self.glue_without_wnli:.1f}; the official average needs {missing} too"
        given = "" if self.mean_of_given is None else f"; mean of the tasks given: {self.mean_of_given:.1f}"
        return f"no GLUE average: missing {missing}{given}"


def glue_average(scores: Mapping[str, float]) -> Average:
    """The average over tasks: each of the nine counts the same.

    :param scores: one number per task, see `task_score`
    """

    missing = tuple(name for name in TASKS if name not in scores)
    eight = [score for name, score in scores.items() if name != "wnli"]
    return Average(
        glue=None if missing else float(np.mean(list(scores.values()))),
        glue_without_wnli=None if {*missing} - {"wnli"} else float(np.mean(eight)),
        mean_of_given=float(np.mean(list(scores.values()))) if scores else None,
        missing=missing,
    )
