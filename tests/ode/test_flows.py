"""Flows and the split step: stage times, clocks, symmetry, conjugacy."""

import numpy as np
import pytest
from scipy.linalg import expm

from macaron.errors import MacaronError
from macaron.ode import (
    INTEGRATORS,
    ButcherTableau,
    Scheme,
    exact_step,
    integrated_flow,
    names,
    particle_system,
    runge_kutta_step,
    scheme,
    split_step,
)
from macaron.ode.measure import slope

SYSTEM = particle_system(3)


def test_exact_flow_of_a_linear_field_is_the_matrix_exponential(linear_system):
    system = linear_system(0)
    flow, fields = system.flow(), system.fields
    for operator, matrix in system.matrices.items():
        expected = expm(0.7 * matrix) @ system.start
        np.testing.assert_allclose(flow(operator, 0.0, system.start, 0.7), expected, rtol=1e-13)
        np.testing.assert_allclose(exact_step(fields[operator], 0.0, system.start, 0.7), expected, rtol=1e-12)


def test_exact_flow_of_a_field_that_depends_on_time():
    # x' = 2 t x has the solution x exp(t²).
    end = exact_step(lambda t, x: 2 * t * x, 0.5, np.array([1.0, -2.0]), 1.0)
    np.testing.assert_allclose(end, np.array([1.0, -2.0]) * np.exp(1.5**2 - 0.5**2), rtol=1e-12)


@pytest.mark.parametrize("method", ["exact", *INTEGRATORS])
def test_many_steps_and_systems_at_once_equal_one_at_a_time(method):
    batch = particle_system([0, 1])
    steps = np.array([0.5, 0.01, -0.2])
    flow = integrated_flow(batch.fields, method)
    together = split_step(scheme("macaron"), flow, batch.time, batch.start, steps.reshape(3, 1, 1, 1))
    for i, h in enumerate(steps):
        for seed in (0, 1):
            one = particle_system(seed)
            alone = split_step(scheme("macaron"), integrated_flow(one.fields, method), one.time, one.start, h)
            np.testing.assert_allclose(together[i, seed], alone, rtol=1e-12, atol=1e-13)


def test_linear_flow_of_many_steps_equals_one_at_a_time(linear_system):
    system = linear_system(1)
    flow = system.flow()
    steps = np.array([0.5, -0.25])
    together = flow("F", 0.0, system.start, steps[:, np.newaxis])
    for row, h in zip(together, steps, strict=True):
        np.testing.assert_allclose(row, flow("F", 0.0, system.start, float(h)), rtol=1e-13)


def test_stages_are_evaluated_at_their_nodes_and_inputs():
    # An odd tableau, so that no mistake in an index can hide.
    odd = ButcherTableau("odd", c=(0, 0.3, 0.9), a=((), (0.3,), (0.7, 0.2)), b=(0.2, 0.3, 0.5))
    seen = []

    def field(t, x):
        seen.append((t, x[0]))
        return np.array([float(len(seen))])

    end = runge_kutta_step(odd, field, 2.0, np.array([10.0]), 0.1)
    assert [t for t, _ in seen] == pytest.approx([2.0, 2.03, 2.09])
    assert [x for _, x in seen] == pytest.approx([10.0, 10 + 0.03 * 1, 10 + 0.07 * 1 + 0.02 * 2])
    assert end[0] == pytest.approx(10 + 0.1 * (0.2 * 1 + 0.3 * 2 + 0.5 * 3))


def test_every_operator_has_its_own_clock_in_every_branch():
    seen = []

    def flow(operator, t, x, h):
        seen.append((operator, float(t), float(h)))
        return x

    split_step(scheme("macaron"), flow, 1.0, np.zeros(1), 0.2)
    assert seen == [("G", 1.0, 0.1), ("F", 1.0, 0.2), ("G", 1.1, 0.1)]
    seen.clear()
    split_step(scheme("sws"), flow, 1.0, np.zeros(1), 0.2)
    assert seen == [("F", 1.0, 0.2), ("G", 1.0, 0.2), ("G", 1.0, 0.2), ("F", 1.0, 0.2)]


