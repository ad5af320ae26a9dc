"""Scores, each with its definition: sacreBLEU and chrF of plain text, and tokenised BLEU.

Tokenised BLEU is the number of the paper, of multi-bleu.perl and of the authors' code. It depends on the tokens, so a
score always carries how they were made. For plain text use `paper_bleu`, which tokenises first.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sacrebleu

from macaron.evaluate.significance import RESAMPLES, SEED, Interval, bootstrap_interval
from macaron.evaluate.statistics import (
    Score,
    Smoothing,
    bleu_precisions,
    bleu_statistics,
    brevity_penalty,
    chrf_statistics,
    require_parallel,
)
from macaron.text.pipeline import Pipeline

_HYPHEN = re.compile(rb"(\S)-(\S)")
_END_OF_SENTENCE = object()


@dataclass(frozen=True)
class Bleu(Score):
    """A BLEU score with its parts: precisions are fractions of orders 1-4, lengths are in tokens."""

    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int

    def __str__(self) -> str:
        """One line: the definition, the score and its parts, as multi-bleu prints them."""
        parts = "/".join(f"{100 * precision:.1f}" for precision in self.precisions)
        ratio = self.hypothesis_length / self.reference_length if self.reference_length else 0.0
        return (
            f"{self.definition} = {self.score:.2f}, {parts} (BP={self.brevity_penalty:.3f}, "
            f"ratio={ratio:.3f}, syslen={self.hypothesis_length}, reflen={self.reference_length})"
        )


def tokenised_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lower: bool,
    compound_split: bool = False,
    tokens: str = "tokens as given",
) -> Bleu:
    """BLEU-4 of lines whose tokens are separated by spaces: clipped counts, no smoothing, brevity penalty.

    `tokens` names the tokenisation; it is only a part of the definition.
    """
    require_parallel(hypotheses, references)

    def split(line: str) -> list[str]:
        line = line.lower() if lower else line
        return (split_compounds(line) if compound_split else line).split()

    return corpus_bleu(
        [split(line) for line in hypotheses],
        [split(line) for line in references],
        definition=(
            f"tokenised BLEU ({'case-insensitive' if lower else 'cased'}, {tokens}, "
            f"compound-split {'yes' if compound_split else 'no'})"
        ),
    )


def corpus_bleu(
    hypotheses: Sequence[Sequence[Hashable]],
    references: Sequence[Sequence[Hashable]],
    *,
    unknown: Hashable | None = None,
    count_empty_lines: bool = False,
    smoothing: Smoothing = "none",
    metric: str = "tokenised BLEU",
    definition: str = "tokenised BLEU (tokens as given)",
) -> Bleu:
    """BLEU-4 of sequences of tokens, words or numbers.

    Two habits of the authors' scorer are options: an `unknown` token (their ``<unk>``) in a reference never matches,
    and with `count_empty_lines` an empty line counts as one token.
    """
    if unknown is not None:
        references = [[object() if token == unknown else token for token in line] for line in references]
    if count_empty_lines:
        # Their scorer strips the end of sentence from a line, but never its last token.
        hypotheses = [line or [_END_OF_SENTENCE] for line in hypotheses]
        references = [line or [_END_OF_SENTENCE] for line in references]
    statistics = bleu_statistics(hypotheses, references, smoothing)
    sums = statistics.rows.sum(axis=0, dtype=np.float64)
    return Bleu(
        metric=metric,
        score=statistics.score(),
        definition=definition,
        statistics=statistics,
        precisions=tuple(bleu_precisions(sums, smoothing).tolist()),
        brevity_penalty=float(brevity_penalty(sums)),
        hypothesis_length=int(sums[0]),
        reference_length=int(sums[1]),
    )


def split_compounds(line: str) -> str:
    """Hyphens inside words become tokens (``##AT##-##AT##``), as customary for WMT14 English-German.

    Bytes are substituted, not characters, as in the customary Perl command. They differ where one letter stands
    between two hyphens: a-b-c keeps the second one, ä-ö-ü does not.
    """
    return _HYPHEN.sub(rb"\1 ##AT##-##AT## \2", line.encode()).decode()


def sacre_bleu(hypotheses: Sequence[str], references: Sequence[str], *, lower: bool = False) -> Bleu:
    """SacreBLEU of plain text with its default settings (13a tokens, exponential smoothing), with its signature."""
    require_parallel(hypotheses, references)
    metric = sacrebleu.BLEU(lowercase=lower)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    signature = f"sacreBLEU {metric.get_signature()}"

    def split(line: str) -> list[str]:
        line = line.rstrip()
        return str(metric.tokenizer(line.lower() if lower else line)).split()

    ours = corpus_bleu(
        [split(line) for line in hypotheses],
        [split(line) for line in references],
        smoothing="exp",
        metric="sacreBLEU",
        definition=signature,
    )
    # The statistics are ours, for intervals; the reported number is sacreBLEU's.
    return replace(ours, score=float(score))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 of plain text (characters 1-6, no word n-grams) with sacreBLEU's signature."""
    require_parallel(hypotheses, references)
    metric = sacrebleu.CHRF()
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    definition = f"chrF2 {metric.get_signature()}"
    return Score("chrF2", float(score), definition, chrf_statistics(hypotheses, references))


def paper_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    lower: bool,
    compound_split: bool,
) -> Bleu:
    """The paper's tokenised BLEU of plain text: both sides are normalised and tokenised as Moses does.

    IWSLT14 German-English: ``lower=True, compound_split=False``. WMT14 English-German: ``lower=False,
    compound_split=True``.
    """
    require_parallel(hypotheses, references)
    return tokenised_bleu(
        [moses_tokens(line, language) for line in hypotheses],
        [moses_tokens(line, language) for line in references],
        lower=lower,
        compound_split=compound_split,
        tokens="moses tokens of normalised text",
    )


