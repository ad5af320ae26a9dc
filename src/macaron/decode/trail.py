"""Where the hypotheses came from: tokens, parents and scores of every step, followed backwards at the end."""

from operator import sub

import torch
from torch import Tensor

from macaron.decode.settings import Hypothesis


class Trail:
    """For each step (B, N) tokens, the beams they continue, and the total log-probabilities so far.

    Hypotheses share their beginnings here. A matrix of whole hypotheses would have to be reordered at every step.
    """

    def __init__(self) -> None:
        self._columns: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])

    def append(self, tokens: Tensor, parents: Tensor, totals: Tensor) -> None:
        """Add a step: each (B, N)."""
        for column, new in zip(self._columns, (tokens, parents, totals), strict=True):
            column.append(new[None])

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        for column in self._columns:
            if column:
                column[:] = [torch.cat(column).index_select(1, rows)]

    def follow(self, rows: Tensor, slots: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Go back from beam ``slots`` at step ``lengths`` of some sentences.

        :param rows: (R,) the sentences
        :param slots: (R, N), for each hypothesis the beam it ended in
        :param lengths: (R, N), its number of tokens without the end
        :returns: tokens and totals, (R, N, T), meaningful up to the length
        """
        if not self._columns[0]:
            nothing = slots.new_zeros(*slots.shape, 0).cpu()
            return nothing, nothing.double()
        tokens, parents, totals = (torch.cat(column).index_select(1, rows).cpu() for column in self._columns)
        slots, lengths = slots.cpu(), lengths.cpu()
        path, sums = [], []
        for step in reversed(range(len(tokens))):
            path.append(tokens[step].gather(1, slots))
            sums.append(totals[step].gather(1, slots))
            slots = torch.where(step < lengths, parents[step].gather(1, slots), slots)
        return torch.stack(path[::-1], dim=2), torch.stack(sums[::-1], dim=2)


def hypotheses(
    path: Tensor, sums: Tensor, lengths: Tensor, totals: Tensor, scores: Tensor, end: int
) -> list[list[Hypothesis]]:
    """Hypotheses of R sentences, best first; those with a score of -inf do not exist.

    :param path: (R, N, T) tokens, see `Trail.follow`
    :param sums: (R, N, T) log-probabilities summed up to each token
    :param lengths: (R, N), without the end
    :param totals: (R, N) log-probabilities with the end
    """
    found: list[list[Hypothesis]] = []
    columns = (path, sums, lengths, totals, scores)
    for row in zip(*(column.tolist() for column in columns), strict=True):
        best: list[Hypothesis] = []
        for tokens, partial, length, total, score in zip(*row, strict=True):
            if score == -torch.inf:
                continue
            cumulative = [*partial[:length], total]
            steps = tuple(map(sub, cumulative, [0.0, *cumulative]))
            best.append(Hypothesis("", score, (*tokens[:length], end), steps))
        found.append(best)
    return found
