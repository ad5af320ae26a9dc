"""Butcher tableaus: their orders against the order conditions of all rooted trees."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from macaron.errors import MacaronError
from macaron.ode import INTEGRATORS, ButcherTableau, integrator


def rooted_trees(a: np.ndarray, size: int) -> list[tuple[np.ndarray, float]]:
    """All rooted trees with ``size`` nodes, some repeatedly, each as its weight at every stage and its density.

    A tree is a smaller one, of k nodes, with one more tree hanging from its root.
    """
    if size == 1:
        return [(np.ones(len(a)), 1.0)]
    return [
        (trunk * (a @ branch), trunk_density * branch_density * size / k)
        for k in range(1, size)
        for (trunk, trunk_density), (branch, branch_density) in product(rooted_trees(a, k), rooted_trees(a, size - k))
    ]


def computed_order(tableau: ButcherTableau) -> int:
    """The order, at most 6, by the order conditions."""
    a = np.zeros((tableau.stages, tableau.stages))
    a[np.tril_indices(tableau.stages, -1)] = [entry for row in tableau.a for entry in row]
    for order in range(1, 7):
        if any(abs(np.dot(tableau.b, stages) - 1 / density) > 1e-12 for stages, density in rooted_trees(a, order)):
            return order - 1
    return 6


@pytest.mark.parametrize(
    ("name", "order", "stages"), [("euler", 1, 1), ("midpoint", 2, 2), ("heun", 2, 2), ("rk3", 3, 3), ("rk4", 4, 4)]
)
def test_order_and_stages(name, order, stages):
    found = integrator(name)
    assert found.order == order == computed_order(found)
    assert found.stages == stages
    assert found.c == pytest.approx(list(map(sum, found.a)))
    assert [len(row) for row in found.a] == list(range(stages))
    assert integrator(integrator(name)) is integrator(name)


def test_rooted_trees():
    # With random entries, different trees have different weights at the last stage.
    a = np.tril(np.random.default_rng(0).normal(size=(9, 9)), -1)
    trees = {
        n: {(round(weights[-1], 9), round(density, 9)) for weights, density in rooted_trees(a, n)} for n in range(1, 8)
    }
    assert [len(found) for found in trees.values()] == [1, 1, 2, 4, 9, 20, 48]
    assert sorted(density for _, density in trees[4]) == [4, 8, 12, 24]


def test_a_five_stage_order_is_seen():
    # Kutta-Nystroem's fifth-order method has six stages.
    rows = [[], ["1/3"], ["4/25", "6/25"], ["1/4", "-3", "15/4"], ["2/27", "10/9", "-50/81", "8/81"]]
    rows.append(["2/25", "12/25", "2/15", "8/75", "0"])
    a = tuple(tuple(float(Fraction(x)) for x in row) for row in rows)
    b = tuple(float(Fraction(x)) for x in ["23/192", "0", "125/192", "0", "-27/64", "125/192"])
    assert computed_order(ButcherTableau("nystroem5", c=tuple(map(sum, a)), a=a, b=b)) == 5


def test_a_perturbed_tableau_loses_its_order():
    rk4 = integrator("rk4")
    assert computed_order(ButcherTableau("off", c=rk4.c, a=rk4.a, b=(1 / 6 + 1e-6, 1 / 3 - 1e-6, 1 / 3, 1 / 6))) == 1


def test_an_unknown_integrator_is_answered_with_the_nearest():
    assert tuple(INTEGRATORS) == ("euler", "midpoint", "heun", "rk3", "rk4")
    with pytest.raises(MacaronError, match="did you mean 'heun'"):
        integrator("huen")
