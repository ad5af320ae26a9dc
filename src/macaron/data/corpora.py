"""The corpora of a split, how often the pairs of each are seen in an epoch, and the sections of an epoch.

A split holds its corpora one after the other. A corpus of weight 2 is seen twice in an epoch; of one with weight 0.5
every epoch sees another half. Which pairs are seen is a function of the weights, a seed and the epoch alone.

An epoch of a large split is planned section by section, so memory does not grow with it. A section consists of blocks
from all over the split, so every section resembles the whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macaron.data.batching import Indices
from macaron.errors import MacaronError

#: Sequences of a section, and blocks of each, roughly.
SECTION, BLOCKS = 1 << 21, 64


@dataclass(frozen=True)
class CorpusPart:
    """Consecutive pairs of a split that come from one corpus.

    :param path: the prefix of its files, as the recipe names it
    :param pairs: number of pairs after cleaning
    """

    path: str
    pairs: int
    tag: str | None = None
    weight: float = 1.0

    def __str__(self) -> str:
        marks = [f"weight {self.weight:g}"] if self.weight != 1 else []
        return ", ".join([f"{self.path}: {self.pairs:,} pairs", *marks, *([f"tag {self.tag}"] if self.tag else [])])


def reweighted(corpora: Sequence[CorpusPart], weights: dict[str, float], folder: object) -> tuple[CorpusPart, ...]:
    """Corpora with the weights of a recipe, by path. Corpora that it does not name keep theirs.

    :param folder: the prepared folder, for messages
    """
    paths = [corpus.path for corpus in corpora]
    for path, weight in weights.items():
        if weight != 1 and path not in paths:
            raise MacaronError(
                f"data.train: {path} has weight {weight:g}, but {folder} holds no such corpus (it holds "
                f"{', '.join(paths) or 'one whose name was not recorded'}). Run 'macaron prepare' with this recipe."
            )
    return tuple(CorpusPart(each.path, each.pairs, each.tag, weights.get(each.path, each.weight)) for each in corpora)


class Mixture:
    """The pairs that each epoch sees.

    Pairs of a corpus are drawn without replacement from one random order after the other: at any time all have been
    seen equally often, up to one.

    :param kept: the pairs to take, in ascending order
    """

    def __init__(self, kept: Indices, corpora: Sequence[CorpusPart], seed: int) -> None:
        self.seed = seed
        ends = np.searchsorted(kept, np.cumsum([corpus.pairs for corpus in corpora]))
        self.parts = np.split(kept, ends[:-1])
        self.weights = [corpus.weight for corpus in corpora]
        #: Every epoch sees the same pairs.
        self.constant = all(weight.is_integer() for weight in self.weights)
        if sum(int(weight * len(part)) for weight, part in zip(self.weights, self.parts, strict=True)) < 1:
            raise MacaronError("data.train: with these weights an epoch sees no pair: raise them")

    def epoch(self, number: int) -> Indices:
        """The pairs of an epoch (from 1) in ascending order, each as often as it is seen."""
        drawn = [
            self._drawn(part, weight, corpus, number)
            for corpus, (part, weight) in enumerate(zip(self.parts, self.weights, strict=True))
        ]
        return np.concatenate(drawn)

    def _drawn(self, part: Indices, weight: float, corpus: int, number: int) -> Indices:
        size = len(part)
        start, stop = round((number - 1) * weight * size), round(number * weight * size)
        times = np.zeros(size, np.int64)
        position = start
        while position < stop:  # through the random orders that this epoch touches
            order, begin = divmod(position, size)
            end = min(size, begin + stop - position)
            if (begin, end) == (0, size):
                times += 1
            else:
                random = np.random.default_rng([self.seed, corpus, order])
                times[random.permutation(size)[begin:end]] += 1
            position += end - begin
        return np.repeat(part, times)


def section_count(size: int) -> int:
    """The number of sections of a corpus of ``size`` sequences."""
    return max(1, -(-size // SECTION))


def section_blocks(size: int, section: int, sections: int, seed: int) -> list[tuple[int, int]]:
    """The blocks of a section as (start, stop), in ascending order. Each item of a corpus is in one section.

    :param size: items of the corpus: pairs or documents
    """
    if sections == 1:
        return [(0, size)]
    edges = np.linspace(0, size, min(size, BLOCKS * sections) + 1).astype(np.int64).tolist()
    order = np.random.default_rng([seed, sections]).permutation(len(edges) - 1)
    return [(edges[block], edges[block + 1]) for block in sorted(order[section::sections].tolist())]
