"""Orders measured: on linear operators that do not commute, and on particles that attend to each other."""

import numpy as np
import pytest

from macaron.errors import MacaronError
from macaron.ode import (
    OrderMeter,
    Scheme,
    compose,
    exact_step,
    expected_local_order,
    integrated_flow,
    integrator,
    names,
    order_table,
    particle_system,
    scheme,
    split_step,
    two_operator_names,
)
from macaron.ode.measure import METHODS, slope

TOLERANCE = 0.15


@pytest.fixture(scope="module")
def meter():
    return OrderMeter()


def test_every_scheme_with_every_integrator(meter):
    table = order_table(meter=meter)
    assert list(table) == ["schemes"]
    assert [row["name"] for row in table["schemes"]] == list(two_operator_names())
    for row in table["schemes"]:
        assert row["order"] == scheme(row["name"]).order
        assert list(row["local_order"]) == ["exact", "euler", "midpoint", "heun", "rk3", "rk4"]
        for method, measured in row["local_order"].items():
            q = np.inf if method == "exact" else integrator(method).order
            assert measured == pytest.approx(min(row["order"], q) + 1, abs=TOLERANCE), (row["name"], method)


@pytest.mark.slow
def test_the_orders_do_not_depend_on_the_seeds():
    other = OrderMeter(particle_system(range(100, 109)))
    for name in names():
        for method in METHODS:
            expected = expected_local_order(scheme(name), method)
            assert other.local_order(scheme(name), method) == pytest.approx(expected, abs=TOLERANCE), (name, method)


@pytest.mark.parametrize(
    ("entry", "order"),
    [
        (Scheme.sequence("decoder", ("F", 1), ("H", 1), ("G", 1)), 1),
        (scheme("strang-gfhg"), 1),
        (scheme("strang3-gfhfg"), 2),
    ],
)
def test_three_operators(meter, entry, order):
    assert entry.order == order
    assert meter.local_order(entry) == pytest.approx(order + 1, abs=TOLERANCE)


@pytest.mark.parametrize("name", ["strang-gfg", "mclachlan2-fgfgf", "mclachlan4", "blanes-moan4-g"])
@pytest.mark.parametrize("size", [1e-3, 1e-6])
def test_a_perturbed_coefficient_is_measured(meter, name, size):
    steps = [list(step) for step in scheme(name).branches[0].steps]
    steps[0][1] += size
    steps[-1][1] -= size
    perturbed = Scheme.sequence("perturbed", *((op, c) for op, c in steps))
    assert perturbed.order == 1
    measured = meter.local_order(perturbed)
    assert abs(measured - expected_local_order(scheme(name))) > TOLERANCE
    if size == 1e-3:
        assert measured == pytest.approx(2, abs=TOLERANCE)


def test_one_euler_operator_spoils_the_step(meter):
    # Exact flows of F do not help when G takes Euler steps, so sub-flows must all be good.
    system, h = meter.system, meter.steps.reshape(-1, 1, 1, 1)
    exact, euler = integrated_flow(system.fields, "exact"), integrated_flow(system.fields, "euler")

    def mixed(operator, *rest):
        return (exact if operator == "F" else euler)(operator, *rest)

    end = split_step(scheme("macaron"), mixed, system.time, system.start, h)
    reference = exact_step(system.total(("F", "G")), system.time, system.start, h)
    assert slope(meter.steps, np.sqrt(((end - reference) ** 2).sum((-1, -2)))) == pytest.approx(2, abs=0.05)


@pytest.mark.parametrize("name", names())
def test_linear_operators_that_do_not_commute(name, linear_system):
    entry = scheme(name)
    steps = 2.0 ** -np.arange(0, 22, 0.25)
    slopes = []
    for seed in range(5):
        system = linear_system(seed)
        flow = system.flow(total=sum(system.matrices[op] for op in entry.operators))
        h = steps[:, np.newaxis]
        error = flow("total", 0.0, system.start, h) - split_step(entry, flow, 0.0, system.start, h)
        errors = np.linalg.norm(error, axis=-1)
        # Matrix exponentials round at some 1e-16 of the state, whatever the step.
        inside = (errors > 1e-13) & (errors < 1e-9)
        slopes.append(np.polyfit(np.log(steps[inside]), np.log(errors[inside]), 1)[0])
    assert np.median(slopes) == pytest.approx(entry.order + 1, abs=TOLERANCE)


def test_the_linear_operators_do_not_commute(linear_system):
    f, g, h = linear_system(0).matrices.values()
    for a, b in ((f, g), (f, h), (g, h)):
        assert np.linalg.norm(a @ b - b @ a) > 0.1


def test_the_particles_depend_on_time_and_on_each_other():
    system = particle_system(0)
    for field in system.fields.values():
        assert np.abs(field(1.0, system.start) - field(0.0, system.start)).max() > 1e-2
    moved = system.start.copy()
    moved[0] += 0.5
    alone = {op: np.abs(field(0.0, moved) - field(0.0, system.start))[1:].max() for op, field in system.fields.items()}
    assert alone["F"] > 1e-3
    assert alone["G"] < 1e-14
    assert alone["H"] < 1e-14


def test_systems_side_by_side_are_the_single_ones():
    both = particle_system([4, 9])
    for i, seed in enumerate((4, 9)):
        one = particle_system(seed)
        np.testing.assert_array_equal(both.start[i], one.start)
        for operator, field in one.fields.items():
            np.testing.assert_allclose(both.fields[operator](0.3, both.start)[i], field(0.3, one.start), rtol=1e-13)


def test_slope_uses_errors_in_the_window_alone():
    steps = 2.0 ** -np.arange(1, 40, 0.25)
    # Flat where errors are rounding, flat again where they are large: only between is the fifth power.
    errors = (steps * np.clip(steps**4, 1e-14, 1e-10))[:, np.newaxis]
    assert slope(steps, errors) == pytest.approx(5)
    assert slope(steps, errors, (1e-15, 1e-11)) < 4
    assert slope(steps, errors, (1e-13, 1e-9)) < 4


def test_no_slope_without_errors():
    alone = Scheme.sequence("alone", ("F", 1))
    with pytest.raises(MacaronError, match="the order cannot be measured"):
        OrderMeter(particle_system(0)).local_order(alone)


def test_operators_without_a_field_are_named():
    other = Scheme.sequence("other", ("F", 1), ("Q", 1))
    with pytest.raises(MacaronError, match="no field Q"):
        OrderMeter(particle_system(0)).errors(other)


def test_composition_keeps_the_measured_order(meter):
    assert meter.local_order(compose("thrice", scheme("ruth3-fg"), [1 / 3] * 3)) == pytest.approx(4, abs=TOLERANCE)
