"""Tests of the difference of two kinds: over sentences, for the trained models; over seeds, for new trainings."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macaron.evaluate.significance import Comparison, approximate_randomisation, paired_bootstrap
from macaron.evaluate.statistics import SentenceStatistics
from macaron.lab.compare.verdict import LEAST_SEEDS, Evidenced

#: Resamples and exchanges: a p-value near 0.05 is then known to about 0.004.
TRIALS = 10_000
LEVEL = 0.95


@dataclass(frozen=True)
class SentenceTests:
    """Two tests of one difference over the same sentences."""

    bootstrap: Comparison
    randomisation: Comparison

    @property
    def evidence(self) -> Evidenced:
        """What a verdict needs of them."""
        interval = self.bootstrap.interval
        assert interval is not None
        return Evidenced(interval.low, interval.high, (self.bootstrap.p_value, self.randomisation.p_value))


@dataclass(frozen=True)
class SeedTest:
    """Welch's t-test of the mean scores of two kinds; its unit is the trained model."""

    difference: float
    t: float
    degrees: float
    p_value: float
    low: float
    high: float
    runs: tuple[int, int]

    @property
    def evidence(self) -> Evidenced:
        """What a verdict needs of it."""
        return Evidenced(self.low, self.high, (self.p_value,))


def pooled(runs: Sequence[SentenceStatistics]) -> SentenceStatistics:
    """The statistics of several runs as those of one, whose score is the mean of theirs."""
    if len(runs) == 1:
        return runs[0]
    rows, formula = np.concatenate([each.rows for each in runs], axis=1), runs[0].formula

    def mean(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.mean([formula(part) for part in np.split(sums, len(runs), axis=-1)], axis=0))

    return SentenceStatistics(rows, mean)


def paired(
    first: Sequence[SentenceStatistics], second: Sequence[SentenceStatistics]
) -> tuple[SentenceStatistics, SentenceStatistics]:
    """Two kinds pooled to the same shape: runs are repeated to the least common multiple, which keeps the means."""
    whole = math.lcm(len(first), len(second))
    sides = [[each for each in side for _ in range(whole // len(side))] for side in (first, second)]
    return pooled(sides[0]), pooled(sides[1])


def sentence_tests(
    first: Sequence[SentenceStatistics], second: Sequence[SentenceStatistics], trials: int = TRIALS
) -> SentenceTests:
    """Test the difference of two kinds, the mean score of the second minus that of the first, over sentences.

    All translations of a sentence, by all models of a kind, are drawn or exchanged together.
    """
    one, other = paired(first, second)
    return SentenceTests(
        paired_bootstrap(one, other, resamples=trials, level=LEVEL),
        approximate_randomisation(one, other, trials=trials),
    )


def seed_test(first: Sequence[float], second: Sequence[float]) -> SeedTest | None:
    """Test the difference of two kinds over seeds; None with fewer than three of a kind, or without any spread."""
    if min(len(first), len(second)) < LEAST_SEEDS or not (np.ptp(first) or np.ptp(second)):
        return None
    from scipy import stats

    found = stats.ttest_ind(second, first, equal_var=False)
    interval = found.confidence_interval(LEVEL)
    return SeedTest(
        difference=float(np.mean(second) - np.mean(first)),
        t=float(found.statistic),
        degrees=float(found.df),
        p_value=float(found.pvalue),
        low=float(interval.low),
        high=float(interval.high),
        runs=(len(first), len(second)),
    )
