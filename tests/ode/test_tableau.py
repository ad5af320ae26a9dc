"""Butcher tableaus: checked when made, their order computed."""

from fractions import Fraction

import numpy as np
import pytest

from macaron.errors import MacaronError
from macaron.ode import ButcherTableau, integrator, integrator_names
from macaron.ode.tableau import _trees


@pytest.mark.parametrize(
    ("name", "order", "stages"), [("euler", 1, 1), ("midpoint", 2, 2), ("heun", 2, 2), ("rk3", 3, 3), ("rk4", 4, 4)]
)
def test_order_and_stages(name, order, stages):
    assert integrator(name).order == order
    assert integrator(name).stages == stages
    assert integrator(integrator(name)) is integrator(name)


def test_rooted_trees():
    # With random entries, different trees have different weights at the last stage.
    a = np.tril(np.random.default_rng(0).normal(size=(9, 9)), -1)
    trees = {n: {(round(weights[-1], 9), round(density, 9)) for weights, density in _trees(a, n)} for n in range(1, 8)}
    assert [len(found) for found in trees.values()] == [1, 1, 2, 4, 9, 20, 48]
    assert sorted(density for _, density in trees[4]) == [4, 8, 12, 24]


def test_a_five_stage_order_is_seen():
    # Kutta-Nystroem's fifth-order method has six stages.
    rows = [[], ["1/3"], ["4/25", "6/25"], ["1/4", "-3", "15/4"], ["2/27", "10/9", "-50/81", "8/81"]]
    rows.append(["2/25", "12/25", "2/15", "8/75", "0"])
    a = tuple(tuple(float(Fraction(x)) for x in row) for row in rows)
    b = tuple(float(Fraction(x)) for x in ["23/192", "0", "125/192", "0", "-27/64", "125/192"])
    assert ButcherTableau("nystroem5", c=tuple(map(sum, a)), a=a, b=b).order == 5


def test_a_perturbed_tableau_loses_its_order():
    rk4 = integrator("rk4")
    assert ButcherTableau("off", c=rk4.c, a=rk4.a, b=(1 / 6 + 1e-6, 1 / 3 - 1e-6, 1 / 3, 1 / 6)).order == 1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"c": (0, 1), "a": ((), (0.5,)), "b": (0, 1)}, "row 1 of a sums to 0.5"),
        ({"c": (0, 1), "a": ((), (1,)), "b": (0.5, 0.6)}, "b sum to 1.1"),
        ({"c": (0,), "a": ((), (1,)), "b": (0.5, 0.5)}, "nodes c"),
        ({"c": (0, 1), "a": ((), (1, 0)), "b": (0.5, 0.5)}, "rows a"),
        ({"c": (), "a": (), "b": ()}, "at least one stage"),
        ({"c": (0,), "a": ((),), "b": (float("nan"),)}, "not a finite number"),
    ],
)
def test_wrong_tableaus_are_refused(parts, message):
    with pytest.raises(MacaronError, match=message):
        ButcherTableau("mine", **parts)


def test_an_unknown_integrator_is_answered_with_the_nearest():
    assert integrator_names() == ("euler", "midpoint", "heun", "rk3", "rk4")
    with pytest.raises(MacaronError, match="did you mean 'heun'"):
        integrator("huen")
