"""The states of beam search and sampling: open hypotheses, finished ones, how a step leads from one to the next.

All tensors have fixed shapes, with N open and N finished hypotheses per sentence; entries with score -inf are unused.
The step number is a tensor, too, so a step needs no synchronisation and can be recorded as a CUDA graph. Letters:
B sentences, N beams, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import sub
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from macaron.decode.settings import Hypothesis, Sampling, SearchSettings
from macaron.device import to_host
from macaron.errors import not_finite

#: Candidates beyond those needed, so that ties at the end of the list are seen.
_SPARE = 4
#: On a CPU ``topk`` takes ten times longer than a maximum: look for blocks with large maxima first.
BLOCK = 128
#: Below this many scores (few sentences) blocks do not pay: ``topk`` of each beam takes fewer calls.
_MANY = 1 << 18
#: In float64, scores nearer than this are equal: rounding errors, which depend on the batch, then decide nothing.
_TIE = 1e-9


class Finished(NamedTuple):
    """Finished hypotheses of B sentences, each (B, N); a score of -inf is none. ``slots`` are the beams they end in."""

    scores: Tensor
    totals: Tensor
    lengths: Tensor
    slots: Tensor

    def merge(self, new: "Finished", first_come: bool) -> "Finished":
        """The best N of this table and of new ones (B, C), best first; ``first_come``: only empty ones are filled."""
        entries = self.scores.shape[1]
        key = rounded(torch.cat([self.scores, new.scores], dim=1))
        if first_come:
            key[:, :entries].masked_fill_(self.scores > -math.inf, math.inf)
        keep = key.argsort(dim=1, descending=True, stable=True)[:, :entries]
        return Finished(*(torch.cat(both, dim=1).gather(1, keep) for both in zip(self, new, strict=True)))

    def index_select(self, dim: int, rows: Tensor) -> "Finished":
        """These sentences, in this order: dimension 0, as for a tensor."""
        return Finished(*(column.index_select(dim, rows) for column in self))

    def best(self, rows: Tensor, count: int) -> "Finished":
        """The best ``count`` of these sentences, best first."""
        chosen = self.index_select(0, rows)
        order = rounded(chosen.scores).argsort(dim=1, descending=True, stable=True)[:, :count]
        return Finished(*(column.gather(1, order) for column in chosen))


class SearchState:
    """What the states of beam search and sampling share: backpointers, and hypotheses from them.

    For each step there are (B, N) tokens, the beams they continue, and the total log-probabilities so far. Hypotheses
    share their beginnings here. A matrix of whole hypotheses would have to be reordered at every step.

    :param limits: (B,), the longest translation of each sentence in tokens without its end
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
        return self.collect(rows, count)()

    def collect(self, rows: Tensor, count: int) -> Callable[[], list[list[Hypothesis]]]:
        """Begin to copy what `results` needs to the host; the function does the rest, in any thread."""
        found = [*(torch.cat(each).index_select(1, rows) for each in self._columns), *self.finished.best(rows, count)]
        return partial(self._trace, to_host(found) if rows.is_cuda else lambda: found)

    @torch.inference_mode()
    def _trace(self, copied: Callable[[], list[Tensor]]) -> list[list[Hypothesis]]:
        tokens, parents, sums, scores, totals, lengths, slots = copied()
        paths, sums = _follow(tokens, parents, sums, slots, lengths)
        found: list[list[Hypothesis]] = []
        columns = (paths, sums, lengths, totals, scores)
        for row in zip(*(column.tolist() for column in columns), strict=True):
            best: list[Hypothesis] = []
            for path, before, length, total, score in zip(*row, strict=True):
                if score == -math.inf:
                    continue
                cumulative = [*before[:length], total]
                gained = tuple(map(sub, cumulative, [0.0, *cumulative]))
                best.append(Hypothesis("", score, (*path[:length], self.end), gained))
            # NaN is sorted before all numbers, so it has been kept to the end.
            if not best or not all(math.isfinite(each.score) for each in best):
                raise not_finite(None)
            found.append(best)
        return found


