"""A splitting scheme: which operators act, in which order, for how long. It is a layer's architecture as data."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, groupby
from math import fsum, isclose
from typing import Any

from macaron.errors import MacaronError, shown
from macaron.json_files import parse_json
from macaron.limits import MOST_STEPS
from macaron.ode.word_series import Branch, Branches, Step, order_and_error

# Sums of coefficients may differ from 1 by rounding only.
SUM_TOLERANCE = 1e-12
# Palindromes whose halves were computed by different formulas differ in the last bits.
SYMMETRY_TOLERANCE = 1e-14
# The powers of larger coefficients overflow.
LARGEST = 1e6


class SchemeError(MacaronError):
    """The data of a scheme is not a consistent splitting."""


@dataclass(frozen=True, init=False)
class Scheme:
    """A splitting scheme: a weighted sum of sequences of sub-steps, usually one sequence of weight 1.

    Branches may be given as nested tuples or lists, ``[(weight, [(operator, coefficient), ...]), ...]``. They
    are checked: weights sum to 1, and so do each operator's coefficients in the weighted sum. Adjacent sub-steps
    of one operator are merged and those of coefficient 0 are dropped, so that equal schemes have equal data.
    """

    name: str
    branches: tuple[Branch, ...]

    def __init__(self, name: str, branches: Branches) -> None:
        if not isinstance(name, str) or not name.strip():
            raise SchemeError(f"a scheme needs a name, not {shown(name)}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "branches", tuple(_branches(name, branches)))
        steps = sum(len(branch.steps) for branch in self.branches)
        if steps > MOST_STEPS:
            raise SchemeError(f"{shown(name)}: a scheme has at most {MOST_STEPS:,} sub-steps, not {steps:,}")
        weights = fsum(branch.weight for branch in self.branches)
        if abs(weights - 1) > SUM_TOLERANCE:
            raise SchemeError(f"{self.name}: the weights of the branches sum to {weights!r}; they must sum to 1")
        if not self.operators:
            raise SchemeError(f"{self.name}: the scheme has no sub-step; give at least one (operator, coefficient)")
        for operator in self.operators:
            total = fsum(b.weight * s.coefficient for b in self.branches for s in b.steps if s.operator == operator)
            if abs(total - 1) > SUM_TOLERANCE:
                raise SchemeError(
                    f"{self.name}: the coefficients of {operator} sum to {total!r}; they must sum to 1"
                    + (" over all branches, weighted" if not self.is_sequential else "")
                )

    @classmethod
    def sequence(cls, name: str, *steps: tuple[str, float]) -> "Scheme":
        """A scheme of one branch: ``Scheme.sequence("mine", ("G", 0.5), ("F", 1), ("G", 0.5))``."""
        return cls(name, [(1.0, steps)])

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators, in order of first application."""
        return tuple(dict.fromkeys(step.operator for branch in self.branches for step in branch.steps))

    def applications(self, operator: str) -> int:
        """How often a layer applies ``operator``, over all branches."""
        return sum(step.operator == operator for branch in self.branches for step in branch.steps)

    @property
    def is_sequential(self) -> bool:
        """Whether there is only one branch."""
        return len(self.branches) == 1

    @property
    def is_symmetric(self) -> bool:
        """Whether the scheme is its own adjoint: one branch that reads the same backwards."""
        steps = self.branches[0].steps
        return self.is_sequential and all(
            first == last and isclose(c, d, rel_tol=SYMMETRY_TOLERANCE, abs_tol=SYMMETRY_TOLERANCE)
            for (first, c), (last, d) in zip(steps, reversed(steps), strict=True)
        )

    @property
    def is_positive(self) -> bool:
        """Whether no operator runs backwards and no branch is subtracted."""
        return all(b.weight > 0 and all(s.coefficient > 0 for s in b.steps) for b in self.branches)

    @cached_property
    def _order_and_error(self) -> tuple[int, float]:
        return order_and_error(self.branches, self.operators)

    @property
    def order(self) -> int:
        """The order with exact sub-flows (local error: one more), computed from the data by word series."""
        return self._order_and_error[0]

    @property
    def leading_error(self) -> float:
        """The norm of the first word coefficients that differ from the flow's: how good the order is."""
        return self._order_and_error[1]

    @property
    def euler_error(self) -> dict[str, float]:
        """The error of a step h with Euler sub-steps is h²/2 Σ c·Y'X; this has c under the key ``"Y'X"``."""
        errors = {f"{y}'{x}": 1.0 for x in self.operators for y in self.operators}
        for weight, steps in self.branches:
            for (x, c), (y, d) in combinations(steps, 2):
                errors[f"{y}'{x}"] -= 2.0 * weight * c * d
        return errors

    def adjoint(self) -> "Scheme":
        """The scheme that undoes this one when run backwards in time: the sub-steps in reverse order."""
        if not self.is_sequential:
            raise SchemeError(f"{self.name}: a weighted sum of sequences has no adjoint among the schemes")
        if self.is_symmetric:
            return self
        return Scheme.sequence(_toggled(self.name, "-adjoint"), *reversed(self.branches[0].steps))

    def swap(self, a: str = "F", b: str = "G") -> "Scheme":
        """The same scheme with the roles of two operators exchanged."""
        if missing := {a, b} - set(self.operators):
            raise SchemeError(f"{self.name} has no operator {min(missing)!r}, only {', '.join(self.operators)}")
        role = {a: b, b: a}
        return Scheme(
            _toggled(self.name, "-swapped"),
            [(w, [(role.get(op, op), c) for op, c in steps]) for w, steps in self.branches],
        )

    def to_dict(self) -> dict[str, Any]:
        """The scheme as plain data, ready for JSON."""
        branches = [{"weight": weight, "steps": [list(step) for step in steps]} for weight, steps in self.branches]
        return {"name": self.name, "branches": branches}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Scheme":
        """Read what ``to_dict`` writes."""
        if not isinstance(data, Mapping) or set(data) != {"name", "branches"}:
            named = "a dictionary or JSON object with the keys 'name' and 'branches'"
            raise SchemeError(f"a scheme was expected as {named}, not {shown(data)}")
        name, branches, keys = data["name"], data["branches"], {"weight", "steps"}
        if not isinstance(branches, Sequence) or any(not isinstance(b, Mapping) or set(b) != keys for b in branches):
            raise SchemeError(
                f"{shown(name)}: branches must be a list with the keys 'weight' and 'steps', not {shown(branches)}"
            )
        return cls(name, [(branch["weight"], branch["steps"]) for branch in branches])

    def to_json(self) -> str:
        """The scheme as one line of JSON. Reading it back gives the same bits."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> "Scheme":
        """Read what ``to_json`` writes."""
        try:
            data = parse_json(text, "a scheme was expected as JSON", Any)
        except (MacaronError, TypeError) as error:
            raise SchemeError(f"{error}: {shown(text)}") from error
        return cls.from_dict(data)


def _branches(scheme: str, branches: Any) -> Iterator[Branch]:
    for weight, given in _pairs(scheme, branches, "the branches", "(weight, steps)"):
        steps = []
        for operator, coefficient in _pairs(scheme, given, "the steps of a branch", "(operator, coefficient)"):
            if not isinstance(operator, str) or not operator.isidentifier():
                raise SchemeError(f"{scheme}: {shown(operator)} is not an operator name; use an identifier such as F")
            steps.append(Step(operator, finite(scheme, coefficient, f"coefficient of {operator}")))
        number = finite(scheme, weight, "weight")
        if number == 0:
            raise SchemeError(f"{scheme}: a branch has weight 0; leave it out")
        yield Branch(number, _merged(steps))


def _pairs(scheme: str, values: Any, what: str, pair: str) -> Iterator[tuple[Any, Any]]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SchemeError(f"{scheme}: {what} must be a list of {pair}, not {shown(values)}")
    for value in values:
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise SchemeError(f"{scheme}: expected {pair}, got {shown(value)}")
        yield value[0], value[1]


def _merged(steps: list[Step]) -> tuple[Step, ...]:
    while True:
        runs = [(op, [s.coefficient for s in run]) for op, run in groupby(steps, key=lambda s: s.operator)]
        # fsum keeps the bits of a single coefficient. A run that cancels may make further sub-steps adjacent.
        merged = [Step(op, fsum(coefficients)) for op, coefficients in runs]
        merged = [step for step in merged if step.coefficient != 0]
        if len(merged) == len(steps):
            return tuple(merged)
        steps = merged


def finite(scheme: str, value: Any, what: str) -> float:
    """A finite number of a scheme's data."""
    with suppress(TypeError, ValueError, OverflowError):
        number = float("nan" if isinstance(value, bool | str) else value)
        if abs(number) <= LARGEST:
            return number
    raise SchemeError(f"{scheme}: the {what} must be a finite number of at most {LARGEST:g}, not {shown(value)}")


def _toggled(name: str, suffix: str) -> str:
    # Adjoint and swap are their own inverses: applied twice, the suffix goes again.
    return name.removesuffix(suffix) if name.endswith(suffix) and name != suffix else name + suffix
