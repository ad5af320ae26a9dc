"""Tokenised BLEU: the number of the paper, of multi-bleu.perl and of the authors' code.

It depends on the tokens, so a score always carries how they were made. For plain text use
`macaron.evaluate.scores.paper_bleu`, which tokenises first.
"""

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from macaron.evaluate.statistics import (
    Score,
    Smoothing,
    bleu_precisions,
    bleu_statistics,
    brevity_penalty,
    require_parallel,
)

_HYPHEN = re.compile(rb"(\S)-(\S)")
_END_OF_SENTENCE = object()


@dataclass(frozen=True)
class Bleu(Score):
    """A BLEU score with its parts: precisions are fractions of orders 1-4, lengths are in tokens."""

    precisions: tuple[float, ...]
    brevity_penalty: float
    hypothesis_length: int
    reference_length: int

    @property
    def signature(self) -> str:
        """One line: the definition, the score and its parts, as multi-bleu prints them."""
        parts = "/".join(f"{100 * precision:.1f}" for precision in self.precisions)
        ratio = self.hypothesis_length / self.reference_length if self.reference_length else 0.0
        return (
            f"{self.definition} = {self.score:.2f}, {parts} (BP={self.brevity_penalty:.3f}, "
            f"ratio={ratio:.3f}, syslen={self.hypothesis_length}, reflen={self.reference_length})"
        )

    def __str__(self) -> str:
        return self.signature


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