def _follow(tokens: Tensor, parents: Tensor, totals: Tensor, slots: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens and totals (R, N, T) from columns (T, R, N) of hypotheses that ended in the beams ``slots`` (R, N)."""
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


class Beams(SearchState):
    """All hypotheses of a batch; ``dtype`` is that of their log-probabilities."""

    per_sentence = ("limits", "totals", "closed", "lost", "finished")

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

    def advance(self, scores: Tensor, step: int, at_limit: bool, *summary: Tensor) -> tuple[Tensor, Tensor]:
        """Take a step with the log-probabilities (B, N, V) of the open hypotheses' next tokens.

        :param scores: changed in place; (B, 1, V) in the first step, where all hypotheses are one
        :param step: only compared with ``min_length``; the number itself is in a tensor
        :param at_limit: some sentence has reached its limit
        :param summary: if scores are logits: the logarithm of the sum of their exponentials, (B, N), and the largest of
            each complete block of `BLOCK`, padding left out, (B, N, V // `BLOCK`)
        :returns: the tokens of the new open hypotheses and the old ones that they continue, (B, N) each
        """
        beam, vocabulary, end = self.settings.beam, scores.shape[-1], self.end
        before = self.totals - summary[0] if summary else self.totals
        final = before + scores[..., end] if at_limit else None
        totals, index = self._candidates(scores, *summary)
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

    def _candidates(self, scores: Tensor, *summary: Tensor) -> tuple[Tensor, Tensor]:
        """The best 2 N continuations: (B, 2 N) log-probabilities, and parent * V + token."""
        beam, wanted = self.settings.beam, 2 * self.settings.beam + _SPARE
        if scores.shape[2] < wanted:
            scores = scores.expand(-1, beam, -1).contiguous()  # a small vocabulary: the list ends with -inf
        scores[..., self.pad] = -math.inf
        hypotheses, vocabulary = scores.shape[1:]
        count, before = min(wanted, hypotheses * vocabulary), self.totals - summary[0] if summary else self.totals
        totals, index = topk_continuations(before[:, :hypotheses], scores, count, *summary[1:])
        order = ranking(totals, index)[:, : 2 * beam]
        return totals.gather(1, order), index.gather(1, order)

    def _finish(self, totals: Tensor, slots: Tensor, which: Tensor) -> None:
        """Finish those of the hypotheses (B, C), best first, that the mask marks in sentences still open."""
        scores = totals / self.penalties[self.steps + 1]
        scores = scores.masked_fill(~(which & ~self.closed[:, None]), -math.inf)
        if self.settings.stop == "late-reference":
            # The authors' code looks for the worst finished hypothesis only when one too many arrives, too late for it.
            exists = scores > -math.inf
            number = (self.finished.scores > -math.inf).sum(dim=1, keepdim=True) + exists.cumsum(dim=1)
            extra = exists & (number == self.settings.beam + 1) & ~self.lost[:, None]
            self.lost = self.lost | extra.any(dim=1)
            scores = scores.masked_fill(extra, -math.inf)
        new = Finished(scores, totals, self.steps.expand_as(slots), slots)
        self.finished = self.finished.merge(new, first_come=self.settings.stop == "early")

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


def topk_continuations(
    totals: Tensor, scores: Tensor, count: int, maxima: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The largest of ``totals + scores`` in each sentence, in falling order: their sums, and beam * V + token.

    :param totals: (B, N), of the hypotheses so far
    :param scores: (B, N, V), of the tokens that may continue them; may be changed
    :param count: at most N V
    :param maxima: (B, N, V // BLOCK), the largest score in each complete block
    :returns: (B, count) each
    """
    beams, vocabulary = scores.shape[1:]
    if (scores.device.type != "cpu" and maxima is None) or vocabulary < count * BLOCK:
        return scores.add_(totals[..., None]).flatten(1).topk(count, dim=1)
    if scores.numel() < _MANY and maxima is None:
        best, tokens = scores.topk(count, dim=2)
        sums, chosen = best.add_(totals[..., None]).flatten(1).topk(count, dim=1)
        return sums, tokens.flatten(1).gather(1, chosen) + chosen // count * vocabulary
    # The largest numbers are in the blocks with the largest maxima, or in the rest behind the last block.
    blocks, rest = divmod(vocabulary, BLOCK)
    maxima = (scores.unfold(2, BLOCK, BLOCK).amax(dim=3) if maxima is None else maxima) + totals[..., None]
    chosen = maxima.flatten(1).topk(count, dim=1, sorted=False).indices
    beam, block = chosen // blocks, chosen % blocks
    index = ((beam * vocabulary + block * BLOCK)[..., None] + torch.arange(BLOCK, device=scores.device)).flatten(1)
    sums = scores.flatten(1).gather(1, index).view(*chosen.shape, -1).add_(totals.gather(1, beam)[..., None]).flatten(1)
    if rest:
        last = torch.arange(beams * vocabulary, device=scores.device).view(beams, vocabulary)[:, -rest:]
        index = torch.cat([index, last.reshape(-1).expand(len(index), -1)], dim=1)
        sums = torch.cat([sums, (scores[..., -rest:] + totals[..., None]).flatten(1)], dim=1)
    sums, chosen = sums.topk(count, dim=1)
    return sums, index.gather(1, chosen)


class Chains(SearchState):
    """All samples of a batch: N independent chains for each sentence. Its methods are those of `Beams`.

    :param keys: for each sentence, the numbers that seed its random numbers together with the settings' seed
    """

    per_sentence = ("limits", "totals", "lengths", "ended", "same", "uniform")

    def __init__(
        self,
        settings: SearchSettings,
        limits: Tensor,
        pad: int,
        end: int,
        sampling: Sampling,
        keys: Sequence[Sequence[int]],
    ) -> None:
        super().__init__(settings, limits, pad, end)
        self.sampling = sampling
        rows, chains, device = len(limits), settings.beam, limits.device
        self.totals = torch.zeros(rows, chains, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(rows, chains, dtype=torch.long, device=device)
        self.ended = torch.zeros(rows, chains, dtype=torch.bool, device=device)
        self.same = torch.arange(chains, device=device).expand(rows, -1)
        steps = int(limits.max()) + 1
        draws = [np.random.default_rng([sampling.seed, *key]).random((steps, chains)) for key in keys]
        self.uniform = torch.from_numpy(np.stack(draws)).to(device)  # (B, T, N)

    @property
    def closed(self) -> Tensor:
        """(B,), the sentences whose samples are all finished."""
        return self.ended.all(dim=1)

    def advance(self, scores: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        """Draw the next tokens by their log-probabilities (B, N, V); see `Beams.advance`."""
        scores = scores.expand(-1, self.settings.beam, -1)  # in the first step all chains are one
        allowed = scores.to(torch.float64, copy=True)
        allowed[..., self.pad] = -torch.inf
        if step < self.settings.min_length:
            allowed[..., self.end] = -torch.inf
        tokens = draw(allowed, self.sampling, self.uniform[:, step])
        if at_limit:
            tokens = torch.where((self.limits == step)[:, None], self.end, tokens)
        tokens = torch.where(self.ended, self.end, tokens)
        gain = scores.gather(-1, tokens[..., None]).squeeze(-1)  # of the model itself, whatever the temperature
        self.totals = torch.where(self.ended, self.totals, self.totals + gain)
        self.lengths = torch.where(self.ended | (tokens == self.end), self.lengths, self.lengths + 1)
        self.ended = self.ended | (tokens == self.end)
        return tokens, self.same

    @property
    def finished(self) -> Finished:  # type: ignore[override]
        """All samples."""
        scores = self.totals / (self.lengths + 1.0) ** self.settings.length_penalty
        return Finished(scores, self.totals, self.lengths, self.same)


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Draw one token from each (..., V) by inverting the cumulative distribution at ``uniform`` (...), in [0, 1)."""
    probabilities = torch.softmax(logits / sampling.temperature, dim=-1)
    if sampling.top_k or sampling.top_p < 1:
        best, order = probabilities.sort(dim=-1, descending=True, stable=True)
        if sampling.top_k:
            best[..., sampling.top_k :] = 0.0
            best /= best.sum(dim=-1, keepdim=True)
        # A token stays if those before it have less than the wanted probability: the first one always does.
        best = best.masked_fill(best.cumsum(dim=-1) - best >= sampling.top_p, 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, order, best)
    heights = probabilities.cumsum(dim=-1)
    levels = uniform.unsqueeze(-1) * heights[..., -1:]
    index = torch.searchsorted(heights, levels, right=True).squeeze(-1)
    return index.clamp(max=logits.shape[-1] - 1)
