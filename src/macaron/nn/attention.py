"""Multi-head attention, how each particle is moved by the others, and its key-value cache.

Letters for shapes, here and in the whole room: B batch, T positions of the queries, S positions of the keys,
D hidden size, H heads, K head width, I inner width of a feed-forward network, V vocabulary.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.errors import MacaronError
from macaron.nn.budget import Interaction
from macaron.nn.linear import EmbeddingTable, Linear, xavier_bound
from macaron.nn.linear import dropout as drop


def precise(x: Tensor) -> Tensor:
    """A tensor in float32 or better."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def rotated(heads: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Queries or keys (B, H, T, K) turned by angles that grow with their positions, (T,) or (B, T).

    Channel i of the first half and channel i of the second are the coordinates of a point, which turns by
    ``theta ** (-2 i / K)`` for each position: a product of a query and a key depends on their distance alone.
    """
    half = heads.shape[-1] // 2
    x, y = precise(heads).chunk(2, dim=-1)
    frequencies = theta ** (torch.arange(half, device=x.device, dtype=x.dtype) / -half)
    angles = (positions.to(x.dtype).unsqueeze(-1) * frequencies).unsqueeze(-3)  # the same for all heads
    cosine, sine = angles.cos(), angles.sin()
    return torch.cat([x * cosine - y * sine, y * cosine + x * sine], dim=-1).to(heads.dtype)


def distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """The distances (T, S) from queries to keys that end at the same position: negative where the key is earlier.

    Padding and packed rows need nothing else: the tokens of a sequence are neighbours there, too.
    """
    steps = torch.arange(keys, device=device)
    return steps - steps[keys - queries :, None]


class RelativePositions(nn.Module):
    """Vectors of clipped distances, shared by all heads, which are added to keys and values (Shaw et al., 2018).

    :param clip: distances beyond it count as it
    """

    def __init__(self, head_size: int, clip: int) -> None:
        super().__init__()
        self.clip = clip
        self.keys = EmbeddingTable(2 * clip + 1, head_size)
        self.values = EmbeddingTable(2 * clip + 1, head_size)

    def index(self, distance: Tensor) -> Tensor:
        """Distances (T, S) as rows of the tables."""
        return distance.clamp(-self.clip, self.clip) + self.clip

    def logits(self, query: Tensor, index: Tensor) -> Tensor:
        """The products (B, H, T, S) of queries (B, H, T, K) with the vectors of the keys, in float32 or better.

        Many keys share a vector, here and in `moved`: a GPU sums halves, also those of gradients, in half precision.
        """
        products = precise(query @ self.keys.weight.T)
        return products.gather(-1, index.expand(*products.shape[:-1], -1))

    def moved(self, probabilities: Tensor, index: Tensor) -> Tensor:
        """The vectors of the values, weighted by probabilities (B, H, T, S): (B, H, T, K)."""
        each = precise(probabilities)
        sums = each.new_zeros(*each.shape[:-1], len(self.values.weight)).scatter_add(-1, index.expand_as(each), each)
        return sums.to(probabilities.dtype) @ self.values.weight


class Padding:
    """Where the tokens of a padded batch are: all but attention can leave the padding out.

    :param real: (B, T), true at tokens
    """

    def __init__(self, real: Tensor) -> None:
        self.shape, self.rows = real.shape, real.flatten().nonzero().squeeze(1)

    def remove(self, x: Tensor) -> Tensor:
        """States (B, T, D) to those of the N tokens, (1, N, D)."""
        # An embedding, because its gradient is much faster than that of `index_select`.
        return F.embedding(self.rows, x.flatten(0, 1)).unsqueeze(0)

    def add(self, x: Tensor) -> Tensor:
        """States of the tokens, (1, N, D), to (B, T, D), zero at the padding."""
        empty = x.new_zeros(self.shape.numel(), x.shape[2])
        return empty.index_copy(0, self.rows, x[0]).view(*self.shape, -1)


class KeyValueCache:
    """Keys and values of earlier positions, and those of the encoder's output. It grows by concatenation.

    A cache has slots, not layers: a scheme may evaluate self-attention several times in a layer, each with keys of its
    own. The stack that owns the attentions numbers the slots.

    Memory slots depend on the encoder's output alone. With tied weights several layers share one projection, yet each
    has a slot: the tensors are small and the rule is simple.
    """

    def __init__(self) -> None:
        self._past: dict[int, tuple[Tensor, Tensor]] = {}
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def length(self) -> int:
        """Number of positions held."""
        return next(iter(self._past.values()))[0].shape[2] if self._past else 0

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, T, K) to a slot and return all of it, (B, H, S, K)."""
        if slot in self._past:
            past_key, past_value = self._past[slot]
            key, value = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
        self._past[slot] = key, value
        return key, value

    def memory(self, slot: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, (B, H, S, K), if they have been stored."""
        return self._memory.get(slot)

    def store_memory(self, slot: int, key: Tensor, value: Tensor) -> None:
        """Keep keys and values of the encoder's output."""
        self._memory[slot] = key.contiguous(), value.contiguous()

    def distances(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The distances (T, S) from queries to the keys of a slot, or what broadcasts to it."""
        return distances(queries, keys, device)

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        for store in (self._past, self._memory):
            for slot, (key, value) in store.items():
                store[slot] = key.index_select(0, rows), value.index_select(0, rows)


@dataclass
class Context:
    """What a layer's operators see besides the state.

    ``mask`` and ``memory_mask`` broadcast to (B, H, T, S): boolean, true where attention is allowed, or float, added
    to the logits. ``causal`` forbids attention to later positions. ``kernel`` is ``"sdpa"`` (PyTorch chooses the
    fused kernel) or ``"eager"`` (plain matrix products). ``weights``, if a list, collects (operator, probabilities).
    ``batch`` is B for operators that see states as rows, (B T, D) (`macaron.decode.cpu`). ``positions`` are those of
    the states, (T,) or (B, T), as the embedding takes them. ``padding`` and ``memory_padding``: the states and
    ``memory`` are those of the tokens alone, (1, N, D), and attention adds the padding.
    """

    mask: Tensor | None = None
    causal: bool = False
    memory: Tensor | None = None
    memory_mask: Tensor | None = None
    cache: KeyValueCache | None = None
    kernel: str = "sdpa"
    weights: list[tuple[str, Tensor]] | None = None
    batch: int = 0
    positions: Tensor | None = None
    padding: Padding | None = None
    memory_padding: Padding | None = None

    def distances(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The distances (T, S) from queries to keys, or what broadcasts to it."""
        return (self.cache or KeyValueCache()).distances(queries, keys, device)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    context: Context,
    operator: str,
    relative: RelativePositions | None = None,
) -> Tensor:
    """Scaled dot-product attention of queries (B, H, T, K) to keys and values (B, H, S, K): (B, H, T, K)."""
    steps, past = query.shape[2], key.shape[2] - query.shape[2]
    fused = context.kernel == "sdpa" and context.weights is None and relative is None
    if not fused or (causal and (past > 0 or mask is not None)):
        # SDPA's is_causal supports neither a cache nor a second mask, so the causal mask is built here. A single new
        # position may attend to all earlier ones and needs no mask.
        mask, causal = whole_mask(mask, causal and steps > 1, steps, steps + past, query.device), False
    if fused:
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal)
    scale = math.sqrt(query.shape[-1])
    logits = query @ key.transpose(-2, -1) / scale
    if relative is not None:
        index = relative.index(context.distances(steps, steps + past, query.device))
        logits = logits + relative.logits(query, index) / scale
    if mask is not None:
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    # A row without any allowed key (an empty sentence) has no softmax; its output is zero, as with SDPA.
    precise = torch.promote_types(query.dtype, torch.float32)
    probabilities = torch.softmax(logits, dim=-1, dtype=precise).nan_to_num(0.0).to(query.dtype)
    if context.weights is not None:
        context.weights.append((operator, probabilities))
    probabilities = drop(probabilities, dropout, dropout > 0)
    return probabilities @ value if relative is None else probabilities @ value + relative.moved(probabilities, index)


