"""The corpora of a split, and how often the pairs of each are seen in an epoch.

A split holds its corpora one after the other. A corpus of weight 2 is seen twice in an epoch; of one with weight 0.5
every epoch sees another half. Which pairs are seen is a function of the weights, a seed and the epoch alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macaron.data.batching import Indices
from macaron.errors import MacaronError


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
