"""Paths of a small particle system: the exact flow, and splitting schemes that follow it in few or many steps.

The particles live in a plane, so that what is drawn is the system itself and no shadow of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from macaron.errors import MacaronError
from macaron.ode.flows import Array, Time, exact_step, integrated_flow, split_step
from macaron.ode.plot import parse
from macaron.ode.scheme import Scheme
from macaron.ode.systems import System, particle_system

#: Transformer and Macaron, with the exact flows that the theorem is about.
SELECTION = ("lie-fg", "strang-gfg")
#: Numbers of steps; of twice as many the last error is known too, so that all have a ratio.
STEPS = (1, 2, 4, 8, 16, 32)
#: Chosen among 400 for paths that lie apart and errors that can be seen; the orders do not depend on it.
SEED, PARTICLES, DURATION = 81, 5, 2.0
#: Points of the exact path; points of a sub-step's curve when there is one step.
_FINE, _CURVE = 96, 16


@dataclass(frozen=True, eq=False)
class Walk:
    """A scheme's way in so many steps.

    :param nodes: the states after whole steps, the start first, (steps + 1, n, 2)
    :param moves: the sub-steps: the operator, and states along its flow, the first one included, (k, n, 2); empty for a
        sum of several branches, which has no single way
    :param error: the distance of its end from the exact one
    :param ratio: by what the error is divided when the step halves
    """

    steps: int
    nodes: Array
    moves: tuple[tuple[str, Array], ...]
    error: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Trajectories:
    """A scheme's walks, by number of steps."""

    scheme: Scheme
    method: str
    walks: tuple[Walk, ...]

    def walk(self, steps: int) -> Walk:
        """The walk of so many steps."""
        return next(walk for walk in self.walks if walk.steps == steps)


@dataclass(frozen=True, eq=False)
class Comparison:
    """The exact path, (points, n, 2), and those of the schemes."""

    exact: Array
    schemes: tuple[Trajectories, ...]
    duration: float
    seed: int


def compare(selection: Sequence[str] = SELECTION, seed: int = SEED, steps: Sequence[int] = STEPS) -> Comparison:
    """Follow one system by its exact flow and by schemes, ``NAME`` or ``NAME:INTEGRATOR`` each."""
    chosen = parse(selection)
    operators = sorted(chosen[0][0].operators)
    system = particle_system(seed, PARTICLES, width=2)
    for scheme, _ in chosen:
        if sorted(scheme.operators) != operators or not set(operators) <= set(system.fields):
            raise MacaronError(
                f"{scheme.name} splits {', '.join(scheme.operators)}: to be compared on one system, all schemes must "
                f"split the same of {', '.join(system.fields)}"
            )
    times = np.linspace(0.0, DURATION, _FINE + 1)[1:].reshape(-1, 1, 1)
    path = exact_step(system.total(operators), system.time, system.start, times)
    exact = np.concatenate([system.start[np.newaxis], path])
    found = [
        Trajectories(scheme, method, _walks(scheme, method, system, exact[-1], steps)) for scheme, method in chosen
    ]
    return Comparison(exact, tuple(found), DURATION, seed)


def _walks(scheme: Scheme, method: str, system: System, end: Array, steps: Sequence[int]) -> tuple[Walk, ...]:
    walked = {n: _walk(scheme, method, system, n) for n in sorted({*steps, *(2 * n for n in steps)})}
    errors = {n: float(np.linalg.norm(nodes[-1] - end)) for n, (nodes, _) in walked.items()}
    return tuple(Walk(n, *walked[n], errors[n], errors[n] / errors[2 * n]) for n in steps)


def _walk(scheme: Scheme, method: str, system: System, steps: int) -> tuple[Array, tuple[tuple[str, Array], ...]]:
    """Whole steps of a scheme, and the curves of its sub-steps."""
    moves: list[tuple[str, Array]] = []
    follow = integrated_flow(system.fields, method)
    # An Euler step is a straight line; of a short curve the end is enough.
    fine = max(1, _CURVE // steps) if method == "exact" else 1
    shares = (np.arange(1, fine + 1) / fine).reshape(-1, 1, 1)

    def recorded(operator: str, t: Time, x: Array, h: Time) -> Array:
        curve = follow(operator, t, x, shares * h)
        moves.append((operator, np.concatenate([x[np.newaxis], curve])))
        end: Array = curve[-1]
        return end

    step = DURATION / steps
    nodes = [system.start]
    for k in range(steps):
        nodes.append(split_step(scheme, recorded, system.time + k * step, nodes[-1], step))
    return np.stack(nodes), tuple(moves) if scheme.is_sequential else ()
