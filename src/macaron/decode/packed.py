"""A model prepared for translating on the CPU: the same network with packed matrices, in float32 or in int8.

Only sub-layers and the embedding are exchanged. Schemes, integrators, tying and the search are the same code as ever.
"""

import copy
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.decode.matrices import Direct, Int8Linear, PackedLinear, check_int8, threads_for_products
from macaron.errors import MacaronError
from macaron.models.translation import TranslationModel
from macaron.nn.attention import Context, CrossAttention, SelfAttention, attend
from macaron.nn.embedding import FIRST_POSITION, Embedding, sinusoids
from macaron.nn.feedforward import FeedForward
from macaron.nn.layer import SubLayer
from macaron.ode import ButcherTableau

#: Sentences from which on attention is plain products: PyTorch's fused kernel is made for many queries, and in a search
#: there are few queries to many keys. For one sentence its single call costs less than several.
_FEW = 4
Make = Callable[..., PackedLinear | Int8Linear]


class PackedTranslationModel(TranslationModel):
    """A translation model with packed matrices. It translates; it can neither be trained nor moved nor saved."""

    projection: nn.Module

    def logits(self, states: Tensor) -> Tensor:
        """States (..., D) to logits (..., V)."""
        return self.projection(states)


def searching(model: TranslationModel, sentences: int) -> AbstractContextManager[None]:
    """A context for searching with a model: for few sentences a packed one uses threads for its products only."""
    few = isinstance(model, PackedTranslationModel) and sentences < _FEW
    return threads_for_products() if few else nullcontext()


def packed(model: TranslationModel, int8: bool = False) -> TranslationModel:
    """A copy of a float32 model on the CPU with packed matrices. Norms and embeddings are shared with the model.

    :param int8: matrices in 8 bits, with a scale for each row; what they are multiplied by is rounded, too
    """
    table = model.embedding.tokens.weight
    if table.device.type != "cpu" or table.dtype != torch.float32:
        raise MacaronError(f"only a float32 model on the CPU can be packed, not {table.dtype} on {table.device}")
    if isinstance(model, PackedTranslationModel):
        raise MacaronError("the model is packed already")
    if int8:
        check_int8()
    make: Make = Int8Linear if int8 else PackedLinear
    # What the copy finds here it takes as it is. So parameters are shared, and sub-layers that are tied stay tied.
    memo: dict[int, object] = {id(parameter): parameter for parameter in model.parameters()}
    for module in model.modules():
        if isinstance(module, SubLayer):
            memo[id(module)] = _SubLayer(module, make)
    memo[id(model.embedding)] = _Embedding(model.embedding)
    clone: TranslationModel = copy.deepcopy(model, memo)
    clone.__class__ = PackedTranslationModel
    clone.projection = make(table, None)
    return clone.eval()


