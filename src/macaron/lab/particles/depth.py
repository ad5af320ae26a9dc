"""Measures of particles over depth: of their moves and states; of a layer as a step of a solver.

The field of an application of an operator is the move of its sub-step divided by the coefficient c. For pre-norm that
is f(norm(x)), as in the theory; for post-norm, norm(x + c f(x)), it is taken at the actual c.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.lab.particles.trace import MEANING, LayerTrace, Trace
from macaron.nn import Context
from macaron.nn.layer import SubStep, runge_kutta
from macaron.ode import integrator

#: A function of a state; also of the number of an integrator's stage, on which it does not depend.
VectorField = Callable[..., Tensor]
#: A share of the layer, and the sub-step that has it.
Term = tuple[float, SubStep]
#: A share of the layer's time, and the field that acts in it.
TimeSegment = tuple[float, VectorField]

#: Steps of the reference solution of a layer: more and more, until it has converged.
STEPS = (4, 8, 16, 32, 64)
#: Converged: twice the steps change the reference by less than this fraction of the error.
CONVERGED = 0.01


def depth(traced: Trace) -> dict[str, Any]:
    """All measures over depth, as plain data."""
    states = torch.stack([frame.state for frame in traced.frames]).double()
    moves = states.diff(dim=0)
    lengths = moves.norm(dim=-1)
    relative = lengths / states[:-1].norm(dim=-1).clamp(min=1e-30)
    sizes = [
        {"layer": frame.layer, "operator": frame.operator, "size": float(size), "relative": float(share)}
        for frame, size, share in zip(traced.frames[1:], lengths.mean(-1), relative.mean(-1), strict=True)
        if frame.operator in MEANING
    ]
    angles = [None, None, *(mean_angle(before, after) for before, after in pairwise(moves))]
    return {
        "moves": sizes,
        "angles": angles[: len(states)],
        "similarity": [mean_cosine(state) for state in states],
        "spread": [participation(state) for state in states],
        "commutator": [each for layer in traced.layers for each in commutators(layer, traced.context)],
        "truncation": [
            {"layer": layer.number, "relative": truncation_error(layer, traced.context)}
            for layer in traced.layers
            if not traced.stack.has_velocity  # it carries on earlier moves: the layer's own field says little about it
        ],
    }


def mean_angle(before: Tensor, after: Tensor) -> float | None:
    """The mean angle in degrees between two moves (T, D), over the particles that moved both times."""
    lengths = before.norm(dim=-1) * after.norm(dim=-1)
    moving = lengths > 0
    cosines = ((before * after).sum(-1)[moving] / lengths[moving]).clamp(-1, 1)
    return float(torch.rad2deg(cosines.acos()).mean()) if len(cosines) else None


def cosines(state: Tensor) -> Tensor:
    """The cosines of all pairs of particles (T, D): (T, T)."""
    unit = F.normalize(state, dim=-1, eps=1e-30)
    return unit @ unit.T


def mean_cosine(state: Tensor) -> float | None:
    """The mean cosine of two different particles; None for a single particle."""
    pairs = len(state) * (len(state) - 1)
    return float(cosines(state).fill_diagonal_(0).sum() / pairs) if pairs else None


def participation(state: Tensor) -> float:
    """The participation ratio (Σ λ)² / Σ λ² of the covariance: the effective number of dimensions."""
    squares = torch.linalg.svdvals(state - state.mean(0)) ** 2
    ratio = squares.sum() ** 2 / (squares**2).sum()
    return float(ratio.nan_to_num(0.0, posinf=0.0))  # all particles at one point, or out of range


def _field(terms: Sequence[Term], context: Context, x: Tensor, stage: int = 0) -> Tensor:
    total = torch.zeros_like(x)
    for share, step in terms:
        sublayer, coefficient = step.sublayer, step.move.coefficient
        moved = sublayer.field(x, context, 0)
        if not sublayer.pre_norm:
            moved = (sublayer.norm(torch.add(x, moved, alpha=coefficient)) - x) / coefficient
        total = torch.add(total, moved, alpha=share)
    return total


def _terms(steps: Sequence[SubStep]) -> dict[str, list[Term]]:
    """The applications of each operator, with their shares of the layer."""
    terms: dict[str, list[Term]] = {}
    for step in steps:
        terms.setdefault(step.move.operator, []).append((step.weight * step.move.coefficient, step))
    return terms


def operator_fields(steps: Sequence[SubStep], context: Context) -> dict[str, VectorField]:
    """The field of each operator over a layer: the sum over its applications, such as (G1 + G2) / 2 for Macaron's G."""
    return {operator: partial(_field, terms, context) for operator, terms in _terms(steps).items()}


