"""Sub-steps by fused kernels, forward and backward: the fast path of training on a GPU.

It computes what the plain modules compute, for packed rows and the usual operators (`Stack.uncovered` says which not). States
are rows (N, D) in the precision of products. A sub-step leaves its sum to the next one, which needs its norm: one
kernel reads state and move and writes sum and norm. Gradients of weights and of biases are float32.
"""

import math
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.nn.attention import Context, CrossAttention, SelfAttention
from macaron.nn.embedding import FIRST_POSITION, Embedding, sinusoids
from macaron.nn.linear import FeedForward
from macaron.nn.packed import PackedRows

ROW = 128  # positions of the longest row that our attention takes; longer ones are left to the flash kernel


@cache
def kernels() -> ModuleType | None:
    """`macaron.nn.kernels`, if Triton is there."""
    try:
        from macaron.nn import kernels
    except ImportError:
        return None
    return kernels


@dataclass
class State:
    """A state x + c drop(moved + bias), (N, D), whose sum is not yet computed."""

    x: Tensor
    rows: PackedRows
    moved: Tensor | None = None
    bias: Tensor | None = None
    coefficient: float = 1.0
    dropout: float = 0.0

    def sum(self, norm: nn.Module | None) -> tuple[Tensor, Tensor]:
        """The sum and its norm."""
        if norm is None and self.moved is None:
            return self.x, self.x
        return _ResidualNorm.apply(  # type: ignore[no-untyped-call, no-any-return]
            self.x,
            self.moved,
            self.bias,
            None if norm is None else norm.weight,
            getattr(norm, "bias", None),
            self,
            1e-6 if norm is None else norm.eps,
            isinstance(norm, nn.RMSNorm),
        )


def advance(part: Any, state: State, coefficient: float, context: Context) -> State:
    """One sub-step of a sub-layer (`macaron.nn.layer.SubLayer`)."""
    rows, operator = state.rows, part.operator
    x, given = state.sum(part.norm) if part.pre_norm else (state.x, state.x)
    training = part.training
    if isinstance(operator, FeedForward):
        fc1, out, gelu = operator.fc1, operator.fc2, operator.activation is F.gelu
        dropout = _Dropout.of(operator.dropout if training else 0.0, rows)
        inner = _Inner.apply(given, fc1.weight, fc1.bias, rows, gelu, dropout)  # type: ignore[no-untyped-call]
    else:
        out = operator.out
        dropout = _Dropout.of(operator.dropout if training else 0.0, rows)
        if isinstance(operator, SelfAttention):
            q, kv, causes = operator.qkv, None, context.causal
        else:
            q, kv, causes = operator.q, operator.kv, False
        more = (None, None) if kv is None else (kv.weight, kv.bias)
        source = None if kv is None else context.memory
        inner = _Attention.apply(  # type: ignore[no-untyped-call]
            given, source, q.weight, q.bias, *more, rows, operator.num_heads, causes, dropout
        )
    moved = _Product.apply(inner, out.weight, rows)  # type: ignore[no-untyped-call]
    rate = part.dropout if training else 0.0
    after = State(x, rows, moved, out.bias, coefficient, rate)
    if part.pre_norm:
        return after
    return State(after.sum(part.norm)[1], rows)


@dataclass(frozen=True)
class _Dropout:
    """A seed, the threshold of the hash, and the factor of what is kept."""

    seed: Tensor | None
    threshold: int = 0
    factor: float = 1.0

    @classmethod
    def of(cls, rate: float, rows: PackedRows) -> "_Dropout":
        return cls(rows.seed(), round(rate * 2**32), 1 / (1 - rate)) if rate else cls(None)


