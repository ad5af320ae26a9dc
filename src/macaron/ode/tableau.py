"""Integrators of a sub-flow: explicit Runge-Kutta methods as Butcher tableaus, their order computed."""

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import fsum, isfinite

import numpy as np

from macaron.errors import naming, require, unknown
from macaron.ode.word_series import Array

SUM_TOLERANCE = 1e-12
# No tableau of up to seven stages has a higher order. The number of rooted trees grows fast: 1, 1, 2, 4, 9, 20.
ORDER_LIMIT = 6


@dataclass(frozen=True)
class ButcherTableau:
    """An explicit Runge-Kutta method, k_i = f(t + c_i h, x + h Σ_j a_ij k_j) and x + h Σ_i b_i k_i.

    Row i of ``a`` has the i entries below the diagonal, so the first row is empty.
    """

    name: str
    c: tuple[float, ...]
    a: tuple[tuple[float, ...], ...]
    b: tuple[float, ...]

    def __post_init__(self) -> None:
        stages = len(self.b)
        require(bool(self.name and stages), f"a Butcher tableau needs a name and at least one stage, not {self!r}")
        with naming(self.name):
            require(
                len(self.c) == stages and [len(row) for row in self.a] == list(range(stages)),
                f"{stages} weights b need {stages} nodes c and rows a of 0, 1, ... {stages - 1} entries",
            )
            for i, (row, total) in enumerate(zip((*self.a, self.b), (*self.c, 1.0), strict=True)):
                require(all(map(isfinite, (*row, total))), "the tableau has an entry that is not a finite number")
                what = f"row {i} of a sums" if i < stages else "the weights b sum"
                require(abs(fsum(row) - total) <= SUM_TOLERANCE, f"{what} to {fsum(row)!r}, not to {total!r}")

    @property
    def stages(self) -> int:
        """How often a step evaluates the field."""
        return len(self.b)

    @cached_property
    def order(self) -> int:
        """The order, at most 6, computed from the order conditions of all rooted trees."""
        a = np.zeros((self.stages, self.stages))
        a[np.tril_indices(self.stages, -1)] = [entry for row in self.a for entry in row]
        for order in range(1, ORDER_LIMIT + 1):
            if any(abs(np.dot(self.b, stages) - 1 / density) > SUM_TOLERANCE for stages, density in _trees(a, order)):
                return order - 1
        return ORDER_LIMIT


def integrator(name: str | ButcherTableau) -> ButcherTableau:
    """An integrator by name: euler, midpoint, heun, rk3, rk4. A tableau is returned as it is."""
    if isinstance(name, ButcherTableau):
        return name
    if name not in INTEGRATORS:
        raise unknown("integrator", str(name), INTEGRATORS)
    return INTEGRATORS[name]


def integrator_names() -> tuple[str, ...]:
    """The names that ``integrator`` knows."""
    return tuple(INTEGRATORS)


def _trees(a: Array, size: int) -> list[tuple[Array, float]]:
    """All rooted trees with ``size`` nodes, some repeatedly, each as its weight at every stage and its density."""
    if size == 1:
        return [(np.ones(len(a)), 1.0)]
    # A tree is a smaller one, of k nodes, with one more tree hanging from its root.
    return [
        (trunk * (a @ branch), trunk_density * branch_density * size / k)
        for k in range(1, size)
        for (trunk, trunk_density), (branch, branch_density) in product(_trees(a, k), _trees(a, size - k))
    ]


_TABLEAUS = (
    ButcherTableau("euler", (0.0,), ((),), (1.0,)),
    ButcherTableau("midpoint", (0.0, 1 / 2), ((), (1 / 2,)), (0.0, 1.0)),
    ButcherTableau("heun", (0.0, 1.0), ((), (1.0,)), (1 / 2, 1 / 2)),
    ButcherTableau("rk3", (0.0, 1 / 2, 1.0), ((), (1 / 2,), (-1.0, 2.0)), (1 / 6, 2 / 3, 1 / 6)),
    ButcherTableau(
        "rk4", (0.0, 1 / 2, 1 / 2, 1.0), ((), (1 / 2,), (0.0, 1 / 2), (0.0, 0.0, 1.0)), (1 / 6, 1 / 3, 1 / 3, 1 / 6)
    ),
)
INTEGRATORS = {tableau.name: tableau for tableau in _TABLEAUS}
