"""Translation and language models for the CPU: plain ones with packed matrices and fewer calls.

Schemes, integrators, tying, the walk through the layers and the search are the same code. States are rows, (B T, D),
and `Context.batch` is B: oneDNN's product would turn (B, T, D) into rows at every call. For one sentence the number
of calls dominates: a product evicts the caches, so the next operation is slow. The letters of shapes are those of
`macaron.nn.attention`.
"""

import math
from collections import defaultdict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.decode.cache import BeamCache
from macaron.decode.cpu.linear import Direct, Int8Linear, PackedLinear, RowOperator, check_int8, product
from macaron.errors import MacaronError
from macaron.models.translation import DecoderNetwork, LanguageModel, TranslationModel
from macaron.nn.attention import Context, CrossAttention, SelfAttention, attend
from macaron.nn.budget import Interaction
from macaron.nn.embedding import FIRST_POSITION, Embedding
from macaron.nn.layer import SchemeLayer, SubLayer
from macaron.nn.linear import FeedForward
from macaron.nn.stack import Stack
from macaron.ode import ButcherTableau

#: From this many sentences on, attention is plain products: PyTorch's fused kernel is made for many queries, and in a
#: search few queries meet many keys. For fewer, every call counts.
FEW = 4
PackedClass = type[PackedLinear]


class Packed(DecoderNetwork):
    """A network with packed matrices. It writes text; it cannot be trained, moved or saved.

    :param model: a float32 model on the CPU; norms and embeddings are shared with it
    :param int8: round matrices to 8 bits, with a scale for each row; their inputs are rounded, too
    """

    def __init__(self, model: DecoderNetwork, int8: bool = False) -> None:
        nn.Module.__init__(self)  # the parts exist already
        table = model.embedding.tokens.weight
        if table.device.type != "cpu" or table.dtype != torch.float32:
            raise MacaronError(f"only a float32 model on the CPU can be packed, not {table.dtype} on {table.device}")
        if isinstance(model, Packed):
            raise MacaronError("the model is packed already")
        if int8:
            check_int8()
        linear: PackedClass = Int8Linear if int8 else PackedLinear
        self.config = model.config
        self.embedding = CpuEmbedding(model.embedding, linear)
        for name in ("encoder", "decoder"):
            if hasattr(model, name):
                setattr(self, name, RowStack(getattr(model, name), linear))
        self.eval()


class CpuTranslationModel(Packed, TranslationModel):
    """A packed translation model."""


class CpuLanguageModel(Packed, LanguageModel):
    """A packed language model."""


class RowStack(Direct, Stack):
    """A `Stack` of rows, made from a plain one. Tied sub-layers stay tied."""

    def __init__(self, plain: Stack, linear: PackedClass) -> None:
        nn.Module.__init__(self)
        coefficients: dict[SubLayer, set[float]] = defaultdict(set)
        for layer in plain.steps:
            for move in layer.moves:
                coefficients[layer.sublayer(move)].add(move.coefficient)
        euler = all(layer.tableau.stages == 1 for layer in plain.steps) and not plain.has_velocity
        kind = linear.sublayer or RowSubLayer
        sublayers = {
            sublayer: kind(sublayer, linear, found.pop() if euler and len(found) == 1 else None)
            for sublayer, found in coefficients.items()
        }
        layers = {layer: RowLayer(layer, sublayers) for layer in plain.steps}
        self.layers = nn.ModuleList(layers.values())
        self.steps: list[SchemeLayer] = [layers[layer] for layer in plain.steps]
        self.norm, self.gradient_checkpointing = plain.norm, False
        self.has_velocity, self.needs_positions, self.signals = plain.has_velocity, plain.needs_positions, plain.signals

    def forward(self, x: Tensor, context: Context, states: list[Tensor] | None = None, **options: Any) -> Tensor:
        """As `Stack.forward`, (B, T, D) to (B, T, D); a visitor sees rows."""
        context.batch = len(x)
        rows = super().forward(x.flatten(0, 1), context, states, **options)
        if states is not None:
            states[:] = [state.reshape(x.shape) for state in states]
        return rows.reshape(x.shape)


