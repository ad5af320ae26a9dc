"""A velocity beside the state: particles of second order, as data (docs/operators.md).

Every sub-step kicks the velocity, v <- beta v + c O(x + mu v), and lets the particle drift, x <- x + nu v, from v = 0
at the first layer. With friction (beta < 1) and a constant O, v tends to c O / (1 - beta): the particle follows
dx/dt = rate O.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose
from pathlib import Path
from typing import Annotated, Any, Literal

from macaron.errors import MacaronError, unknown
from macaron.limits import Between
from macaron.ode.flows import Field
from macaron.ode.word_series import Array
from macaron.settings import build, load_toml

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
        """The order for one operator that is tied across depth, from the terminal speed on; None if it is unstable.

        It is then a method of two steps, x[n+1] = x[n] + beta (x[n] - x[n-1]) + nu c O(x[n] + mu/nu (x[n] - x[n-1])).
        """
        if self.nu == 0 or not -1 <= self.beta < 1:
            return None
        # Terms of second degree agree here, those of third degree never.
        return 2 if isclose((1 + self.beta) * self.nu, 2 * (1 - self.beta) * self.mu, abs_tol=1e-12) else 1


PLAIN = Velocity()
_FORMS, _ = load_toml(Path(__file__).with_name("velocities.toml"))
VELOCITIES = {name: build(Velocity, form) for name, form in _FORMS.items()}


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
