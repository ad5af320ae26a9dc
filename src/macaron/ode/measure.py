"""The measured order of a scheme: the error of one step of many sizes on many systems, and its slope.

One rule selects the steps for every scheme and integrator: a step counts if its error, divided by the step, lies in
``WINDOW``. Below the window errors are rounding, above it higher-order terms contribute. Systems are followed in
displacements, so doubles round at about 1e-15 of the step.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from macaron.errors import MacaronError, naming, unknown
from macaron.ode.catalogue import scheme as find_scheme
from macaron.ode.catalogue import two_operator_names
from macaron.ode.flows import (
    INTEGRATORS,
    ButcherTableau,
    System,
    exact_step,
    integrated_flow,
    integrator,
    layer_step,
    particle_system,
)
from macaron.ode.scheme import Scheme
from macaron.ode.word_series import Array

# Local error divided by the step. Rounding reaches up to about 6e-15.
WINDOW = (1e-13, 1e-11)
# Four steps per halving, from 1/8 down to where even Euler's error is below the window.
STEPS: Array = 2.0 ** -(np.arange(3 * 4, 46 * 4 + 1) / 4)
SEEDS = tuple(range(7))
# How sub-flows can be followed: exactly, or by each named integrator.
METHODS = ("exact", *INTEGRATORS)


class OrderMeter:
    """Measures local errors and their order on particle systems, all systems and step sizes at once."""

    def __init__(self, system: System | None = None, steps: Array = STEPS) -> None:
        self.system = (system or particle_system(SEEDS)).displaced()
        self.steps = steps
        self._references: dict[frozenset[str], Array] = {}

    def errors(self, scheme: Scheme, method: str | ButcherTableau = "exact", layer: str = "euler") -> Array:
        """The error of one step, (steps, systems); ``layer`` integrates the whole step, see `flows.layer_step`."""
        system, operators = self.system, frozenset(scheme.operators)
        if missing := operators - set(system.fields):
            have = ", ".join(system.fields)
            raise MacaronError(f"the system has no field {', '.join(sorted(missing))}, only {have}")
        # Shape (steps, 1, ...): the other axes are systems, particles and coordinates.
        h = self.steps.reshape(-1, *(1,) * system.start.ndim)
        if operators not in self._references:
            field = system.total(sorted(operators))
            self._references[operators] = exact_step(field, system.time, system.start, h)
        flow = integrated_flow(system.fields, method)
        end = layer_step(scheme, flow, integrator(layer), system.time, system.start, h)
        errors: Array = np.sqrt(np.sum((end - self._references[operators]) ** 2, axis=(-1, -2)))
        return errors.reshape(len(self.steps), -1)

    def local_order(self, scheme: Scheme, method: str | ButcherTableau = "exact", layer: str = "euler") -> float:
        """The measured local order: one more than the order of the method."""
        with naming(scheme.name):
            return slope(self.steps, self.errors(scheme, method, layer))


def slope(steps: Array, errors: Array, window: tuple[float, float] = WINDOW) -> float:
    """The slope of log error, (steps, systems), over log step in the window: the median over systems."""
    low, high = window
    slopes = []
    for column in errors.T:
        inside = (low < column / steps) & (column / steps < high)
        if inside.sum() >= 3:
            slopes.append(np.polyfit(np.log(steps[inside]), np.log(column[inside]), 1)[0])
    if 2 * len(slopes) <= errors.shape[1]:
        lost = errors.shape[1] - len(slopes)
        raise MacaronError(
            f"the order cannot be measured: {lost} systems have too few steps with an error / step in {window}"
        )
    return float(np.median(slopes))


def expected_local_order(scheme: Scheme, method: str | ButcherTableau = "exact") -> int:
    """The theoretical local order: one more than the smaller of the orders of the scheme and of its integrator."""
    return 1 + (scheme.order if method == "exact" else min(scheme.order, integrator(method).order))


def layer_order(scheme: Scheme, layer: str) -> int:
    """The order of a layer with Euler sub-steps that is integrated as a whole (`macaron.ode.flows.layer_step`)."""
    # Where operators act in turn, the move has a term of second degree that no integrator of the whole removes.
    return integrator(layer).order if all(len(branch.steps) <= 1 for branch in scheme.branches) else 1


def parse_selection(selection: Iterable[str]) -> list[tuple[Scheme, str]]:
    """Read ``NAME`` (exact sub-flows) and ``NAME:INTEGRATOR``."""
    chosen = []
    for entry in selection:
        alone = ":" not in entry or entry.lstrip().startswith("{")
        name, _, method = (entry, "", "exact") if alone else entry.rpartition(":")
        if method not in METHODS:
            raise unknown("integrator", method, METHODS)
        chosen.append((find_scheme(name), method))
    return chosen


def order_table(schemes: Iterable[str | Scheme] | None = None, meter: OrderMeter | None = None) -> dict[str, Any]:
    """Every scheme with every integrator, as plain data: orders computed, local orders measured."""
    meter = meter or OrderMeter()
    rows = [
        {
            "name": scheme.name,
            "order": scheme.order,
            "leading_error": scheme.leading_error,
            "expected_local_order": {method: expected_local_order(scheme, method) for method in METHODS},
            # Further digits are rounding and differ between machines.
            "local_order": {method: round(meter.local_order(scheme, method), 2) for method in METHODS},
        }
        for scheme in map(find_scheme, two_operator_names() if schemes is None else schemes)
    ]
    return {"schemes": rows}
