"""The named schemes; compositions of steps, and the decoder's lift."""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from macaron.errors import unknown
from macaron.ode.scheme import Scheme, SchemeError
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
