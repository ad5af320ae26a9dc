"""Statistics of a comparison: tests of the difference of two kinds, and scores by classes of sentences.

Tests over sentences are for the trained models; a test over seeds is for new trainings.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macaron.evaluate import (
    Interval,
    SentenceStatistics,
    approximate_randomisation,
    bootstrap_interval,
    paired_bootstrap,
)
from macaron.lab.compare.verdict import EFFECT, LEAST_SEEDS, DifferenceTest

#: Resamples and exchanges: a p-value near 0.05 is then known to about 0.004.
TRIALS = 10_000
LEVEL = 0.95
#: The number of length classes, which have about equally many sentences.
LENGTHS = 5
#: The minimum size of a class whose difference is reported.
LEAST = 30
#: From this t on the spread of the means does not count, and scipy's noncentral distribution may overflow.
_FAR = 100.0


def pooled(runs: Sequence[SentenceStatistics]) -> SentenceStatistics:
    """The statistics of several runs as those of one, whose score is the mean of theirs."""
    formula = runs[0].formula

    def mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.mean([formula(part) for part in np.split(sums, len(runs), axis=-1)], axis=0))

    return SentenceStatistics(np.concatenate([each.rows for each in runs], axis=1), mean)


def paired(
    first: Sequence[SentenceStatistics], second: Sequence[SentenceStatistics]
) -> tuple[SentenceStatistics, SentenceStatistics]:
    """Two kinds pooled to the same shape: runs are repeated to the least common multiple, which keeps the means."""
    whole = math.lcm(len(first), len(second))
    return pooled([*first] * (whole // len(first))), pooled([*second] * (whole // len(second)))


def sentence_test(
    first: Sequence[SentenceStatistics], second: Sequence[SentenceStatistics], trials: int = TRIALS
) -> DifferenceTest:
    """Test the difference of two kinds, the mean score of the second minus that of the first, over sentences.

    All translations of a sentence, by all models of a kind, are drawn or exchanged together.
    """
    one, other = paired(first, second)
    bootstrap = paired_bootstrap(one, other, resamples=trials, level=LEVEL)
    exchanged = approximate_randomisation(one, other, trials=trials)
    assert bootstrap.interval is not None
    p_values = {"paired bootstrap": bootstrap.p_value, "randomisation": exchanged.p_value}
    return DifferenceTest(bootstrap.interval.low, bootstrap.interval.high, p_values)


def seed_test(first: Sequence[float], second: Sequence[float]) -> DifferenceTest | None:
    """Welch's t-test over seeds, whose unit is the trained model.

    None with fewer than three of a kind, or without any spread.
    """
    if min(len(first), len(second)) < LEAST_SEEDS or not (np.ptp(first) or np.ptp(second)):
        return None
    from scipy import stats

    with warnings.catch_warnings():  # that one kind has no spread, which Welch's test allows
        warnings.simplefilter("ignore", RuntimeWarning)
        found = stats.ttest_ind(second, first, equal_var=False)
    low, high = map(float, found.confidence_interval(LEVEL))
    numbers = dict(zip(EFFECT, hedges_g(first, second), strict=True))
    numbers |= {"t": float(found.statistic), "degrees of freedom": float(found.df)}
    return DifferenceTest(low, high, {"Welch's t-test": float(found.pvalue)}, numbers)


def hedges_g(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """The standardised difference of two means without its bias in small samples, and its interval.

    g = J d, where d is the difference divided by the pooled standard deviation and J = Γ(n/2) / (√(n/2) Γ((n-1)/2))
    with n degrees of freedom (Hedges 1981, Journal of Educational Statistics 6(2)). Student's t has a noncentral t
    distribution; the ends are those noncentralities of which it is the 97.5 or the 2.5 % quantile (Steiger 2004).
    """
    from scipy import optimize, stats

    freedom, per = len(first) + len(second) - 2, math.sqrt(1 / len(first) + 1 / len(second))
    variance = (np.var(first) * len(first) + np.var(second) * len(second)) / freedom
    t = float((np.mean(second) - np.mean(first)) / (math.sqrt(variance) * per))
    unbiased = math.exp(math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)) / math.sqrt(freedom / 2)
    tails = (1 - LEVEL) / 2, (1 + LEVEL) / 2
    # What the spread of the standard deviation alone would give; beside it that of the means is at most a few.
    bounds = [abs(t) * math.sqrt(stats.chi2.ppf(p, freedom) / freedom) for p in tails]
    if abs(t) < _FAR:
        ends = (bounds[0] - 5, bounds[1] + 5)
        beyond = lambda at, p: stats.nct.cdf(abs(t), freedom, at) - p  # noqa: E731
        bounds = [optimize.brentq(beyond, *ends, args=(p,)) for p in tails]
    low, high = sorted(math.copysign(1, t) * bound * per * unbiased for bound in bounds)
    return t * per * unbiased, low, high


@dataclass(frozen=True)
class Part:
    """A part of the test set: the score of each kind, and its difference from the first.

    :param differences: an interval for each kind but the first, at 95 % for all parts together (Bonferroni); None in a
        part that is too small, and for a kind that cannot be compared fairly
    """

    name: str
    size: int
    scores: tuple[float, ...]
    intervals: tuple[Interval, ...]
    differences: tuple[Interval | None, ...]


def by_length(
    lengths: Sequence[int],
    kinds: Sequence[Sequence[SentenceStatistics]],
    fair: Sequence[bool],
    trials: int = TRIALS,
) -> tuple[Part, ...]:
    """Scores and differences by the length of the source in words.

    :param kinds: the statistics of the runs of each kind
    :param fair: whether a kind can be compared with the first one, for each of the others
    """
    sizes = np.array(lengths)
    classes = [(low, high, (sizes >= low) & (sizes <= high)) for low, high in length_classes(lengths)]
    tests = sum(int(inside.sum()) >= LEAST for *_, inside in classes) * sum(fair)
    level = 1 - (1 - LEVEL) / max(tests, 1)
    parts = []
    for low, high, inside in classes:
        size, name = int(inside.sum()), f"{low} words" if low == high else f"{low} to {high} words"
        first, *others = [[SentenceStatistics(run.rows[inside], run.formula) for run in kind] for kind in kinds]
        differences = [
            paired_bootstrap(*paired(first, runs), resamples=trials, level=level).interval if tested else None
            for runs, tested in zip(others, (each and size >= LEAST for each in fair), strict=True)
        ]
        whole = [pooled(runs) for runs in (first, *others)]
        scores, intervals = [each.score() for each in whole], [bootstrap_interval(each) for each in whole]
        parts.append(Part(name, size, tuple(scores), tuple(intervals), tuple(differences)))
    return tuple(parts)


def length_classes(lengths: Sequence[int], classes: int = LENGTHS) -> list[tuple[int, int]]:
    """The first and last length of classes that hold about equally many sentences; none is empty."""
    shares = np.linspace(0, 1, classes + 1)[1:]
    highs = np.unique(np.quantile(lengths, shares, method="inverted_cdf")).astype(int).tolist()
    lows = [min(length for length in lengths if length > before) for before in (-1, *highs[:-1])]
    return list(zip(lows, highs, strict=True))
