"""The flow of a field, exact or by one step of an integrator, and one step of a splitting scheme.

States may have leading axes, for many systems or step sizes at once. Times and steps are numbers, or arrays that
broadcast against the state.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np

from macaron.errors import MacaronError
from macaron.ode.scheme import Scheme
from macaron.ode.tableau import ButcherTableau, integrator
from macaron.ode.word_series import Array

Time: TypeAlias = float | Array
#: The velocity of a state at a time.
Field: TypeAlias = Callable[[Time, Array], Array]
#: ``flow(operator, t, x, h)``: the state after following the operator's field from x at time t for h.
Flow: TypeAlias = Callable[[str, Time, Array, Time], Array]


def runge_kutta_step(tableau: ButcherTableau, field: Field, t: Time, x: Array, h: Time) -> Array:
    """One step of an explicit Runge-Kutta method."""
    stages: list[Array] = []
    for node, row in zip(tableau.c, tableau.a, strict=True):
        stages.append(field(t + node * h, x + h * _combined(row, stages)))
    return x + h * _combined(tableau.b, stages)


def exact_step(field: Field, t: Time, x: Array, h: Time) -> Array:
    """Follow a smooth field to nearly machine precision, by SciPy's DOP853, all entries in one solve."""
    from scipy.integrate import solve_ivp

    shape = np.broadcast_shapes(np.shape(t), np.shape(x), np.shape(h))

    # The unknown is the displacement divided by the step, over a time scaled to [0, 1]. It is of size one for every
    # step, so that one tolerance serves steps of 1e-8 and of 1 in the same solve.
    def velocity(s: float, z: Array) -> Array:
        return np.broadcast_to(field(t + s * h, x + h * z.reshape(shape)), shape).ravel()

    # Most steps are short, so the whole interval is tried first: SciPy's own first step is far too small here.
    start = np.zeros(int(np.prod(shape)))
    solution = solve_ivp(velocity, (0.0, 1.0), start, "DOP853", first_step=1.0, rtol=3e-14, atol=1e-15)
    if not solution.success:
        raise MacaronError(f"the exact flow could not be followed: {solution.message}")
    return x + h * solution.y[:, -1].reshape(shape)


def integrated_flow(fields: Mapping[str, Field], method: str | ButcherTableau) -> Flow:
    """The flow of each field: ``"exact"``, or one step of an integrator."""
    if method == "exact":
        return lambda operator, t, x, h: exact_step(fields[operator], t, x, h)
    tableau = integrator(method)
    return lambda operator, t, x, h: runge_kutta_step(tableau, fields[operator], t, x, h)


def split_step(scheme: Scheme, flow: Flow, t: Time, x: Array, h: Time) -> Array:
    """One step h of a splitting scheme from the state x at time t.

    Every operator has its own clock, advanced by its own sub-steps. Fields that depend on time need that: if every
    sub-flow started at t, all schemes of one branch would drop to first order.
    """
    moved = np.zeros(np.broadcast_shapes(np.shape(t), np.shape(x), np.shape(h)))
    for weight, steps in scheme.branches:
        clocks: dict[str, Time] = dict.fromkeys(scheme.operators, t)
        y = x
        for operator, coefficient in steps:
            y = flow(operator, clocks[operator], y, coefficient * h)
            clocks[operator] = clocks[operator] + coefficient * h
        # Summing displacements, not states, keeps the digits of a small step.
        moved = moved + weight * (y - x)
    return x + moved


def layer_step(scheme: Scheme, flow: Flow, tableau: ButcherTableau, t: Time, x: Array, h: Time) -> Array:
    """One step of a Runge-Kutta method whose field is the move of a whole splitting step (ODE Transformer).

    The move is that of the layer without its residual connection, which belongs to the method.
    """
    if tableau.stages == 1:
        return split_step(scheme, flow, t, x, h)
    return runge_kutta_step(tableau, lambda s, y: (split_step(scheme, flow, s, y, h) - y) / h, t, x, h)


def _combined(weights: tuple[float, ...], stages: list[Array]) -> Array | float:
    return sum((w * k for w, k in zip(weights, stages, strict=True) if w != 0), 0.0)
