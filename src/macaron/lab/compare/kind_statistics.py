"""Statistics of a comparison: tests of the difference of two kinds, and scores by classes of sentences and words.

Tests over sentences are for the trained models; a test over seeds is for new trainings.
"""

import math
import re
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macaron.data.prepared import PreparedData, Split
from macaron.data.store import TokenStore
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
#: Classes of frequency: the lowest count of each.
CLASSES = (0, 1, 5, 25, 100, 1000)
#: The number of length classes, which have about equally many sentences.
LENGTHS = 5
#: The minimum size of a class whose difference is reported.
LEAST = 30
#: From this t on the spread of the means does not count, and scipy's noncentral distribution may overflow.
_FAR = 100.0
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[^\w\s]|_")


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


#: A class of sentences or words: its name, its size, and for each kind the statistics of its runs.
Class = tuple[str, int, Sequence[Sequence[SentenceStatistics]]]


def by_length(lengths: Sequence[int], kinds: Sequence[Sequence[SentenceStatistics]]) -> Iterator[Class]:
    """Sentences by the length of their source in words; ``kinds`` are the statistics of the runs of each kind."""
    sizes = np.array(lengths)
    for low, high in length_classes(lengths):
        inside = (sizes >= low) & (sizes <= high)
        name = f"{low} words" if low == high else f"{low} to {high} words"
        chosen = [[SentenceStatistics(run.rows[inside], run.formula) for run in kind] for kind in kinds]
        yield name, int(inside.sum()), chosen


def length_classes(lengths: Sequence[int], classes: int = LENGTHS) -> list[tuple[int, int]]:
    """The first and last length of classes that hold about equally many sentences; none is empty."""
    shares = np.linspace(0, 1, classes + 1)[1:]
    highs = np.unique(np.quantile(lengths, shares, method="inverted_cdf")).astype(int).tolist()
    lows = [min(length for length in lengths if length > before) for before in (-1, *highs[:-1])]
    return list(zip(lows, highs, strict=True))


def by_frequency(
    counts: Counter[str], references: Sequence[Sequence[str]], kinds: Sequence[Sequence[Sequence[Sequence[str]]]]
) -> Iterator[Class]:
    """Words by their frequency, for their F1; ``kinds`` are, for each kind and run, the words of every translation."""
    rows = [[word_matches(counts, run, references) for run in kind] for kind in kinds]
    for i, first in enumerate(CLASSES):
        if size := int(rows[0][0][:, i, 2].sum()):
            last = CLASSES[i + 1] - 1 if i + 1 < len(CLASSES) else None
            name = "never" if first == 0 else f"{first:,} or more" if last is None else f"{first} to {last}"
            yield name, size, [[SentenceStatistics(run[:, i], f1_formula) for run in kind] for kind in rows]


def word_matches(
    counts: Counter[str], translations: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> NDArray[np.int64]:
    """Counts (S, C, 3) by sentence and class of frequency: words matched, of the translation, of the reference."""
    rows = np.zeros((len(references), len(CLASSES), 3), dtype=np.int64)
    for row, translation, reference in zip(rows, translations, references, strict=True):
        ours, theirs = Counter(translation), Counter(reference)
        for column, words in enumerate((ours & theirs, ours, theirs)):
            for word, count in words.items():
                row[bisect_right(CLASSES, counts[word]) - 1, column] += count
    return rows


def f1_formula(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 (...) in [0, 100] of summed counts (..., 3): matched, of the translation, of the reference."""
    both = sums[..., 1] + sums[..., 2]
    return np.asarray(np.divide(200.0 * sums[..., 0], both, out=np.zeros_like(both), where=both > 0))


class Words:
    """Splits text of the target language into words, in the form that the training data has.

    Plain text is split into words and punctuation; the tokens of a Moses pipeline are words already.
    """

    def __init__(self, data: PreparedData, split: Split) -> None:
        self.tokenizer, self.state = data.tokenizer, data.text_state(split)

    def of(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of each line."""
        return [self._split(self.tokenizer.text_pipeline.encode(line, "target", self.state)) for line in lines]

    def counts(self, store: TokenStore) -> Counter[str]:
        """How often each word occurs in a token store."""
        texts = (self.tokenizer.join(store[i].tolist(), skip_special_tokens=True) for i in range(len(store)))
        return Counter(word for text in texts for word in self._split(text))

    def _split(self, prepared: str) -> list[str]:
        return _WORD.findall(prepared) if self.tokenizer.text_pipeline.name == "raw" else prepared.split()


def parts_of(classes: Iterable[Class], fair: Sequence[bool], trials: int = TRIALS) -> tuple[Part, ...]:
    """Scores and differences in all classes."""
    found = list(classes)
    tests = sum(size >= LEAST for _, size, _ in found) * sum(fair)
    level = 1 - (1 - LEVEL) / max(tests, 1)
    parts = []
    for name, size, (first, *others) in found:
        differences = [
            paired_bootstrap(*paired(first, runs), resamples=trials, level=level).interval if tested else None
            for runs, tested in zip(others, (each and size >= LEAST for each in fair), strict=True)
        ]
        whole = [pooled(runs) for runs in (first, *others)]
        scores, intervals = [each.score() for each in whole], [bootstrap_interval(each) for each in whole]
        parts.append(Part(name, size, tuple(scores), tuple(intervals), tuple(differences)))
    return tuple(parts)
