"""Velocities as data: their order, computed and measured; the order of layers that are integrated as a whole."""

import math

import numpy as np
import pytest

from macaron.errors import MacaronError
from macaron.ode import VELOCITIES, OrderMeter, Velocity, exact_step, particle_system, scheme, velocity
from macaron.ode.measure import layer_order
from macaron.ode.velocity import follow

SECOND = [Velocity(beta, (1 + beta) / (2 * (1 - beta))) for beta in (-1.0, -0.5, 0.0, 0.3, 0.6)]


@pytest.mark.parametrize(
    "form", [*VELOCITIES.values(), *SECOND, Velocity(-1.0, 0.0, 2.0), Velocity(0.8, 0.1, 1.3)], ids=str
)
def test_the_computed_order_is_the_measured_one(form: Velocity):
    """One operator, tied across depth: the error after a fixed time, by the number of steps."""
    system = particle_system(0)
    field, duration = system.fields["F"], 0.5
    exact = exact_step(field, system.time, system.start, duration)
    counts = (128, 256)
    errors = [np.linalg.norm(follow(form, field, system.time, system.start, duration, n) - exact) for n in counts]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(form.order, abs=0.1)


@pytest.mark.parametrize(
    ("form", "order"), [(SECOND[2], 2), *((form, 1) for form in (*SECOND[3:], SECOND[0]))], ids=str
)
def test_a_start_at_rest_costs_an_order_unless_earlier_kicks_are_forgotten(form: Velocity, order: int):
    system = particle_system(0)
    field, duration = system.fields["F"], 0.5
    exact = exact_step(field, system.time, system.start, duration)
    ends = [follow(form, field, system.time, system.start, duration, n, at_rest=True) for n in (256, 512)]
    errors = [np.linalg.norm(end - exact) for end in ends]
    assert math.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.1)


def test_orders():
    named = {name: form.order for name, form in VELOCITIES.items()}
    assert named == {"none": 1, "heavy-ball": 1, "nesterov": 1, "damped": 1, "adams-bashforth": 2}
    assert all(form.order == 2 for form in SECOND)
    assert [form.rate for form in (VELOCITIES["none"], VELOCITIES["damped"], VELOCITIES["heavy-ball"])] == [1, 1, 2]


def test_without_friction_there_is_no_order():
    assert Velocity(1.0).order is None
    assert Velocity(1.5).order is None
    assert Velocity(-1.5).order is None  # unstable
    with pytest.raises(MacaronError, match="no rate"):
        _ = Velocity(1.0).rate


def test_data():
    assert velocity({"beta": 0.5, "mu": 0.5}) == velocity("nesterov")
    assert velocity({}).plain
    assert not velocity({"learned": "channel"}).plain
    with pytest.raises(MacaronError, match="unknown velocity 'heavyball'; did you mean 'heavy-ball'"):
        velocity("heavyball")


@pytest.mark.parametrize("name", ["parallel", "lie-fg", "strang-gfg", "sws"])
@pytest.mark.parametrize("layer", ["euler", "midpoint", "rk4"])
def test_the_order_of_layers_that_are_integrated_as_a_whole(name: str, layer: str):
    """The field of the integrator is the move of a layer, without the residual connection."""
    expected = layer_order(scheme(name), layer)
    assert OrderMeter().local_order(scheme(name), "euler", layer) == pytest.approx(expected + 1, abs=0.05)
    assert expected == ({"euler": 1, "midpoint": 2, "rk4": 4}[layer] if name == "parallel" else 1)
