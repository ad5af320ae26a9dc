"""Scores, each with its definition: sacreBLEU and chrF of plain text, and tokenised BLEU.

Tokenised BLEU is the number of the paper, of multi-bleu.perl and of the authors' code. It depends on the tokens, so a
score always carries how they were made. For plain text use `paper_bleu`, which tokenises first.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np
import sacrebleu

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
    """SacreBLEU of plain text with its default settings (13a tokens, exponential smoothing), with its signature."""
    require_parallel(hypotheses, references)
    metric = sacrebleu.BLEU(lowercase=lower)
    score = metric.corpus_score(list(hypotheses), [list(references)]).score

    def split(line: str) -> list[str]:
        line = line.rstrip()
        return str(metric.tokenizer(line.lower() if lower else line)).split()

    ours = corpus_bleu(
        [split(line) for line in hypotheses],
        [split(line) for line in references],
        smoothing="exp",
        metric="sacreBLEU",
        definition=f"sacreBLEU {metric.get_signature()}",
    )
    # The statistics are ours, for intervals; the reported number is sacreBLEU's.
    return replace(ours, score=float(score))


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 of plain text (characters 1-6, no word n-grams) with sacreBLEU's signature."""
    statistics = chrf_statistics(hypotheses, references)
    metric = sacrebleu.CHRF()
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("chrF2", float(score), f"chrF2 {metric.get_signature()}", statistics)


def paper_bleu(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    lower: bool,
    compound_split: bool,
) -> Score:
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
