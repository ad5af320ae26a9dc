"""Orders computed from the data: against matrix products, and against a coefficient that is a little wrong."""

from itertools import product

import numpy as np
import pytest
from scipy.linalg import expm

from macaron.ode import Scheme, names, scheme
from macaron.ode.word_series import ORDER_LIMIT, word_series

ORDERS = {
    1: "lie-fg lie-gf parallel strang-gfhg",
    2: "strang-gfg strang-fgf sws best22-fgfg best22-gfgf mclachlan2-gfgfg mclachlan2-fgfgf strang2-gfgfg "
    "strang3-gfhfg",
    3: "ruth3-fg ruth3-gf suzuki3",
    4: "yoshida4-gfg yoshida4-fgf suzuki4-gfg suzuki4-fgf mclachlan4 mclachlan4-m5 pefrl4-g blanes-moan4-g "
    "blanes-moan4-f",
    6: "yoshida6-gfg",
}
ORDER_OF = {name: order for order, members in ORDERS.items() for name in members.split()}


def perturbed(entry: Scheme, size: float) -> Scheme:
    """Move a little of one operator from its first sub-step to its last, so that the sums stay 1."""
    steps = [list(step) for step in entry.branches[0].steps]
    moved = next(op for op in entry.operators if entry.applications(op) > 1)
    first, *_, last = [step for step in steps if step[0] == moved]
    first[1] += size
    last[1] -= size
    return Scheme.sequence(entry.name, *((op, c) for op, c in steps))


# Recorded; a scheme that is new in the catalogue meets the tests of all names, here and in test_measure.py.
@pytest.mark.parametrize("name", ORDER_OF)
def test_the_recorded_orders(name):
    assert scheme(name).order == ORDER_OF[name]


@pytest.mark.parametrize("name", [n for n in ORDER_OF if ORDER_OF[n] > 1 and scheme(n).is_sequential])
@pytest.mark.parametrize("size", [1e-3, 1e-9])
def test_a_perturbed_coefficient_costs_the_order(name, size):
    assert perturbed(scheme(name), size).order < scheme(name).order


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("lie-fg", 0.5**0.5),
        ("parallel", 0.5**0.5),
        # The six words of the symmetric Baker-Campbell-Hausdorff term, with 1/24 and 1/12.
        ("strang-gfg", np.sqrt(6 * (1 / 24) ** 2 + 6 * (1 / 12) ** 2)),
        ("sws", 12**-0.5),
        ("best22-fgfg", 0.0350),
        ("mclachlan2-gfgfg", 0.0209),
        ("ruth3-fg", 0.0495),
        ("suzuki3", 0.0423),
        ("yoshida4-gfg", 0.184),
        ("suzuki4-fgf", 9.17e-3),
        ("mclachlan4", 1.40e-3),
        ("mclachlan4-m5", 3.36e-3),
        ("pefrl4-g", 7.28e-3),
        ("blanes-moan4-f", 4.61e-4),
        ("yoshida6-gfg", 1.22e-2),
        ("strang-gfhg", 0.5**0.5),
        ("strang3-gfhfg", 0.4895),
    ],
)
def test_leading_errors(name, error):
    assert scheme(name).leading_error == pytest.approx(error, rel=3e-3)


@pytest.mark.parametrize("name", names())
def test_the_series_is_the_product_of_exponentials(name):
    # Products of four strictly triangular 4 x 4 matrices vanish, so the series ends and must equal the product.
    entry = scheme(name)
    rng = np.random.default_rng(7)
    matrix = {operator: np.triu(rng.normal(size=(4, 4)), 1) for operator in entry.operators}
    # Operators applied first stand on the left of a word and on the right of a matrix product.
    total = np.zeros((4, 4))
    for weight, steps in entry.branches:
        one = np.eye(4)
        for operator, coefficient in steps:
            one = expm(coefficient * matrix[operator]) @ one
        total += weight * one
    series = word_series(entry.branches, entry.operators, 3)
    summed = np.zeros((4, 4))
    for degree, level in enumerate(series):
        for word in product(range(len(entry.operators)), repeat=degree):
            term = np.eye(4)
            for letter in word:
                term = matrix[entry.operators[letter]] @ term
            summed += level[word] * term
    np.testing.assert_allclose(summed, total, atol=1e-12)


def test_euler_errors_have_the_closed_form():
    assert scheme("lie-fg").euler_error == {"F'F": 1, "G'F": -1, "F'G": 1, "G'G": 1}
    assert scheme("parallel").euler_error == {"F'F": 1, "F'G": 1, "G'F": 1, "G'G": 1}
    assert scheme("macaron").euler_error == {"G'G": 0.5, "F'G": 0, "G'F": 0, "F'F": 1}
    assert scheme("sws").euler_error == {"F'F": 1, "F'G": 0, "G'F": 0, "G'G": 1}


@pytest.mark.parametrize("name", [n for n in names() if scheme(n).is_sequential])
def test_no_sequence_of_real_euler_steps_is_of_second_order(name):
    # The coefficient of X'X is the sum of squares of X's coefficients, which real numbers cannot make 0.
    entry = scheme(name)
    for operator in entry.operators:
        squares = sum(c * c for op, c in entry.branches[0].steps if op == operator)
        assert entry.euler_error[f"{operator}'{operator}"] == pytest.approx(squares)
        assert squares >= 1 / entry.applications(operator) - 1e-12


def test_one_operator_alone_is_exact():
    alone = Scheme.sequence("alone", ("F", 1))
    assert (alone.order, alone.leading_error) == (ORDER_LIMIT, 0.0)
