"""The named schemes. F is self-attention (diffusion), G the FFN (convection), H cross-attention.

Coefficients are closed forms where one is known and full-precision literals otherwise: a rounded coefficient costs
the order. The order itself is computed from the data.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import cycle
from math import sqrt
from typing import Any

from macaron.errors import unknown
from macaron.ode.build import compose, fractal, lift, strang, symmetric, triple_jump
from macaron.ode.scheme import Scheme, SchemeError

ALIASES = {"transformer": "lie-fg", "macaron": "strang-gfg"}

GF = ("G", "F")
FG = ("F", "G")


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
    strang_gfg, strang_fgf = strang("strang-gfg", GF), strang("strang-fgf", FG)
    schemes = [
        _alternating("lie-fg", FG, (1, 1)),
        _alternating("lie-gf", GF, (1, 1)),
        # Attention and FFN in parallel on the same input: x + F + G = (x + F) + (x + G) - x.
        Scheme("parallel", [(1, [("F", 1)]), (1, [("G", 1)]), (-1, [])]),
        strang_gfg,
        strang_fgf,
        Scheme("sws", [(0.5, [("F", 1), ("G", 1)]), (0.5, [("G", 1), ("F", 1)])]),
        _alternating("best22-fgfg", FG, BEST22),
        _alternating("best22-gfgf", GF, BEST22),
        symmetric("mclachlan2-gfgfg", GF, [MCLACHLAN2]),
        symmetric("mclachlan2-fgfgf", FG, [MCLACHLAN2]),
        compose("strang2-gfgfg", strang_gfg, [0.5, 0.5]),
        _alternating("ruth3-fg", FG, RUTH3),
        _alternating("ruth3-gf", GF, RUTH3),
        _alternating("suzuki3", FG, _suzuki3()),
        triple_jump("yoshida4-gfg", strang_gfg, 4),
        triple_jump("yoshida4-fgf", strang_fgf, 4),
        fractal("suzuki4-gfg", strang_gfg, 4),
        fractal("suzuki4-fgf", strang_fgf, 4),
        symmetric("mclachlan4", GF, [(14 - sqrt(19)) / 108, 2 / 5, (20 - 7 * sqrt(19)) / 108, -1 / 10]),
        symmetric("mclachlan4-m5", FG, [0.4051886183952523, -3 / 73, -0.2871440408165241, 17 / 59]),
        symmetric("pefrl4-g", GF, [0.1786178958448091, 0.5 + 0.2123418310626054, -0.06626458266981849]),
        symmetric("blanes-moan4-g", GF, BLANES_MOAN4),
        symmetric("blanes-moan4-f", FG, BLANES_MOAN4),
        compose("yoshida6-gfg", strang_gfg, [*YOSHIDA6, 1 - 2 * sum(YOSHIDA6), *reversed(YOSHIDA6)]),
        lift(strang_gfg),
        # Unlike the lift, this is symmetric in all three operators.
        strang("strang3-gfhfg", ("G", "F", "H")),
    ]
    return {entry.name: entry for entry in schemes}


# McLachlan and Atela: the least leading error of all four-step schemes of second order.
_C = 1 / sqrt(2)
BEST22 = (1 - _C, _C, _C, 1 - _C)
# The least leading error among five-step palindromes; the real root of a cubic.
_ROOT = (2 * sqrt(326) + 36) ** (1 / 3)
MCLACHLAN2 = 1 / 2 - _ROOT / 12 + 1 / (6 * _ROOT)
RUTH3 = (7 / 24, 2 / 3, 3 / 4, -2 / 3, -1 / 24, 1)
# Blanes and Moan's S6, from the outside in.
BLANES_MOAN4 = (0.0792036964311957, 0.209515106613362, 0.353172906049774, -0.143851773179818, -0.0420650803577195)
# Yoshida's solution A of order 6: the outer steps of the composition; they determine the middle one.
YOSHIDA6 = (0.784513610477560, 0.235573213359357, -1.17767998417887)


def _alternating(name: str, operators: tuple[str, str], coefficients: Sequence[float]) -> Scheme:
    return Scheme.sequence(name, *zip(cycle(operators), coefficients, strict=False))


def _suzuki3() -> Sequence[float]:
    # The second half is the first in reverse, with the operators exchanged; x solves a quartic.
    z = -((2 / 27 - 1 / (9 * sqrt(3))) ** (1 / 3))
    w = -2 / 3 + 1 / (9 * z) + z
    y = (1 + w**2) / 4
    x = sqrt(1 / (9 * y) - w / 2 + sqrt(y)) - 1 / (3 * sqrt(y))
    c = 1 / (4 * x) - x / 2
    first = 1 - x - c
    return first, x, c, c, x, first