def whole_mask(mask: Tensor | None, causal: bool, steps: int, keys: int, device: torch.device) -> Tensor | None:
    """What a mask and causality allow, as one mask; ``steps`` and ``keys`` are T and S."""
    if not causal:
        return mask
    triangle = torch.ones(steps, keys, dtype=torch.bool, device=device).tril(keys - steps)
    if mask is None or mask.dtype == torch.bool:
        return triangle if mask is None else mask & triangle
    return mask.masked_fill(~triangle, -math.inf)


class _Attention(nn.Module):
    """Base of self-attention and cross-attention.

    :param head_size: K, independent of D: D / H in a Transformer, less if a scheme applies the operator several times
    :param init: ``xavier`` or ``kaiming``, both as in the authors' code
    :param interaction: which attention; by default the plain one
    :param out: instead of the linear map of the concatenated heads, (B, T, H K) to (B, T, D)
    """

    #: Names of the input projections, and how many of queries, keys and values each of them makes.
    projections: ClassVar[dict[str, int]]

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        head_size: int,
        dropout: float,
        init: str,
        bias: bool = True,
        interaction: Interaction | None = None,
        out: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.interaction = interaction or Interaction()
        if self.interaction.positions == "rotary" and head_size % 2:
            raise MacaronError(f"rotary positions need an even width of a head, not {head_size}: change head_size")
        self.num_heads, self.head_size, self.dropout = num_heads, head_size, dropout
        self.width = num_heads * head_size
        # Xavier's rule sees q, k and v as one stacked matrix, in cross-attention too.
        bound = xavier_bound(hidden_size, 3 * self.width)
        std = hidden_size**-0.5 if init == "kaiming" else None
        out_std = self.width**-0.5 if init == "kaiming" else None
        self.out: Any = out or Linear(self.width, hidden_size, bias, std=out_std)
        for name, parts in self.projections.items():
            setattr(self, name, Linear(hidden_size, parts * self.width, bias, bound=bound, std=std))
        self.q_norm, self.k_norm = (nn.RMSNorm(head_size, 1e-6) if self.interaction.qk_norm else None for _ in "qk")
        relative = self.interaction.positions == "relative"
        self.relative = RelativePositions(head_size, self.interaction.clip) if relative else None

    def placed(self, heads: Tensor, norm: nn.RMSNorm | None, context: Context) -> Tensor:
        """Queries or keys (B, H, T, K), normalised and turned where that is asked for."""
        if norm is not None:
            # Under autocast heads are in half precision, the gains are not.
            heads = norm(heads.to(norm.weight.dtype)).to(heads.dtype)
        if self.interaction.positions == "rotary":
            positions = torch.arange(heads.shape[2], device=heads.device)
            heads = rotated(
                heads, positions if context.positions is None else context.positions, self.interaction.theta
            )
        return heads

    def heads(self, x: Tensor, parts: int, padding: Padding | None) -> tuple[Tensor, ...]:
        """Split (B, T, parts * H * K) into parts of (B, H, T, K)."""
        x = x if padding is None else padding.add(x)
        batch, steps, _ = x.shape
        return x.view(batch, steps, parts, self.num_heads, self.head_size).permute(2, 0, 3, 1, 4).unbind(0)

    def finish(self, mixed: Tensor, padding: Padding | None) -> Tensor:
        """Concatenate the heads (B, H, T, K) and project them to (B, T, D)."""
        mixed = mixed.transpose(1, 2).flatten(2)
        return self.out(mixed if padding is None else padding.remove(mixed))


