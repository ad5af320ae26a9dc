"""Sentences to read: those where two translations differ most, on both sides alike, and some drawn by lot."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from macaron.evaluate.statistics import chrf_statistics

#: How many sentences of each sort, and what the lot is drawn with.
MOST, DRAWN, SEED = 12, 10, 1

Sort = Literal["first", "second", "drawn"]
#: A word, and what is said of it: both translations have it; only this one has it, and so has the reference, or not.
Mark = Literal["same", "right", "other"]


@dataclass(frozen=True)
class Example:
    """A sentence, its reference and two translations of it.

    :param sort: the first or the second translation scores higher, or the sentence was drawn by lot
    :param scores: chrF of both
    """

    number: int
    sort: Sort
    source: str
    reference: str
    translations: tuple[str, str]
    scores: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "line": self.number,
            "sort": self.sort,
            "source": self.source,
            "reference": self.reference,
            "translations": list(self.translations),
            "chrf": list(self.scores),
        }


@dataclass(frozen=True)
class Reading:
    """Sentences of one comparison.

    :param counts: sentences where the first scores higher, where the second does, where both score the same
    :param same: sentences that both translate in the same words
    :param caseless: case was not looked at
    """

    examples: tuple[Example, ...]
    counts: tuple[int, int, int]
    same: int
    caseless: bool = False

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        first, second, equal = self.counts
        return {
            "first_higher": first,
            "second_higher": second,
            "equal": equal,
            "same_words": self.same,
            "examples": [each.to_dict() for each in self.examples],
        }


def sentence_scores(
    translations: Sequence[str], references: Sequence[str], caseless: bool = False
) -> NDArray[np.float64]:
    """ChrF of each sentence by itself."""
    if caseless:
        translations, references = ([line.lower() for line in lines] for lines in (translations, references))
    statistics = chrf_statistics(translations, references)
    return statistics.formula(statistics.rows.astype(np.float64))


def choose(
    sources: Sequence[str],
    references: Sequence[str],
    first: Sequence[str],
    second: Sequence[str],
    caseless: bool = False,
) -> Reading:
    """As many sentences where the first is better as where the second is, and some that nobody chose."""
    scores = np.stack([sentence_scores(lines, references, caseless) for lines in (first, second)])
    difference = scores[1] - scores[0]
    order = np.argsort(difference, kind="stable")
    most = min(MOST, int((difference < 0).sum()), int((difference > 0).sum()))
    chosen: list[tuple[int, Sort]] = [(int(i), "first") for i in order[:most]]
    chosen += [(int(i), "second") for i in order[::-1][:most]]
    lot = np.random.default_rng(SEED).permutation(len(sources))[:DRAWN]
    chosen += [(int(i), "drawn") for i in sorted(lot.tolist())]
    examples = [
        Example(
            number=i + 1,
            sort=sort,
            source=sources[i],
            reference=references[i],
            translations=(first[i], second[i]),
            scores=(float(scores[0, i]), float(scores[1, i])),
        )
        for i, sort in chosen
    ]
    counts = (int((difference < 0).sum()), int((difference > 0).sum()), int((difference == 0).sum()))
    same = sum(one == other for one, other in zip(first, second, strict=True))
    return Reading(tuple(examples), counts, same, caseless)


def marked(line: str, other: str, reference: str, caseless: bool = False) -> list[tuple[str, Mark]]:
    """The words of a translation, and what is said of each beside another translation and the reference."""
    ours, theirs, wanted = ((each.lower() if caseless else each).split() for each in (line, other, reference))
    in_other, in_reference = _places(ours, theirs), _places(ours, wanted)
    return [
        (word, "same" if i in in_other else "right" if i in in_reference else "other")
        for i, word in enumerate(line.split())
    ]


def _places(ours: list[str], theirs: list[str]) -> set[int]:
    """Which of our words stand in theirs, in the same order."""
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return {block.a + i for block in blocks for i in range(block.size)}