class _SubLayer(Direct, SubLayer):
    """A sub-step, see `SubLayer`, with fewer calls: for one sentence they cost as much as the products."""

    def __init__(self, plain: SubLayer, make: Make) -> None:
        nn.Module.__init__(self)
        self.pre_norm, self.dropout, self.slot_per_stage = plain.pre_norm, 0.0, plain.slot_per_stage
        self.norm = plain.norm
        kinds = {SelfAttention: _SelfAttention, CrossAttention: _CrossAttention, FeedForward: _FeedForward}
        self.operator = kinds[type(plain.operator)](plain.operator, make)

    def forward(self, x: Tensor, coefficient: float, tableau: ButcherTableau, context: Context, slot: int) -> Tensor:
        """Advance (B, T, D) by one sub-step of the integrator."""
        if len(tableau.b) > 1 or not self.pre_norm:
            return super().forward(x, coefficient, tableau, context, slot)
        return torch.add(x, self.field(x, context, slot), alpha=coefficient * tableau.b[0])

    def field(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """The direction in which (B, T, D) moves."""
        if self.pre_norm:
            norm = self.norm
            x = torch.layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        return self.operator(x, context, slot)


class _Embedding(Direct, Embedding):
    """See `Embedding`; the vectors of the positions are kept."""

    def __init__(self, plain: Embedding) -> None:
        nn.Module.__init__(self)
        self.dropout, self.frozen_segment, self.tokens, self.segments = 0.0, None, plain.tokens, None
        self.table = torch.empty(0)

    def from_vectors(self, vectors: Tensor, positions: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Token vectors (B, T, D) with their positions."""
        size = vectors.shape[-1]
        if positions is None:
            positions = torch.arange(FIRST_POSITION, FIRST_POSITION + vectors.shape[1])
        longest = int(positions.max())
        if longest >= len(self.table):
            self.table = sinusoids(torch.arange(2 * longest), size)
        return torch.add(F.embedding(positions, self.table), vectors, alpha=math.sqrt(size))


class _FeedForward(Direct):
    """G, see `FeedForward`."""

    def __init__(self, plain: FeedForward, make: Make) -> None:
        super().__init__()
        self.activation = None if plain.activation is F.relu else plain.activation
        self.fc1 = make(plain.fc1.weight, plain.fc1.bias, relu=self.activation is None)
        self.fc2 = make(plain.fc2.weight, plain.fc2.bias)

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """Move (B, T, D)."""
        inner = self.fc1(x)
        return self.fc2(inner if self.activation is None else self.activation(inner))


class _Attention(Direct):
    """What both attentions share."""

    name = ""

    def __init__(self, plain: SelfAttention | CrossAttention, make: Make) -> None:
        super().__init__()
        self.num_heads, self.head_size = plain.num_heads, plain.head_size
        self.scale = 1 / math.sqrt(plain.head_size)
        self.out = make(plain.out.weight, plain.out.bias)

    def heads(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Cut (B, T, parts * H * K) into parts of (B, H, T, K)."""
        return x.view(x.shape[0], x.shape[1], parts, self.num_heads, self.head_size).permute(2, 0, 3, 1, 4).unbind(0)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, context: Context) -> Tensor:
        """Attention from (B, H, T, K) to (B, T, D)."""
        if context.causal or context.weights is not None or (mask is not None and mask.dtype == torch.bool):
            mixed = attend(query, key, value, mask, context.causal, 0.0, context, self.name)
        elif len(query) < _FEW:
            mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        else:
            logits = (query * self.scale) @ key.transpose(-2, -1)
            if mask is not None:
                logits += mask
            mixed = logits.softmax(dim=-1) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class _SelfAttention(_Attention):
    """F, see `SelfAttention`."""

    name = "F"

    def __init__(self, plain: SelfAttention, make: Make) -> None:
        super().__init__(plain, make)
        self.qkv = make(plain.qkv.weight, plain.qkv.bias)

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """Move (B, T, D) by attention; ``slot`` is this evaluation's place in the cache."""
        query, key, value = self.heads(self.qkv(x), 3)
        if context.cache is not None:
            key, value = context.cache.extend(slot, key, value)
        return self.attend(query, key, value, context.mask, context)


class _CrossAttention(_Attention):
    """H, see `CrossAttention`."""

    name = "H"

    def __init__(self, plain: CrossAttention, make: Make) -> None:
        super().__init__(plain, make)
        self.q = make(plain.q.weight, plain.q.bias)
        self.kv = make(plain.kv.weight, plain.kv.bias)

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """Move (B, T, D) by attention to ``context.memory`` (B, S, D)."""
        (query,) = self.heads(self.q(x), 1)
        stored = context.cache.memory(slot) if context.cache is not None else None
        if stored is None:
            if context.memory is None:
                raise ValueError("cross-attention needs the encoder's output: Context.memory is None")
            key, value = self.heads(self.kv(context.memory), 2)
            if context.cache is not None:
                context.cache.store_memory(slot, key, value)
        else:
            key, value = stored
        return self.attend(query, key, value, context.memory_mask, context)
