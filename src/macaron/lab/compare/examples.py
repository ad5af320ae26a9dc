"""Example sentences: those where two translations differ most, equally many for either model, and a random sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from macaron.evaluate.scores import chrf_statistics

#: The number of sentences where one model is better, the size of the random sample, and its seed.
MOST, DRAWN, SEED = 12, 10, 1

Sort = Literal["first", "second", "drawn"]
#: A word of a translation: the other one has it, too; or only this one has it, and the reference has it or not.
Mark = Literal["same", "right", "other"]


@dataclass(frozen=True)
class Example:
    """A sentence, its reference and two translations of it.

    :param sort: the first or the second translation scores higher, or the sentence was drawn at random
    """

    line: int
    sort: Sort
    source: str
    reference: str
    translations: list[str]
    chrf: list[float]


@dataclass(frozen=True)
class Reading:
    """Sentences of one comparison.

    :param counts: sentences where the first scores higher, where the second does, where both score the same; None if
        the comparison is unfair
    """

    examples: tuple[Example, ...]
    counts: tuple[int, int, int] | None
    same: int
    caseless: bool = False


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
    *,
    ranked: bool = True,
) -> Reading:
    """Choose sentences: as many where the first is better as where the second is, and a random sample.

    :param ranked: False for an unfair comparison: the random sample alone, and no counts
    """
    scores = np.stack([sentence_scores(lines, references, caseless) for lines in (first, second)])
    difference = scores[1] - scores[0]
    order = np.argsort(difference, kind="stable").tolist()
    counts = (int((difference < 0).sum()), int((difference > 0).sum()), int((difference == 0).sum()))
    most = min(MOST, *counts[:2]) if ranked else 0
    sample = np.random.default_rng(SEED).permutation(len(sources))[:DRAWN].tolist()
    chosen: dict[Sort, list[int]] = {"first": order[:most], "second": order[::-1][:most], "drawn": sorted(sample)}
    examples = [
        Example(i + 1, sort, sources[i], references[i], [first[i], second[i]], scores[:, i].tolist())
        for sort, lines in chosen.items()
        for i in lines
    ]
    same = sum(one == other for one, other in zip(first, second, strict=True))
    return Reading(tuple(examples), counts if ranked else None, same, caseless)


def marked(line: str, other: str, reference: str, caseless: bool = False) -> list[tuple[str, Mark]]:
    """The words of a translation, each compared with another translation and the reference."""
    ours, *others = ((each.lower() if caseless else each).split() for each in (line, other, reference))
    found = []
    for theirs in others:  # indices of our words that are in theirs, in the same order
        blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
        found.append({block.a + i for block in blocks for i in range(block.size)})
    marks: list[Mark] = ["same" if i in found[0] else "right" if i in found[1] else "other" for i in range(len(ours))]
    return list(zip(line.split(), marks, strict=True))
