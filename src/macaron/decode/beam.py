"""The state of a beam search: open hypotheses, complete ones, and how a step leads from one state to the next.

Everything is a tensor with a fixed shape, N open and N complete hypotheses for each sentence (those with a score
of -inf do not exist), and the number of the step is a tensor too: a step needs no answer from the device, and can be
recorded as a CUDA graph. Letters: B sentences, N beams, V vocabulary.
"""

import math

import torch
from torch import Tensor

from macaron.decode.best import best_continuations
from macaron.decode.complete import Complete, ranking
from macaron.decode.scorer import SpecialTokens
from macaron.decode.settings import Hypothesis, SearchSettings
from macaron.decode.trail import Trail

#: Candidates looked at beyond those needed, so that ties at the end of the list are seen.
_SPARE = 4


class Beams:
    """All hypotheses of a batch.

    :param limits: (B,), the longest translation of each sentence in tokens without its end
    :param dtype: of the log-probabilities
    """

    def __init__(
        self, settings: SearchSettings, special: SpecialTokens, limits: Tensor, dtype: torch.dtype = torch.float32
    ) -> None:
        self.settings, self.special, self.limits = settings, special, limits
        rows, device = len(limits), limits.device
        self.totals = torch.full((rows, settings.beam), -math.inf, dtype=dtype, device=device)
        self.totals[:, 0] = 0.0  # all begin alike: the first step continues one
        self.trail = Trail()
        self.complete = Complete.none(self.totals)
        self.closed = torch.zeros(rows, dtype=torch.bool, device=device)
        self.steps = torch.zeros(1, dtype=torch.long, device=device)
        # length^penalty for every length that a translation may have with its end, as exact as a number of Python
        longest = int(limits.max()) if rows else 0
        lengths = torch.arange(longest + 2, dtype=torch.float64, device=device)
        self.penalties = (lengths**settings.length_penalty).to(dtype)
        self.lost = torch.zeros_like(self.closed)  # for ``late-reference``

    def advance(self, scores: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        """Take a step with the log-probabilities (B, N, V) of the open hypotheses' next tokens.

        :param scores: changed in place; (B, 1, V) in the first step, where all hypotheses are one
        :param at_limit: some sentence has as many tokens now as it may have
        :returns: the tokens of the new open hypotheses and the old ones that they continue, (B, N) each
        """
        tokens, parents = self.move(scores, step, at_limit)
        self.remember(tokens, parents)
        return tokens, parents

    def remember(self, tokens: Tensor, parents: Tensor) -> None:
        """Write down where the open hypotheses have come from."""
        self.trail.append(tokens, parents, self.totals.clone())

    def move(self, scores: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        """As `advance`, but without writing it down; of ``step`` only that it is not below ``min_length`` counts."""
        beam, vocabulary, end = self.settings.beam, scores.shape[-1], self.special.end
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
        return [self.totals, self.closed, self.lost, self.steps, *self.complete.columns()]

    def set_tensors(self, tensors: list[Tensor]) -> None:
        """Take these instead of those that `tensors` gave."""
        self.totals, self.closed, self.lost, self.steps, *complete = tensors
        self.complete = Complete(*complete)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        self.limits, self.totals, self.closed, self.lost = (
            each.index_select(0, rows) for each in (self.limits, self.totals, self.closed, self.lost)
        )
        self.trail.select(rows)
        self.complete = self.complete.select(rows)

    def results(self, rows: Tensor, count: int) -> list[list[Hypothesis]]:
        """The complete hypotheses of these sentences, best first, at most so many for each."""
        return self.complete.hypotheses(self.trail, rows, self.special.end, count)

    def _candidates(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The best 2 N continuations: (B, 2 N) log-probabilities, and parent * V + token."""
        beam, wanted = self.settings.beam, 2 * self.settings.beam + _SPARE
        if scores.shape[2] < wanted:
            scores = scores.expand(-1, beam, -1).contiguous()  # so few tokens: the list ends with what does not exist
        scores[..., self.special.pad] = -math.inf
        if self.settings.unk_penalty:
            scores[..., self.special.unknown] -= self.settings.unk_penalty
        hypotheses, vocabulary = scores.shape[1:]
        totals = self.totals[:, :hypotheses]
        totals, index = best_continuations(totals, scores, min(wanted, hypotheses * vocabulary))
        order = ranking(totals, index)[:, : 2 * beam]
        return totals.gather(1, order), index.gather(1, order)

    def _finish(self, totals: Tensor, slots: Tensor, which: Tensor) -> None:
        """Complete those of the hypotheses (B, C), best first, that the mask marks in sentences still open."""
        scores = totals / self.penalties[self.steps + 1]
        scores = scores.masked_fill(~(which & ~self.closed[:, None]), -math.inf)
        if self.settings.stop == "late-reference":
            scores = self._without_first_extra(scores)
        new = Complete(scores, totals, self.steps.expand_as(slots), slots)
        self.complete = self.complete.merge(new, first_come=self.settings.stop == "early")

    def _without_first_extra(self, scores: Tensor) -> Tensor:
        # The authors' code looks for the worst complete hypothesis only when one too many arrives, too late for that.
        exists = scores > -math.inf
        place = (self.complete.scores > -math.inf).sum(dim=1, keepdim=True) + exists.cumsum(dim=1)
        extra = exists & (place == self.settings.beam + 1) & ~self.lost[:, None]
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
        """Close the sentences whose complete hypotheses cannot change any more."""
        worst = self.complete.scores.amin(dim=1)
        if self.settings.stop == "early":
            self.closed = self.closed | (worst > -math.inf)
            return
        # Log-probabilities only fall: the best that an open hypothesis can become is its present one, with the length
        # that flatters it most. Both lengths count the end.
        penalty = self.settings.length_penalty
        length = self.limits + 1 if penalty > 0 else self.steps + 2
        bound = self.totals.amax(dim=1) / length.to(self.totals.dtype) ** penalty
        final = (worst > -math.inf) & (worst >= bound)
        if self.settings.stop == "late-reference":
            final &= self.lost
        self.closed = self.closed | final
