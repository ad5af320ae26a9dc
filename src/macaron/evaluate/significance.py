"""Confidence intervals and comparisons of two systems, from per-sentence statistics.

Sentences are sorted before anything is drawn: a result depends on the sentences and the seed, not on their order.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macaron.errors import MacaronError
from macaron.evaluate.scores import SentenceStatistics

RESAMPLES = 1000
SEED = 12345
# Differences below this are rounding, not evidence; scores lie between 0 and 100.
_ROUNDING = 1e-9
# Sentences drawn at a time: few calls for a small corpus, no large arrays for a large one.
_DRAWS = 30_000


@dataclass(frozen=True)
class Interval:
    """A percentile bootstrap interval of a score or of a difference."""

    low: float
    high: float
    level: float
    resamples: int
    seed: int

    def __str__(self) -> str:
        return f"[{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same sentences: the difference is second minus first; p is two-sided."""

    method: str
    first: float
    second: float
    difference: float
    p_value: float
    interval: Interval | None
    trials: int
    seed: int

    def __str__(self) -> str:
        interval = f" {self.interval}" if self.interval else ""
        return f"{self.difference:+.2f}{interval}, p = {self.p_value:.4f} ({self.method}, {self.trials} trials)"


def bootstrap_interval(
    statistics: SentenceStatistics, *, resamples: int = RESAMPLES, seed: int = SEED, level: float = 0.95
) -> Interval:
    """Interval of a corpus score: sentences are drawn with replacement `resamples` times."""
    return _interval(statistics.formula(_resampled_sums(statistics.rows, resamples, seed)), level, seed)


def paired_bootstrap(
    first: SentenceStatistics,
    second: SentenceStatistics,
    *,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    level: float = 0.95,
) -> Comparison:
    """Compare two systems on the same resampled sentences.

    The p-value is the share of resamples whose difference deviates from the mean difference by at least the
    observed one.
    """
    ours, theirs = np.split(_resampled_sums(_paired(first, second), resamples, seed), 2, axis=1)
    differences = second.formula(theirs) - first.formula(ours)
    interval = _interval(differences, level, seed)
    return _comparison("paired bootstrap", first, second, differences - differences.mean(), interval, seed)


def approximate_randomisation(
    first: SentenceStatistics, second: SentenceStatistics, *, trials: int = 10_000, seed: int = SEED
) -> Comparison:
    """Compare two systems by exchanging their translations of random halves of the sentences.

    The p-value is the share of exchanges with at least the observed difference.
    """
    ours, theirs = np.split(_sorted(_paired(first, second)), 2, axis=1)
    change, generator = theirs - ours, _generator(trials, seed)
    exchanged = (generator.integers(0, 2, len(ours), dtype=np.int8) for _ in range(trials))
    moved = np.stack([drawn.astype(np.float64) @ change for drawn in exchanged])
    differences = second.formula(theirs.sum(axis=0) - moved) - first.formula(ours.sum(axis=0) + moved)
    return _comparison("approximate randomisation", first, second, differences, None, seed)


def _generator(trials: int, seed: int) -> np.random.Generator:
    if trials < 1:
        raise MacaronError(f"{trials} resamples: give at least 1, usually 1000")
    return np.random.default_rng(seed)


def _sorted(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    return rows[np.lexsort(rows.T)].astype(np.float64)


def _paired(first: SentenceStatistics, second: SentenceStatistics) -> NDArray[np.int64]:
    if first.rows.shape != second.rows.shape:
        raise MacaronError(
            f"the two systems have statistics of shapes {first.rows.shape} and {second.rows.shape}: "
            "compare the same metric on the same sentences"
        )
    return np.concatenate([first.rows, second.rows], axis=1)


def _resampled_sums(counts: NDArray[np.int64], resamples: int, seed: int) -> NDArray[np.float64]:
    """The sums of counts (S, C) that are drawn with replacement, once for every resample: (resamples, C)."""
    generator, rows, count = _generator(resamples, seed), _sorted(counts), len(counts)
    block, sums = max(_DRAWS // count, 1), []
    for start in range(0, resamples, block):
        size = min(block, resamples - start)
        drawn = generator.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(drawn.ravel(), minlength=size * count).reshape(size, count)
        sums.append(times.astype(np.float64) @ rows)
    return np.concatenate(sums)


def _interval(scores: NDArray[np.float64], level: float, seed: int) -> Interval:
    if not 0 < level < 1:
        raise MacaronError(f"a confidence level of {level}: give a fraction between 0 and 1, usually 0.95")
    low, high = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Interval(low, high, level, len(scores), seed)


def _comparison(
    method: str,
    first: SentenceStatistics,
    second: SentenceStatistics,
    by_chance: NDArray[np.float64],
    interval: Interval | None,
    seed: int,
) -> Comparison:
    """The p-value is the share of differences ``by_chance`` (trials,) that are at least the observed one."""
    ours, theirs = first.score(), second.score()
    extreme = np.abs(by_chance) >= abs(theirs - ours) - _ROUNDING
    # The observation counts as one of the trials: a p-value of exactly zero would claim too much.
    p_value = (int(extreme.sum()) + 1) / (len(extreme) + 1)
    return Comparison(method, ours, theirs, theirs - ours, p_value, interval, len(extreme), seed)