class RowLayer(Direct, SchemeLayer):
    """A `SchemeLayer` with sub-layers of rows."""

    def __init__(self, plain: SchemeLayer, sublayers: "dict[SubLayer, RowSubLayer]") -> None:
        nn.Module.__init__(self)
        self.take_over(plain)
        self.sublayers = nn.ModuleDict({move.sublayer: sublayers[plain.sublayer(move)] for move in plain.moves})


class RowSubLayer(Direct, SubLayer):
    """A `SubLayer` of rows. The coefficient of all its sub-steps is part of its last matrix; None if they differ."""

    def __init__(self, plain: SubLayer, linear: PackedClass, coefficient: float | None) -> None:
        nn.Module.__init__(self)
        self.take_over(plain)
        self.coefficient = coefficient
        shape, weight, eps = plain.norm.normalized_shape, plain.norm.weight, plain.norm.eps
        bias = [plain.norm.bias] if isinstance(plain.norm, nn.LayerNorm) else []
        self.normalise: Any = torch.layer_norm if bias else F.rms_norm
        self.norm_arguments: tuple[Any, ...] = (shape, weight, *bias, eps)
        rows = {SelfAttention: RowSelfAttention, CrossAttention: RowCrossAttention, FeedForward: RowFeedForward}
        known = getattr(plain.operator, "interaction", Interaction()) == Interaction()
        kind: Any = (linear.kinds or rows).get(type(plain.operator), RowOperator) if known else RowOperator
        self.operator = kind(plain.operator, linear, 1.0 if coefficient is None else coefficient)

    def forward(self, x: Tensor, coefficient: float, tableau: ButcherTableau, context: Context, slot: int) -> Tensor:
        """Advance (B T, D) by one sub-step of the integrator."""
        if self.coefficient is None:
            return super().forward(x, coefficient, tableau, context, slot)
        if self.pre_norm:
            return self.operator(self.normalise(x, *self.norm_arguments), x, context, slot)
        return self.normalise(self.operator(x, x, context, slot), *self.norm_arguments)

    def field(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """The direction in which (B T, D) moves."""
        return self.operator(self.normalise(x, *self.norm_arguments) if self.pre_norm else x, None, context, slot)


class RowFeedForward(Direct):
    """G, see `FeedForward`."""

    def __init__(self, plain: FeedForward, linear: PackedClass, coefficient: float) -> None:
        super().__init__()
        self.activation = None if plain.activation is F.relu else plain.activation
        relu = self.activation is None
        self.fc1 = linear(plain.fc1.weight, plain.fc1.bias, relu=relu)
        self.fc2 = linear(plain.fc2.weight, plain.fc2.bias, nonnegative=relu, coefficient=coefficient)

    def forward(self, x: Tensor, onto: Tensor | None, context: Context, slot: int) -> Tensor:
        """Move (B T, D); the result is added to ``onto`` if given."""
        inner = self.fc1(x)
        return self.fc2(inner if self.activation is None else self.activation(inner), onto)


class RowAttention(Direct):
    """What both attentions share."""

    name = ""

    def __init__(self, plain: SelfAttention | CrossAttention, linear: PackedClass, coefficient: float) -> None:
        super().__init__()
        self.num_heads, self.head_size = plain.num_heads, plain.head_size
        self.scale = 1 / math.sqrt(plain.head_size)
        self.out = linear(plain.out.weight, plain.out.bias, coefficient=coefficient)

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


class RowSelfAttention(RowAttention):
    """F, see `SelfAttention`."""

    name = "F"

    def __init__(self, plain: SelfAttention, linear: PackedClass, coefficient: float) -> None:
        super().__init__(plain, linear, coefficient)
        self.qkv = linear(plain.qkv.weight, plain.qkv.bias)

    def forward(self, x: Tensor, onto: Tensor | None, context: Context, slot: int) -> Tensor:
        """Move (B T, D) by attention; ``slot`` is that of this evaluation in the cache."""
        parts, cache = self.heads(self.qkv(x), context.batch, 3), context.cache
        if isinstance(cache, BeamCache):
            key, value = cache.extend_both(slot, parts.narrow(3, 1, 2))
        else:
            key, value = parts.select(3, 1), parts.select(3, 2)
            if cache is not None:
                key, value = cache.extend(slot, key, value)
        return self.out(self.mix(parts.select(3, 0), key, value, context.mask, context), onto)


class RowCrossAttention(RowAttention):
    """H, see `CrossAttention`.

    For one short sentence in float32, keys and values are kept multiplied by the matrices of queries and outputs:
    ``(x Wq + b) K' = x (Wq K') + b K'``. A step then reads 2 D H S numbers instead of 2 D H K, and reading is what
    takes the time. (In int8 a result would depend on the batch, since Wq is rounded there.)
    """

    name = "H"

    def __init__(self, plain: CrossAttention, linear: PackedClass, coefficient: float) -> None:
        super().__init__(plain, linear, coefficient)
        self.q = linear(plain.q.weight, plain.q.bias)
        self.kv = linear(plain.kv.weight, plain.kv.bias)
        self.coefficient = coefficient
        exact = linear is PackedLinear
        self.plain: Any = (plain.q.weight, plain.q.bias, plain.out.weight, plain.out.bias) if exact else None

    def forward(self, x: Tensor, onto: Tensor | None, context: Context, slot: int) -> Tensor:
        """Move (B T, D) by attention to ``context.memory`` (B, S, D)."""
        cache = context.cache
        folded = cache.folded.get(slot) if isinstance(cache, BeamCache) else None
        if folded is None:
            kept = cache.memory(slot) if cache is not None else None
            if kept is not None:
                key, value = kept
            else:
                assert context.memory is not None
                both = self.heads(self.kv(context.memory.flatten(0, 1)), context.batch, 2)
                key, value = both.select(3, 0), both.select(3, 1)
                # Each sentence would have folded keys of its own, while a batch shares the matrices. Folding takes time
                # once, so there must be clearly less to read in each step.
                few = len(key) == 1 and 2 * key.shape[2] <= self.head_size
                if isinstance(cache, BeamCache) and self.plain is not None and few:
                    folded = cache.folded[slot] = self._fold(key[0], value[0], context.memory_mask)
                elif cache is not None:
                    cache.store_memory(slot, key, value)
        if folded is None:
            query = self.heads(self.q(x), context.batch, 1).select(3, 0)
            return self.out(self.mix(query, key, value, context.memory_mask, context), onto)
        keys, offset, values = folded
        logits = product(torch.addmm, offset, x, keys)
        weights = logits.view(len(x), self.num_heads, -1).softmax(dim=2).view_as(logits)
        return product(torch.mm, weights, values) if onto is None else product(torch.addmm, onto, weights, values)

    def _fold(self, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Keys and values (H, S, K) to (D, H S), an offset (H S,), and (H S, D)."""
        query, query_bias, out, out_bias = self.plain
        key, value = key * self.scale, value * self.coefficient
        keys = key @ query.view(self.num_heads, self.head_size, -1)
        values = value @ out.view(-1, self.num_heads, self.head_size).permute(1, 2, 0)
        offset = torch.zeros_like(key[..., 0]) if mask is None else mask[0, 0].expand(*key.shape[:2])
        if query_bias is not None:
            offset = offset + (key @ query_bias.view(self.num_heads, self.head_size, 1)).squeeze(2)
        if out_bias is not None:
            values = values + out_bias * (self.coefficient / self.num_heads)  # each head's weights sum to one
        return keys.flatten(0, 1).t().contiguous(), offset.flatten(), values.flatten(0, 1)


class CpuEmbedding(Direct, Embedding):
    """See `Embedding`; position vectors are kept in a table, and the output matrix is packed."""

    def __init__(self, plain: Embedding, linear: PackedClass) -> None:
        nn.Module.__init__(self)
        self.take_over(plain)
        self.table = torch.empty(0)
        self.product = linear(plain.tokens.weight, plain.output_bias)

    def of_positions(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The vectors of positions of any shape: that shape + (D,)."""
        longest = int(positions.max())
        if longest >= len(self.table):
            most = 2 * longest if self.positions is None else len(self.positions.weight) + FIRST_POSITION
            self.table = super().of_positions(torch.arange(most))
        return F.embedding(positions, self.table)

    def logits(self, states: Tensor) -> Tensor:
        """States (..., D) to logits (..., V)."""
        return self.product(states)
