"""Per-sentence counts behind BLEU and chrF, and the formulas that turn their sums into scores.

Both metrics are functions of sums over sentences. With one row of counts per sentence, scoring a resampled
corpus means adding rows again, which `macaron.evaluate.significance` does thousands of times.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from macaron.errors import MacaronError

BLEU_ORDER = 4
CHRF_ORDER = 6
CHRF_BETA = 2

Smoothing = Literal["none", "exp"]
Formula = Callable[[NDArray[np.float64]], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class SentenceStatistics:
    """Counts of each sentence (S, C), and the formula from sums (..., C) to scores (...) in [0, 100]."""

    rows: NDArray[np.int64]
    formula: Formula

    def score(self) -> float:
        """Score of the whole corpus."""
        return float(self.formula(self.rows.sum(axis=0, dtype=np.float64)))


@dataclass(frozen=True)
class Score:
    """A number together with its definition; the statistics allow intervals and comparisons.

    :param parts: the numbers it is made of, if any: those of a BLEU score, where precisions are fractions of orders 1-4
        and lengths are in tokens
    """

    metric: str
    score: float
    definition: str
    statistics: SentenceStatistics = field(repr=False, compare=False)
    parts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The score as JSON-able values, without the per-sentence statistics."""
        return {"metric": self.metric, "score": self.score, "definition": self.definition, **self.parts}


def require_parallel(hypotheses: Sequence[object], references: Sequence[object]) -> None:
    """Refuse corpora of different lengths, and empty ones."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise MacaronError("a single string was given where a list of sentences is expected: write [text]")
    if len(hypotheses) != len(references):
        raise MacaronError(
            f"{len(hypotheses)} translations but {len(references)} references: "
            "give one reference for every translation, in the same order"
        )
    if not hypotheses:
        raise MacaronError("nothing to score: the translations and references have no lines")


def bleu_statistics(
    hypotheses: Sequence[Sequence[Hashable]],
    references: Sequence[Sequence[Hashable]],
    smoothing: Smoothing = "none",
) -> SentenceStatistics:
    """Columns: translation length, reference length, clipped matches of orders 1-4, n-grams of orders 1-4."""
    require_parallel(hypotheses, references)
    rows = np.zeros((len(hypotheses), 2 + 2 * BLEU_ORDER), dtype=np.int64)
    for row, hypothesis, reference in zip(rows, hypotheses, references, strict=True):
        row[:2] = len(hypothesis), len(reference)
        for n in range(1, BLEU_ORDER + 1):
            row[1 + n] = (_ngrams(hypothesis, n) & _ngrams(reference, n)).total()
            row[1 + BLEU_ORDER + n] = max(len(hypothesis) - n + 1, 0)
    return SentenceStatistics(rows, partial(bleu_formula, smoothing=smoothing))


def chrf_statistics(hypotheses: Sequence[str], references: Sequence[str]) -> SentenceStatistics:
    """Columns, for each character order 1-6: n-grams of the translation, of the reference, matches."""
    require_parallel(hypotheses, references)
    rows = np.zeros((len(hypotheses), CHRF_ORDER, 3), dtype=np.int64)
    for row, hypothesis, reference in zip(rows, hypotheses, references, strict=True):
        ours, theirs = "".join(hypothesis.split()), "".join(reference.split())
        for n in range(1, CHRF_ORDER + 1):
            in_reference = max(len(theirs) - n + 1, 0)
            # A sentence too short to have n-grams in the reference does not count against the translation.
            in_hypothesis = max(len(ours) - n + 1, 0) if in_reference else 0
            row[n - 1] = in_hypothesis, in_reference, (_substrings(ours, n) & _substrings(theirs, n)).total()
    return SentenceStatistics(rows.reshape(len(rows), -1), chrf_formula)


def bleu_precisions(sums: NDArray[np.float64], smoothing: Smoothing = "none") -> NDArray[np.float64]:
    """Precisions (..., 4) of summed counts (..., 10), as fractions."""
    correct, total = sums[..., 2 : 2 + BLEU_ORDER], sums[..., 2 + BLEU_ORDER :]
    precisions = np.divide(correct, total, out=np.zeros_like(correct), where=total > 0)
    if smoothing == "exp":
        # mteval-v13a: the k-th order without a match counts as 2^-k of one; a corpus without any stays 0.
        empty = (correct == 0) & (total > 0) & (correct.sum(axis=-1, keepdims=True) > 0)
        share = 2.0 ** -np.cumsum(empty, axis=-1)
        precisions = np.where(empty, share / np.maximum(total, 1), precisions)
    return precisions


def brevity_penalty(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """min(1, exp(1 - reference length / translation length)) of summed counts (..., 10)."""
    hypothesis, reference = sums[..., 0], sums[..., 1]
    ratio = np.divide(reference, hypothesis, out=np.full_like(hypothesis, np.inf), where=hypothesis > 0)
    return np.asarray(np.exp(np.minimum(0.0, 1.0 - ratio)))


def bleu_formula(sums: NDArray[np.float64], smoothing: Smoothing = "none") -> NDArray[np.float64]:
    """BLEU (...) in [0, 100] of summed counts (..., 10); an order without a match gives 0 unless smoothed."""
    with np.errstate(divide="ignore"):
        mean = np.log(bleu_precisions(sums, smoothing)).mean(axis=-1)
    return np.asarray(100.0 * brevity_penalty(sums) * np.exp(mean))


def chrf_formula(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """chrF2 (...) in [0, 100] of summed counts (..., 18): F of the mean precision and mean recall."""
    by_order = sums.reshape(*sums.shape[:-1], CHRF_ORDER, 3)
    hypothesis, reference, match = by_order[..., 0], by_order[..., 1], by_order[..., 2]
    counted = (hypothesis > 0) & (reference > 0)
    orders = np.maximum(counted.sum(axis=-1), 1)
    precision = np.divide(match, hypothesis, out=np.zeros_like(match), where=counted).sum(axis=-1) / orders
    recall = np.divide(match, reference, out=np.zeros_like(match), where=counted).sum(axis=-1) / orders
    weighted = CHRF_BETA**2 * precision + recall
    product = 100.0 * (1 + CHRF_BETA**2) * precision * recall
    return np.asarray(np.divide(product, weighted, out=np.zeros_like(product), where=weighted > 0))


def _ngrams(tokens: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def _substrings(text: str, n: int) -> Counter[str]:
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))
