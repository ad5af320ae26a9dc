"""A translation model for the search on a GPU: the rows of `macaron.decode.cpu.model` with other products and kernels.

A sub-step of a pre-norm decoder is three or four kernels: the norm (which also adds the bias of the last product to the
state), and products of half precision, the last of which adds to the state in float32; attention is one more. The
kernels, in Triton, stand where PyTorch has many small ones. This is imported on a GPU only.

Letters for shapes as in `macaron.nn.attention`; N beams, R rows.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from macaron.decode.beam import BLOCK
from macaron.decode.cache import BeamCache
from macaron.decode.cpu.linear import PackedLinear, RowOperator
from macaron.decode.cpu.model import (
    RowAttention,
    RowCrossAttention,
    RowFeedForward,
    RowSelfAttention,
    RowStack,
    RowSubLayer,
)
from macaron.models.translation import TranslationModel
from macaron.nn.attention import Context, CrossAttention, SelfAttention
from macaron.nn.linear import FeedForward
from macaron.ode import ButcherTableau

#: Positions that a program of the attention reads at a time, and beams that it has (a product has at least 16 rows).
_POSITIONS, _BEAMS = 32, 16
#: Blocks of the vocabulary that a program reads at a time.
_BLOCKS = 16


@triton.jit  # type: ignore[untyped-decorator]
def _attend(  # type: ignore[no-untyped-def]
    query, key, value, mask, out, steps, beams, positions, per_step, heads, scale,
    query_batch, query_beam, key_batch, key_head, key_position, value_batch, value_head, value_position,
    mask_batch, mask_beam, WIDTH: tl.constexpr, PADDED: tl.constexpr, BEAMS: tl.constexpr, POSITIONS: tl.constexpr,
    GROWS: tl.constexpr,
):  # fmt: skip
    batch, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    n = tl.program_id(2) * BEAMS + tl.arange(0, BEAMS)
    k = tl.arange(0, PADDED)
    inside = (n[:, None] < beams) & (k[None, :] < WIDTH)
    q = tl.load(query + batch * query_batch + n[:, None] * query_beam + head * WIDTH + k[None, :], inside, 0.0)
    if GROWS:  # the rest of the buffer has not been written
        positions = tl.minimum(positions, 1 + tl.load(steps).to(tl.int32) * per_step)
    largest = tl.full([BEAMS], float("-inf"), tl.float32)
    total = tl.zeros([BEAMS], tl.float32)
    mixed = tl.zeros([BEAMS, PADDED], tl.float32)
    key += batch * key_batch + head * key_head
    value += batch * value_batch + head * value_head
    for start in range(0, positions, POSITIONS):
        p = start + tl.arange(0, POSITIONS)
        there = p < positions
        keys = tl.load(key + p[None, :] * key_position + k[:, None], there[None, :] & (k[:, None] < WIDTH), 0.0)
        added = mask + batch * mask_batch + n[:, None] * mask_beam + p[None, :]
        hidden = tl.load(added, (n[:, None] < beams) & there[None, :], float("-inf"))
        logits = tl.dot(q, keys) * scale + hidden
        new = tl.maximum(largest, tl.max(logits, 1))
        base = tl.where(new == float("-inf"), 0.0, new)
        weights, shrink = tl.exp(logits - base[:, None]), tl.exp(largest - base)
        values = tl.load(value + p[:, None] * value_position + k[None, :], there[:, None] & (k[None, :] < WIDTH), 0.0)
        mixed = mixed * shrink[:, None] + tl.dot(weights.to(values.dtype), values)
        total, largest = total * shrink + tl.sum(weights, 1), new
    mixed = mixed / tl.where(total == 0.0, 1.0, total)[:, None]  # no position: zero
    place = ((batch * beams + n[:, None]) * heads + head) * WIDTH + k[None, :]
    tl.store(out + place, mixed.to(out.dtype.element_ty), inside)


def attend_beams(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, steps: Tensor | None = None, per_step: int = 0
) -> Tensor:
    """Attention of the beams of each sentence to positions that they share.

    :param query: (B, H, N, K), a view of rows with heads side by side
    :param key: (B, H, P, K), as ``value``
    :param mask: (B, 1, N or 1, P), added to the logits
    :param steps: a tensor with the number of steps before this one, if only 1 + ``per_step`` times that many positions
        have been written
    :returns: (B N, H K)
    """
    batch, heads, beams, width = query.shape
    out = query.new_empty(batch * beams, heads * width)
    beam_stride = mask.stride(2) if mask.shape[2] > 1 else 0
    _attend[(batch, heads, triton.cdiv(beams, _BEAMS))](
        query, key, value, mask, out, mask if steps is None else steps, beams, key.shape[2], per_step, heads,
        width**-0.5, query.stride(0), query.stride(2), *key.stride()[:3], *value.stride()[:3], mask.stride(0),
        beam_stride, WIDTH=width, PADDED=max(16, triton.next_power_of_2(width)), BEAMS=_BEAMS, POSITIONS=_POSITIONS,
        GROWS=steps is not None, num_warps=4,
    )  # fmt: skip
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _norm(  # type: ignore[no-untyped-def]
    x, weight, bias, shift, normed, shifted, size, eps, PADDED: tl.constexpr, CENTRED: tl.constexpr,
    WEIGHTED: tl.constexpr, BIASED: tl.constexpr, SHIFTED: tl.constexpr,
):  # fmt: skip
    k = tl.arange(0, PADDED)
    inside = k < size
    place = tl.program_id(0).to(tl.int64) * size + k
    state = tl.load(x + place, inside, 0.0)
    moved = state
    if SHIFTED:
        moved += tl.load(shift + k, inside, 0.0)
    tl.store(shifted + place, moved, inside)
    if CENTRED:
        state = tl.where(inside, state - tl.sum(state, 0) / size, 0.0)
    state = state * tl.rsqrt(tl.sum(state * state, 0) / size + eps)
    if WEIGHTED:
        state = state * tl.load(weight + k, inside, 0.0)
    if BIASED:
        state += tl.load(bias + k, inside, 0.0)
    tl.store(normed + place, state.to(normed.dtype.element_ty), inside)


def norm_and_shift(x: Tensor, norm: nn.Module, shift: Tensor | None, half: torch.dtype) -> tuple[Tensor, Tensor]:
    """The norm of float32 rows (R, D) in half precision, and the rows with ``shift`` (D,) added."""
    x = x.contiguous()
    normed, shifted = torch.empty_like(x, dtype=half), torch.empty_like(x)
    weight, bias, centred = norm.weight, getattr(norm, "bias", None), isinstance(norm, nn.LayerNorm)
    eps: Any = norm.eps
    given = [x if each is None else each for each in (weight, bias, shift)]
    _norm[(len(x),)](
        x, *given, normed, shifted, x.shape[1], torch.finfo(x.dtype).eps if eps is None else eps,
        PADDED=triton.next_power_of_2(x.shape[1]), CENTRED=centred, WEIGHTED=weight is not None,
        BIASED=bias is not None, SHIFTED=shift is not None, num_warps=4,
    )  # fmt: skip
    return normed, shifted


@triton.jit  # type: ignore[untyped-decorator]
def _summarise(  # type: ignore[no-untyped-def]
    logits, normaliser, maxima, vocabulary, blocks, pad, BLOCKS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    largest = tl.full([BLOCKS], float("-inf"), tl.float32)
    total = tl.zeros([BLOCKS], tl.float32)
    for start in range(0, tl.cdiv(vocabulary, BLOCK), BLOCKS):
        block = start + tl.arange(0, BLOCKS)
        v = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
        found = tl.load(logits + row * vocabulary + v, v < vocabulary, float("-inf"))
        tl.store(maxima + row * blocks + block, tl.max(tl.where(v == pad, float("-inf"), found), 1), block < blocks)
        new = tl.maximum(largest, tl.max(found, 1))
        base = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(largest - base) + tl.sum(tl.exp(found - base[:, None]), 1)
        largest = new
    top = tl.max(largest, 0)
    tl.store(normaliser + row, top + tl.log(tl.sum(total * tl.exp(largest - top), 0)))


def summarise(logits: Tensor, pad: int) -> tuple[Tensor, Tensor]:
    """What `Beams.advance` needs to know of logits (B, N, V) in float32."""
    vocabulary = logits.shape[2]
    blocks = vocabulary // BLOCK
    normaliser, maxima = logits.new_empty(logits.shape[:2]), logits.new_empty(*logits.shape[:2], blocks)
    rows = logits.shape[0] * logits.shape[1]
    _summarise[(rows,)](logits, normaliser, maxima, vocabulary, blocks, pad, BLOCKS=_BLOCKS, BLOCK=BLOCK, num_warps=8)
    return normaliser, maxima


class GpuTranslationModel(TranslationModel):
    """A float32 model on a GPU for encoding and the steps of a search; ``half`` is the precision of its products."""

    summarise = staticmethod(summarise)

    def __init__(self, model: TranslationModel, half: torch.dtype) -> None:
        nn.Module.__init__(self)  # the parts exist already
        self.config, self.embedding = model.config, model.embedding
        self.encoder = model.encoder
        self.decoder = RowStack(model.decoder, type("Half", (HalfLinear,), {"precision": half}))
        self.eval()

    @property
    def complete(self) -> bool:
        """Whether all operators have a form for rows."""
        return not any(isinstance(part, RowOperator) for part in self.modules())


class HalfLinear(PackedLinear):
    """``c (x W^T + b)`` of half precision, or without b added to float32 rows in place."""

    precision: torch.dtype

    def pack(self, weight: Tensor, nonnegative: bool) -> None:
        """Round the matrix."""
        self.weight = (weight * self.coefficient).to(self.precision).T
        self.rounded_bias = None if self.bias is None else self.bias.to(self.precision)

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """(R, I) to (R, O)."""
        x = x.to(self.precision)
        if onto is not None:
            if not x.is_cuda:  # for tests: only a GPU adds products of halves to float32
                return onto.add_(x.float() @ self.weight.float())
            return torch.addmm(onto, x, self.weight, out_dtype=torch.float32, out=onto)
        if self.rounded_bias is None:
            y = torch.mm(x, self.weight)
        elif self.relu:
            return torch._addmm_activation(self.rounded_bias, x, self.weight)
        else:
            y = torch.addmm(self.rounded_bias, x, self.weight)
        return y.relu_() if self.relu else y


class _BeamAttention(RowAttention):
    """What both attentions share: the kernel for beams."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, context: Context) -> Tensor:
        """Attention from (B, H, N, K) to (B N, H K)."""
        cache = context.cache
        assert isinstance(cache, BeamCache)
        assert mask is not None
        return attend_beams(query, key, value, mask, cache.steps if self.name == "F" else None, cache.beam)


class GpuSelfAttention(_BeamAttention, RowSelfAttention):
    """F, see `SelfAttention`."""


class GpuCrossAttention(_BeamAttention, RowCrossAttention):
    """H, see `CrossAttention`."""


class GpuSubLayer(RowSubLayer):
    """A `RowSubLayer` of the decoder."""

    def forward(self, x: Tensor, coefficient: float, tableau: ButcherTableau, context: Context, slot: int) -> Tensor:
        """Advance (B T, D) by one sub-step of the integrator."""
        if self.coefficient is None:
            return super().forward(x, coefficient, tableau, context, slot)
        last: Any = self.operator.fc2 if isinstance(self.operator, RowFeedForward) else self.operator.out
        if self.pre_norm:
            return self.operator(*norm_and_shift(x, self.norm, last.bias, last.precision), context, slot)
        onto = x.clone() if last.bias is None else x + last.bias
        return self.normalise(self.operator(x, onto, context, slot), *self.norm_arguments)


HalfLinear.sublayer = GpuSubLayer
HalfLinear.kinds = {SelfAttention: GpuSelfAttention, CrossAttention: GpuCrossAttention, FeedForward: RowFeedForward}
