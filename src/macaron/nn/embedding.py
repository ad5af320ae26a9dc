"""Token embeddings, sinusoidal positions, segments: the initial states."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.nn.linear import EmbeddingTable, dropout

FIRST_POSITION = 2  # the authors' code counts real tokens from padding_idx + 1 = 2


def sinusoids(positions: Tensor, hidden_size: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Sinusoidal position vectors, sines then cosines (not interleaved).

    Computed, not looked up: there is no longest sentence and nothing to store.

    :param positions: any shape; below ``FIRST_POSITION`` (padding) the vector is zero
    :returns: that shape + (D,)
    """
    half = hidden_size // 2
    scale = -math.log(10000.0) / max(half - 1, 1)
    frequencies = torch.exp(torch.arange(half, device=positions.device, dtype=dtype) * scale)
    angles = positions.to(dtype).unsqueeze(-1) * frequencies
    table = torch.cat([angles.sin(), angles.cos()], dim=-1)
    return F.pad(table, (0, hidden_size % 2)) * (positions >= FIRST_POSITION).unsqueeze(-1)


def token_positions(mask: Tensor) -> Tensor:
    """Positions counted over real tokens only, so that left and right padding give the same numbers.

    :param mask: (B, T), true at real tokens
    :returns: (B, T), from ``FIRST_POSITION`` on; padding gets one less
    """
    real = mask.to(torch.long)
    return real.cumsum(dim=1) * real + FIRST_POSITION - 1


class Embedding(nn.Module):
    """``sqrt(D) E[token] + P[position] (+ S[segment])``, then dropout.

    :param num_segments: 0 for translation, 2 for encoders
    :param first_segment: the segment of all tokens where none are given
    :param freeze_first_segment: its vector stays zero (as in the authors' code)
    :param positioned: whether position vectors are added
    """

    def __init__(
        self,
        vocab_size: int,
        hidden_size: int,
        pad_token_id: int,
        dropout: float,
        num_segments: int = 0,
        first_segment: int = 0,
        freeze_first_segment: bool = False,
        positioned: bool = True,
    ) -> None:
        super().__init__()
        self.dropout, self.first_segment, self.positioned = dropout, first_segment, positioned
        self.frozen_segment = first_segment if freeze_first_segment else None
        self.tokens = EmbeddingTable(vocab_size, hidden_size, pad_token_id)
        self.segments = EmbeddingTable(num_segments, hidden_size, self.frozen_segment) if num_segments else None

    def forward(
        self,
        ids: Tensor | None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        vectors: Tensor | None = None,
    ) -> Tensor:
        """Embed (B, T) tokens as (B, T, D).

        :param positions: (B, T) or (T,), see ``token_positions``; None counts from the first token on
        :param segments: (B, T), for encoders; by default all tokens belong to the first
        :param vectors: (B, T, D), token vectors instead of ids
        """
        if vectors is None:
            vectors = self.tokens(ids)
        size = vectors.shape[-1]
        x = vectors * math.sqrt(size)
        if self.positioned:
            if positions is None:
                positions = torch.arange(FIRST_POSITION, FIRST_POSITION + vectors.shape[1], device=vectors.device)
            precise = torch.promote_types(vectors.dtype, torch.float32)
            x = x + sinusoids(positions, size, precise).to(vectors.dtype)
        if self.segments is not None:
            if segments is None:
                segments = torch.full(vectors.shape[:2], self.first_segment, device=vectors.device)
            x = x + F.embedding(segments, self.segments.weight, padding_idx=self.frozen_segment)
        return dropout(x, self.dropout, self.training)

    def logits(self, states: Tensor) -> Tensor:
        """States (..., D) to logits (..., V): the table serves the output as well."""
        return F.linear(states, self.tokens.weight)
