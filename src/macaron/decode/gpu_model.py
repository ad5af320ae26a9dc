"""A translation model for the search on a GPU: the rows of `macaron.decode.cpu.model` with other products and kernels.

A sub-step of a pre-norm decoder is three or four kernels: the norm (which also adds the bias of the last product to the
state), and products of half precision, the last of which adds to the state in float32; attention is one more.
"""

from typing import Any

import torch
from torch import Tensor, nn

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
from macaron.decode.kernels import attend_beams, norm_and_shift, summarise
from macaron.models.translation import TranslationModel
from macaron.nn.attention import Context, CrossAttention, SelfAttention
from macaron.nn.linear import FeedForward
from macaron.ode import ButcherTableau


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
