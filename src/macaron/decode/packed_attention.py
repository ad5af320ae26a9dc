"""Attention of a packed model, see `macaron.nn.attention`, where the shapes' letters are explained.

States come as rows, (B T, D): oneDNN's product takes nothing else, and would make them of (B, T, D) at every call.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.decode.cache import BeamCache
from macaron.decode.matrices import Direct, Int8Linear, PackedLinear
from macaron.nn.attention import Context, CrossAttention, SelfAttention, attend

#: Sentences from which on attention is plain products: PyTorch's fused kernel is made for many queries, and in a search
#: there are few queries to many keys. For one sentence its single call costs less than several.
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

    For few sentences in float32, what is kept of a sentence is not keys and values but these multiplied by the
    matrices of queries and outputs: ``(x Wq + b) K' = x (Wq K') + b K'``. A step then reads 2 D H S numbers instead of
    2 D H K, and reading is what takes the time. (In int8 a result would depend on the batch: Wq is rounded there.)
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
                    folded = self._fold(key, value, context.memory_mask)
                    cache.store_folded(slot, folded)
                elif cache is not None:
                    cache.store_memory(slot, key, value)
        if folded is None:
            query = self.heads(self.q(x), batch, 1).select(3, 0)
            return self.out(self.mix(query, key, value, context.memory_mask, context), onto)
        keys, offset, values = folded
        logits = torch.baddbmm(offset, x.view(batch, -1, x.shape[1]), keys)
        weights = logits.view(-1, self.num_heads, keys.shape[2] // self.num_heads).softmax(dim=2).view_as(logits)
        if onto is None:
            return torch.bmm(weights, values).flatten(0, 1)
        return torch.baddbmm(onto.view(batch, -1, onto.shape[1]), weights, values).flatten(0, 1)

    def _folds(self, key: Tensor) -> bool:
        """Whether there is less to read when keys (B, H, S, K), and values, are folded."""
        return self.plain is not None and len(key) < FEW and key.shape[2] < self.head_size

    def _fold(self, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """From keys and values (B, H, S, K) to (B, D, H S), to be added (B, 1, H S), and (B, H S, D)."""
        assert self.plain is not None
        query, query_bias, out, out_bias = self.plain
        key, value = key * self.scale, value * self.step
        keys = key @ query.view(self.num_heads, self.head_size, -1)
        values = value @ out.view(-1, self.num_heads, self.head_size).permute(1, 2, 0)
        offset = torch.zeros_like(key[..., 0]) if mask is None else mask[:, 0].expand(*key.shape[:3])
        if query_bias is not None:
            offset = offset + (key @ query_bias.view(self.num_heads, self.head_size, 1)).squeeze(3)
        if out_bias is not None:
            values = values + out_bias * (self.step / self.num_heads)  # weights add up to one for each head
        keys = keys.flatten(1, 2).transpose(1, 2).contiguous()
        return keys, offset.flatten(1)[:, None], values.flatten(1, 2).contiguous()
