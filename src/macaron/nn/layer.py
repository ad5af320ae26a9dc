"""The layer: it applies the sub-steps of a splitting scheme.

Transformer and Macaron, encoder and decoder, are the same code with different schemes. Each sub-step is

    pre-norm    x + c * drop(f(norm(x)))
    post-norm   norm(x + c * drop(f(x)))

with f one of F (self-attention), H (cross-attention), G (feed-forward), and c the scheme's coefficient. Integrators
other than Euler evaluate the same f at several stages of the sub-step, or the whole layer at several stages. Where
particles have a velocity, a state is (B, T, 2 D): positions, then velocities.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from macaron.errors import MacaronError
from macaron.nn.attention import Context
from macaron.nn.budget import TOLERANCE, LayerSettings, branch_width, full_width, inner_width
from macaron.nn.fused import State, advance
from macaron.nn.linear import dropout
from macaron.nn.operators import build_operator
from macaron.ode import Branch, ButcherTableau, Scheme, Step, Velocity, integrator


def runge_kutta(tableau: ButcherTableau, x: Tensor, step: float, field: Callable[[Tensor, int], Tensor]) -> Tensor:
    """One step of an integrator from (B, T, D); ``field`` takes a state and the number of the stage."""
    stages: list[Tensor] = []
    for row in tableau.a:
        at = x
        for weight, stage in zip(row, stages, strict=False):
            if weight:
                at = torch.add(at, stage, alpha=step * weight)
        stages.append(field(at, len(stages)))
    for weight, stage in zip(tableau.b, stages, strict=True):
        if weight:
            x = torch.add(x, stage, alpha=step * weight)
    return x


class KickAndDrift(nn.Module):
    """The coefficients of a velocity in a sub-layer (`macaron.ode.velocity`): numbers, or parameters."""

    def __init__(self, form: Velocity, hidden_size: int) -> None:
        super().__init__()
        self.form = form
        self.beta: Any = form.beta
        self.mu: Any = form.mu
        self.nu: Any = form.nu
        if form.learned != "no":
            size = hidden_size if form.learned == "channel" else 1
            self.beta, self.mu, self.nu = (nn.Parameter(torch.empty(size)) for _ in range(3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start from the given coefficients."""
        for name, parameter in self.named_parameters():
            if not parameter.is_meta:
                nn.init.constant_(parameter, getattr(self.form, name))

    def forward(self, x: Tensor, v: Tensor, move: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
        """New positions and velocities (..., D); ``move`` is the sub-step's move of a state."""
        v = self.beta * v + move(x + self.mu * v)
        return x + self.nu * v, v


class SubLayer(nn.Module):
    """One operator with its norm and dropout: the vector field of a sub-step."""

    def __init__(
        self, operator: str, width: int, application: int, settings: LayerSettings, depth: int = 0, branch: int = 0
    ) -> None:
        super().__init__()
        self.pre_norm, self.dropout = settings.norm == "pre", settings.dropout
        # Each stage of F has different states, hence its own keys and values.
        self.slot_per_stage = operator == "F"
        self.norm = build_norm(settings)
        velocity = settings.velocity_value()
        self.velocity = None if velocity.plain else KickAndDrift(velocity, settings.hidden_size)
        self.operator = build_operator(operator, width, settings, application, depth, branch)

    def field(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """The direction in which (B, T, D) moves."""
        moved = self.operator(self.norm(x) if self.pre_norm else x, context, slot)
        return dropout(moved, self.dropout, self.training)

    def forward(self, x: Tensor, coefficient: float, tableau: ButcherTableau, context: Context, slot: int) -> Tensor:
        """Advance (B, T, D) by one sub-step of the integrator; ``slot`` is that of the first stage in the cache."""
        if isinstance(x, State):
            return advance(self, x, coefficient, context)
        if self.velocity is not None:
            x, v = self.velocity(*x.chunk(2, dim=-1), lambda at: coefficient * self.field(at, context, slot))
            return torch.cat([x if self.pre_norm else self.norm(x), v], dim=-1)

        def field(at: Tensor, stage: int) -> Tensor:
            return self.field(at, context, slot + stage * self.slot_per_stage)

        x = runge_kutta(tableau, x, coefficient, field)
        return x if self.pre_norm else self.norm(x)


@dataclass(frozen=True)
class Move:
    """A sub-step of a layer: its operator, the name of its sub-layer, its coefficient, its first slot in the cache."""

    operator: str
    sublayer: str
    coefficient: float
    slot: int


@dataclass(frozen=True)
class SubStep:
    """A sub-step that has been computed, as passed to a visitor (see `SchemeLayer.forward`).

    :param branch: index of the branch of the scheme, with its ``weight``; the stages of a layer that is integrated as a
        whole follow each other as branches
    :param before: (B, T, D), the state, as is ``after``; with a velocity (B, T, 2 D)
    """

    layer: "SchemeLayer"
    branch: int
    weight: float
    move: Move
    before: Tensor
    after: Tensor

    @property
    def sublayer(self) -> SubLayer:
        """The sub-layer that is evaluated."""
        return self.layer.sublayer(self.move)


Visitor = Callable[[SubStep], None]


class SchemeLayer(nn.Module):
    """A layer, or the prologue or epilogue of a stack, built from branches of sub-steps.

    Sub-layers are named by operator and application: ``G1``, ``F1``, ``G2`` for Macaron.

    :param widths: for each operator the widths of its sub-layers; a single sub-layer is shared by all applications
    :param sublayers: use these instead of new ones (prologue and epilogue of a stack that is tied across depth)
    :param depth: number of the layer
    """

    def __init__(
        self,
        branches: tuple[Branch, ...],
        widths: dict[str, tuple[int, ...]],
        settings: LayerSettings,
        sublayers: nn.ModuleDict | None = None,
        depth: int = 0,
    ) -> None:
        super().__init__()
        self.tableau, self.layer_tableau = integrator(settings.integrator), integrator(settings.layer_integrator)
        stages = len(self.tableau.b)
        modules = nn.ModuleDict() if sublayers is None else sublayers
        (branch,) = widths.get("B", (0,))
        applied: Counter[str] = Counter()
        walk: list[tuple[float, tuple[Move, ...]]] = []
        for weight, steps in branches:
            moves: list[Move] = []
            for operator, coefficient in steps:
                index = min(applied[operator], len(widths[operator]) - 1)
                name = f"{operator}{index + 1}"
                if name not in modules:
                    modules[name] = SubLayer(operator, widths[operator][index], index, settings, depth, branch)
                # Each stage of F has its own keys. Those of H depend on the encoder's output alone: one slot per
                # sub-layer is enough.
                slots = {"F": applied["F"] * stages, "G": 0, "H": index}
                moves.append(Move(operator, name, coefficient, slots[operator]))
                applied[operator] += 1
            walk.append((weight, tuple(moves)))
        self.walk = tuple(walk)
        self.stage_slots = applied["F"] * stages
        self.self_slots = self.stage_slots * self.layer_tableau.stages
        self.memory_slots = min(applied["H"], len(widths.get("H", ())))
        if sublayers is None:
            self.sublayers = modules
        else:
            # Not registered here: their parameters belong to the layer that made them.
            object.__setattr__(self, "sublayers", sublayers)

    def sublayer(self, move: Move) -> SubLayer:
        """The sub-layer of a sub-step."""
        return self.sublayers[move.sublayer]  # type: ignore[return-value]

    @property
    def moves(self) -> list[Move]:
        """The sub-steps of all branches."""
        return [move for _, moves in self.walk for move in moves]

    def forward(
        self, x: Tensor, context: Context, self_slot: int = 0, memory_slot: int = 0, visit: Visitor | None = None
    ) -> Tensor:
        """One step of the scheme from (B, T, D) to (B, T, D).

        :param self_slot: first slot of this layer's self-attentions in the cache; ``memory_slot``: of its others
        :param visit: called after every sub-step
        """
        if len(self.layer_tableau.b) == 1:
            return self.step(x, context, self_slot, memory_slot, visit)

        def move(at: Tensor, stage: int) -> Tensor:
            def seen(step: SubStep) -> None:
                if visit is not None:
                    branch, weight = step.branch + stage * len(self.walk), step.weight * self.layer_tableau.b[stage]
                    visit(replace(step, branch=branch, weight=weight))

            return self.step(at, context, self_slot + stage * self.stage_slots, memory_slot, seen) - at

        return runge_kutta(self.layer_tableau, x, 1.0, move)

    def step(self, x: Tensor, context: Context, self_slot: int, memory_slot: int, visit: Visitor | None) -> Tensor:
        """As `forward`, without stages of the whole layer."""
        start, total = x, None
        for branch, (weight, moves) in enumerate(self.walk):
            x = start
            for move in moves:
                before = x
                slot = move.slot + (memory_slot if move.operator == "H" else self_slot)
                x = self.sublayers[move.sublayer](x, move.coefficient, self.tableau, context, slot)
                if visit is not None:
                    visit(SubStep(self, branch, weight, move, before, x))
            if len(self.walk) > 1:
                total = weight * x if total is None else torch.add(total, x, alpha=weight)
        return x if total is None else total


def build_norm(settings: LayerSettings) -> nn.LayerNorm | nn.RMSNorm:
    """The norm of a sub-layer or of a stack."""
    if settings.norm_type == "rms":
        return nn.RMSNorm(settings.hidden_size, settings.layer_norm_eps, settings.norm_affine)
    return nn.LayerNorm(settings.hidden_size, settings.layer_norm_eps, settings.norm_affine, settings.bias)


def layer_widths(scheme: Scheme, settings: LayerSettings, depth: int = 0) -> dict[str, tuple[int, ...]]:
    """For each operator, the widths of its sub-layers, in order of application; a single one if they are tied.

    Where attentions have feed-forward networks, ``"B"`` has the width of those of their heads. They share the total
    inner width with those of G.

    :param depth: number of the layer, from 0
    """
    check_operators(scheme.operators, scheme.name)
    tied = settings.tying != "none"
    counts = {operator: 1 if tied else scheme.applications(operator) for operator in scheme.operators}
    weighted = [op for op in counts if op != "G" and settings.interaction(op).kind == "weighted"]
    networks = counts.get("G", 0) + sum(counts[operator] for operator in weighted)

    def shared(total: int) -> dict[str, tuple[int, ...]]:
        """The widths for a total inner width."""
        found: dict[str, tuple[int, ...]] = {}
        for operator, count in counts.items():
            # All attentions have heads of equal width; the widths of G compensate for the rounding below.
            found[operator] = (max(1, round(full_width(settings, operator) / count)),) * count
            if operator == "G":
                # Parts that differ by at most one and sum to the total, each at least 1.
                least, rest = divmod(total, networks)
                found[operator] = tuple(inner_width(settings, max(1, least + (i < rest)), i) for i in range(count))
        if weighted:
            found["B"] = (branch_width(settings, total / networks),)
        return found

    widths = shared(settings.intermediate_size)
    if settings.inner_sizes is not None and "G" in widths:
        if len(settings.inner_sizes) != len(widths["G"]):
            raise MacaronError(
                f"scheme {scheme.name!r} has {len(widths['G'])} feed-forward networks in a layer, but inner_sizes "
                f"gives {len(settings.inner_sizes)} widths"
            )
        return {**widths, "G": settings.inner_sizes}
    # The twin is the plain network, with the same norms and biases.
    names = ("hidden_size", "num_attention_heads", "head_size", "norm_affine", "bias")
    plain = LayerSettings(**{name: getattr(settings, name) for name in names})
    operators = [*scheme.operators, *(["G"] if weighted and "G" not in widths else [])]
    twin = layer_parameters(plain, {operator: (full_width(settings, operator),) for operator in operators})
    excess = layer_parameters(settings, widths, depth) - twin
    if abs(excess) > TOLERANCE * twin and networks:
        total = max(settings.intermediate_size, networks)
        total -= round(excess / (2 * settings.hidden_size + int(settings.bias)))
        if total < networks:
            raise MacaronError(
                f"scheme {scheme.name!r} has too many sub-steps for a layer of {twin:,} parameters: their norms, "
                "biases and tables alone use it up. Take a larger hidden size or tie the sub-steps (tying = 'layer')."
            )
        widths = shared(total)
    return widths


def layer_parameters(settings: LayerSettings, widths: dict[str, tuple[int, ...]], depth: int = 0) -> int:
    """Parameters of a layer with these sub-layers, counted on them; nothing is allocated."""
    (branch,) = widths.get("B", (0,))
    with torch.device("meta"):
        parts = [
            SubLayer(operator, width, application, settings, depth, branch)
            for operator, each in widths.items()
            for application, width in enumerate(each if operator != "B" else ())
        ]
    return sum(parameter.numel() for part in parts for parameter in part.parameters())


def build_layer(
    scheme: Scheme, settings: LayerSettings, depth: int = 0, widths: dict[str, tuple[int, ...]] | None = None
) -> SchemeLayer:
    """The layer of a scheme, with given widths or those of the budget; ``depth`` is its number, from 0."""
    widths = layer_widths(scheme, settings, depth) if widths is None else widths
    each = settings.activation
    if not isinstance(each, str) and not callable(each) and len(each) != len(widths.get("G", ())):
        raise MacaronError(
            f"{len(each)} activations are given, but a layer of scheme {scheme.name!r} has "
            f"{len(widths.get('G', ()))} feed-forward network(s)"
        )
    if not scheme.is_sequential and not settings.velocity_value().plain:
        raise MacaronError(
            f"scheme {scheme.name!r} is a sum of several sequences, but a velocity follows one: take another scheme "
            "or velocity = 'none'"
        )
    return SchemeLayer(scheme.branches, widths, settings, depth=depth)


def build_ends(steps: Sequence[Step], settings: LayerSettings, borrowed: nn.ModuleDict | None = None) -> SchemeLayer:
    """Sub-steps before the first or after the last layer of a stack.

    A sub-step of coefficient c has |c| of the full width: half a G is half as wide. In a stack that is tied across
    depth it uses the layers' sub-layers, ``borrowed``.
    """
    check_operators([operator for operator, _ in steps], "prologue or epilogue")
    widths: dict[str, tuple[int, ...]] = {}
    for operator, coefficient in steps:
        share, before = max(1, round(abs(coefficient) * full_width(settings, operator))), widths.get(operator, ())
        widths[operator] = (*before, inner_width(settings, share, len(before)) if operator == "G" else share)
    if not isinstance(settings.activation, str) and not callable(settings.activation):
        raise MacaronError("a stack with a prologue or epilogue takes one activation for all feed-forward networks")
    if borrowed is not None:
        lacking = [operator for operator in widths if f"{operator}1" not in borrowed]
        if lacking:
            raise MacaronError(
                f"the prologue or epilogue applies {lacking[0]!r}, which the layers lack: tied across depth, all "
                "share one field"
            )
        widths = {operator: each[:1] for operator, each in widths.items()}
    widths["B"] = (branch_width(settings, settings.intermediate_size),)
    return SchemeLayer((Branch(1.0, tuple(steps)),), widths, settings, borrowed)


def check_operators(operators: Sequence[str], name: str) -> None:
    """Refuse operators that have no sub-layer."""
    unknown = [operator for operator in operators if operator not in ("F", "G", "H")]
    if unknown:
        raise MacaronError(
            f"{name!r} uses the operator {unknown[0]!r}; a network has F (self-attention), G (feed-forward) and "
            "H (cross-attention)"
        )
