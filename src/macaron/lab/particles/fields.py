"""A layer as a step of a solver: the fields of its operators, how far they are from commuting, how far the step is from
the flow.

The field of an application of an operator is what its sub-step of coefficient c moves a state by, divided by c. For
pre-norm that is f(norm(x)), as the theory has it. A post-norm sub-step, norm(x + c f(x)), is no step along a field that
stays bounded as c goes to zero, so there we take what it does at the c it has.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor

from macaron.lab.particles.states import Passage
from macaron.nn import Context, SchemeLayer, SubLayer

Field = Callable[[Tensor], Tensor]
#: A share of the layer's time, and the field that acts in it.
Piece = tuple[float, Field]

#: Steps of the reference for a whole layer: doubled from the first until the answer stands, at the latest to the last.
FIRST_STEPS, LAST_STEPS = 4, 64
#: An answer stands when twice the steps move the reference by less than this part of the error.
SETTLED = 0.01


def application_field(sublayer: SubLayer, coefficient: float, context: Context) -> Field:
    """The field of one application of an operator."""

    def rate(x: Tensor) -> Tensor:
        moved = sublayer.field(x, context, 0)
        if sublayer.pre_norm:
            return moved
        return (sublayer.norm(torch.add(x, moved, alpha=coefficient)) - x) / coefficient

    return rate


def _applications(module: SchemeLayer, context: Context) -> list[tuple[int, str, float, Field]]:
    """Branch, operator, its share (weight times coefficient) and its field, of every sub-step of a layer."""
    found = []
    for branch, (weight, moves) in enumerate(module.walk):
        for move in moves:
            sublayer = module.sublayers[move.sublayer]
            assert isinstance(sublayer, SubLayer)
            field = application_field(sublayer, move.coefficient, context)
            found.append((branch, move.sublayer[0], weight * move.coefficient, field))
    return found


def _sum(terms: Sequence[tuple[float, Field]]) -> Field:
    def total(x: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        for share, field in terms:
            result = torch.add(result, field(x), alpha=share)
        return result

    return total


def operator_fields(module: SchemeLayer, context: Context) -> dict[str, Field]:
    """The field of each operator over a whole layer: that of its applications, weighed by their coefficients.

    Of Macaron's two feed-forward networks it is G = (G1 + G2) / 2.
    """
    terms: dict[str, list[tuple[float, Field]]] = {}
    for _, operator, share, field in _applications(module, context):
        terms.setdefault(operator, []).append((share, field))
    return {operator: _sum(each) for operator, each in terms.items()}


def time_pieces(module: SchemeLayer, context: Context) -> list[Piece]:
    """The field of a layer in the course of its time, which is 1 in all.

    The paper's fields depend on time, and every operator keeps its own clock: its applications follow each other on it,
    each for as long as its coefficient says. In Macaron's layer G is G1 in the first half and G2 in the second, while F
    is the same throughout. Where applications are tied, the field is the same in all pieces.

    Where coefficients are negative, or there are several branches, times overlap and only the mean has a meaning: the
    operators' fields over the whole layer act all the time.
    """
    applications = _applications(module, context)
    if len(module.walk) > 1 or any(share <= 0 for _, _, share, _ in applications):
        return [(1.0, _sum([(1.0, field) for field in operator_fields(module, context).values()]))]
    clocks: dict[str, list[tuple[float, float, Field]]] = {}  # of each operator: until when, how fast, which field
    totals: dict[str, float] = {}
    for _, operator, share, _ in applications:
        totals[operator] = totals.get(operator, 0.0) + share
    for _, operator, share, field in applications:
        clock = clocks.setdefault(operator, [])
        since = clock[-1][0] if clock else 0.0
        clock.append((since + share / totals[operator], totals[operator], field))
    edges = sorted({round(until, 12) for clock in clocks.values() for until, _, _ in clock} | {1.0})
    pieces: list[Piece] = []
    since = 0.0
    for until in edges:
        middle = (since + until) / 2
        acting = [next(entry for entry in clock if middle < entry[0] + 1e-9) for clock in clocks.values()]
        pieces.append((until - since, _sum([(speed, field) for _, speed, field in acting])))
        since = until
    return pieces


@dataclass(frozen=True)
class Commutator:
    """How much it matters in which order two operators act.

    :param relative: |DA.B - DB.A| / (|DA.B| + |DB.A|): 0 where they commute, 0.71 where the two are at right angles, as
        unrelated directions of a large space are, 1 where they are opposite
    :param error: |DA.B - DB.A| / 2 over the length of the layer's move: to leading order, what Lie's step errs by
    """

    pair: str
    relative: float
    error: float


@torch.no_grad()
def commutators(passage: Passage, context: Context) -> list[Commutator]:
    """The commutators of each pair of a layer's operators, at its input.

    The directional derivatives are computed forwards (Jacobian-vector products), by the plain attention kernel, since
    the fused ones have none.
    """
    fields = operator_fields(passage.module, replace(context, kernel="eager"))
    x = passage.before
    moves = {operator: field(x) for operator, field in fields.items()}
    whole = float((passage.after - x).norm())
    found = []
    for a, b in combinations(sorted(fields), 2):
        one = torch.func.jvp(fields[a], (x,), (moves[b],))[1]
        other = torch.func.jvp(fields[b], (x,), (moves[a],))[1]
        size, difference = float(one.norm() + other.norm()), float((one - other).norm())
        relative = difference / size if size > 0 else 0.0
        found.append(Commutator(a + b, relative, difference / 2 / whole if whole > 0 else 0.0))
    return found


@torch.no_grad()
def truncation_error(passage: Passage, context: Context) -> float:
    """|layer - flow| / |move of the layer|: what one step of the scheme misses of the flow that it steps along.

    The flow is that of dx/dt = the layer's own field (`time_pieces`) over the layer's time, followed by RK4 in so many
    steps that more change nothing. Many small steps of the scheme itself have the same limit, but RK4 is there with far
    fewer evaluations.
    """
    pieces = time_pieces(passage.module, context)
    move = float((passage.after - passage.before).norm())
    if move == 0:
        return 0.0
    steps = FIRST_STEPS
    end = flow(pieces, passage.before, steps)
    while True:
        steps, coarse = 2 * steps, end
        end = flow(pieces, passage.before, steps)
        error = float((passage.after - end).norm())
        if float((end - coarse).norm()) <= max(SETTLED * error, 1e-6 * move) or steps >= LAST_STEPS:
            return error / move


def flow(pieces: Sequence[Piece], x: Tensor, steps: int) -> Tensor:
    """Follow the field through its pieces, by RK4 with about so many steps in all."""
    for length, field in pieces:
        number = max(1, round(steps * length))
        h = length / number
        for _ in range(number):
            k1 = field(x)
            k2 = field(x + h / 2 * k1)
            k3 = field(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + field(x + h * k3))
    return x
