"""A scheme is checked when it is made, and survives JSON bit for bit."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.ode import Branch, Scheme, SchemeError, Step, compose, names, scheme

# Sixteenths keep every coefficient clearly zero or clearly not, so that no order hangs on a rounding error.
sixteenths = st.integers(-24, 24).map(lambda n: n / 16)
# How long an example takes depends on who else uses the machine.
patient = settings(deadline=None)


@st.composite
def sequences(draw: st.DrawFn, operators: str = "FGH", numbers: st.SearchStrategy[float] = sixteenths) -> Scheme:
    """Consistent schemes of one branch with random coefficients."""
    steps = draw(st.lists(st.tuples(st.sampled_from(operators), numbers), min_size=1, max_size=7))
    for operator in {operator for operator, _ in steps}:
        rest = math.fsum(c for op, c in steps if op == operator)
        steps.append((operator, 1 - rest))
    return Scheme.sequence("random", *steps)


def test_branches_become_tuples_of_steps():
    made = Scheme("mine", [[1, [["G", 0.5], ["F", 1], ["G", 0.5]]]])
    assert made.branches == (Branch(1.0, (Step("G", 0.5), Step("F", 1.0), Step("G", 0.5))),)
    assert made == Scheme.sequence("mine", ("G", 0.5), ("F", 1), ("G", 0.5))
    assert hash(made) == hash(Scheme("mine", made.branches))
    assert made.operators == ("G", "F")
    assert (made.applications("G"), made.applications("F"), made.applications("H")) == (2, 1, 0)


def test_neighbours_are_merged_and_empty_steps_dropped():
    made = Scheme.sequence("merged", ("F", 0.5), ("G", 0.0), ("F", 0.5), ("G", 0.75), ("G", 0.25))
    assert made.branches[0].steps == (Step("F", 1.0), Step("G", 1.0))
    cancelled = Scheme.sequence("cancelled", ("F", 0.5), ("G", 1), ("G", -1), ("F", 0.5), ("G", 1))
    assert cancelled.branches[0].steps == (Step("F", 1.0), Step("G", 1.0))


def test_a_frozen_value():
    with pytest.raises(AttributeError):
        scheme("lie-fg").name = "other"


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ([(1, [("F", 1), ("G", 0.9)])], "coefficients of G sum to 0.9"),
        ([(0.5, [("F", 1)]), (0.4, [("F", 1)])], "weights of the branches sum to 0.9"),
        ([(1, [("F", float("nan"))])], "finite number"),
        ([(1, [("F", "1")])], "finite number"),
        ([(1, [("F", True)])], "finite number"),
        ([(1, [("F", 10**400)])], "finite number"),
        ([(1, [("F", 10**5000)])], "finite number of at most .*, not int too large to show"),
        (
            [(1, [("F", 1e200), ("G", 1), ("F", -1e200), ("F", 1)])],
            "coefficient of F must be a finite number of at most .*, not 1e.200",
        ),
        (5, r"must be a list of \(weight, steps\), not 5"),
        (None, "not None"),
        ([(math.inf, [("F", 1)])], "finite number"),
        ([(1, [("F G", 1)])], "is not an operator name"),
        ([(1, [("", 1)])], "is not an operator name"),
        ([(1, [("F", 1, 2)])], r"expected \(operator, coefficient\)"),
        ([(1, "FG")], "must be a list"),
        ([1], r"expected \(weight, steps\)"),
        ([(1, [("F", 1)]), (0, [("G", 1)])], "weight 0"),
        ([(1, [])], "no sub-step"),
        ([], "sum to 0"),
    ],
)
def test_inconsistent_data_is_refused_by_name(branches, message):
    with pytest.raises(SchemeError, match=message) as error:
        Scheme("mine", branches)
    assert "mine" in str(error.value)
    assert isinstance(error.value, MacaronError)


@pytest.mark.parametrize("name", ["", "  ", None, [10**5000]])
def test_a_scheme_needs_a_name(name):
    with pytest.raises(SchemeError, match="needs a name"):
        Scheme.sequence(name, ("F", 1))


@pytest.mark.parametrize("name", names())
def test_json_round_trip_of_named_schemes(name):
    entry = scheme(name)
    assert Scheme.from_json(entry.to_json()) == entry
    assert scheme(entry.to_dict()) == entry
    assert scheme("  " + json.dumps(entry.to_dict())) == entry


@patient
@given(sequences(numbers=st.floats(-1.5, 1.5)))
def test_json_round_trip(entry):
    assert Scheme.from_json(entry.to_json()) == entry


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected as JSON"),
        ("[1]", "JSON object"),
        ('{"name": "a"}', "keys 'name' and 'branches'"),
        ('{"name": "a", "branches": [], "order": 4}', "keys 'name' and 'branches'"),
        ('{"name": "a", "branches": 3}', "must be a list"),
        ('{"name": "a", "branches": [[1, []]]}', "keys 'weight' and 'steps'"),
        ('{"name": "a", "branches": [{"weight": 1, "steps": [["F", NaN]]}]}', "a number is not finite"),
        ('{"name": "a", "branches": ' + "[" * 3000, "levels of nesting"),
        ('{"name": "a", "branches": ' + "[" * 3000 + "]" * 3000 + "}", "levels of nesting"),
        ('{"name": "a", "branches": ' + "[" * 500 + "]" * 500 + "}", "levels of nesting"),
        ('{"name": ' + "[" * 500 + "]" * 500 + ', "branches": []}', "levels of nesting"),
        ('{"name": "a", "branches": [{"weight": 1, "steps": [["F", 1' + "0" * 5000 + "]]}]}", "4300 digits"),
        (b"\xff\xfe\x01", "decode byte"),
        (5, "not int"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_foreign_json_is_refused(text, message):
    with pytest.raises(SchemeError, match=message):
        Scheme.from_json(text)


@pytest.mark.parametrize("data", [5, None, "lie-fg", [("name", "a")]])
def test_what_is_no_dictionary_is_refused(data):
    with pytest.raises(SchemeError, match="expected as a dictionary"):
        Scheme.from_dict(data)


@patient
@given(sequences())
def test_the_adjoint_of_the_adjoint_is_the_scheme(entry):
    assert entry.adjoint().adjoint() == entry
    assert entry.adjoint().order == entry.order


@patient
@given(sequences("FG"))
def test_a_scheme_followed_by_its_adjoint_is_symmetric_and_of_even_order(entry):
    first, second = entry.branches[0].steps, entry.adjoint().branches[0].steps
    both = Scheme.sequence("both", *((op, c / 2) for op, c in (*first, *second)))
    assert both.is_symmetric
    assert both.adjoint() is both
    assert both.order % 2 == 0


@patient
@given(sequences("FG").filter(lambda entry: len(entry.operators) == 2))
def test_swapping_operators_keeps_the_order(entry):
    swapped = entry.swap()
    assert swapped.order == entry.order
    assert swapped.leading_error == pytest.approx(entry.leading_error)
    assert swapped.swap() == entry
    assert swapped.applications("F") == entry.applications("G")


@patient
@given(sequences(), st.integers(2, 4))
def test_k_steps_of_size_one_kth_keep_the_order_and_divide_the_error(entry, k):
    many = compose("many", entry, [1 / k] * k)
    assert many.order == entry.order
    assert many.leading_error == pytest.approx(entry.leading_error / k**entry.order, rel=1e-6)


def test_adjoint_and_swap_are_refused_where_they_make_no_sense():
    with pytest.raises(SchemeError, match="no adjoint"):
        scheme("sws").adjoint()
    with pytest.raises(SchemeError, match="no operator 'H'"):
        scheme("macaron").swap("F", "H")


def test_swapped_and_adjoint_data():
    assert scheme("strang-gfg").swap().branches == scheme("strang-fgf").branches
    assert scheme("lie-fg").adjoint().branches == scheme("lie-gf").branches
    assert scheme("best22-fgfg").adjoint().branches == scheme("best22-gfgf").branches
