"""Multi-particle convection-diffusion systems on which orders are measured.

F is the interaction of the particles (diffusion, self-attention), G moves each particle by itself (convection, FFN),
and H is the action of a second, fixed set of particles (cross-attention). The operators neither commute nor are
constant in time: on simpler systems faulty schemes pass.

Shapes: S systems in a batch (absent for one), n particles, d coordinates, m hidden units of the FFN.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from math import sqrt

import numpy as np

from macaron.ode.flows import Field, Time
from macaron.ode.word_series import Array


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

        def shifted(field: Field) -> Field:
            return lambda t, x: field(t, self.start + x)

        fields = {operator: shifted(field) for operator, field in self.fields.items()}
        return System(fields, np.zeros_like(self.start), self.time)


def particle_system(seeds: int | Sequence[int], particles: int = 4, width: int = 3, hidden: int = 6) -> System:
    """Softmax attention (F), an MLP (G) and cross-attention (H), smooth, nonlinear and dependent on time.

    One seed gives one system, several seeds a batch of systems with states of shape (S, n, d).
    """
    n, d, m = particles, width, hidden
    draw = partial(_draw, seeds)
    query, key, value = (draw(name, (d, d), d) for name in ("query", "key", "value"))
    cross_query, cross_key, cross_value = (draw(f"cross-{name}", (d, d), d) for name in ("query", "key", "value"))
    # G is the stronger field. In Yoshida's schemes the leading error of Runge-Kutta sub-steps of F cancels (powers of
    # the coefficients sum to 0): the order shows in G alone, and a weak G would hide it.
    value = 0.5 * value
    inner, outer = 1.5 * draw("inner", (d, m), d), 1.5 * draw("outer", (m, d), m)
    bias, drift = draw("bias", (1, m), 1), 1.5 * draw("drift", (1, m), 1)
    memory = draw("memory", (n + 1, d), 1)

    def self_attention(t: Time, x: Array) -> Array:
        # The attention weights and the values both depend on time.
        scores = (1 + 0.5 * np.sin(t)) * (x @ query) @ np.swapaxes(x @ key, -1, -2) / sqrt(d)
        return np.cos(0.7 * t + 0.3) * (_softmax(scores) @ x @ value)

    def cross_attention(t: Time, x: Array) -> Array:
        scores = (x @ cross_query) @ np.swapaxes(memory @ cross_key, -1, -2) / sqrt(d)
        return np.cos(0.9 * t - 0.2) * (_softmax(scores) @ memory @ cross_value)

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


def _softmax(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
