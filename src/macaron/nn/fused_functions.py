"""The steps of `macaron.nn.fused` with their gradients, by the kernels of `macaron.nn.kernels`, which need Triton.

`PackedRows` are rows of packed texts as these see them.
"""

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

SEEDS = 256  # drawn at a time


class Dropout(NamedTuple):
    """A seed (4,) int32, the rate, and the factor of what is kept."""

    seed: Tensor
    rate: float
    factor: float


@dataclass
class PackedRows:
    """Packed rows (B, T), and what all sub-layers of a forward pass share.

    :param texts: (B, T) int32, the number of the text of each position; it attends to those with its number
    :param memory_texts: (B, S), likewise of cross-attention's keys
    :param offsets: cumulative lengths of the texts, (N + 1,) int32, for rows that are too long for our kernel
    """

    texts: Tensor
    memory_texts: Tensor | None = None
    offsets: Tensor | None = None
    weights: dict[int, Tensor] = field(default_factory=dict)
    seeds: list[Tensor] = field(default_factory=list)

    def cast(self, modules: Iterable[nn.Module]) -> "PackedRows":
        """Convert the weights of all linear maps of these modules at once."""
        linear = (part for module in modules for part in module.modules() if isinstance(part, nn.Linear))
        given = {id(each): each for part in linear for each in (part.weight, part.bias) if each is not None}
        made = [torch.empty_like(each, dtype=self.dtype) for each in given.values()]
        with torch.no_grad():
            torch._foreach_copy_(made, list(given.values()))
        self.weights = dict(zip(given, made, strict=True))
        return self

    @property
    def dtype(self) -> torch.dtype:
        """That of products and states."""
        kind = self.texts.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.get_default_dtype()

    def cross(self, texts: Tensor) -> "PackedRows":
        """Rows (B, T) of another sequence, which attend to these."""
        return replace(self, texts=texts, memory_texts=self.texts)

    def half(self, weight: Tensor) -> Tensor:
        """A weight in the precision of products."""
        return self.weights[id(weight)]

    def dropout(self, rate: float) -> Dropout:
        """Dropout with a seed of its own, from the device's generator: a graph draws anew at every replay."""
        if not rate:
            return Dropout(self.texts, 0.0, 1.0)  # any seed will do
        if not self.seeds:
            limits = torch.iinfo(torch.int32)
            drawn = torch.randint(limits.min, limits.max, (SEEDS, 4), dtype=torch.int32, device=self.texts.device)
            self.seeds.extend(drawn.unbind(0))
        return Dropout(self.seeds.pop(), rate, 1 / (1 - rate))


#: Sizes of programs, as measured on an H200. Elements of one that takes each alone; rows of a norm's.
BLOCK, ROWS = 2048, 4
#: Programs that sum over rows: 16 warps for each processor of a GPU.
WARPS = 16 * 132


#: Whether launches of this thread only compile.
_compiling = ContextVar("compiling", default=False)


@contextmanager
def compiling() -> Iterator[None]:
    """A context in which launches compile their kernels, many at a time, and compute nothing: results are undefined."""
    import triton

    # Without it, or without anything to compile, all is computed as usual.
    mode = None if os.environ.get("TRITON_INTERPRET") else getattr(triton, "AsyncCompileMode", None)
    if mode is None:
        yield
        return
    cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    token = _compiling.set(True)
    try:
        # Otherwise backward passes launch from another thread, which does not know of this context.
        alone = torch.autograd.set_multithreading_enabled(False)
        with alone, ThreadPoolExecutor(max(1, cores)) as pool, mode(pool):
            yield
    finally:
        _compiling.reset(token)


