"""A velocity beside the state: particles of second order, as data.

Every sub-step kicks the velocity and lets the particle drift, from v = 0 at the first layer:

    v <- beta v + c O(x + mu v)
    x <- x + nu v

With beta = mu = 0 and nu = 1 that is the plain sub-step x + c O(x). With friction (beta < 1) and a constant O, v tends
to c O / (1 - beta): the particle follows dx/dt = rate O with the rate nu / (1 - beta). Without friction (beta = 1) it
follows another equation, of second order in time, and has no order here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose
from typing import Annotated, Any, Literal

from macaron.errors import MacaronError, unknown
from macaron.limits import Between
from macaron.ode.flows import Field
from macaron.ode.word_series import Array
from macaron.settings import build

Coefficient = Annotated[float, Between(-10, 10)]


@dataclass(frozen=True)
class Velocity:
    """The coefficients of kick and drift.

    :param mu: how far ahead the operator looks
    :param learned: no; sublayer: a number for each sub-layer; channel: one for each of its channels. Learning starts
        from the values here
    """

    beta: Coefficient = 0.0
    mu: Coefficient = 0.0
    nu: Coefficient = 1.0
    learned: Literal["no", "sublayer", "channel"] = "no"

    def __post_init__(self) -> None:
        if self.nu == 0 and self.learned == "no":
            raise MacaronError("velocity.nu = 0: nothing would move. Take another number, such as 1")

    @property
    def plain(self) -> bool:
        """Whether this is the sub-step without a velocity."""
        return self == PLAIN

    @property
    def rate(self) -> float:
        """The terminal speed in a constant field, relative to that without a velocity."""
        if self.beta == 1:
            raise MacaronError("without friction (beta = 1) a velocity grows without limit: it has no rate")
        return self.nu / (1 - self.beta)

    @property
    def order(self) -> int | None:
        """The order for one operator that is tied across depth, 1 or 2; None if it does not follow that operator.

        It is then a method of two steps for dx/dt = rate O,

            x[n+1] = x[n] + beta (x[n] - x[n-1]) + nu c O(x[n] + mu/nu (x[n] - x[n-1])),

        stable for -1 <= beta < 1. Its terms of second degree agree where (1 + beta) nu = 2 (1 - beta) mu, those of
        third degree never. That is from the terminal speed on: a particle that starts at rest is late, by an
        error of first order unless beta = 0. Several operators that kick one velocity in turn are of order 1 in
        general.
        """
        if self.nu == 0 or not -1 <= self.beta < 1:
            return None
        return 2 if isclose((1 + self.beta) * self.nu, 2 * (1 - self.beta) * self.mu, abs_tol=1e-12) else 1


PLAIN = Velocity()
#: Named forms. Heavy ball and Nesterov are twice as fast as the plain network, the damped form is as fast.
VELOCITIES = {
    "none": PLAIN,
    "heavy-ball": Velocity(0.5, 0.0, 1.0),
    "nesterov": Velocity(0.5, 0.5, 1.0),
    "damped": Velocity(0.5, 0.0, 0.5),
    "adams-bashforth": Velocity(0.0, 0.5, 1.0),
}


def velocity(data: str | Mapping[str, Any]) -> Velocity:
    """A velocity as a configuration holds it: a name, or a table of coefficients."""
    if isinstance(data, Mapping):
        return build(Velocity, data, path=("velocity",))
    if not isinstance(data, str) or data not in VELOCITIES:
        raise unknown("velocity", str(data), VELOCITIES)
    return VELOCITIES[data]


def follow(
    form: Velocity, field: Field, t: float, x: Array, duration: float, steps: int, at_rest: bool = False
) -> Array:
    """Follow a field for some time in equal steps; start at the terminal speed, or at rest as a network does."""
    step = duration / steps
    size = step / form.rate  # of a kick
    v = 0 * x if at_rest else size * field(t, x) / (1 - form.beta)
    ahead = form.mu / form.nu * step
    for n in range(steps):
        v = form.beta * v + size * field(t + n * step + ahead, x + form.mu * v)
        x = x + form.nu * v
    return x
