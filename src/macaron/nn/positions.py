"""Positions inside an attention: turned queries and keys (rotary), vectors of distances (relative), padding.

The letters of shapes are those of `macaron.nn.attention`.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.nn.linear import EmbeddingTable


def precise(x: Tensor) -> Tensor:
    """A tensor in float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rotated(heads: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Queries or keys (B, H, T, K) turned by angles that grow with their positions, (T,) or (B, T).

    Channel i of the first half and channel i of the second are the coordinates of a point, which turns by
    ``theta ** (-2 i / K)`` for each position: a product of a query and a key depends on their distance alone.
    """
    half = heads.shape[-1] // 2
    x, y = precise(heads).chunk(2, dim=-1)
    frequencies = theta ** (torch.arange(half, device=x.device, dtype=x.dtype) / -half)
    angles = (positions.to(x.dtype).unsqueeze(-1) * frequencies).unsqueeze(-3)  # the same for all heads
    cosine, sine = angles.cos(), angles.sin()
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
        """The products (B, H, T, S) of queries (B, H, T, K) with the vectors of the keys, in float32 or better.

        Many keys share a vector, here and in `moved`: a GPU sums halves, also those of gradients, in half precision.
        """
        products = precise(query @ self.keys.weight.T)
        return products.gather(-1, index.expand(*products.shape[:-1], -1))

    def moved(self, probabilities: Tensor, index: Tensor) -> Tensor:
        """The vectors of the values, weighted by probabilities (B, H, T, S): (B, H, T, K)."""
        each = precise(probabilities)
        sums = each.new_zeros(*each.shape[:-1], len(self.values.weight)).scatter_add(-1, index.expand_as(each), each)
        return sums.to(probabilities.dtype) @ self.values.weight


class Padding:
    """Where the tokens of a padded batch are: all but attention can leave the padding out.

    :param real: (B, T), true at tokens
    """

    def __init__(self, real: Tensor) -> None:
        self.shape, self.rows = real.shape, real.flatten().nonzero().squeeze(1)

    def remove(self, x: Tensor) -> Tensor:
        """States (B, T, D) to those of the N tokens, (1, N, D)."""
        # An embedding, because its gradient is much faster than that of `index_select`.
        return F.embedding(self.rows, x.flatten(0, 1)).unsqueeze(0)

    def add(self, x: Tensor) -> Tensor:
        """States of the tokens, (1, N, D), to (B, T, D), zero at the padding."""
        empty = x.new_zeros(self.shape.numel(), x.shape[2])
        return empty.index_copy(0, self.rows, x[0]).view(*self.shape, -1)