def _wide(size: int) -> tuple[int, int]:
    """The power of two that holds a row, and the rows of a program."""
    wide = 1 << (size - 1).bit_length()
    return wide, max(1, 2048 // wide)


def _weight_gradient(d_out: Tensor, x: Tensor) -> Tensor:
    """``d_out^T x`` in float32."""
    if d_out.is_cuda and d_out.dtype != torch.float32:
        return torch.mm(d_out.t(), x, out_dtype=torch.float32)
    return d_out.t() @ x


class _ResidualNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, moved: Tensor | None, bias: Tensor | None, gain: Tensor | None, beta: Tensor | None,
        state: State, eps: float, rms: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        ctx.set_materialize_grads(False)
        rows, size = x.shape
        wide, each = _wide(size)
        dropout = _Dropout.of(state.dropout if moved is not None else 0.0, state.rows)
        factor = state.coefficient * dropout.factor
        total = x if moved is None else torch.empty_like(x)
        normed = None if gain is None else torch.empty_like(x)
        kernels().residual_norm[(-(-rows // each),)](  # type: ignore[union-attr]
            x, moved, bias, gain, beta, dropout.seed, total, normed, rows, factor, eps,
            D=size, WIDE=wide, R=each, ADD=moved is not None, BIAS=bias is not None, NORM=gain is not None,
            BETA=beta is not None, RMS=rms, THRESHOLD=dropout.threshold, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(total, gain, dropout.seed)
        ctx.of = factor, eps, rms, dropout.threshold, moved is not None, bias is not None, beta is not None
        return total.view_as(total), normed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, gain, seed = ctx.saved_tensors
        factor, eps, rms, threshold, add, bias, beta = ctx.of
        d_sum, d_norm = gradients[0], gradients[1] if gain is not None else None
        if d_norm is None:
            gain = None
        rows, size = total.shape
        wide, each = _wide(size)
        programs = min(kernels().PROGRAMS, -(-rows // each))  # type: ignore[union-attr]
        d_x = torch.empty_like(total)
        d_moved = torch.empty_like(total) if add else None
        parts = total.new_empty((programs, 3, size), dtype=torch.float32)
        kernels().residual_norm_backward[(programs,)](  # type: ignore[union-attr]
            total, d_sum, d_norm, gain, seed, d_x, d_moved, parts, rows, factor, eps,
            D=size, WIDE=wide, R=each, ADD=add, NORM=gain is not None, SUM=d_sum is not None, RMS=rms,
            THRESHOLD=threshold, num_warps=4,
        )  # fmt: skip
        d_gain, d_beta, d_bias = parts.sum(0).unbind(0)
        found = d_bias if bias else None, d_gain if gain is not None else None, d_beta if beta else None
        return d_x, d_moved, *found, None, None, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rows: PackedRows) -> Tensor:
        half = rows.half(weight)
        assert half is not None
        ctx.save_for_backward(x, half)
        return x @ half.t()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, half = ctx.saved_tensors
        return gradients[0] @ half, _weight_gradient(gradients[0], x), None


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x @ weight.t() if bias is None else torch.addmm(bias, x, weight.t())


class _Inner(torch.autograd.Function):
    """``drop(act(x W^T + b))``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, rows: PackedRows, gelu: bool, dropout: _Dropout
    ) -> Tensor:
        half, own = rows.half(weight), rows.half(bias)
        assert half is not None
        block = 2048
        if not gelu and not dropout.threshold and own is not None and x.is_cuda:
            inner = given = torch._addmm_activation(own, x, half.t())
        else:
            given = _linear(x, half, own)
            inner = torch.empty_like(given) if gelu else given
            kernels().activate[(-(-given.numel() // block),)](  # type: ignore[union-attr]
                given, inner, dropout.seed, given.numel(), dropout.factor,
                GELU=gelu, THRESHOLD=dropout.threshold, BLOCK=block, num_warps=4,
            )  # fmt: skip
        ctx.save_for_backward(x, half, given, dropout.seed)
        ctx.of = gelu, bias is not None, dropout.threshold, dropout.factor
        return inner

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, half, given, seed = ctx.saved_tensors
        gelu, biased, threshold, factor = ctx.of
        rows, columns = given.shape
        block, each = 256, 8
        blocks = -(-columns // block)
        programs = min(-(-2 * kernels().PROGRAMS // blocks), -(-rows // each))  # type: ignore[union-attr]
        d_given = torch.empty_like(given)
        parts = given.new_empty((programs, columns), dtype=torch.float32)
        kernels().activate_backward[(blocks, programs)](  # type: ignore[union-attr]
            given, gradients[0].contiguous(), seed, d_given, parts, rows, columns, factor,
            R=each, BLOCK=block, GELU=gelu, THRESHOLD=threshold, num_warps=4,
        )  # fmt: skip
        d_bias = parts.sum(0) if biased else None
        return d_given @ half, _weight_gradient(d_given, x), d_bias, None, None, None


class _Attention(torch.autograd.Function):
    """Attention without its last product: of x (N, D) to itself, or to another sequence's states (N, D)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, memory: Tensor | None, weight: Tensor, bias: Tensor | None, kv_weight: Tensor | None,
        kv_bias: Tensor | None, rows: PackedRows, heads: int, causal: bool, dropout: _Dropout,
    ) -> Tensor:  # fmt: skip
        halves = rows.half(weight), rows.half(kv_weight)
        q = _linear(x, halves[0], rows.half(bias))  # type: ignore[arg-type]
        width = q.shape[1] if memory is not None else q.shape[1] // 3
        if memory is None:
            kv = q[:, width:]
        else:
            kv = _linear(memory, halves[1], rows.half(kv_bias))  # type: ignore[arg-type]
        steps = rows.texts.shape[1]
        ctx.of = heads, causal, dropout, width, steps, bias is not None, kv_bias is not None, memory is not None
        ctx.texts = rows.texts, rows.texts if memory is None else rows.memory_texts
        if steps > ROW:
            return _Attention.flash(ctx, q, (x, memory, *halves, q, kv), rows)
        out = q.new_empty((len(q), width))
        kernels().attend[(len(q) // steps * heads,)](  # type: ignore[union-attr]
            q, kv, kv[:, width:], *ctx.texts, dropout.seed, out, (width // heads) ** -0.5, dropout.factor,
            Q_STRIDE=q.stride(0), K_STRIDE=kv.stride(0), H=heads, T=steps, W=width // heads, CAUSAL=causal,
            THRESHOLD=dropout.threshold, num_warps=8 if steps * width // heads >= 16384 else 4, num_stages=1,
        )  # fmt: skip
        ctx.save_for_backward(x, memory, *halves, q, kv)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, memory, half, kv_half, q, kv = ctx.saved_tensors
        heads, causal, dropout, width, steps, biased, kv_biased, crosses = ctx.of
        count = len(q) // steps
        if steps > ROW:
            dq = _Attention.flash_backward(ctx, q, gradients[0])
            d_bias = dq.sum(0, dtype=torch.float32) if biased else None
            return dq @ half, None, _weight_gradient(dq, x), d_bias, None, None, None, None, None, None
        dq, parts = torch.empty_like(q), q.new_empty((count, q.shape[1]), dtype=torch.float32)
        if crosses:
            dkv, kv_parts = torch.empty_like(kv), q.new_empty((count, 2 * width), dtype=torch.float32)
        else:
            dkv, kv_parts = dq[:, width:], parts[:, width:]
        kernels().attend_backward[(count * heads,)](  # type: ignore[union-attr]
            q, kv, kv[:, width:], *ctx.texts, dropout.seed, gradients[0].contiguous(), dq, dkv, dkv[:, width:],
            parts, kv_parts, kv_parts[:, width:], (width // heads) ** -0.5, dropout.factor,
            Q_STRIDE=q.stride(0), K_STRIDE=kv.stride(0), H=heads, T=steps, W=width // heads, CAUSAL=causal,
            THRESHOLD=dropout.threshold, num_warps=8, num_stages=1,
        )  # fmt: skip
        found: list[Tensor | None] = [dq @ half, None, _weight_gradient(dq, x), parts.sum(0) if biased else None]
        if crosses:
            found[1] = dkv @ kv_half
            found += [_weight_gradient(dkv, memory), kv_parts.sum(0) if kv_biased else None]
        else:
            found += [None, None]
        return *found, None, None, None, None

    @staticmethod
    def flash(ctx: Any, qkv: Tensor, saved: tuple[Any, ...], rows: PackedRows) -> Tensor:
        """Self-attention by PyTorch's kernel."""
        heads, causal, dropout, width, steps = ctx.of[:5]
        parts = qkv.view(len(qkv), 3, heads, width // heads).unbind(1)
        offsets = rows.offsets
        out, *others = torch.ops.aten._flash_attention_forward(
            *parts, offsets, offsets, steps, steps, 1 - 1 / dropout.factor, causal, False
        )
        ctx.flash = out, others[:3], offsets
        ctx.save_for_backward(*saved)
        return out.view(len(qkv), width)

    @staticmethod
    def flash_backward(ctx: Any, qkv: Tensor, d_out: Tensor) -> Tensor:
        """The gradient of queries, keys and values side by side."""
        heads, causal, dropout, width, steps = ctx.of[:5]
        parts = qkv.view(len(qkv), 3, heads, width // heads).unbind(1)
        out, (normaliser, *random), offsets = ctx.flash
        found = torch.ops.aten._flash_attention_backward(
            d_out.view_as(out), *parts, out, normaliser, offsets, offsets, steps, steps, 1 - 1 / dropout.factor, causal,
            *random,
        )  # fmt: skip
        return torch.stack(found, 1).view_as(qkv)


class _Embedding(torch.autograd.Function):
    """Tokens (N,) to states (N, D)."""

    @staticmethod
    def forward(
        ctx: Any, table: Tensor, segment_table: Tensor | None, ids: Tensor, positions: Tensor | None,
        segments: Tensor | None, width: int, frozen: int | None, dropout: _Dropout, dtype: torch.dtype,
    ) -> Tensor:  # fmt: skip
        rows, size = ids.numel(), table.shape[1]
        wide, each = _wide(size)
        vectors = None
        if positions is not None:
            vectors = sinusoids(torch.arange(width + FIRST_POSITION, device=ids.device), size)
        out = table.new_empty((rows, size), dtype=dtype)
        kernels().embed[(-(-rows // each),)](  # type: ignore[union-attr]
            ids, table, positions, vectors, segments, segment_table, dropout.seed, out, rows, math.sqrt(size),
            dropout.factor, D=size, WIDE=wide, R=each, POSITIONS=positions is not None, SEGMENTS=segments is not None,
            THRESHOLD=dropout.threshold, num_warps=4,
        )  # fmt: skip
        ctx.of = ids, segments, table.shape, None if segment_table is None else segment_table.shape, frozen, dropout
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        ids, segments, shape, segment_shape, frozen, dropout = ctx.of
        d_out, block = gradients[0].contiguous(), 2048
        d_x = torch.empty_like(d_out, dtype=torch.float32)
        root = math.sqrt(shape[1])
        kernels().undrop[(-(-d_x.numel() // block),)](  # type: ignore[union-attr]
            d_out, dropout.seed, d_x, d_x.numel(), dropout.factor * root,
            THRESHOLD=dropout.threshold, BLOCK=block, num_warps=4,
        )  # fmt: skip
        d_table = torch.ops.aten.embedding_dense_backward(d_x, ids.flatten(), shape[0], -1, False)
        d_segments = None
        if segment_shape is not None:
            kinds = torch.arange(segment_shape[0], device=ids.device)
            members = (segments.flatten().unsqueeze(0) == kinds.unsqueeze(1)).to(d_x.dtype)
            if frozen is not None:
                members[frozen] = 0
            d_segments = members @ d_x / root
        return d_table, d_segments, *(None,) * 7


def embed(module: Embedding, ids: Tensor, positions: Tensor | None, segments: Tensor | None, rows: PackedRows) -> Tensor:
    """Embed packed rows (B, T) as states (B T, D)."""
    dropout = _Dropout.of(module.dropout if module.training else 0.0, rows)
    table = None if module.segments is None else module.segments.weight
    if not module.positioned:
        positions = None
    return _Embedding.apply(  # type: ignore[no-untyped-call, no-any-return]
        module.tokens.weight, table, ids, positions, None if table is None else segments, ids.shape[1],
        module.frozen_segment, dropout, rows.dtype,
    )  # fmt: skip


def chunk_loss(logits: Tensor, targets: Tensor, smoothing: float, ignored: int, sloping: bool) -> Tensor:
    """The sums (2,) of smoothed loss and nll; if ``sloping``, the loss's gradient replaces the logits (N, V)."""
    losses = logits.new_empty((len(logits), 2), dtype=torch.float32)
    kernels().smoothed_loss[(len(logits),)](  # type: ignore[union-attr]
        logits, targets, losses, logits.shape[1], smoothing, ignored, SLOPE=sloping, BLOCK=4096, num_warps=8
    )
    return losses.sum(0)