def time_segments(steps: Sequence[SubStep], context: Context) -> list[TimeSegment]:
    """The field of a layer as a function of its time, piecewise constant; the lengths sum to 1.

    Every operator has its own clock: its applications follow each other, each for its coefficient. In Macaron's layer
    G is G1 in the first half and G2 in the second, while F is constant.

    With negative coefficients, several branches or several stages of the whole layer times overlap, and only the mean
    is defined: the operators' fields over the whole layer act all the time.
    """
    operators = _terms(steps).values()
    several = len(steps[0].layer.walk) > 1 or steps[-1].branch > 0
    if several or any(share <= 0 for terms in operators for share, _ in terms):
        return [(1.0, partial(_field, [term for terms in operators for term in terms], context))]
    # When the applications of each operator end, in the time of the layer; they act one after the other.
    ends = [np.cumsum([share for share, _ in terms]) for terms in operators]
    edges = sorted({round(float(end / clock[-1]), 12) for clock in ends for end in clock})
    segments: list[TimeSegment] = []
    for since, until in pairwise([0.0, *edges]):
        acting = []
        for terms, clock in zip(operators, ends, strict=True):
            now = int(np.searchsorted(clock / clock[-1], (since + until) / 2))
            acting.append((float(clock[-1]), terms[now][1]))
        segments.append((until - since, partial(_field, acting, context)))
    return segments


@torch.no_grad()
def commutators(layer: LayerTrace, context: Context) -> list[dict[str, Any]]:
    """The commutator of each ``pair`` of a layer's operators A and B, at its input.

    ``relative`` is |DA.B - DB.A| / (|DA.B| + |DB.A|): 0 where they commute, 0.71 where the terms are orthogonal, as
    unrelated directions in a large space are, 1 where they are opposite. ``error`` is |DA.B - DB.A| / 2 over the length
    of the layer's move: to leading order, the error of a Lie step.

    The directional derivatives are Jacobian-vector products, with eager attention: the fused kernels have none.
    """
    fields = operator_fields(layer.steps, replace(context, kernel="eager"))
    x = layer.before
    moves = {operator: field(x) for operator, field in fields.items()}
    whole = float((layer.after - x).norm())
    found = []
    for a, b in combinations(sorted(fields), 2):
        one = torch.func.jvp(fields[a], (x,), (moves[b],))[1]
        other = torch.func.jvp(fields[b], (x,), (moves[a],))[1]
        size, difference = float(one.norm() + other.norm()), float((one - other).norm())
        relative = difference / size if size > 0 else 0.0
        error = difference / 2 / whole if whole > 0 else 0.0
        found.append({"layer": layer.number, "pair": a + b, "relative": relative, "error": error})
    return found


@torch.no_grad()
def truncation_error(layer: LayerTrace, context: Context) -> float:
    """|layer - flow| / |move of the layer|: the local error of one step of the scheme.

    The flow is that of dx/dt = the layer's own field (`time_segments`) over the layer's time, computed by RK4 until
    it has converged. Many small steps of the scheme have the same limit, but RK4 needs far fewer evaluations.
    """
    segments = time_segments(layer.steps, context)
    move = float((layer.after - layer.before).norm())
    if move == 0:
        return 0.0
    coarse = flow(segments, layer.before, STEPS[0])
    for steps in STEPS[1:]:
        end = flow(segments, layer.before, steps)
        error = float((layer.after - end).norm())
        if float((end - coarse).norm()) <= max(CONVERGED * error, 1e-6 * move):
            break
        coarse = end
    return error / move


def flow(segments: Sequence[TimeSegment], x: Tensor, steps: int) -> Tensor:
    """Follow the field through its segments by RK4, with about ``steps`` steps in all."""
    for length, field in segments:
        number = max(1, round(steps * length))
        for _ in range(number):
            x = runge_kutta(integrator("rk4"), x, length / number, field)
    return x