def test_a_split_step_with_euler_is_the_layer_of_the_paper():
    system, h = SYSTEM, 0.3
    f, g, t, x = system.fields["F"], system.fields["G"], system.time, system.start
    y = x + h / 2 * g(t, x)
    y = y + h * f(t, y)
    y = y + h / 2 * g(t + h / 2, y)
    layer = split_step(scheme("macaron"), integrated_flow(system.fields, "euler"), t, x, h)
    np.testing.assert_allclose(layer, y, rtol=1e-14)
    parallel = split_step(scheme("parallel"), integrated_flow(system.fields, "euler"), t, x, h)
    np.testing.assert_allclose(parallel, x + h * f(t, x) + h * g(t, x), rtol=1e-14)


@pytest.mark.parametrize("name", [n for n in names() if scheme(n).is_symmetric])
def test_symmetric_schemes_undo_themselves_backwards(name):
    flow = integrated_flow(SYSTEM.fields, "exact")
    h = 0.25
    there = split_step(scheme(name), flow, SYSTEM.time, SYSTEM.start, h)
    back = split_step(scheme(name), flow, SYSTEM.time + h, there, -h)
    np.testing.assert_allclose(back, SYSTEM.start, atol=1e-12)


@pytest.mark.parametrize("name", ["lie-fg", "best22-fgfg", "ruth3-fg", "suzuki3", "strang-gfhg"])
def test_other_schemes_are_undone_by_their_adjoint_only(name):
    flow = integrated_flow(SYSTEM.fields, "exact")
    h = 0.25
    there = split_step(scheme(name), flow, SYSTEM.time, SYSTEM.start, h)
    back = split_step(scheme(name).adjoint(), flow, SYSTEM.time + h, there, -h)
    np.testing.assert_allclose(back, SYSTEM.start, atol=1e-12)
    wrong = split_step(scheme(name), flow, SYSTEM.time + h, there, -h)
    assert np.abs(wrong - SYSTEM.start).max() > 1e-6


@pytest.mark.parametrize("layers", [1, 2, 6])
def test_strang_steps_are_lie_steps_with_half_a_g_at_both_ends(layers):
    flow = integrated_flow(SYSTEM.fields, "exact")
    h, start = 1 / layers, SYSTEM.time
    macaron = SYSTEM.start
    for k in range(layers):
        macaron = split_step(scheme("macaron"), flow, start + k * h, macaron, h)
    x = flow("G", start, SYSTEM.start, h / 2)
    for k in range(layers - 1):
        x = flow("F", start + k * h, x, h)
        x = flow("G", start + (k + 0.5) * h, x, h)
    x = flow("F", start + (layers - 1) * h, x, h)
    x = flow("G", start + (layers - 0.5) * h, x, h / 2)
    np.testing.assert_allclose(x, macaron, atol=1e-12)


@pytest.mark.parametrize(("name", "own"), [("strang-gfg", 3), ("strang-fgf", 3), ("ruth3-fg", 4), ("yoshida4-gfg", 5)])
def test_a_frozen_clock_costs_the_order(name, own):
    system = particle_system(range(3)).displaced()
    steps = 2.0 ** -np.arange(4, 46, 0.25)
    h = steps.reshape(-1, 1, 1, 1)
    exact = integrated_flow(system.fields, "exact")
    reference = exact_step(system.total(("F", "G")), system.time, system.start, h)

    def frozen(operator, t, x, step):
        return exact(operator, system.time, x, step)

    def measured(flow):
        end = split_step(scheme(name), flow, system.time, system.start, h)
        return slope(steps, np.sqrt(np.sum((end - reference) ** 2, axis=(-1, -2))))

    assert measured(exact) == pytest.approx(own, abs=0.15)
    assert measured(frozen) == pytest.approx(2, abs=0.05)


def test_a_flow_that_cannot_be_followed_is_an_error():
    # x' = x² from 1 is infinite at time 1.
    with np.errstate(all="ignore"), pytest.raises(MacaronError, match="could not be followed"):
        exact_step(lambda t, x: x * x, 0.0, np.array([1.0]), 2.0)


def test_three_operators_have_a_field_each():
    layer = Scheme.sequence("decoder", ("F", 1), ("H", 1), ("G", 1))
    end = split_step(layer, integrated_flow(SYSTEM.fields, "euler"), SYSTEM.time, SYSTEM.start, 0.1)
    assert end.shape == SYSTEM.start.shape
