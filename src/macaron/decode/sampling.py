"""The state of sampling: N independent chains for each sentence."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from macaron.decode.beam import Finished, SearchState
from macaron.decode.settings import Sampling, SearchSettings


class Chains(SearchState):
    """All samples of a batch. Its methods are those of `macaron.decode.beam.Beams`.

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
        tokens = draw(self._allowed(scores, step), self.sampling, self.uniform[:, step])
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

    def _allowed(self, scores: Tensor, step: int) -> Tensor:
        allowed = scores.to(torch.float64, copy=True)
        allowed[..., self.pad] = -torch.inf
        if step < self.settings.min_length:
            allowed[..., self.end] = -torch.inf
        return allowed


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
