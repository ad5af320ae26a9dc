"""GLUE's metrics, and its average by the official definition."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from macaron.data.glue_tasks import AVERAGED, TASKS
from macaron.errors import MacaronError

Numbers = NDArray[np.float64]


def _both(predicted: ArrayLike, expected: ArrayLike) -> tuple[Numbers, Numbers]:
    ours, truth = np.asarray(predicted, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if ours.shape != truth.shape or ours.ndim != 1 or not len(ours):
        raise MacaronError(f"{ours.size} predictions for {truth.size} labels: nothing that can be scored")
    return ours, truth


def accuracy(predicted: ArrayLike, expected: ArrayLike) -> float:
    """The share of right answers."""
    ours, truth = _both(predicted, expected)
    return float(np.mean(ours == truth))


def f1(predicted: ArrayLike, expected: ArrayLike, positive: int = 1) -> float:
    """The harmonic mean of precision and recall of one class; 0 where the class is never predicted rightly."""
    ours, truth = (values == positive for values in _both(predicted, expected))
    right = float(np.sum(ours & truth))
    return 2 * right / float(np.sum(ours) + np.sum(truth)) if right else 0.0


def matthews(predicted: ArrayLike, expected: ArrayLike) -> float:
    """Matthews' correlation of two classes; 0 where all predictions, or all labels, are the same."""
    ours, truth = (values == 1 for values in _both(predicted, expected))
    tp, tn = float(np.sum(ours & truth)), float(np.sum(~ours & ~truth))
    fp, fn = float(np.sum(ours & ~truth)), float(np.sum(~ours & truth))
    # The root of each factor, not of the product: whole numbers of four counts may overflow nothing then.
    below = np.sqrt(tp + fp) * np.sqrt(tp + fn) * np.sqrt(tn + fp) * np.sqrt(tn + fn)
    return _bounded(float((tp * tn - fp * fn) / below)) if below else 0.0


def pearson(predicted: ArrayLike, expected: ArrayLike) -> float:
    """Pearson's correlation; 0 where one side does not vary."""
    ours, truth = (values - values.mean() for values in _both(predicted, expected))
    # Scaled first: the squares of very large or small numbers are none.
    scales = np.abs(ours).max(), np.abs(truth).max()
    if not all(scales) or not np.all(np.isfinite(scales)):
        return 0.0
    ours, truth = ours / scales[0], truth / scales[1]
    return _bounded(float(np.sum(ours * truth) / np.sqrt(np.sum(ours**2) * np.sum(truth**2))))


def _bounded(correlation: float) -> float:
    return min(max(correlation, -1.0), 1.0)  # rounding may lead a little beyond


def spearman(predicted: ArrayLike, expected: ArrayLike) -> float:
    """Pearson's correlation of the ranks; equal values share the mean of their ranks."""
    ours, truth = _both(predicted, expected)
    return pearson(ranks(ours), ranks(truth))


def ranks(values: ArrayLike) -> Numbers:
    """Ranks from 1, equal values with the mean of theirs."""
    _, group, counts = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[group], dtype=np.float64)


_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def score(metrics: Sequence[str], predicted: ArrayLike, expected: ArrayLike) -> dict[str, float]:
    """Metrics by name, in per cent as the tables have them."""
    return {name: 100 * _METRICS[name](predicted, expected) for name in metrics}


def task_score(scores: Mapping[str, Mapping[str, float]]) -> float:
    """The one number of a task: its metrics are averaged first, then its development or test sets (MNLI's two).

    :param scores: set, metric, value
    """
    return float(np.mean([np.mean(list(metrics.values())) for metrics in scores.values()]))


@dataclass(frozen=True)
class Average:
    """The GLUE average, or why there is none.

    :param official: over all nine tasks, WNLI included; None if one is missing
    :param without_wnli: over the other eight, as Devlin et al. print it; None if one is missing
    :param partial: over what is there: a number of its own, comparable with no published one
    """

    official: float | None
    without_wnli: float | None
    partial: float | None
    missing: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """As JSON."""
        return {
            "glue": self.official,
            "glue_without_wnli": self.without_wnli,
            "mean_of_given": self.partial,
            "missing": list(self.missing),
        }

    def __str__(self) -> str:
        if self.official is not None:
            return f"GLUE {self.official:.1f} (nine tasks), {self.without_wnli:.1f} without WNLI"
        missing = ", ".join(TASKS[name].title for name in self.missing)
        if self.without_wnli is not None:
            return f"GLUE without WNLI {self.without_wnli:.1f}; the official average needs {missing} too"
        given = "" if self.partial is None else f"; mean of the tasks given: {self.partial:.1f}"
        return f"no GLUE average: missing {missing}{given}"


def glue_average(scores: Mapping[str, float]) -> Average:
    """The average over tasks: each of the nine counts the same.

    :param scores: one number per task, see `task_score`
    """
    missing = tuple(name for name in AVERAGED if name not in scores)

    def mean(names: Sequence[str]) -> float | None:
        there = [scores[name] for name in names if name in scores]
        return float(np.mean(there)) if there and len(there) == len(names) else None

    return Average(
        official=mean(AVERAGED),
        without_wnli=mean([name for name in AVERAGED if name != "wnli"]),
        partial=mean([name for name in AVERAGED if name in scores]),
        missing=missing,
    )
