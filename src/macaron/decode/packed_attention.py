"""Attention of a packed model, see `macaron.nn.attention`, where the shapes' letters are explained.

States come as rows, (B T, D): oneDNN's product takes nothing else, and would make them of (B, T, D) at every call.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.decode.cache import BeamCache
from macaron.decode.matrices import Direct, Int8Linear, PackedLinear, product
from macaron.nn.attention import Context, CrossAttention, SelfAttention, attend

#: Fewer sentences than this are few: there is little to do between the products, and every call counts. From so many
#: on, attention is plain products: PyTorch's fused kernel is made for many queries, and in a search few queries meet
#: many keys.
FEW = 4
Make = Callable[..., PackedLinear | Int8Linear]


class _Attention(Direct):
    """What both attentions share.

    :param step: see `PackedLinear`
    """

    name = ""

    def __init__(self, plain: SelfAttention | CrossAttention, make: Make, step: float) -> None:
        super().__init__()
        self.num_heads, self.head_size = plain.num_heads, plain.head_size
        self.scale = 1 / math.sqrt(plain.head_size)
        self.out = make(plain.out.weight, plain.out.bias, step=step)

    def heads(self, rows: Tensor, batch: int, parts: int) -> Tensor:
        """(B T, parts H K) as (B, H, T, parts, K)."""
        return rows.view(batch, -1, parts, self.num_heads, self.head_size).permute(0, 3, 1, 2, 4)

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, context: Context) -> Tensor:
        """Attention from (B, H, T, K) to (B T, H K)."""
        causal = context.causal and self.name == "F"
        if causal or context.weights is not None or (mask is not None and mask.dtype == torch.bool):
            mixed = attend(query, key, value, mask, causal, 0.0, context, self.name)
        elif len(query) < FEW:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            logits = (query * self.scale) @ key.transpose(-2, -1)
            if mask is not None:
                logits += mask
            mixed = logits.softmax(dim=-1) @ value
        return mixed.transpose(1, 2).reshape(-1, self.num_heads * self.head_size)


class PackedSelfAttention(_Attention):
    """F, see `SelfAttention`."""

    name = "F"

    def __init__(self, plain: SelfAttention, make: Make, step: float) -> None:
        super().__init__(plain, make, step)
        self.qkv = make(plain.qkv.weight, plain.qkv.bias)

    def forward(self, x: Tensor, onto: Tensor | None, batch: int, context: Context, slot: int) -> Tensor:
        """Move (B T, D) by attention, see `PackedSubLayer`; ``slot`` is this evaluation's place in the cache."""
        parts, cache = self.heads(self.qkv(x), batch, 3), context.cache
        query = parts.select(3, 0)
        if isinstance(cache, BeamCache):
            key, value = cache.extend_both(slot, parts.narrow(3, 1, 2))
        else:
            key, value = parts.select(3, 1), parts.select(3, 2)
            if cache is not None:
                key, value = cache.extend(slot, key, value)
        return self.out(self.mix(query, key, value, context.mask, context), onto)


class PackedCrossAttention(_Attention):
    """H, see `CrossAttention`.

    For one sentence in float32, what is kept of it is not keys and values but these multiplied by the matrices of
    queries and outputs: ``(x Wq + b) K' = x (Wq K') + b K'``. A step then reads 2 D H S numbers instead of 2 D H K, and
    reading is what takes the time. (In int8 a result would depend on the batch: Wq is rounded there.)
    """

    name = "H"

    def __init__(self, plain: CrossAttention, make: Make, step: float) -> None:
        super().__init__(plain, make, step)
        self.q = make(plain.q.weight, plain.q.bias)
        self.kv = make(plain.kv.weight, plain.kv.bias)
        self.step = step
        exact = isinstance(self.q, PackedLinear)
        self.plain = (plain.q.weight, plain.q.bias, plain.out.weight, plain.out.bias) if exact else None

    def forward(self, x: Tensor, onto: Tensor | None, batch: int, context: Context, slot: int) -> Tensor:
        """Move (B T, D) by attention to ``context.memory`` (B, S, D), see `PackedSubLayer`."""
        cache = context.cache
        folded = cache.folded(slot) if isinstance(cache, BeamCache) else None
        if folded is None:
            kept = cache.memory(slot) if cache is not None else None
            if kept is not None:
                key, value = kept
            elif context.memory is None:
                raise ValueError("cross-attention needs the encoder's output: Context.memory is None")
            else:
                both = self.heads(self.kv(context.memory.flatten(0, 1)), batch, 2)
                key, value = both.select(3, 0), both.select(3, 1)
                if isinstance(cache, BeamCache) and self._folds(key):
                    folded = self._fold(key[0], value[0], context.memory_mask)
                    cache.store_folded(slot, folded)
                elif cache is not None:
                    cache.store_memory(slot, key, value)
        if folded is None:
            query = self.heads(self.q(x), batch, 1).select(3, 0)
            return self.out(self.mix(query, key, value, context.memory_mask, context), onto)
        keys, offset, values = folded
        logits = product(torch.addmm, offset, x, keys)
        weights = logits.view(len(x), self.num_heads, -1).softmax(dim=2).view_as(logits)
        return product(torch.mm, weights, values) if onto is None else product(torch.addmm, onto, weights, values)

    def _folds(self, key: Tensor) -> bool:
        """Whether keys (B, H, S, K), and values, are to be folded.

        That is for one sentence: all share the matrices, but each would have its own folded keys. And folding takes
        time once, so there must be clearly less to read in each step.
        """
        return self.plain is not None and len(key) == 1 and 2 * key.shape[2] <= self.head_size

    def _fold(self, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """From keys and values (H, S, K) to (D, H S), to be added (H S,), and (H S, D)."""
        assert self.plain is not None
        query, query_bias, out, out_bias = self.plain
        key, value = key * self.scale, value * self.step
        keys = key @ query.view(self.num_heads, self.head_size, -1)
        values = value @ out.view(-1, self.num_heads, self.head_size).permute(1, 2, 0)
        offset = torch.zeros_like(key[..., 0]) if mask is None else mask[0, 0].expand(*key.shape[:2])
        if query_bias is not None:
            offset = offset + (key @ query_bias.view(self.num_heads, self.head_size, 1)).squeeze(2)
        if out_bias is not None:
            values = values + out_bias * (self.step / self.num_heads)  # weights add up to one for each head
        return keys.flatten(0, 1).t().contiguous(), offset.flatten(), values.flatten(0, 1)