def moses_tokens(line: str, language: str) -> str:
    """Normalised punctuation, Moses tokens separated by spaces, special characters escaped (its default)."""
    return Pipeline("moses", language, language, lower=False).encode(line)


@dataclass(frozen=True)
class Evaluation:
    """Several scores of one set of translations, each with a 95 % confidence interval."""

    sentences: int
    scores: tuple[Score, ...]
    intervals: tuple[Interval, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able values: the number of sentences; per metric the score, its definition, its interval."""
        return {
            "sentences": self.sentences,
            "scores": [
                {**score.to_dict(), "interval": interval.to_dict()}
                for score, interval in zip(self.scores, self.intervals, strict=True)
            ],
        }

    def __str__(self) -> str:
        lines = (
            f"{score.metric:14s} {score.score:6.2f}  {interval}  {score.definition}"
            for score, interval in zip(self.scores, self.intervals, strict=True)
        )
        first = self.intervals[0]
        return "\n".join([*lines, f"in brackets: {first.level:.0%} bootstrap intervals, {first.resamples} resamples"])


def evaluate_text(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    lower: bool = True,
    compound_split: bool = False,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Evaluation:
    """All scores of translations into `language`; `lower` and `compound_split` concern the paper's BLEU."""
    scores = (
        sacre_bleu(hypotheses, references),
        chrf(hypotheses, references),
        paper_bleu(hypotheses, references, language, lower=lower, compound_split=compound_split),
    )
    return evaluation_of(len(hypotheses), scores, resamples=resamples, seed=seed)


def evaluation_of(
    sentences: int, scores: tuple[Score, ...], *, resamples: int = RESAMPLES, seed: int = SEED
) -> Evaluation:
    """Scores with their confidence intervals."""
    intervals = tuple(bootstrap_interval(score.statistics, resamples=resamples, seed=seed) for score in scores)
    return Evaluation(sentences, scores, intervals)
