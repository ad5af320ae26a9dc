"""The corrected theorem of docs/theory.md: the leading terms themselves, not only their order."""

import numpy as np
import pytest

from macaron.ode import (
    exact_step,
    integrated_flow,
    particle_system,
    scheme,
    split_step,
    two_operator_names,
)
from macaron.ode.flows import Field
from macaron.ode.word_series import Array

# The theorem is stated for fields that do not depend on time, and displacements keep the digits of small steps.
MOVING = particle_system(5)


def still(field: Field) -> Field:
    return lambda t, x: field(MOVING.time, MOVING.start + x)


FIELDS = {operator: still(field) for operator, field in MOVING.fields.items()}
ORIGIN = np.zeros_like(MOVING.start)


def derivative(field: Field, direction: Array) -> Array:
    """The derivative of a field at the start along a direction, by central differences."""
    eps = 1e-5
    return (field(0.0, eps * direction) - field(0.0, -eps * direction)) / (2 * eps)


def differential(outer: str, inner: str) -> Array:
    return derivative(FIELDS[outer], FIELDS[inner](0.0, ORIGIN))


def local_error(name: str, method: str, h: float) -> Array:
    def total(t, x):
        return FIELDS["F"](t, x) + FIELDS["G"](t, x)

    return exact_step(total, 0.0, ORIGIN, h) - split_step(scheme(name), integrated_flow(FIELDS, method), 0.0, ORIGIN, h)


def gap(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def test_the_error_of_lie_trotter_is_half_the_commutator():
    h = 1e-4
    commutator = differential("F", "G") - differential("G", "F")
    assert gap(local_error("lie-fg", "exact", h), h**2 / 2 * commutator) < 2e-3
    assert gap(local_error("lie-gf", "exact", h), -(h**2) / 2 * commutator) < 2e-3


def test_the_half_steps_of_the_papers_proof_need_half_steps():
    # The appendix compares a half step of the sum with whole steps of F and G, which differ at first order already.
    h = 1e-4
    commutator = differential("F", "G") - differential("G", "F")
    assert gap(local_error("lie-fg", "exact", h / 2), h**2 / 8 * commutator) < 2e-3
    f, g = FIELDS["F"], FIELDS["G"]
    half = exact_step(lambda t, x: f(t, x) + g(t, x), 0.0, ORIGIN, h / 2)
    printed = half - split_step(scheme("lie-fg"), integrated_flow(FIELDS, "exact"), 0.0, ORIGIN, h)
    assert gap(printed, -h / 2 * (f(0.0, ORIGIN) + g(0.0, ORIGIN))) < 2e-3


def test_the_error_of_strang_is_the_double_commutators(linear_system):
    system = linear_system(2)
    f, g = system.matrices["F"], system.matrices["G"]

    def bracket(a, b):
        # [X, Y] = Y'X - X'Y, which for linear fields is BA - AB.
        return b @ a - a @ b

    constant = (bracket(g, bracket(g, f)) / 24 - bracket(f, bracket(f, g)) / 12) @ system.start
    gaps = []
    for h in (1e-2, 5e-3):
        flow = system.flow(total=f + g)
        error = flow("total", 0.0, system.start, h) - split_step(scheme("macaron"), flow, 0.0, system.start, h)
        gaps.append(gap(error, h**3 * constant))
    assert gaps[1] < 0.02
    # What is left is the next term: it halves with the step.
    assert gaps[0] / gaps[1] == pytest.approx(2, abs=0.1)


def test_the_errors_of_the_transformer_and_of_macaron_with_euler_steps():
    h = 1e-5
    ff, gg, fg, gf = (differential(*pair) for pair in ("FF", "GG", "FG", "GF"))
    assert gap(local_error("transformer", "euler", h), h**2 / 2 * (ff + gg + fg - gf)) < 2e-3
    assert gap(local_error("macaron", "euler", h), h**2 / 2 * (ff + gg / 2)) < 2e-3


@pytest.mark.parametrize("name", two_operator_names())
def test_euler_error_coefficients_predict_the_error(name):
    h = 1e-5
    predicted = sum(c * differential(pair[0], pair[2]) for pair, c in scheme(name).euler_error.items())
    assert gap(local_error(name, "euler", h), h**2 / 2 * predicted) < 5e-3
