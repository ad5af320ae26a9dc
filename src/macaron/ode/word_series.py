"""Word series: a splitting scheme as a series in the free associative algebra of its operators.

The flow of a field X over time c is exp(c X), with X as a derivation, so a scheme is a sum of products of
exponentials. Multiplied out, every word over the operators has a coefficient; in the flow of the sum of all
operators each word of length d has the coefficient 1/d!. A scheme has order p if all words up to length p
agree. No system is solved and no slope is fitted: the order follows from the data, for any set of operators.

The letters of a word are in order of application: the word FG belongs to the differential G'F.
"""

from collections.abc import Iterable, Sequence
from math import factorial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
# A weighted sum of sequences of (operator, coefficient): the data of a scheme.
Branches: TypeAlias = Iterable[tuple[float, Iterable[tuple[str, float]]]]

# The highest order that is computed. No scheme in use goes beyond 8, and a scheme of one operator is exact.
ORDER_LIMIT = 10
# Coefficients are doubles: words agree up to rounding, not exactly.
TOLERANCE = 1e-13


class Step(NamedTuple):
    """One sub-step: follow ``operator`` for ``coefficient`` times the step of the whole scheme."""

    operator: str
    coefficient: float


class Branch(NamedTuple):
    """One sequence of sub-steps, in order of application, and its weight in the sum of all branches."""

    weight: float
    steps: tuple[Step, ...]


def word_series(branches: Branches, operators: Sequence[str], degree: int) -> list[Array]:
    """The coefficients of all words up to ``degree``, one array of shape (operators,) * d for each length d."""
    series: list[Array] = [np.zeros((len(operators),) * d) for d in range(degree + 1)]
    for weight, steps in branches:
        branch: list[Array] = [np.zeros_like(level) for level in series]
        branch[0][()] = weight
        for operator, coefficient in steps:
            letter = operators.index(operator)
            # Multiply by the sub-step. Longer words first: they need the old coefficients of the shorter ones.
            for d in range(degree, 0, -1):
                for k in range(1, d + 1):
                    ending: Any = (..., *(letter,) * k)
                    branch[d][ending] += coefficient**k / factorial(k) * branch[d - k]
        series = [total + level for total, level in zip(series, branch, strict=True)]
    return series


def order_and_error(branches: Branches, operators: Sequence[str]) -> tuple[int, float]:
    """The order of a scheme, and the Euclidean norm of its error at the first degree that disagrees.

    The error has, for each word, the coefficient of the flow of the sum minus that of the scheme.
    """
    branches = [(weight, list(steps)) for weight, steps in branches]
    for degree in range(1, ORDER_LIMIT + 2):
        norm = float(np.linalg.norm(1 / factorial(degree) - word_series(branches, operators, degree)[degree]))
        # Rounding in a word is relative to the sum of the absolute values that went into it.
        size = sum(abs(w) * sum(abs(c) for _, c in steps) ** degree for w, steps in branches)
        size /= factorial(degree)
        if norm > TOLERANCE * max(1.0, size):
            return degree - 1, norm
    return ORDER_LIMIT, 0.0