class SelfAttention(_Attention):
    """F: diffusion among the positions of one sequence."""

    projections: ClassVar[dict[str, int]] = {"qkv": 3}
    qkv: Linear

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """Move (B, T, D) by attention; ``slot`` is that of this evaluation in the cache."""
        query, key, value = self.heads(self.qkv(x), 3, context.padding)
        query, key = self.placed(query, self.q_norm, context), self.placed(key, self.k_norm, context)
        if context.cache is not None:
            key, value = context.cache.extend(slot, key, value)
        dropout = self.dropout if self.training else 0.0
        mask, causal = context.mask, context.causal
        mixed = attend(query, key, value, mask, causal, dropout, context, "F", self.relative)
        return self.finish(mixed, context.padding)


class CrossAttention(_Attention):
    """H: the pull of another sequence, the encoder's output, on each position."""

    projections: ClassVar[dict[str, int]] = {"q": 1, "kv": 2}
    q: Linear
    kv: Linear

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """Move (B, T, D) by attention to ``context.memory`` (B, S, D)."""
        query = self.placed(self.heads(self.q(x), 1, context.padding)[0], self.q_norm, context)
        cache = context.cache
        both: tuple[Tensor, ...] | None = cache.memory(slot) if cache is not None else None
        if both is None:
            if context.memory is None:
                raise ValueError("cross-attention needs the encoder's output: Context.memory is None")
            key, value = self.heads(self.kv(context.memory), 2, context.memory_padding)
            both = self.placed(key, self.k_norm, context), value
            if cache is not None:
                cache.store_memory(slot, *both)
        key, value = both
        dropout = self.dropout if self.training else 0.0
        mixed = attend(query, key, value, context.memory_mask, False, dropout, context, "H")
        return self.finish(mixed, context.padding)
