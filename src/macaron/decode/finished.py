"""Finished hypotheses: the N best of each sentence, and the backpointers that lead back to their tokens."""

import math
from operator import sub
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from macaron.decode.settings import Hypothesis, SearchSettings

#: In float64, scores nearer than this are equal and the first wins: rounding errors, which depend on the shape of the
#: batch, then decide nothing.
_TIE = 1e-9


class Finished(NamedTuple):
    """The finished hypotheses of B sentences, each (B, N); a score of -inf is an empty entry.

    ``lengths`` are without the end; ``slots`` are the beams in which the hypotheses ended.
    """

    scores: Tensor
    totals: Tensor
    lengths: Tensor
    slots: Tensor

    def merge(self, new: "Finished", first_come: bool) -> "Finished":
        """The best N of this table and of new ones (B, C), which are given best first.

        :param first_come: entries are never replaced; only empty ones are filled
        """
        entries = self.scores.shape[1]
        key = rounded(torch.cat([self.scores, new.scores], dim=1))
        if first_come:
            key[:, :entries].masked_fill_(self.scores > -math.inf, math.inf)
        keep = key.argsort(dim=1, descending=True, stable=True)[:, :entries]
        return Finished(*(torch.cat(both, dim=1).gather(1, keep) for both in zip(self, new, strict=True)))

    def select(self, rows: Tensor) -> "Finished":
        """These sentences, in this order."""
        return Finished(*(column.index_select(0, rows) for column in self))

    def best(self, rows: Tensor, count: int) -> "Finished":
        """The best ``count`` of these sentences, best first."""
        chosen = self.select(rows)
        order = rounded(chosen.scores).argsort(dim=1, descending=True, stable=True)[:, :count]
        return Finished(*(column.gather(1, order) for column in chosen))


class SearchState:
    """What the states of beam search and sampling share: backpointers, and hypotheses from them.

    For each step there are (B, N) tokens, the beams they continue, and the total log-probabilities so far. Hypotheses
    share their beginnings here. A matrix of whole hypotheses would have to be reordered at every step.

    :param limits: (B,), the longest translation of each sentence in tokens without its end
    :param pad: the padding token
    :param end: the token that ends a translation
    """

    #: Names of the tensors with one row for each sentence.
    per_sentence: ClassVar[tuple[str, ...]]
    totals: Tensor
    finished: Finished

    def __init__(self, settings: SearchSettings, limits: Tensor, pad: int, end: int) -> None:
        self.settings, self.limits, self.pad, self.end = settings, limits, pad, end
        self._columns: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])

    def remember(self, tokens: Tensor, parents: Tensor) -> None:
        """Store the result of a step, (B, N) each. Not part of the step: that may be recorded, and these lists grow."""
        for column, new in zip(self._columns, (tokens, parents, self.totals.clone()), strict=True):
            column.append(new[None])

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        for column in self._columns:
            column[:] = [torch.cat(column).index_select(1, rows)]
        for name in self.per_sentence:
            setattr(self, name, getattr(self, name).index_select(0, rows))

    def results(self, rows: Tensor, count: int) -> list[list[Hypothesis]]:
        """The finished hypotheses of these sentences, best first, at most ``count`` for each."""
        finished = self.finished.best(rows, count)
        paths, sums = self._follow(rows, finished.slots.cpu(), finished.lengths.cpu())
        found: list[list[Hypothesis]] = []
        columns = (paths, sums, finished.lengths, finished.totals, finished.scores)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            best: list[Hypothesis] = []
            for tokens, partial, length, total, score in zip(*row, strict=True):
                if score == -math.inf:
                    continue
                cumulative = [*partial[:length], total]
                steps = tuple(map(sub, cumulative, [0.0, *cumulative]))
                best.append(Hypothesis("", score, (*tokens[:length], self.end), steps))
            found.append(best)
        return found

    def _follow(self, rows: Tensor, slots: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens and totals of hypotheses, (R, N, T), meaningful up to their lengths.

        :param slots: (R, N), the beam that each ended in
        :param lengths: (R, N), its number of tokens without the end
        """
        tokens, parents, totals = (torch.cat(column).index_select(1, rows).cpu() for column in self._columns)
        path, sums = [], []
        for step in reversed(range(len(tokens))):
            path.append(tokens[step].gather(1, slots))
            sums.append(totals[step].gather(1, slots))
            slots = torch.where(step < lengths, parents[step].gather(1, slots), slots)
        return torch.stack(path[::-1], dim=2), torch.stack(sums[::-1], dim=2)


def rounded(scores: Tensor) -> Tensor:
    """A copy for comparison in which ties are exact."""
    return torch.round(scores / _TIE) if scores.dtype == torch.float64 else scores.clone()


def ranking(scores: Tensor, index: Tensor) -> Tensor:
    """The order of (B, C) by falling score; of equal ones that with the smaller index comes first."""
    by_index = index.argsort(dim=1)
    key = rounded(scores).gather(1, by_index)
    return by_index.gather(1, key.argsort(dim=1, descending=True, stable=True))
