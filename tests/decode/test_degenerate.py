"""Repetition is cut where the source has none; limits; the report."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.decode.degenerate import NotedLines, bounded, loops, without_repetition
from macaron.decode.search import limit
from macaron.decode.settings import Hypothesis, SearchSettings

END = 2
SOURCE = [10, 11, 12, 13, 14, END]
SETTINGS = bounded(SearchSettings())


def cut(tokens: list[int], source: list[int] = SOURCE) -> tuple[list[int], tuple[str, ...]]:
    scores = tuple(-0.5 - index for index in range(len(tokens) + 1))
    found = Hypothesis("", sum(scores) / len(scores), (*tokens, END), scores)
    made = without_repetition(found, source, SETTINGS)
    assert made.tokens[-1] == END
    assert len(made.tokens) == len(made.token_scores)
    assert made.score == pytest.approx(sum(made.token_scores) / len(made.tokens))
    return list(made.tokens[:-1]), made.notes


def test_loops_are_cut():
    assert cut([5] * 30) == ([5], ("repetition",))
    assert cut([4, *[5, 6, 7] * 9, 5]) == ([4, 5, 6, 7], ("repetition",))  # cut off in mid-loop
    assert cut([4, *[5, 6] * 8, 8, 9]) == ([4, 5, 6, 8, 9], ("repetition",))
    assert cut([*[5, 6] * 8, 9, *[7] * 12, 8]) == ([5, 6, 9, 7, 8], ("repetition",))


def test_ordinary_repetition_stays():
    for tokens in ([5, 5, 5, 5], [5, 6] * 4, list(range(40)), [5] * 11, [4, 5, 6, 7, 8, 9] * 4, []):
        assert cut(tokens) == (tokens, ())
    # What the source repeats, the translation may.
    assert cut([7, 8] * 9, [10, 11] * 9 + [END]) == ([7, 8] * 9, ())
    assert cut([7, 8] * 30, [10, 11] * 9 + [END]) == ([7, 8] * 9, ("repetition",))


def test_limits_depend_on_the_source():
    assert [limit(SETTINGS, length) for length in (2, 10, 50, 100)] == [31, 55, 175, 200]
    assert [limit(bounded(SearchSettings(max_length=8)), length) for length in (2, 100)] == [8, 8]
    assert limit(SearchSettings(max_ratio=2.0), 10) == 220
    longest = limit(SETTINGS, len(SOURCE))
    assert cut(list(range(3, 3 + longest))) == (list(range(3, 3 + longest)), ("length",))
    assert cut(list(range(3, 2 + longest)))[1] == ()


@given(st.lists(st.integers(3, 5), max_size=60))
def test_loops_are_what_they_say(tokens: list[int]):
    for start, period, repeats in loops(tokens):
        part = tokens[start : start + period]
        assert tokens[start : start + period * repeats] == part * repeats
        assert repeats >= 2


@given(st.lists(st.integers(3, 5), max_size=60), st.lists(st.integers(3, 5), max_size=20))
def test_cutting_ends_and_leaves_no_long_loop(tokens: list[int], source: list[int]):
    made, notes = cut(tokens, [*source, END])
    assert (made == tokens) == ("repetition" not in notes)
    most = max((repeats for _, _, repeats in loops(source)), default=1)
    assert all(n < max(5, 2 * most + 1) or period * n < 12 for _, period, n in loops(made))


def test_report():
    noted = NotedLines()
    for number in range(1, 15):
        noted.add(number, ("repetition", "length") if number == 7 else ("repetition",))
    assert list(noted.messages()) == [
        "14 lines (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ...): the translation repeated itself and was cut",
        "1 line (7): the translation reached its longest length and was cut",
    ]
    assert list(NotedLines().messages()) == []
