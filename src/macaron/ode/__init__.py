"""The mathematics: splitting schemes as data, their orders computed and measured, particle systems."""

from macaron.ode.catalogue import ALIASES as ALIASES
from macaron.ode.catalogue import compose as compose
from macaron.ode.catalogue import lift as lift
from macaron.ode.catalogue import names as names
from macaron.ode.catalogue import scheme as scheme
from macaron.ode.catalogue import two_operator_names as two_operator_names
from macaron.ode.flows import INTEGRATORS as INTEGRATORS
from macaron.ode.flows import ButcherTableau as ButcherTableau
from macaron.ode.flows import System as System
from macaron.ode.flows import exact_step as exact_step
from macaron.ode.flows import integrated_flow as integrated_flow
from macaron.ode.flows import integrator as integrator
from macaron.ode.flows import particle_system as particle_system
from macaron.ode.flows import runge_kutta_step as runge_kutta_step
from macaron.ode.flows import split_step as split_step
from macaron.ode.measure import OrderMeter as OrderMeter
from macaron.ode.measure import expected_local_order as expected_local_order
from macaron.ode.measure import order_table as order_table
from macaron.ode.scheme import Scheme as Scheme
from macaron.ode.scheme import SchemeError as SchemeError
from macaron.ode.velocity import VELOCITIES as VELOCITIES
from macaron.ode.velocity import Velocity as Velocity
from macaron.ode.velocity import velocity as velocity
from macaron.ode.word_series import Branch as Branch
from macaron.ode.word_series import Step as Step
