"""The named schemes, and builders of others: compositions, higher orders, palindromes, the decoder's lift."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from macaron.errors import shown, unknown
from macaron.ode.scheme import Scheme, SchemeError, finite
from macaron.ode.word_series import Step
from macaron.settings import load_toml

ALIASES = {"transformer": "lie-fg", "macaron": "strang-gfg"}


def scheme(name_or_data: str | Mapping[str, Any] | Scheme) -> Scheme:
    """A scheme by name or alias, from the dictionary or JSON that schemes write, or a scheme itself."""
    if isinstance(name_or_data, Scheme):
        return name_or_data
    if isinstance(name_or_data, Mapping):
        return Scheme.from_dict(name_or_data)
    if not isinstance(name_or_data, str):
        raise SchemeError(f"a scheme is a name, a dictionary or a Scheme, not {name_or_data!r}")
    if name_or_data.lstrip().startswith("{"):
        return Scheme.from_json(name_or_data)
    known = _catalogue()
    name = ALIASES.get(name_or_data, name_or_data)
    if name not in known:
        raise unknown("scheme", name_or_data, [*known, *ALIASES])
    return known[name]


def names() -> tuple[str, ...]:
    """All named schemes: two operators by order, then the decoders' schemes of three operators."""
    return tuple(_catalogue())


def two_operator_names() -> tuple[str, ...]:
    """The named schemes of F and G alone."""
    return tuple(name for name, entry in _catalogue().items() if len(entry.operators) == 2)


@cache
def _catalogue() -> dict[str, Scheme]:
    table, _ = load_toml(Path(__file__).with_name("catalogue.toml"))
    return {name: Scheme.from_dict({"name": name, "branches": branches}) for name, branches in table.items()}


def compose(name: str, base: Scheme, gammas: Iterable[float]) -> Scheme:
    """A sequence of steps of ``base``, scaled by ``gammas``, which sum to 1."""
    if not base.is_sequential:
        raise SchemeError(f"cannot compose {base.name}: it is a weighted sum of several sequences")
    steps = base.branches[0].steps
    return Scheme.sequence(name, *((op, gamma * c) for gamma in gammas for op, c in steps))


def raised(name: str, base: Scheme, order: int, side: int = 1) -> Scheme:
    """Raise a symmetric scheme to ``order``, two orders at a time, by steps g, 1 - 2g, g (Yoshida's triple jump).

    :param side: the number of steps g on each side; 2 is Suzuki's fractal, g, g, 1 - 4g, g, g
    """
    if not base.is_symmetric:
        raise SchemeError(f"{base.name} is not symmetric: only a symmetric scheme gains two orders at a time")
    if order < base.order or (order - base.order) % 2:
        raise SchemeError(f"{name}: {base.name} can be raised to the orders {base.order}, {base.order + 2}, ... only")
    scheme = base
    for p in range(base.order, order, 2):
        outer = 1 / (2 * side - (2 * side) ** (1 / (p + 1)))
        scheme = compose(name, scheme, [*[outer] * side, 1 - 2 * side * outer, *[outer] * side])
    return Scheme(name, scheme.branches)


def symmetric(name: str, operators: tuple[str, str], free: Sequence[float] = ()) -> Scheme:
    """The palindrome of two alternating operators whose outer coefficients are ``free``, from the outside in.

    Consistency determines the rest: one more pair, and the coefficient in the middle. Without free coefficients this
    is the Strang-Marchuk scheme: ``symmetric("mine", ("G", "F"))`` has the sub-steps G 1/2, F 1, G 1/2.
    """
    if len(_operators(name, operators)) != 2:
        raise SchemeError(f"{name}: a palindrome alternates between two operators, not {shown(operators)}")
    if not isinstance(free, Sequence):
        raise SchemeError(f"{name}: the free coefficients must be a list, not {shown(free)}")
    free = [finite(name, c, "free coefficient") for c in free]
    n = len(free)
    pair = 0.5 - sum(free[n % 2 :: 2])
    middle = 1.0 - 2.0 * sum(free[(n + 1) % 2 :: 2])
    half = [Step(operators[i % 2], c) for i, c in enumerate((*free, pair))]
    return Scheme.sequence(name, *half, Step(operators[(n + 1) % 2], middle), *reversed(half))


def strang(name: str, operators: Sequence[str]) -> Scheme:
    """Half a step of each operator but the last, a full step of the last, and the half steps in reverse."""
    operators = _operators(name, operators)
    halves = [Step(operator, 0.5) for operator in operators[:-1]]
    return Scheme.sequence(name, *halves, Step(operators[-1], 1.0), *reversed(halves))


def lift(scheme: Scheme) -> Scheme:
    """The decoder's scheme of the paper: each self-attention F is followed by a cross-attention H.

    This does not preserve the order: F and H are not symmetrised, so ``strang-gfhg`` is of first order only.
    """
    if "F" not in scheme.operators:
        raise SchemeError(f"{scheme.name} has no self-attention F that a cross-attention could follow")
    if "H" in scheme.operators:
        raise SchemeError(f"{scheme.name} has cross-attention H: it is a decoder's scheme already")
    lifted = [
        (w, [s for op, c in steps for s in ([(op, c), ("H", c)] if op == "F" else [(op, c)])])
        for w, steps in scheme.branches
    ]
    # A name that spells the sub-steps keeps doing so: lie-fg, lie-fhg.
    family, _, suffix = scheme.name.rpartition("-")
    spelling = "".join(step.operator for step in scheme.branches[0].steps).lower()
    if scheme.is_sequential and family and suffix == spelling:
        return Scheme(f"{family}-{suffix.replace('f', 'fh')}", lifted)
    return Scheme(f"{scheme.name}-lifted", lifted)


def _operators(name: str, operators: Any) -> tuple[str, ...]:
    given = tuple(operators) if isinstance(operators, Sequence) else ()
    if not given or not all(isinstance(op, str) for op in given) or len(set(given)) != len(given):
        raise SchemeError(f"{name}: the operators must be different names, such as F and G, not {shown(operators)}")
    return given
