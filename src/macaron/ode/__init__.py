"""The mathematics: splitting schemes as data, their orders computed and measured, particle systems."""

from macaron.ode.build import compose, fractal, lift, strang, symmetric, triple_jump
from macaron.ode.catalogue import ALIASES, names, scheme, two_operator_names
from macaron.ode.flows import exact_step, integrated_flow, runge_kutta_step, split_step
from macaron.ode.measure import OrderMeter, expected_local_order, order_table
from macaron.ode.scheme import Branch, Scheme, SchemeError, Step
from macaron.ode.systems import System, particle_system
from macaron.ode.tableau import ButcherTableau, integrator, integrator_names
from macaron.ode.velocity import VELOCITIES, Velocity, velocity

__all__ = [
    "ALIASES",
    "VELOCITIES",
    "Branch",
    "ButcherTableau",
    "OrderMeter",
    "Scheme",
    "SchemeError",
    "Step",
    "System",
    "Velocity",
    "compose",
    "exact_step",
    "expected_local_order",
    "fractal",
    "integrated_flow",
    "integrator",
    "integrator_names",
    "lift",
    "names",
    "order_table",
    "particle_system",
    "runge_kutta_step",
    "scheme",
    "split_step",
    "strang",
    "symmetric",
    "triple_jump",
    "two_operator_names",
    "velocity",
]
