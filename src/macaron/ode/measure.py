"""Measuring the order of a scheme: one step of many sizes on many systems, and the slope of the error.

One rule chooses the steps for every scheme and integrator, and it looks at errors only: a step counts when
its error, per unit of step, lies in ``WINDOW``. Below the window is rounding, above it the higher terms of
the error still show. Systems are followed in displacements, so doubles round at some 1e-15 of the step.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from macaron.errors import MacaronError
from macaron.ode.catalogue import scheme as find_scheme
from macaron.ode.catalogue import two_operator_names
from macaron.ode.flows import Array, exact_step, integrated_flow, split_step
from macaron.ode.scheme import Scheme
from macaron.ode.systems import System, particle_system
from macaron.ode.tableau import ButcherTableau, integrator, integrator_names

# Local error divided by the step. Rounding reaches up to about 6e-15.
WINDOW = (1e-13, 1e-11)
# Four steps to a halving, from an eighth down to where even Euler's error per step is below the window.
STEPS: Array = 2.0 ** -(np.arange(3 * 4, 46 * 4 + 1) / 4)
SEEDS = tuple(range(7))


class OrderMeter:
    """Measures local errors and their order on particle systems, all systems and step sizes at once."""

    def __init__(self, system: System | None = None, steps: Array = STEPS) -> None:
        self.system = (system or particle_system(SEEDS)).displaced()
        self.steps = steps
        # One step for each leading entry of the state; behind it are systems, particles and coordinates.
        self._h = steps.reshape(-1, *(1,) * self.system.start.ndim)
        self._references: dict[frozenset[str], Array] = {}

    def errors(self, scheme: Scheme, method: str | ButcherTableau = "exact") -> Array:
        """The error of one step for each step size and system, shape (steps, systems)."""
        if missing := set(scheme.operators) - set(self.system.fields):
            raise MacaronError(
                f"{scheme.name}: the system has no field {', '.join(sorted(missing))}, "
                f"only {', '.join(self.system.fields)}"
            )
        flow = integrated_flow(self.system.fields, method)
        end = split_step(scheme, flow, self.system.time, self.system.start, self._h)
        errors: Array = np.sqrt(np.sum((end - self._reference(scheme)) ** 2, axis=(-1, -2)))
        return errors.reshape(len(self.steps), -1)

    def local_order(self, scheme: Scheme, method: str | ButcherTableau = "exact") -> float:
        """The measured local order: one more than the order of the method."""
        errors = self.errors(scheme, method)
        try:
            return slope(self.steps, errors)
        except MacaronError as error:
            raise MacaronError(f"{scheme.name}: {error}") from error

    def _reference(self, scheme: Scheme) -> Array:
        operators = frozenset(scheme.operators)
        if operators not in self._references:
            field = self.system.total(sorted(operators))
            self._references[operators] = exact_step(field, self.system.time, self.system.start, self._h)
        return self._references[operators]


def slope(steps: Array, errors: Array, window: tuple[float, float] = WINDOW) -> float:
    """The slope of log error over log step where error / step is in the window, the median over systems.

    ``errors`` has the shape (steps, systems). A system with fewer than three such steps is left out.
    """
    low, high = window
    slopes = []
    for column in errors.T:
        inside = (low < column / steps) & (column / steps < high)
        if inside.sum() >= 3:
            slopes.append(np.polyfit(np.log(steps[inside]), np.log(column[inside]), 1)[0])
    if 2 * len(slopes) <= errors.shape[1]:
        raise MacaronError(
            f"no order to be seen: on {errors.shape[1] - len(slopes)} of {errors.shape[1]} systems "
            f"fewer than three steps have an error between {low:g} and {high:g} per unit of step"
        )
    return float(np.median(slopes))


def expected_local_order(scheme: Scheme, method: str | ButcherTableau = "exact") -> int:
    """What theory says: one more than the smaller of the orders of the scheme and of its sub-steps."""
    if method == "exact":
        return scheme.order + 1
    return min(scheme.order, integrator(method).order) + 1


def methods() -> tuple[str, ...]:
    """How sub-flows can be followed: exactly, or by each named integrator."""
    return ("exact", *integrator_names())


def order_table(
    schemes: Iterable[Scheme] | None = None,
    meter: OrderMeter | None = None,
    progress: Callable[[Sequence[Scheme]], Iterable[Scheme]] = iter,
) -> dict[str, Any]:
    """Every scheme by every integrator, as plain data: orders computed, local orders measured."""
    chosen = [find_scheme(name) for name in two_operator_names()] if schemes is None else list(schemes)
    meter = meter or OrderMeter()
    return {"schemes": [_row(entry, meter) for entry in progress(chosen)]}


def _row(scheme: Scheme, meter: OrderMeter) -> dict[str, Any]:
    return {
        "name": scheme.name,
        "order": scheme.order,
        "leading_error": scheme.leading_error,
        "expected_local_order": {method: expected_local_order(scheme, method) for method in methods()},
        # Digits beyond these are rounding, and differ from machine to machine.
        "local_order": {method: round(meter.local_order(scheme, method), 2) for method in methods()},
    }
