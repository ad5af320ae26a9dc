"""Complete hypotheses: the table of the N best of each sentence, and ranking."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from macaron.decode.settings import Hypothesis
from macaron.decode.trail import Trail, hypotheses

#: In float64 scores nearer than this are equal, and who comes first wins: rounding errors, which depend on the shape
#: of the batch, then decide nothing.
_TIE = 1e-9


@dataclass
class Complete:
    """The complete hypotheses of B sentences, each (B, N); a score of -inf is an empty place.

    ``lengths`` are without the end; ``slots`` the beams in which the hypotheses ended.
    """

    scores: Tensor
    totals: Tensor
    lengths: Tensor
    slots: Tensor

    @classmethod
    def none(cls, like: Tensor) -> "Complete":
        """An empty table of the shape of (B, N) totals."""
        empty = torch.full_like(like, -math.inf)
        zeros = torch.zeros_like(like, dtype=torch.long)
        return cls(empty, empty, zeros, zeros)

    def merge(self, new: "Complete", first_come: bool) -> "Complete":
        """The best N of this table and of new ones (B, C), which are given best first.

        :param first_come: who is here stays, and only free places go to the new
        """
        places = self.scores.shape[1]
        key = rounded(torch.cat([self.scores, new.scores], dim=1))
        if first_come:
            key[:, :places].masked_fill_(self.scores > -math.inf, math.inf)
        keep = key.argsort(dim=1, descending=True, stable=True)[:, :places]
        columns = zip(self.columns(), new.columns(), strict=True)
        return Complete(*(torch.cat(both, dim=1).gather(1, keep) for both in columns))

    def select(self, rows: Tensor) -> "Complete":
        """These sentences, in this order."""
        return Complete(*(column.index_select(0, rows) for column in self.columns()))

    def hypotheses(self, trail: Trail, rows: Tensor, end: int, count: int) -> list[list[Hypothesis]]:
        """What is in the table for these sentences, best first, at most ``count`` for each."""
        chosen = self.select(rows)
        order = rounded(chosen.scores).argsort(dim=1, descending=True, stable=True)[:, :count]
        best = Complete(*(column.gather(1, order) for column in chosen.columns()))
        path, sums = trail.follow(rows, best.slots, best.lengths)
        return hypotheses(path, sums, best.lengths, best.totals, best.scores, end)

    def columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Its four tensors, in the order of the fields."""
        return self.scores, self.totals, self.lengths, self.slots


def rounded(scores: Tensor) -> Tensor:
    """A copy for comparison in which ties are exact."""
    return torch.round(scores / _TIE) if scores.dtype == torch.float64 else scores.clone()


def ranking(scores: Tensor, index: Tensor) -> Tensor:
    """The order of (B, C) by falling score; of equal ones that with the smaller index comes first."""
    by_index = index.argsort(dim=1)
    key = rounded(scores).gather(1, by_index)
    return by_index.gather(1, key.argsort(dim=1, descending=True, stable=True))