def launch(name: str, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Launch a kernel, or only compile it, see `compiling`."""
    from macaron.nn import kernels

    kernel = getattr(kernels, name)
    if _compiling.get():
        kernel.warmup(*arguments, grid=grid, **options)
    else:
        kernel[grid](*arguments, **options)


def power_of_2(size: int) -> int:
    """The smallest power of 2 that is not less."""
    return 1 << (size - 1).bit_length()


def weight_gradient(d_out: Tensor, x: Tensor) -> Tensor:
    """``d_out^T x`` in float32."""
    if d_out.is_cuda and d_out.dtype != torch.float32:
        return torch.mm(d_out.t(), x, out_dtype=torch.float32)
    return d_out.t() @ x


def column_sums(parts: Tensor) -> Tensor:
    """The sum of partial sums (P, ...), in a fixed order."""
    total = parts.new_empty(parts.shape[1:])
    size = total.numel()
    launch("column_sums", (-(-size // 16),), parts, total, len(parts), size, R=256, BLOCK=16, num_warps=8)
    return total


def joined(*tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Three tensors (N, D) side by side, and the sums over rows, (3 D,) in float32."""
    rows, columns = tensors[0].shape
    width, each = 128, 16
    blocks = -(-columns // width)
    programs = min(-(-WARPS // (12 * blocks)), -(-rows // each))
    out = tensors[0].new_empty((rows, 3 * columns))
    parts = out.new_empty((programs, 3 * columns), dtype=torch.float32)
    launch("join_columns", (blocks, 3, programs), *tensors, out, parts, rows, columns, R=each, BLOCK=width, num_warps=4)
    return out, column_sums(parts)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, rows: PackedRows) -> Tensor:
    """A linear map in the precision of products."""
    matrix = rows.half(weight).t()
    return x @ matrix if bias is None else torch.addmm(rows.half(bias), x, matrix)


class Product(torch.autograd.Function):
    """``x W^T``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, rows: PackedRows) -> Tensor:
        ctx.save_for_backward(x, rows.half(weight))
        return linear(x, weight, None, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (x, half), (d_out,) = ctx.saved_tensors, gradients
        return d_out @ half, weight_gradient(d_out, x), None


class ResidualNorm(torch.autograd.Function):
    """``s = x + c drop(moved + bias)`` and its norm; x, moved or the norm may be missing."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor | None, moved: Tensor | None, bias: Tensor | None, gain: Tensor | None, beta: Tensor | None,
        coefficient: float, dropout: Dropout, eps: float, rms: bool,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        ctx.set_materialize_grads(False)
        given: Any = x if moved is None else moved
        rows, size = given.shape
        seed, rate, factor = dropout
        total = given if moved is None else torch.empty_like(given)
        normed = None if gain is None else torch.empty_like(given)
        launch(
            "residual_norm", (-(-rows // ROWS),),
            x, moved, bias, gain, beta, seed, total, normed, rows, rate, coefficient * factor, eps,
            D=size, WIDE=power_of_2(size), R=ROWS, START=x is not None, ADD=moved is not None,
            BIAS=bias is not None, NORM=gain is not None, BETA=beta is not None, RMS=rms, DROP=rate > 0, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(total, gain, seed)
        ctx.of, ctx.given = (rate, coefficient * factor, eps), [each is not None for each in (x, moved, bias, beta)]
        ctx.rms = rms
        return total.view_as(total), normed

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        total, gain, seed = ctx.saved_tensors
        starts, adds, biased, shifted = ctx.given
        d_sum, d_norm = (each if each is None else each.contiguous() for each in gradients)
        normed = d_norm is not None
        rows, size = total.shape
        power = power_of_2(size)
        each, warps = (BLOCK // power, 4) if power <= 512 else (1, 2)
        programs = min(WARPS // warps, -(-rows // each))
        d_x, d_moved = (torch.empty_like(total) if wanted else None for wanted in (starts, adds))
        parts = total.new_empty((programs, 3, size), dtype=torch.float32)
        launch(
            "residual_norm_backward", (programs,),
            total, d_sum, d_norm, gain if normed else None, seed, d_x, d_moved, parts, rows, *ctx.of,
            D=size, WIDE=power, START=starts, ADD=adds, NORM=normed, SUM=d_sum is not None, RMS=ctx.rms,
            DROP=ctx.of[0] > 0, R=each, num_warps=warps,
        )  # fmt: skip
        d_gain, d_beta, d_bias = column_sums(parts).unbind(0)
        found = d_bias if biased else None, d_gain if gain is not None else None, d_beta if shifted else None
        return d_x, d_moved, *found, None, None, None, None


class Inner(torch.autograd.Function):
    """``drop(act(x W^T + b))``."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, rows: PackedRows, gelu: bool, dropout: Dropout
    ) -> Tensor:
        seed, rate, factor = dropout
        before = linear(x, weight, bias, rows)
        after = torch.empty_like(before) if gelu else before  # relu's gradient follows from its result
        launch(
            "activate", (-(-before.numel() // BLOCK),),
            before, after, seed, before.numel(), rate, factor, GELU=gelu, BLOCK=BLOCK, DROP=rate > 0, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(x, rows.half(weight), before, seed)
        ctx.of = gelu, bias is not None, rate, factor
        return after

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, half, before, seed = ctx.saved_tensors
        gelu, biased, rate, factor = ctx.of
        rows, columns = before.shape
        width, each = 128, 8
        blocks = -(-columns // width)
        programs = min(-(-WARPS // (2 * blocks)), -(-rows // each))
        d_before = torch.empty_like(before)
        parts = before.new_empty((programs, columns), dtype=torch.float32)
        launch(
            "activate_backward", (blocks, programs),
            before, gradients[0].contiguous(), seed, d_before, parts, rows, columns, rate, factor,
            R=each, BLOCK=width, GELU=gelu, DROP=rate > 0, num_warps=4,
        )  # fmt: skip
        d_bias = column_sums(parts) if biased else None
        return d_before @ half, weight_gradient(d_before, x), d_bias, None, None, None


class AttentionHeads(torch.autograd.Function):
    """The heads of attention side by side, (N, H K), of x (N, D) to itself or to another sequence's states (N, D).

    :param weight: that of queries; without ``memory`` that of queries, keys and values, which is given twice
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, memory: Tensor | None, weight: Tensor, bias: Tensor | None, kv_weight: Tensor,
        kv_bias: Tensor | None, rows: PackedRows, heads: int, causal: bool, dropout: Dropout,
    ) -> Tensor:  # fmt: skip
        q, steps = linear(x, weight, bias, rows), rows.texts.shape[1]
        key_texts: Tensor | None = rows.texts
        if memory is None:
            width, kv_half = q.shape[1] // 3, None
            kv = q[:, width:]
        else:
            width, key_texts, kv_half = q.shape[1], rows.memory_texts, rows.half(kv_weight)
            kv = linear(memory, kv_weight, kv_bias, rows)
        ctx.texts, ctx.dropout = (rows.texts, key_texts), dropout
        ctx.shape = {
            **{"Q_STRIDE": q.stride(0), "K_STRIDE": kv.stride(0), "H": heads, "T": steps, "W": width // heads},
            **{"CAUSAL": causal, "DROP": dropout.rate > 0, "num_stages": 1},
        }
        ctx.biased = bias is not None, kv_bias is not None
        out = q.new_empty((len(q), width))
        queries, warps = (128, 8) if width // heads > 64 else (64, 4)
        queries = min(steps, queries)
        launch(
            "attend", (len(q) // queries * heads,),
            q, kv, kv[:, width:], *ctx.texts, dropout.seed, out, (width // heads) ** -0.5, *dropout[1:],
            ROWS=queries, num_warps=warps, maxnreg=128, **ctx.shape,
        )  # fmt: skip
        ctx.save_for_backward(x, memory, rows.half(weight), kv_half, q, kv)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, memory, half, kv_half, q, kv = ctx.saved_tensors
        heads, width = ctx.shape["H"], ctx.shape["H"] * ctx.shape["W"]
        count = len(q) // ctx.shape["T"]
        dq, parts = torch.empty_like(q), q.new_empty((count, q.shape[1]), dtype=torch.float32)
        if memory is None:
            dkv, kv_parts = dq[:, width:], parts[:, width:]
        else:
            dkv, kv_parts = torch.empty_like(kv), q.new_empty((count, 2 * width), dtype=torch.float32)
        launch(
            "attend_backward", (count * heads,),
            q, kv, kv[:, width:], *ctx.texts, ctx.dropout.seed, gradients[0].contiguous(), dq, dkv, dkv[:, width:],
            parts, kv_parts, kv_parts[:, width:], ctx.shape["W"] ** -0.5, *ctx.dropout[1:],
            num_warps=8 if ctx.shape["W"] > 64 else 4, **ctx.shape,
        )  # fmt: skip
        d_bias = column_sums(parts) if ctx.biased[0] else None
        d_x, d_weight = dq @ half, weight_gradient(dq, x)
        if memory is None:
            return d_x, None, d_weight, d_bias, *(None,) * 6
        kv_bias = column_sums(kv_parts) if ctx.biased[1] else None
        return d_x, dkv @ kv_half, d_weight, d_bias, weight_gradient(dkv, memory), kv_bias, *(None,) * 4


class FlashHeads(torch.autograd.Function):
    """The heads of self-attention in rows with offsets, by PyTorch's flash kernel."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, rows: PackedRows, heads: int, causal: bool,
        rate: float,
    ) -> Tensor:  # fmt: skip
        qkv, longest = linear(x, weight, bias, rows), rows.texts.shape[1]
        parts = qkv.view(len(qkv), 3, heads, -1).unbind(1)
        ctx.given = rows.offsets, rows.offsets, longest, longest, rate, causal
        out, normaliser, *random = torch.ops.aten._flash_attention_forward(*parts, *ctx.given, False)[:4]
        ctx.save_for_backward(x, rows.half(weight), qkv, out, normaliser, *random)
        ctx.biased = bias is not None
        return out.view(len(qkv), -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, half, qkv, out, normaliser, *random = ctx.saved_tensors
        parts, d_out = qkv.view(len(qkv), 3, *out.shape[1:]).unbind(1), gradients[0].view_as(out)
        found = torch.ops.aten._flash_attention_backward(d_out, *parts, out, normaliser, *ctx.given, *random)
        d_qkv, sums = joined(*(each.reshape(len(qkv), -1) for each in found))
        return d_qkv @ half, weight_gradient(d_qkv, x), sums if ctx.biased else None, *(None,) * 4


def chunk_loss(logits: Tensor, targets: Tensor, smoothing: float, ignored: int, sloping: bool) -> Tensor:
    """The sums (2,) of smoothed loss and nll; if ``sloping``, the loss's gradient replaces the logits (N, V)."""
    losses = logits.new_empty((len(logits), 2), dtype=torch.float32)
    given = logits, targets, losses, logits.shape[1], smoothing, ignored
    launch("smoothed_loss", (len(logits),), *given, SLOPE=sloping, BLOCK=1024, num_warps=4)
    return losses.sum(0)
