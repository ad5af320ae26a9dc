"""Scores of plain text: sacreBLEU, chrF and the paper's tokenised BLEU, each with its definition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import sacrebleu

from macaron.evaluate.bleu import Bleu, corpus_bleu, tokenised_bleu
from macaron.evaluate.significance import RESAMPLES, SEED, Interval, bootstrap_interval
from macaron.evaluate.statistics import Score, chrf_statistics, require_parallel
from macaron.text.pipeline import Pipeline


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
