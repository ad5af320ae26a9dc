"""Word series: what a splitting scheme does, as a series in the free associative algebra of its operators.

The flow of a field X over time c is exp(c X) when X is read as a derivation, so a scheme is a sum of products
of exponentials. Multiplied out, every word over the operators gets a coefficient; the flow of the sum of all
operators gives each word of length d the coefficient 1/d!. A scheme has order p when all words up to length p
agree. No system is solved and no slope is fitted: the order follows from the data, for any set of operators.

Letters stand in the order in which the operators are applied: the word FG belongs to the differential G'F.
"""

from collections.abc import Iterable, Sequence
from math import factorial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
# A weighted sum of sequences of (operator, coefficient): the data of a scheme.
Branches: TypeAlias = Iterable[tuple[float, Iterable[tuple[str, float]]]]

# Orders are looked for up to here. No scheme in use goes beyond 8, and a scheme of one operator is exact.
ORDER_LIMIT = 10
# Coefficients are doubles: words agree up to rounding, not exactly.
TOLERANCE = 1e-13


def word_series(
    branches: Branches, operators: Sequence[str], degree: int, stability: Sequence[float] | None = None
) -> list[Array]:
    """The coefficients of all words up to ``degree``, one array of shape (operators,) * d for each length d.

    ``stability`` holds the coefficients of the sub-steps' stability polynomial, (1, 1) for explicit Euler;
    without it sub-steps are exact flows. With it the series describes linear fields only, but for words of up
    to two letters any fields.
    """
    series: list[Array] = [np.zeros((len(operators),) * d) for d in range(degree + 1)]
    if stability is None:
        stability = [1 / factorial(k) for k in range(degree + 1)]
    for weight, steps in branches:
        branch: list[Array] = [np.zeros_like(level) for level in series]
        branch[0][()] = weight
        for operator, coefficient in steps:
            letter = operators.index(operator)
            # Multiply by the sub-step. Longer words go first: they need the shorter ones as they were.
            for d in range(degree, 0, -1):
                for k in range(1, min(d, len(stability) - 1) + 1):
                    ending: Any = (..., *(letter,) * k)
                    branch[d][ending] += stability[k] * coefficient**k * branch[d - k]
        series = [total + level for total, level in zip(series, branch, strict=True)]
    return series


def residual(branches: Branches, operators: Sequence[str], degree: int) -> Array:
    """What the flow of the sum has and the scheme lacks, for every word of length ``degree``."""
    return 1 / factorial(degree) - word_series(branches, operators, degree)[degree]


def order_and_error(branches: Branches, operators: Sequence[str]) -> tuple[int, float]:
    """The order of a scheme, and the Euclidean norm of its residual over the first words that disagree."""
    branches = [(weight, list(steps)) for weight, steps in branches]
    for degree in range(1, ORDER_LIMIT + 2):
        norm = float(np.linalg.norm(residual(branches, operators, degree)))
        # Rounding in a word is relative to the sum of the absolute values that went into it.
        size = sum(abs(w) * sum(abs(c) for _, c in steps) ** degree for w, steps in branches)
        size /= factorial(degree)
        if norm > TOLERANCE * max(1.0, size):
            return degree - 1, norm
    return ORDER_LIMIT, 0.0
