"""Schemes made of others, against which the coefficients of the catalogue are checked."""

from collections.abc import Sequence

from macaron.ode import Scheme, compose


def raised(name: str, base: Scheme, order: int, side: int = 1) -> Scheme:
    """Raise a symmetric scheme two orders at a time by steps g, 1 - 2g, g (Yoshida), or g, g, 1 - 4g, g, g (Suzuki)."""
    scheme = base
    for p in range(base.order, order, 2):
        outer = 1 / (2 * side - (2 * side) ** (1 / (p + 1)))
        scheme = compose(name, scheme, [*[outer] * side, 1 - 2 * side * outer, *[outer] * side])
    return Scheme(name, scheme.branches)


def symmetric(name: str, operators: tuple[str, str], free: Sequence[float] = ()) -> Scheme:
    """The palindrome of two alternating operators whose outer coefficients are ``free``, from the outside in."""
    n = len(free)
    pair, middle = 0.5 - sum(free[n % 2 :: 2]), 1.0 - 2.0 * sum(free[(n + 1) % 2 :: 2])
    half = [(operators[i % 2], c) for i, c in enumerate((*free, pair))]
    return Scheme.sequence(name, *half, (operators[(n + 1) % 2], middle), *reversed(half))


def strang(name: str, operators: Sequence[str]) -> Scheme:
    """Half a step of each operator but the last, a full step of the last, and the half steps in reverse."""
    halves = [(operator, 0.5) for operator in operators[:-1]]
    return Scheme.sequence(name, *halves, (operators[-1], 1.0), *reversed(halves))
