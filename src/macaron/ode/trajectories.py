"""Trajectories of particles in a plane, so that a drawing shows them all: the exact flow, and splitting schemes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from macaron.errors import MacaronError
from macaron.ode.flows import System, Time, exact_step, integrated_flow, particle_system, split_step
from macaron.ode.measure import parse_selection
from macaron.ode.scheme import Scheme
from macaron.ode.word_series import Array

#: Transformer and Macaron, with the exact sub-flows of the theorem, and with the Euler steps of a network's layers.
EXACT = ("lie-fg", "strang-gfg")
AS_LAYERS = tuple(f"{name}:euler" for name in EXACT)
#: Numbers of steps.
STEPS = (1, 2, 4, 8, 16, 32)
#: The seed was chosen among 400 for paths that do not overlap and visible errors; the orders do not depend on it.
SEED, PARTICLES, DURATION = 81, 5, 2.0
#: Points of the exact path; points of a sub-step's curve if there is one step.
_EXACT_POINTS, _CURVE_POINTS = 97, 16


class Trajectory(NamedTuple):
    """A scheme's path with a given number of steps.

    :param nodes: (steps + 1, n, 2), the states after whole steps, the start first
    :param moves: for each sub-step the operator and the states along its flow, (k, n, 2), its start first; empty for a
        scheme of several branches, which has no single path
    :param ratio: the error divided by that of twice as many steps
    """

    steps: int
    nodes: Array
    moves: tuple[tuple[str, Array], ...]
    error: float
    ratio: float


class SchemeTrajectories(NamedTuple):
    """The trajectories of one scheme, by number of steps."""

    scheme: Scheme
    method: str
    trajectories: tuple[Trajectory, ...]


def compare(
    selection: Sequence[str] = EXACT, seed: int = SEED, steps: Sequence[int] = STEPS
) -> tuple[Array, list[SchemeTrajectories]]:
    """The exact path of one system, (points, n, 2), and the paths of schemes, ``NAME`` or ``NAME:INTEGRATOR``."""
    chosen = parse_selection(selection)
    operators = sorted(chosen[0][0].operators)
    system = particle_system(seed, PARTICLES, width=2)
    for scheme, _ in chosen:
        if sorted(scheme.operators) != operators or not set(operators) <= set(system.fields):
            said = f"all schemes must split the same operators, out of {', '.join(system.fields)}"
            raise MacaronError(
                f"{scheme.name} splits {', '.join(scheme.operators)}: to be compared on one system, {said}"
            )
    times = np.linspace(0.0, DURATION, _EXACT_POINTS).reshape(-1, 1, 1)
    exact = exact_step(system.total(operators), system.time, system.start, times)
    schemes = []
    for scheme, method in chosen:
        # Also with twice as many steps, for the ratio of errors.
        paths = {n: _follow(scheme, method, system, n) for n in {*steps, *(2 * n for n in steps)}}
        errors = {n: float(np.linalg.norm(nodes[-1] - exact[-1])) for n, (nodes, _) in paths.items()}
        found = tuple(Trajectory(n, *paths[n], errors[n], errors[n] / errors[2 * n]) for n in steps)
        schemes.append(SchemeTrajectories(scheme, method, found))
    return exact, schemes


def _follow(scheme: Scheme, method: str, system: System, steps: int) -> tuple[Array, tuple[tuple[str, Array], ...]]:
    moves: list[tuple[str, Array]] = []
    flow = integrated_flow(system.fields, method)
    # An Euler step is a straight line; of a short curve the end is enough.
    points = 1 + (max(1, _CURVE_POINTS // steps) if method == "exact" else 1)
    shares = np.linspace(0, 1, points).reshape(-1, 1, 1)

    def recorded(operator: str, t: Time, x: Array, h: Time) -> Array:
        moves.append((operator, flow(operator, t, x, shares * h)))
        return moves[-1][1][-1]

    step, nodes = DURATION / steps, [system.start]
    for k in range(steps):
        nodes.append(split_step(scheme, recorded, system.time + k * step, nodes[-1], step))
    return np.stack(nodes), tuple(moves) if scheme.is_sequential else ()
