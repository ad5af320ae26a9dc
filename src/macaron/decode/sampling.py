"""The state of sampling: N chains for each sentence, none of which knows of the others."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from macaron.decode.scorer import SpecialTokens
from macaron.decode.settings import Hypothesis, Sampling, SearchSettings
from macaron.decode.trail import Trail, hypotheses


class Chains:
    """All samples of a batch. Its methods are those of `macaron.decode.beam.Beams`.

    :param limits: (B,), the longest translation of each sentence in tokens without its end
    :param keys: for each sentence, the numbers that together with the seed make its random numbers
    """

    def __init__(
        self,
        settings: SearchSettings,
        sampling: Sampling,
        special: SpecialTokens,
        limits: Tensor,
        keys: Sequence[Sequence[int]],
    ) -> None:
        self.settings, self.sampling, self.special, self.limits = settings, sampling, special, limits
        rows, chains, device = len(limits), settings.beam, limits.device
        self.trail = Trail()
        self.totals = torch.zeros(rows, chains, dtype=torch.float64, device=device)
        self.lengths = torch.zeros(rows, chains, dtype=torch.long, device=device)
        self.ended = torch.zeros(rows, chains, dtype=torch.bool, device=device)
        self.same = torch.arange(chains, device=device).expand(rows, -1)
        steps = int(limits.max()) + 1
        draws = [np.random.default_rng([sampling.seed, *key]).random((steps, chains)) for key in keys]
        self.uniform = torch.from_numpy(np.stack(draws)).to(device)  # (B, T, N)

    @property
    def closed(self) -> Tensor:
        """(B,), the sentences of which all samples are complete."""
        return self.ended.all(dim=1)

    def advance(self, scores: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        """Draw the next tokens by their log-probabilities (B, N, V); see `Beams.advance`."""
        end = self.special.end
        scores = scores.expand(-1, self.settings.beam, -1)  # in the first step all chains are one
        tokens = draw(self._allowed(scores, step), self.sampling, self.uniform[:, step])
        if at_limit:
            tokens = torch.where((self.limits == step)[:, None], end, tokens)
        tokens = torch.where(self.ended, end, tokens)
        gain = scores.gather(-1, tokens[..., None]).squeeze(-1)  # of the model itself, whatever the temperature
        self.totals = torch.where(self.ended, self.totals, self.totals + gain)
        self.lengths = torch.where(self.ended | (tokens == end), self.lengths, self.lengths + 1)
        self.ended = self.ended | (tokens == end)
        self.trail.append(tokens, self.same, self.totals)
        return tokens, self.same

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        self.trail.select(rows)
        for name in ("limits", "totals", "lengths", "ended", "same", "uniform"):
            setattr(self, name, getattr(self, name).index_select(0, rows))

    def results(self, rows: Tensor, count: int) -> list[list[Hypothesis]]:
        """The samples of these sentences, best first, at most so many for each."""
        totals, lengths = self.totals[rows], self.lengths[rows]
        scores = totals / (lengths + 1.0) ** self.settings.length_penalty
        order = scores.argsort(dim=1, descending=True, stable=True)[:, :count]
        scores, totals, lengths = (each.gather(1, order) for each in (scores, totals, lengths))
        path, sums = self.trail.follow(rows, order, lengths)
        return hypotheses(path, sums, lengths, totals, scores, self.special.end)

    def _allowed(self, scores: Tensor, step: int) -> Tensor:
        allowed = scores.to(torch.float64, copy=True)
        allowed[..., self.special.pad] = -torch.inf
        allowed[..., self.special.unknown] -= self.settings.unk_penalty
        if step < self.settings.min_length:
            allowed[..., self.special.end] = -torch.inf
        return allowed


def draw(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    """Draw one token from each (..., V) with the numbers (...), uniform in [0, 1): the inverse of the distribution.

    One number a token is little enough to be made in advance, sentence by sentence.
    """
    probabilities = torch.softmax(logits / sampling.temperature, dim=-1)
    if sampling.top_k or sampling.top_p < 1:
        best, order = probabilities.sort(dim=-1, descending=True, stable=True)
        if sampling.top_k:
            best[..., sampling.top_k :] = 0.0
            best /= best.sum(dim=-1, keepdim=True)
        # A token stays if those before it do not have the wanted probability yet: the first one always does.
        best = best.masked_fill(best.cumsum(dim=-1) - best >= sampling.top_p, 0.0)
        probabilities = torch.zeros_like(probabilities).scatter(-1, order, best)
    heights = probabilities.cumsum(dim=-1)
    levels = uniform.unsqueeze(-1) * heights[..., -1:]
    index = torch.searchsorted(heights, levels, right=True).squeeze(-1)
    return index.clamp(max=logits.shape[-1] - 1)
