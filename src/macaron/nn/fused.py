"""Sub-steps by fused kernels, forward and backward: the fast path of training on a GPU.

It computes what the plain modules compute, for packed rows and the usual operators (`Stack.uncovered` says which not).
States are rows (N, D) in the precision of products. A sub-step leaves its sum to the next one, which needs its norm:
one kernel reads state and move and writes sum and norm. Gradients of weights and biases are float32, but that of the
bias before an activation other than relu and gelu, which PyTorch's own operators compute.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.nn.attention import Context, CrossAttention
from macaron.nn.embedding import FIRST_POSITION, Embedding
from macaron.nn.fused_functions import AttentionHeads, FlashHeads, Inner, PackedRows, Product, ResidualNorm
from macaron.nn.linear import FeedForward

#: Widths of the rows that our attention takes; others are left to the flash kernel, which needs offsets.
ROWS = (16, 32, 64, 128)


@dataclass
class State:
    """A state x + c drop(moved + bias), (N, D), whose sum is not yet computed; one of x and moved may be missing.

    :param velocity: (N, D) beside it, if particles have one; None at the first layer, where it is zero
    """

    rows: PackedRows
    x: Tensor | None
    moved: Tensor | None = None
    bias: Tensor | None = None
    coefficient: float = 1.0
    rate: float = 0.0
    velocity: Tensor | None = None

    def normed(self, norm: Any) -> tuple[Tensor, Tensor]:
        """The sum and its norm; without a norm only the first counts."""
        weights = (None, None) if norm is None else (norm.weight, getattr(norm, "bias", None))
        eps, rms = 0.0 if norm is None else norm.eps, isinstance(norm, nn.RMSNorm)
        dropout = self.rows.dropout(self.rate)
        return ResidualNorm.apply(self.x, self.moved, self.bias, *weights, self.coefficient, dropout, eps, rms)  # type: ignore[no-untyped-call]

    @property
    def sum(self) -> Tensor:
        """The sum."""
        return self.x if self.moved is None and self.x is not None else self.normed(None)[0]


def embed(
    module: Embedding,
    ids: Tensor,
    positions: Tensor | None,
    segments: Tensor | None,
    rows: PackedRows,
    vectors: Tensor | None = None,
) -> Any:
    """Embed packed rows (B, T) as a `State` for `Stack.forward`; ``vectors`` (B, T, D) replace those of the tokens."""
    if vectors is None:
        table = (module.tokens.weight * module.scale).to(rows.dtype)
        x = F.embedding(ids.flatten(), table)
    else:
        x = (vectors * module.scale).to(rows.dtype).flatten(0, 1)
    if module.positioned and positions is not None:
        vectors = module.of_positions(torch.arange(ids.shape[1] + FIRST_POSITION, device=ids.device))
        x = x + F.embedding(positions.flatten(), vectors.to(rows.dtype))
    if module.segments is not None and segments is not None:
        table = module.segments.weight.to(rows.dtype)
        x = x + F.embedding(segments.flatten(), table, padding_idx=module.frozen_segment)
    if module.norm is not None:
        x = State(rows, x).normed(module.norm)[1]
    return State(rows, None, x, rate=module.dropout if module.training else 0.0)


def advance(part: Any, state: State, coefficient: float, context: Context) -> State:
    """One sub-step of a sub-layer (`macaron.nn.layer.SubLayer`)."""
    rows, rate = state.rows, part.dropout if part.training else 0.0
    if part.velocity is not None:

        def move(at: Tensor) -> Tensor:
            given = State(rows, at.to(rows.dtype)).normed(part.norm)[1] if part.pre_norm else at.to(rows.dtype)
            return State(rows, None, *_moved(part, given, rows, context), coefficient, rate).sum

        x = state.sum
        v = torch.zeros_like(x) if state.velocity is None else state.velocity
        x, v = (each.to(rows.dtype) for each in part.velocity(x, v, move))
        return State(rows, x if part.pre_norm else State(rows, x).normed(part.norm)[1], velocity=v)
    x, given = state.normed(part.norm) if part.pre_norm else (state.sum,) * 2
    after = State(rows, x, *_moved(part, given, rows, context), coefficient, rate)
    return after if part.pre_norm else State(rows, after.normed(part.norm)[1])


def _moved(part: Any, given: Tensor, rows: PackedRows, context: Context) -> tuple[Tensor, Tensor | None]:
    """The move of a sub-layer without its bias, and the bias."""
    operator = part.operator
    inside = operator.dropout if part.training else 0.0
    if not isinstance(operator, FeedForward):
        out, inner = operator.out, _heads(operator, given, rows, context, inside)
    elif operator.activation in (F.relu, F.gelu):
        out, first, gelu = operator.fc2, operator.fc1, operator.activation is F.gelu
        inner = Inner.apply(given, first.weight, first.bias, rows, gelu, rows.dropout(inside))  # type: ignore[no-untyped-call]
    else:
        out, first = operator.fc2, operator.fc1
        inner = Product.apply(given, first.weight, rows)  # type: ignore[no-untyped-call]
        inner = inner if first.bias is None else inner + first.bias.to(rows.dtype)
        inner = F.dropout(operator.activation(inner), inside)
    return Product.apply(inner, out.weight, rows), out.bias  # type: ignore[no-untyped-call]


def _heads(operator: Any, x: Tensor, rows: PackedRows, context: Context, rate: float) -> Tensor:
    """The heads of an attention side by side."""
    if rows.texts.shape[1] not in ROWS:
        given = operator.qkv.weight, operator.qkv.bias, rows, operator.num_heads, context.causal
        return FlashHeads.apply(x, *given, rate)  # type: ignore[no-untyped-call]
    crosses = isinstance(operator, CrossAttention)
    maps = (operator.q, operator.kv) if crosses else (operator.qkv, operator.qkv)
    weights = [weight for each in maps for weight in (each.weight, each.bias)]
    memory, causal = (context.memory, False) if crosses else (None, context.causal)
    return AttentionHeads.apply(x, memory, *weights, rows, operator.num_heads, causal, rows.dropout(rate))  # type: ignore[no-untyped-call]
