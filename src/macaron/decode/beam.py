"""The state of a beam search: open hypotheses, finished ones, and how a step leads from one state to the next.

All tensors have fixed shapes, with N open and N finished hypotheses per sentence; entries with score -inf are unused.
The step number is a tensor, too, so a step needs no synchronisation and can be recorded as a CUDA graph. Letters:
B sentences, N beams, V vocabulary.
"""

import math

import torch
from torch import Tensor

from macaron.decode.finished import Finished, SearchState, ranking
from macaron.decode.settings import SearchSettings
from macaron.text.vocabulary import UNK

#: Candidates beyond those needed, so that ties at the end of the list are seen.
_SPARE = 4
#: On a CPU ``topk`` takes ten times longer than a maximum: look for blocks with large maxima first.
_BLOCK = 128
#: Below this many scores (few sentences) blocks do not pay: ``topk`` of each beam takes fewer calls.
_MANY = 1 << 18


class Beams(SearchState):
    """All hypotheses of a batch.

    :param dtype: of the log-probabilities
    """

    per_sentence = ("limits", "totals", "closed", "lost")

    def __init__(self, settings: SearchSettings, limits: Tensor, pad: int, end: int, dtype: torch.dtype) -> None:
        super().__init__(settings, limits, pad, end)
        rows, device = len(limits), limits.device
        self.totals = torch.full((rows, settings.beam), -math.inf, dtype=dtype, device=device)
        self.totals[:, 0] = 0.0  # all beams are equal at the start, so only one is expanded
        empty, zeros = torch.full_like(self.totals, -math.inf), torch.zeros_like(self.totals, dtype=torch.long)
        self.finished = Finished(empty, empty, zeros, zeros)
        self.closed = torch.zeros(rows, dtype=torch.bool, device=device)  # sentences that need no further step
        self.steps = torch.zeros(1, dtype=torch.long, device=device)
        # length^penalty for every length of a translation with its end, computed in float64
        lengths = torch.arange(int(limits.max()) + 2, dtype=torch.float64, device=device)
        self.penalties = (lengths**settings.length_penalty).to(dtype)
        self.lost = torch.zeros_like(self.closed)  # for ``late-reference``

    def advance(self, scores: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        """Take a step with the log-probabilities (B, N, V) of the open hypotheses' next tokens.

        :param scores: changed in place; (B, 1, V) in the first step, where all hypotheses are one
        :param step: only compared with ``min_length``; the number itself is in a tensor
        :param at_limit: some sentence has reached its limit
        :returns: the tokens of the new open hypotheses and the old ones that they continue, (B, N) each
        """
        beam, vocabulary, end = self.settings.beam, scores.shape[-1], self.end
        final = self.totals + scores[..., end] if at_limit else None
        totals, index = self._candidates(scores)
        parents, tokens = index // vocabulary, index % vocabulary
        ends = tokens == end

        if step >= self.settings.min_length:
            # Only an end among the first N counts; one in the second half is not good enough and is dropped.
            self._finish(totals[:, :beam], parents[:, :beam], ends[:, :beam] & (self.limits != self.steps)[:, None])
        if final is not None:
            self._close(final)

        # The first N that do not end go on: the beam never shrinks.
        onward = ends.to(torch.uint8).argsort(dim=1, stable=True)[:, :beam]
        self.totals, parents, tokens = (each.gather(1, onward) for each in (totals, parents, tokens))
        self._decide()
        self.steps = self.steps + 1
        return tokens, parents

    def tensors(self) -> list[Tensor]:
        """All that a step changes."""
        return [self.totals, self.closed, self.lost, self.steps, *self.finished]

    def set_tensors(self, tensors: list[Tensor]) -> None:
        """Use these instead of those that `tensors` returned."""
        self.totals, self.closed, self.lost, self.steps, *finished = tensors
        self.finished = Finished(*finished)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        super().select(rows)
        self.finished = self.finished.select(rows)

    def _candidates(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The best 2 N continuations: (B, 2 N) log-probabilities, and parent * V + token."""
        beam, wanted = self.settings.beam, 2 * self.settings.beam + _SPARE
        if scores.shape[2] < wanted:
            scores = scores.expand(-1, beam, -1).contiguous()  # a small vocabulary: the list ends with -inf
        scores[..., self.pad] = -math.inf
        if self.settings.unk_penalty:
            scores[..., UNK] -= self.settings.unk_penalty
        hypotheses, vocabulary = scores.shape[1:]
        totals, index = topk_continuations(self.totals[:, :hypotheses], scores, min(wanted, hypotheses * vocabulary))
        order = ranking(totals, index)[:, : 2 * beam]
        return totals.gather(1, order), index.gather(1, order)

    def _finish(self, totals: Tensor, slots: Tensor, which: Tensor) -> None:
        """Finish those of the hypotheses (B, C), best first, that the mask marks in sentences still open."""
        scores = totals / self.penalties[self.steps + 1]
        scores = scores.masked_fill(~(which & ~self.closed[:, None]), -math.inf)
        if self.settings.stop == "late-reference":
            scores = self._without_first_extra(scores)
        new = Finished(scores, totals, self.steps.expand_as(slots), slots)
        self.finished = self.finished.merge(new, first_come=self.settings.stop == "early")

    def _without_first_extra(self, scores: Tensor) -> Tensor:
        # The authors' code looks for the worst finished hypothesis only when one too many arrives, too late for that.
        exists = scores > -math.inf
        number = (self.finished.scores > -math.inf).sum(dim=1, keepdim=True) + exists.cumsum(dim=1)
        extra = exists & (number == self.settings.beam + 1) & ~self.lost[:, None]
        self.lost = self.lost | extra.any(dim=1)
        return scores.masked_fill(extra, -math.inf)

    def _close(self, final: Tensor) -> None:
        """End all open hypotheses of the sentences that have reached their limit; ``final`` (B, N) with the end."""
        here = self.limits == self.steps
        slots = torch.arange(final.shape[1], device=final.device).expand_as(final)
        order = ranking(final, slots)
        self._finish(final.gather(1, order), order, here[:, None])
        self.closed = self.closed | here

    def _decide(self) -> None:
        """Close the sentences whose finished hypotheses cannot change any more."""
        worst = self.finished.scores.amin(dim=1)
        if self.settings.stop == "early":
            self.closed = self.closed | (worst > -math.inf)
            return
        # Log-probabilities only fall: the best that an open hypothesis can reach is its present total, with the most
        # favourable length. Both lengths count the end.
        penalty = self.settings.length_penalty
        length = self.limits + 1 if penalty > 0 else self.steps + 2
        bound = self.totals.amax(dim=1) / length.to(self.totals.dtype) ** penalty
        final = (worst > -math.inf) & (worst >= bound)
        if self.settings.stop == "late-reference":
            final &= self.lost
        self.closed = self.closed | final


def topk_continuations(totals: Tensor, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest of ``totals + scores`` in each sentence, in falling order: their sums, and beam * V + token.

    :param totals: (B, N), of the hypotheses so far
    :param scores: (B, N, V), of the tokens that may continue them; may be changed
    :param count: at most N V
    :returns: (B, count) each
    """
    beams, vocabulary = scores.shape[1:]
    if scores.device.type != "cpu" or vocabulary < count * _BLOCK:
        return scores.add_(totals[..., None]).flatten(1).topk(count, dim=1)
    if scores.numel() < _MANY:
        best, tokens = scores.topk(count, dim=2)
        sums, chosen = best.add_(totals[..., None]).flatten(1).topk(count, dim=1)
        return sums, tokens.flatten(1).gather(1, chosen) + chosen // count * vocabulary
    # The largest numbers are in the blocks with the largest maxima, or in the rest behind the last block.
    blocks, rest = divmod(vocabulary, _BLOCK)
    maxima = scores.unfold(2, _BLOCK, _BLOCK).amax(dim=3).add_(totals[..., None])
    chosen = maxima.flatten(1).topk(count, dim=1, sorted=False).indices
    beam, block = chosen // blocks, chosen % blocks
    index = ((beam * vocabulary + block * _BLOCK)[..., None] + torch.arange(_BLOCK)).flatten(1)
    sums = scores.flatten(1).gather(1, index).view(*chosen.shape, -1).add_(totals.gather(1, beam)[..., None]).flatten(1)
    if rest:
        last = torch.arange(vocabulary - rest, vocabulary) + torch.arange(beams)[:, None] * vocabulary
        index = torch.cat([index, last.flatten().expand(len(index), -1)], dim=1)
        sums = torch.cat([sums, (scores[..., -rest:] + totals[..., None]).flatten(1)], dim=1)
    sums, chosen = sums.topk(count, dim=1)
    return sums, index.gather(1, chosen)
