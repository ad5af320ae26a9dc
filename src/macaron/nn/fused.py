"""Sub-steps by fused kernels, forward and backward: the fast path of training on a GPU.

It computes what the plain modules compute, for packed rows and the usual operators (`Stack.uncovered` says which not).
States are rows (N, D) in the precision of products. A sub-step leaves its sum to the next one, which needs its norm:
one kernel reads state and move and writes sum and norm. Gradients of weights and biases are float32.
"""

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from macaron.nn.attention import Context, CrossAttention
from macaron.nn.embedding import Embedding
from macaron.nn.fused_functions import AttentionHeads, Embed, FlashHeads, Inner, Product, ResidualNorm
from macaron.nn.linear import FeedForward
from macaron.nn.packed import PackedRows

ROW = 128  # positions of the longest row that our attention takes; longer ones are left to the flash kernel


@dataclass
class State:
    """A state x + c drop(moved + bias), (N, D), whose sum is not yet computed."""

    x: Tensor
    rows: PackedRows
    moved: Tensor | None = None
    bias: Tensor | None = None
    coefficient: float = 1.0
    rate: float = 0.0

    def sum(self, norm: Any) -> tuple[Tensor, Tensor]:
        """The sum and its norm; without a norm only the first counts."""
        if norm is None and self.moved is None:
            return self.x, self.x
        weights = (None, None) if norm is None else (norm.weight, getattr(norm, "bias", None))
        eps = 0.0 if norm is None else norm.eps
        dropout = self.rows.dropout(self.rate)
        rms = isinstance(norm, nn.RMSNorm)
        found: tuple[Tensor, Tensor] = ResidualNorm.apply(
            self.x, self.moved, self.bias, *weights, self.coefficient, dropout, eps, rms
        )  # type: ignore[no-untyped-call]
        return found


def embed(
    module: Embedding, ids: Tensor, positions: Tensor | None, segments: Tensor | None, rows: PackedRows
) -> Tensor:
    """Embed packed rows (B, T) as states (B T, D)."""
    dropout = rows.dropout(module.dropout if module.training else 0.0)
    tables = module.tokens.weight, None if module.segments is None else module.segments.weight
    if not module.positioned:
        positions = None
    found: Tensor = Embed.apply(*tables, ids, positions, segments, module.frozen_segment, dropout, rows.dtype)  # type: ignore[no-untyped-call]
    return found


def advance(part: Any, state: State, coefficient: float, context: Context) -> State:
    """One sub-step of a sub-layer (`macaron.nn.layer.SubLayer`)."""
    rows, operator = state.rows, part.operator
    x, given = state.sum(part.norm) if part.pre_norm else (state.x, state.x)
    rate = part.dropout if part.training else 0.0
    if isinstance(operator, FeedForward):
        inner, out = _inner(operator, given, rows), operator.fc2
    else:
        inner, out = _attention(operator, given, rows, context), operator.out
    moved = Product.apply(inner, out.weight, rows)  # type: ignore[no-untyped-call]
    after = State(x, rows, moved, out.bias, coefficient, rate)
    return after if part.pre_norm else State(after.sum(part.norm)[1], rows)


def _inner(operator: FeedForward, x: Tensor, rows: PackedRows) -> Tensor:
    """The inner activations of a feed-forward network."""
    dropout = rows.dropout(operator.dropout if operator.training else 0.0)
    gelu = operator.activation is F.gelu
    found: Tensor = Inner.apply(x, operator.fc1.weight, operator.fc1.bias, rows, gelu, dropout)  # type: ignore[no-untyped-call]
    return found


def _attention(operator: Any, x: Tensor, rows: PackedRows, context: Context) -> Tensor:
    """The heads of an attention side by side."""
    rate, steps = operator.dropout if operator.training else 0.0, rows.texts.shape[1]
    if steps > ROW:
        return FlashHeads.apply(x, operator.qkv.weight, operator.qkv.bias, rows, operator.num_heads, rate)  # type: ignore[no-untyped-call]
    crosses = isinstance(operator, CrossAttention)
    own, kv = (operator.q, operator.kv) if crosses else (operator.qkv, None)
    weights = own.weight, own.bias, None if kv is None else kv.weight, None if kv is None else kv.bias
    memory, causal = (context.memory, False) if crosses else (None, context.causal)
    found: Tensor = AttentionHeads.apply(x, memory, *weights, rows, operator.num_heads, causal, rows.dropout(rate))  # type: ignore[no-untyped-call]
    return found
