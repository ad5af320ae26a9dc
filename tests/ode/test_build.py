"""Builders give the schemes that are known from elsewhere, and refuse what they cannot build."""

from functools import partial

import pytest

from macaron.ode import Scheme, SchemeError, compose, lift, raised, scheme, strang, symmetric

triple_jump, fractal = partial(raised, side=1), partial(raised, side=2)


def steps(entry: Scheme) -> list[tuple[str, float]]:
    return [tuple(step) for step in entry.branches[0].steps]


def test_compositions_of_two_halves_merge_in_the_middle():
    made = compose("two", scheme("macaron"), [0.5, 0.5])
    assert steps(made) == [("G", 0.25), ("F", 0.5), ("G", 0.5), ("F", 0.5), ("G", 0.25)]


@pytest.mark.parametrize("build", [triple_jump, fractal])
@pytest.mark.parametrize("order", [2, 4, 6, 8])
def test_raising_a_symmetric_scheme(build, order):
    made = build("raised", scheme("macaron"), order)
    assert (made.name, made.order, made.is_symmetric) == ("raised", order, True)


@pytest.mark.parametrize("build", [triple_jump, fractal])
def test_raising_works_for_three_operators(build):
    assert build("raised", scheme("strang3-gfhfg"), 4).order == 4


@pytest.mark.parametrize("build", [triple_jump, fractal])
def test_what_cannot_be_raised(build):
    with pytest.raises(SchemeError, match="not symmetric"):
        build("raised", scheme("lie-fg"), 3)
    with pytest.raises(SchemeError, match="orders 2, 4"):
        build("raised", scheme("macaron"), 5)
    with pytest.raises(SchemeError, match="orders 4, 6"):
        build("raised", scheme("yoshida4-gfg"), 2)


def test_a_weighted_sum_is_not_composed():
    with pytest.raises(SchemeError, match="cannot compose sws"):
        compose("two", scheme("sws"), [0.5, 0.5])
    with pytest.raises(SchemeError, match=r"sum to 0\.9"):
        compose("short", scheme("macaron"), [0.5, 0.4])


def test_symmetric_completes_a_palindrome():
    assert steps(symmetric("a", ("G", "F"))) == [("G", 0.5), ("F", 1.0), ("G", 0.5)]
    assert steps(symmetric("b", ("F", "G"), [0.25])) == [
        ("F", 0.25),
        ("G", 0.5),
        ("F", 0.5),
        ("G", 0.5),
        ("F", 0.25),
    ]


def test_strang_of_many_operators_is_of_second_order():
    made = strang("four", ("A", "B", "C", "D"))
    assert (made.order, made.is_symmetric, made.applications("D"), made.applications("A")) == (2, True, 1, 2)
    with pytest.raises(SchemeError, match="different names"):
        strang("twice", ("F", "F"))


@pytest.mark.parametrize(
    ("name", "lifted", "pattern"),
    [
        ("lie-fg", "lie-fhg", "FHG"),
        ("strang-gfg", "strang-gfhg", "GFHG"),
        ("strang-fgf", "strang-fhgfh", "FHGFH"),
        ("ruth3-fg", "ruth3-fg-lifted", "FHGFHGFHG"),
        ("mclachlan4", "mclachlan4-lifted", "GFHGFHGFHGFHGFHG"),
    ],
)
def test_the_decoder_lift(name, lifted, pattern):
    made = lift(scheme(name))
    assert made.name == lifted
    assert "".join(op for op, _ in steps(made)) == pattern
    assert [c for op, c in steps(made) if op == "H"] == [c for op, c in steps(scheme(name)) if op == "F"]
    assert made.order == 1


def test_the_lift_of_weighted_sums():
    made = lift(scheme("parallel"))
    assert made.name == "parallel-lifted"
    assert made.applications("H") == 1


def test_what_cannot_be_lifted():
    with pytest.raises(SchemeError, match="has cross-attention H: it is"):
        lift(scheme("strang3-gfhfg"))
    with pytest.raises(SchemeError, match="no self-attention F"):
        lift(Scheme.sequence("alone", ("G", 1)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((("F",),), r"alternates between two operators, not \('F',\)"),
        ((("F", "G", "H"),), "alternates between two operators"),
        ((("F", "F"),), "different names"),
        (((1, 2),), "different names"),
        ((5,), "different names, such as F and G, not 5"),
        ((("F", "G"), ["a"]), "free coefficient must be a finite number of at most 1e.06, not 'a'"),
        ((("F", "G"), 0.2), "free coefficients must be a list"),
    ],
)
def test_palindromes_of_wrong_data(arguments, message):
    with pytest.raises(SchemeError, match=message):
        symmetric("mine", *arguments)


@pytest.mark.parametrize("operators", [5, (), [["F"], "G"]])
def test_strang_of_wrong_data(operators):
    with pytest.raises(SchemeError, match="mine: the operators must be different names"):
        strang("mine", operators)
