"""Multi-particle convection-diffusion systems, the flows of their fields, and one step of a splitting scheme.

F is the interaction of the particles (diffusion, self-attention), G moves each particle by itself (convection, FFN),
and H is the action of a second, fixed set of particles (cross-attention). The operators neither commute nor are
constant in time: on simpler systems faulty schemes pass.

Shapes: S systems in a batch (absent for one), n particles, d coordinates, m hidden units of the FFN. States may have
further leading axes, for many step sizes at once. Times and steps are numbers, or arrays that broadcast against the
state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import sqrt
from pathlib import Path
from typing import TypeAlias

import numpy as np

from macaron.errors import MacaronError, unknown
from macaron.ode.scheme import Scheme
from macaron.ode.word_series import Array
from macaron.settings import build, load_toml

Time: TypeAlias = float | Array
#: The velocity of a state at a time.
Field: TypeAlias = Callable[[Time, Array], Array]
#: ``flow(operator, t, x, h)``: the state after following the operator's field from x at time t for h.
Flow: TypeAlias = Callable[[str, Time, Array, Time], Array]


@dataclass(frozen=True)
class ButcherTableau:
    """An explicit Runge-Kutta method, k_i = f(t + c_i h, x + h Σ_j a_ij k_j) and x + h Σ_i b_i k_i.

    Row i of ``a`` has the i entries below the diagonal, so the first row is empty.
    """

    name: str
    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]
    order: int = 1

    @property
    def stages(self) -> int:
        """How often a step evaluates the field."""
        return len(self.b)


_TABLE, _ = load_toml(Path(__file__).with_name("integrators.toml"))
INTEGRATORS = {name: build(ButcherTableau, {"name": name, **tableau}) for name, tableau in _TABLE.items()}


def integrator(name: str | ButcherTableau) -> ButcherTableau:
    """An integrator by name: euler, midpoint, heun, rk3, rk4. A tableau is returned as it is."""
    if isinstance(name, ButcherTableau):
        return name
    if name not in INTEGRATORS:
        raise unknown("integrator", str(name), INTEGRATORS)
    return INTEGRATORS[name]


def runge_kutta_step(tableau: ButcherTableau, field: Field, t: Time, x: Array, h: Time) -> Array:
    """One step of an explicit Runge-Kutta method."""
    stages: list[Array] = []
    for node, row in zip((*tableau.c, 1.0), (*tableau.a, tableau.b), strict=True):
        end = x + h * sum((w * k for w, k in zip(row, stages, strict=True) if w != 0), 0.0)
        if len(stages) < tableau.stages:
            stages.append(field(t + node * h, end))
    return end


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
    step = exact_step if method == "exact" else partial(runge_kutta_step, integrator(method))
    return lambda operator, t, x, h: step(fields[operator], t, x, h)


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
    return runge_kutta_step(tableau, lambda s, y: (split_step(scheme, flow, s, y, h) - y) / h, t, x, h)


@dataclass(frozen=True, eq=False)
class System:
    """Fields by operator, and a state and a time to start from."""

    fields: Mapping[str, Field]
    start: Array
    time: float = 0.0

    def total(self, operators: Sequence[str]) -> Field:
        """The sum of the operators' fields: what a splitting of them approximates."""
        return lambda t, x: reduce(np.add, [self.fields[operator](t, x) for operator in operators])

    def displaced(self) -> "System":
        """The same system in terms of the displacement from its start.

        Rounding is relative to the size of the state. A displacement is as small as its step, so in these coordinates
        errors far below 1e-16 can be measured in double precision.
        """

        def shifted(field: Field, t: Time, x: Array) -> Array:
            return field(t, self.start + x)

        fields = {operator: partial(shifted, field) for operator, field in self.fields.items()}
        return System(fields, np.zeros_like(self.start), self.time)


def particle_system(seeds: int | Sequence[int], particles: int = 4, width: int = 3, hidden: int = 6) -> System:
    """Softmax attention (F), an MLP (G) and cross-attention (H), smooth, nonlinear and dependent on time.

    One seed gives one system, several seeds a batch of systems with states of shape (S, n, d).
    """
    n, d, m = particles, width, hidden
    draw = partial(_draw, seeds)
    query, key, value = (draw(name, (d, d), d) for name in ("query", "key", "value"))
    across = [draw(f"cross-{name}", (d, d), d) for name in ("query", "key", "value")]
    # G is the stronger field. In Yoshida's schemes the leading error of Runge-Kutta sub-steps of F cancels (powers of
    # the coefficients sum to 0): the order shows in G alone, and a weak G would hide it.
    value = 0.5 * value
    inner, outer = 1.5 * draw("inner", (d, m), d), 1.5 * draw("outer", (m, d), m)
    bias, drift = draw("bias", (1, m), 1), 1.5 * draw("drift", (1, m), 1)
    memory = draw("memory", (n + 1, d), 1)

    def attention(x: Array, y: Array, query: Array, key: Array, value: Array, sharpness: Time = 1.0) -> Array:
        scores = sharpness * (x @ query) @ np.swapaxes(y @ key, -1, -2) / sqrt(d)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return weights / weights.sum(axis=-1, keepdims=True) @ y @ value

    def self_attention(t: Time, x: Array) -> Array:
        # The attention weights and the values both depend on time.
        return np.cos(0.7 * t + 0.3) * attention(x, x, query, key, value, 1 + 0.5 * np.sin(t))

    def cross_attention(t: Time, x: Array) -> Array:
        return np.cos(0.9 * t - 0.2) * attention(x, memory, *across)

    def feed_forward(t: Time, x: Array) -> Array:
        # tanh, not ReLU: the theory needs derivatives.
        return np.tanh(x @ inner + bias + drift * t) @ outer

    fields = {"F": self_attention, "G": feed_forward, "H": cross_attention}
    return System(fields, draw("start", (n, d), 1), time=0.4)


def _draw(seeds: int | Sequence[int], name: str, shape: tuple[int, ...], fan_in: int) -> Array:
    """A normal array divided by the root of its fan-in. It depends on its seed and name alone."""
    if isinstance(seeds, int):
        return np.random.default_rng([seeds, *name.encode()]).normal(size=shape) / sqrt(fan_in)
    return np.stack([_draw(seed, name, shape, fan_in) for seed in seeds])
