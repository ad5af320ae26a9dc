"""Scores, each with its definition: sacreBLEU and chrF of plain text, and tokenised BLEU.

Tokenised BLEU is the number of the paper, of multi-bleu.perl and of the authors' code. It depends on the tokens, so a
score always carries how they were made. BLEU and chrF are functions of sums over sentences: `significance` scores a
resampled corpus by adding rows of counts again.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from macaron.errors import MacaronError
from macaron.text.pipeline import Pipeline

#: SacreBLEU without case has a name of its own: its numbers are not compared with the others.
CASELESS = "sacreBLEU (lc)"
BLEU_ORDER = 4
CHRF_ORDER = 6
CHRF_BETA = 2
_HYPHEN = re.compile(rb"(\S)-(\S)")

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


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lower: bool,
    compound_split: bool = False,
    tokens: str = "tokens as given",
) -> Score:
    """BLEU-4 of lines whose tokens are separated by spaces: clipped counts, no smoothing, brevity penalty.

    `tokens` names the tokenisation; it is only a part of the definition.
    """
    require_parallel(hypotheses, references)
    prepare = str.lower if lower else str
    sides = [[prepare(line) for line in side] for side in (hypotheses, references)]
    if compound_split:
        sides = [[split_compounds(line) for line in side] for side in sides]
    made, wanted = ([line.split() for line in side] for side in sides)
    case, split = "case-insensitive" if lower else "cased", "yes" if compound_split else "no"
    return corpus_bleu(made, wanted, definition=f"tokenised BLEU ({case}, {tokens}, compound-split {split})")


def corpus_bleu(
    hypotheses: Sequence[Sequence[Hashable]],
    references: Sequence[Sequence[Hashable]],
    *,
    smoothing: Smoothing = "none",
    metric: str = "tokenised BLEU",
    definition: str = "tokenised BLEU (tokens as given)",
) -> Score:
    """BLEU-4 of sequences of tokens, words or numbers."""
    statistics = bleu_statistics(hypotheses, references, smoothing)
    sums = statistics.rows.sum(axis=0, dtype=np.float64)
    parts = {
        "precisions": bleu_precisions(sums, smoothing).tolist(),
        "brevity_penalty": float(brevity_penalty(sums)),
        "hypothesis_length": int(sums[0]),
        "reference_length": int(sums[1]),
    }
    return Score(metric, statistics.score(), definition, statistics, parts)


def split_compounds(line: str) -> str:
    """Hyphens inside words become tokens (``##AT##-##AT##``), as customary for WMT14 English-German.

    Bytes are substituted, not characters, as in the customary Perl command. They differ where one letter stands
    between two hyphens: a-b-c keeps the second one, ä-ö-ü does not.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str], *, lower: bool = False) -> Score:
    """SacreBLEU of plain text with its default settings (13a tokens, exponential smoothing), with its signature.

    :param lower: without case, for models that write lower-cased text; the name and the signature (case:lc) say so
    """
    require_parallel(hypotheses, references)
    metric = sacrebleu.BLEU(lowercase=lower)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    prepare = str.lower if lower else str
    made, wanted = (
        [str(metric.tokenizer(prepare(line.rstrip()))).split() for line in side] for side in (hypotheses, references)
    )
    definition = f"sacreBLEU {metric.get_signature()}"
    name = CASELESS if lower else "sacreBLEU"
    ours = corpus_bleu(made, wanted, smoothing="exp", metric=name, definition=definition)
    # The statistics are ours, for intervals; the reported number is sacreBLEU's.
    return replace(ours, score=float(score))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 of plain text (characters 1-6, no word n-grams) with sacreBLEU's signature."""
    statistics = chrf_statistics(hypotheses, references)
    metric = sacrebleu.CHRF()
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("chrF2", float(score), f"chrF2 {metric.get_signature()}", statistics)


def paper_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, *, lower: bool, compound_split: bool
) -> Score:
    """The paper's tokenised BLEU of plain text: both sides are normalised and tokenised as Moses does.

    IWSLT14 German-English: ``lower=True, compound_split=False``. WMT14 English-German: ``lower=False,
    compound_split=True``.
    """
    require_parallel(hypotheses, references)
    made, wanted = ([moses_tokens(line, language) for line in side] for side in (hypotheses, references))
    kind = "moses tokens of normalised text"
    return tokenised_bleu(made, wanted, lower=lower, compound_split=compound_split, tokens=kind)


def moses_tokens(line: str, language: str) -> str:
    """Normalised punctuation, Moses tokens separated by spaces, special characters escaped (its default)."""
    return Pipeline("moses", language, language, lower=False).encode(line)


def bleu_statistics(
    hypotheses: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Hashable]], smoothing: Smoothing = "none"
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
            row[n - 1] = in_hypothesis, in_reference, (_ngrams(ours, n) & _ngrams(theirs, n)).total()
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
    lengths, match = by_order[..., :2], by_order[..., 2:]
    counted = (lengths > 0).all(axis=-1, keepdims=True)
    # Of each order: matches by the n-grams of the translation, and by those of the reference.
    shares = np.divide(match, lengths, out=np.zeros_like(lengths), where=counted)
    precision, recall = np.moveaxis(shares.sum(axis=-2) / np.maximum(counted.sum(axis=-2), 1), -1, 0)
    weighted = CHRF_BETA**2 * precision + recall
    product = 100.0 * (1 + CHRF_BETA**2) * precision * recall
    return np.asarray(np.divide(product, weighted, out=np.zeros_like(product), where=weighted > 0))


def _ngrams(tokens: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))
