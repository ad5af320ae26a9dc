"""The parts of a packed model: the same as in `macaron.nn`, with packed matrices and fewer calls.

For one sentence every call counts: a product has streamed two megabytes of weights through the processor's caches,
and what comes after it is slow to find its way again.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.decode.matrices import Direct
from macaron.decode.packed_attention import Make, PackedCrossAttention, PackedSelfAttention
from macaron.nn.attention import Context, CrossAttention, SelfAttention
from macaron.nn.embedding import FIRST_POSITION, Embedding, sinusoids
from macaron.nn.feedforward import FeedForward
from macaron.nn.layer import SubLayer
from macaron.nn.stack import Stack
from macaron.ode import ButcherTableau

#: A sub-layer with its coefficient and its slot in the cache.
Move = tuple[SubLayer, float, int]


def straight(stack: Stack) -> list[Move] | None:
    """The way through a stack if it is one sub-layer after the other: no branches, no stages, norms before.

    And every sub-layer has one coefficient, wherever it is used: then that can be part of its matrices.
    """
    if stack.norm is None or any(len(step.walk) > 1 or len(step.tableau.b) > 1 for step in stack.steps()):
        return None
    moves: list[Move] = []
    self_slot = memory_slot = 0
    for step in stack.steps():
        for move in step.walk[0][1]:
            sublayer = step.sublayers[move.sublayer]
            assert isinstance(sublayer, SubLayer)
            first = memory_slot if move.sublayer[0] == "H" else self_slot
            moves.append((sublayer, move.coefficient * step.tableau.b[0], first + move.slot))
        self_slot += step.self_slots
        memory_slot += step.memory_slots
    different = {(id(sublayer), coefficient) for sublayer, coefficient, _ in moves}
    return moves if len(different) == len({sublayer for sublayer, _ in different}) else None


class PackedStack(Stack):
    """See `Stack`; goes straight from sub-layer to sub-layer where it can."""

    moves: "list[tuple[PackedSubLayer, int]] | None"

    def forward(self, x: Tensor, context: Context, states: list[Tensor] | None = None) -> Tensor:
        """Carry (B, T, D) through all layers."""
        if self.moves is None or states is not None:
            return super().forward(x, context, states)
        rows, batch = x.flatten(0, 1), len(x)
        for sublayer, slot in self.moves:
            rows = sublayer.advance(rows, batch, context, slot)
        assert self.norm is not None
        return self.norm(rows).view_as(x)


class PackedSubLayer(Direct, SubLayer):
    """A sub-step, see `SubLayer`. Its operator works on rows (B T, D), and can add its result onto others.

    :param step: the coefficient of all its sub-steps, which becomes part of the last matrix; None if it has several
    """

    def __init__(self, plain: SubLayer, make: Make, step: float | None) -> None:
        nn.Module.__init__(self)
        self.pre_norm, self.dropout, self.slot_per_stage = plain.pre_norm, 0.0, plain.slot_per_stage
        norm = self.norm = plain.norm
        self.norm_arguments = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        kinds = {
            SelfAttention: PackedSelfAttention,
            CrossAttention: PackedCrossAttention,
            FeedForward: PackedFeedForward,
        }
        self.step = step
        self.operator = kinds[type(plain.operator)](plain.operator, make, 1.0 if step is None else step)

    def advance(self, rows: Tensor, batch: int, context: Context, slot: int) -> Tensor:
        """Advance (B T, D) by one step of Euler with the coefficient that is in the matrices."""
        return self.operator(torch.layer_norm(rows, *self.norm_arguments), rows, batch, context, slot)

    def forward(self, x: Tensor, coefficient: float, tableau: ButcherTableau, context: Context, slot: int) -> Tensor:
        """Advance (B, T, D) by one sub-step of the integrator."""
        if self.step is None:
            return super().forward(x, coefficient, tableau, context, slot)
        return self.advance(x.flatten(0, 1), len(x), context, slot).view_as(x)

    def field(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """The direction in which (B, T, D) moves; for sub-layers whose matrices have no coefficient in them."""
        assert self.step is None
        rows = (torch.layer_norm(x, *self.norm_arguments) if self.pre_norm else x).flatten(0, 1)
        return self.operator(rows, None, len(x), context, slot).view_as(x)


class PackedEmbedding(Direct, Embedding):
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


class PackedFeedForward(Direct):
    """G, see `FeedForward`."""

    def __init__(self, plain: FeedForward, make: Make, step: float) -> None:
        super().__init__()
        self.activation = None if plain.activation is F.relu else plain.activation
        self.fc1 = make(plain.fc1.weight, plain.fc1.bias, relu=self.activation is None)
        self.fc2 = make(plain.fc2.weight, plain.fc2.bias, positive=self.activation is None, step=step)

    def forward(self, x: Tensor, onto: Tensor | None, batch: int, context: Context, slot: int) -> Tensor:
        """Move (B T, D), see `PackedSubLayer`."""
        inner = self.fc1(x)
        return self.fc2(inner if self.activation is None else self.activation(inner), onto)
