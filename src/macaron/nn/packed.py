"""Attention among texts that lie one after the other: each sees itself only, and no mask is read.

With a mask the kernel computes all of a row against all of it, and reads a number for each pair of places. This one
knows where texts begin, and leaves out what is not asked for.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Packed:
    """Where texts begin, counted through all rows, and at last where all end: (N + 1,) int32, ascending; those that are
    too many are empty. Padding is a text, too: every place belongs to one.

    :param longest: places of the longest one, or more
    """

    starts: Tensor
    longest: int


def packed_attention(query: Tensor, key: Tensor, value: Tensor, packed: Packed, dropout: float) -> Tensor:
    """Scaled dot-product attention within texts, by the flash kernel: on a GPU, in half precision.

    :param query: (B, H, T, K), as are key and value
    :returns: (B, H, T, K)
    """
    batch, heads, steps, width = query.shape
    flat = [each.transpose(1, 2).reshape(batch * steps, heads, width) for each in (query, key, value)]
    # PyTorch's own varlen_attn calls the same, but knows no dropout.
    mixed: Tensor = torch.ops.aten._flash_attention_forward(
        *flat, packed.starts, packed.starts, packed.longest, packed.longest, dropout, False, False
    )[0]
    return mixed.view(batch, steps, heads, width).transpose(1, 2)
