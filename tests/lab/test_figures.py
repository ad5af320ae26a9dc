"""Figures of orders."""

import re

import pytest

from macaron.errors import MacaronError, UsageError
from macaron.lab.figures import (
    COLOURS,
    LINES,
    ORDER_SELECTION,
    check_figure_path,
    error_curves,
    write_order_figure,
)
from macaron.ode.measure import METHODS, parse_selection


@pytest.fixture(scope="module")
def lines():
    return error_curves(["strang-gfg:euler", "ruth3-fg"])


def test_curves_carry_measured_slopes(lines):
    assert [(line.name, line.method) for line in lines] == [("strang-gfg", "euler"), ("ruth3-fg", "exact")]
    assert [line.slope for line in lines] == pytest.approx([2, 4], abs=0.15)
    assert all((line.errors > 0).all() for line in lines)


def test_svg_has_the_slopes_in_its_legend_and_is_the_same_each_time(lines, tmp_path):
    first, second = tmp_path / "deep" / "er" / "a.svg", tmp_path / "b.svg"
    write_order_figure(first, lines)
    write_order_figure(second, lines)
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text()
    assert "strang-gfg (Macaron), euler" in text
    assert "slope 2.00" in text
    assert text.count("(log scale)") == 2  # both axes


def test_png(lines, tmp_path):
    write_order_figure(tmp_path / "a.PNG", lines)
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


def test_the_default_selection_compares_like_with_like():
    chosen = [(entry.name, method) for entry, method in parse_selection(ORDER_SELECTION)]
    for method in ("euler", "exact"):
        assert {("lie-fg", method), ("strang-gfg", method)} <= set(chosen)
    assert len(set(chosen)) == len(ORDER_SELECTION)


def test_a_scheme_has_one_colour_and_each_way_to_follow_it_a_line_of_its_own(tmp_path):
    assert set(LINES) <= set(METHODS)
    assert len(set(LINES.values())) == len(LINES)
    write_order_figure(tmp_path / "a.svg", error_curves(["lie-fg:euler", "lie-fg", "macaron:euler"]))
    text = (tmp_path / "a.svg").read_text()
    drawn = re.findall(
        r'<path [^>]*style="fill: none;( stroke-dasharray[^"]*)? stroke: (#\w+); stroke-width: 1.8', text
    )
    styles = {(bool(dash), colour.upper()) for dash, colour in drawn}
    assert styles == {(True, COLOURS[0]), (False, COLOURS[0]), (True, COLOURS[1])}


def test_schemes_as_json_are_drawn_with_exact_flows():
    text = '{"name": "mine", "branches": [{"weight": 1, "steps": [["F", 1], ["G", 1]]}]}'
    [(entry, method)] = parse_selection([text])
    assert (entry.name, method) == ("mine", "exact")


def test_wrong_requests(tmp_path):
    with pytest.raises(MacaronError, match="did you mean 'euler'"):
        parse_selection(["strang-gfg:euller"])
    with pytest.raises(UsageError, match=r"\.svg or \.png"):
        check_figure_path(tmp_path / "a.pdf")
