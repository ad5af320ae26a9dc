"""Token embeddings, positions, segments: the initial states; and the output layer, which shares the table."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.nn.linear import EmbeddingTable, dropout

FIRST_POSITION = 2  # the authors' code counts real tokens from padding_idx + 1 = 2


def sinusoids(
    positions: Tensor, hidden_size: int, dtype: torch.dtype = torch.float32, kind: str = "sinusoidal"
) -> Tensor:
    """Sinusoidal position vectors, sines then cosines (not interleaved).

    Computed, not looked up: there is no longest sentence and nothing to store.

    :param positions: any shape; below ``FIRST_POSITION`` (padding) the vector is zero
    :param kind: ``sinusoidal`` as in the authors' code; ``marian`` counts from 0, with slightly other frequencies
    :returns: that shape + (D,)
    """
    half = hidden_size // 2
    marian = kind == "marian"
    scale = -math.log(10000.0) / (half if marian else max(half - 1, 1))
    frequencies = torch.exp(torch.arange(half, device=positions.device, dtype=dtype) * scale)
    counted = positions - FIRST_POSITION if marian else positions
    angles = counted.to(dtype).unsqueeze(-1) * frequencies
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
    """``sqrt(D) E[token] + P[position] (+ S[segment])``, then a norm (BERT's) if asked for, then dropout.

    :param num_segments: 0 for translation, 2 for encoders
    :param first_segment: the segment of all tokens where none are given
    :param freeze_first_segment: its vector stays zero (as in the authors' code)
    :param positioned: whether position vectors are added
    :param position_vectors: ``sinusoidal`` or ``marian``, see `sinusoids`; ``learned``: a table of ``longest`` rows
    :param scale: multiply token vectors, and learned position vectors, by sqrt(D)
    :param norm_eps: of a norm; None: there is none
    :param output_bias: the output layer has one
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
        *,
        positioned: bool = True,
        position_vectors: str = "sinusoidal",
        longest: int = 0,
        scale: bool = True,
        norm_eps: float | None = None,
        output_bias: bool = False,
    ) -> None:
        super().__init__()
        self.dropout, self.first_segment, self.positioned = dropout, first_segment, positioned
        self.scale, self.position_vectors = math.sqrt(hidden_size) if scale else 1.0, position_vectors
        self.frozen_segment = first_segment if freeze_first_segment else None
        self.tokens = EmbeddingTable(vocab_size, hidden_size, pad_token_id)
        self.segments = EmbeddingTable(num_segments, hidden_size, self.frozen_segment) if num_segments else None
        learned = positioned and position_vectors == "learned"
        self.positions = EmbeddingTable(longest, hidden_size) if learned else None
        self.norm = None if norm_eps is None else nn.LayerNorm(hidden_size, norm_eps)
        self.output_bias = nn.Parameter(torch.zeros(vocab_size)) if output_bias else None

    def of_positions(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The vectors of positions of any shape: that shape + (D,)."""
        if self.positions is None:
            return sinusoids(positions, self.tokens.embedding_dim, dtype, self.position_vectors)
        return F.embedding((positions - FIRST_POSITION).clamp(min=0), self.positions.weight) * self.scale

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
        x = vectors * self.scale
        if self.positioned:
            if positions is None:
                positions = torch.arange(FIRST_POSITION, FIRST_POSITION + vectors.shape[1], device=vectors.device)
            precise = torch.promote_types(vectors.dtype, torch.float32)
            x = x + self.of_positions(positions, precise).to(vectors.dtype)
        if self.segments is not None:
            if segments is None:
                segments = torch.full(vectors.shape[:2], self.first_segment, device=vectors.device)
            x = x + F.embedding(segments, self.segments.weight, padding_idx=self.frozen_segment)
        if self.norm is not None:
            x = self.norm(x)
        return dropout(x, self.dropout, self.training)

    def logits(self, states: Tensor) -> Tensor:
        """States (..., D) to logits (..., V): the table serves the output as well."""
        return F.linear(states, self.tokens.weight, self.output_bias)

    def output(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States (..., D) and table (V, D) whose product are the logits; a bias is one more column of both."""
        if self.output_bias is None:
            return states, self.tokens.weight
        ones = torch.ones_like(states[..., :1])
        return torch.cat([states, ones], -1), torch.cat([self.tokens.weight, self.output_bias[:, None]], -1)
