"""Positions inside an attention: queries and keys that are turned (rotary), vectors of distances (relative).

The letters of shapes are those of `macaron.nn.attention`.
"""

import torch
from torch import Tensor, nn

from macaron.nn.linear import EmbeddingTable


def rotated(heads: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Queries or keys (B, H, T, K) turned by angles that grow with their positions, (T,) or (B, T).

    Channel i of the first half and channel i of the second are the coordinates of a point, which turns by
    ``theta ** (-2 i / K)`` for each position: a product of a query and a key depends on their distance alone.
    """
    half = heads.shape[-1] // 2
    precise = torch.promote_types(heads.dtype, torch.float32)
    frequencies = theta ** (torch.arange(half, device=heads.device, dtype=precise) / -half)
    angles = (positions.to(precise).unsqueeze(-1) * frequencies).unsqueeze(-3)  # the same for all heads
    cosine, sine = angles.cos(), angles.sin()
    x, y = heads.to(precise).chunk(2, dim=-1)
    return torch.cat([x * cosine - y * sine, y * cosine + x * sine], dim=-1).to(heads.dtype)


def distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """The distances (T, S) from queries to keys that end at the same position: negative where the key is earlier.

    Padding and packed rows need nothing else: the tokens of a sequence are neighbours there, too.
    """
    steps = torch.arange(keys, device=device)
    return steps - steps[keys - queries :, None]


class RelativePositions(nn.Module):
    """Vectors of clipped distances, shared by all heads, which are added to keys and values (Shaw et al., 2018).

    :param clip: distances beyond it count as it
    """

    def __init__(self, head_size: int, clip: int) -> None:
        super().__init__()
        self.clip = clip
        self.keys = EmbeddingTable(2 * clip + 1, head_size)
        self.values = EmbeddingTable(2 * clip + 1, head_size)

    def index(self, distance: Tensor) -> Tensor:
        """Distances (T, S) as rows of the tables."""
        return distance.clamp(-self.clip, self.clip) + self.clip

    def logits(self, query: Tensor, index: Tensor) -> Tensor:
        """The products (B, H, T, S) of queries (B, H, T, K) with the vectors of the keys."""
        products = query @ self.keys.weight.T
        return products.gather(-1, index.expand(*products.shape[:-1], -1))

    def moved(self, probabilities: Tensor, index: Tensor) -> Tensor:
        """The vectors of the values, weighted by probabilities (B, H, T, S): (B, H, T, K)."""
        sums = probabilities.new_zeros(*probabilities.shape[:-1], len(self.values.weight))
        return sums.scatter_add(-1, index.expand_as(probabilities), probabilities) @ self.values.weight
