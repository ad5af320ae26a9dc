"""The named schemes and their coefficients."""

import json
import math
from pathlib import Path

import pytest

from macaron.errors import MacaronError
from macaron.ode import (
    ALIASES,
    Scheme,
    compose,
    lift,
    names,
    raised,
    scheme,
    strang,
    symmetric,
    two_operator_names,
)

REFERENCE = Path(__file__).parents[3] / "shared" / "theory" / "coefficients.json"


def coefficients(name: str, operator: str) -> list[float]:
    return [c for branch in scheme(name).branches for op, c in branch.steps if op == operator]


def test_names_and_aliases():
    assert len(two_operator_names()) >= 24
    assert set(names()) >= {*two_operator_names(), "strang-gfhg", "strang3-gfhfg"}
    assert all(scheme(name).name == name for name in names())
    assert len(set(names())) == len(names())
    assert all((len(scheme(name).operators) == 2) == (name in two_operator_names()) for name in names())
    assert ALIASES == {"transformer": "lie-fg", "macaron": "strang-gfg"}
    assert scheme("transformer") is scheme("lie-fg")
    assert scheme("macaron") is scheme("strang-gfg")
    mine = Scheme.sequence("mine", ("F", 1))
    assert scheme(mine) is mine


@pytest.mark.parametrize(("wrong", "near"), [("strang", "strang-gfg"), ("Yoshida4", "yoshida4-gfg"), ("ruth", "ruth3")])
def test_an_unknown_name_is_answered_with_the_nearest(wrong, near):
    with pytest.raises(MacaronError, match=near):
        scheme(wrong)


def test_a_hopeless_name_is_answered_with_all():
    with pytest.raises(MacaronError, match=r"unknown scheme .*; known: .*lie-fg.*macaron"):
        scheme("?")
    with pytest.raises(MacaronError, match="not 3"):
        scheme(3)


def test_closed_forms():
    assert coefficients("best22-fgfg", "F") == pytest.approx([1 - math.sqrt(0.5), math.sqrt(0.5)], abs=1e-15)
    gamma = 1 / (2 - 2 ** (1 / 3))
    assert coefficients("yoshida4-gfg", "F") == pytest.approx([gamma, 1 - 2 * gamma, gamma], abs=1e-15)
    gamma = 1 / (4 - 4 ** (1 / 3))
    assert coefficients("suzuki4-gfg", "F") == pytest.approx([gamma] * 2 + [1 - 4 * gamma] + [gamma] * 2, abs=1e-15)
    assert coefficients("ruth3-gf", "F") == pytest.approx([2 / 3, -2 / 3, 1], abs=1e-15)
    assert coefficients("mclachlan4", "F") == pytest.approx([0.4, -0.1, 0.4, -0.1, 0.4], abs=1e-15)


def test_builders_give_the_same_bits():
    gfg, fgf = scheme("strang-gfg"), scheme("strang-fgf")
    outer = (0.784513610477560, 0.235573213359357, -1.17767998417887)
    for made in (
        strang("strang-gfg", ("G", "F")),
        strang("strang3-gfhfg", ("G", "F", "H")),
        symmetric("mclachlan4", ("G", "F"), [(14 - math.sqrt(19)) / 108, 0.4, (20 - 7 * math.sqrt(19)) / 108, -0.1]),
        symmetric("mclachlan4-m5", ("F", "G"), [0.4051886183952523, -3 / 73, -0.2871440408165241, 17 / 59]),
        compose("strang2-gfgfg", gfg, [0.5, 0.5]),
        compose("yoshida6-gfg", gfg, [*outer, 1 - 2 * sum(outer), *reversed(outer)]),
        *(raised(f"yoshida4-{name}", base, 4) for name, base in (("gfg", gfg), ("fgf", fgf))),
        *(raised(f"suzuki4-{name}", base, 4, side=2) for name, base in (("gfg", gfg), ("fgf", fgf))),
        lift(gfg),
    ):
        assert made == scheme(made.name)


def test_published_digits():
    assert coefficients("mclachlan2-gfgfg", "G")[0] == pytest.approx(0.1931833275037836, abs=1e-15)
    assert coefficients("suzuki3", "F") == pytest.approx(
        [0.2683300957817599, -0.18799161879915982, 0.9196615230173999], abs=1e-15
    )
    assert coefficients("mclachlan4", "G")[0] == pytest.approx((14 - math.sqrt(19)) / 108, abs=1e-15)
    assert coefficients("blanes-moan4-g", "G")[:3] == [0.0792036964311957, 0.353172906049774, -0.0420650803577195]
    assert coefficients("pefrl4-g", "F")[1] == pytest.approx(-0.2123418310626054, abs=1e-15)


def test_the_optimal_second_order_schemes_are_optimal():
    # Each of these two families has one free coefficient; the named one must beat its neighbours.
    from macaron.ode import symmetric

    best = scheme("mclachlan2-gfgfg")
    first = best.branches[0].steps[0].coefficient
    for shift in (-1e-3, 1e-3):
        assert symmetric("near", ("G", "F"), [first + shift]).leading_error > best.leading_error


@pytest.mark.parametrize("name", two_operator_names())
def test_beyond_second_order_every_scheme_steps_backwards_in_both_operators(name):
    # Goldman and Kaper for sequences; a sum of them may subtract a branch instead.
    entry = scheme(name)
    if entry.order > 2:
        assert not entry.is_positive
    if entry.order > 2 and entry.is_sequential:
        assert min(coefficients(name, "F")) < 0
        assert min(coefficients(name, "G")) < 0


def test_schemes_without_a_step_backwards():
    positive = [name for name in two_operator_names() if scheme(name).is_positive]
    assert {"lie-fg", "lie-gf", "strang-gfg", "strang-fgf", "sws", "best22-fgfg", "mclachlan2-gfgfg"} <= set(positive)
    assert "parallel" not in positive


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference coefficients are not beside this checkout")
def test_all_coefficients_equal_the_reference():
    reference = json.loads(REFERENCE.read_text())
    assert set(reference) <= set(names())
    for name, data in reference.items():
        for branch, expected in zip(scheme(name).branches, data["branches"], strict=True):
            assert branch.weight == expected["weight"]
            assert [op for op, _ in branch.steps] == [op for op, _ in expected["steps"]]
            assert [c for _, c in branch.steps] == pytest.approx([c for _, c in expected["steps"]], abs=1e-15, rel=0)
