"""The page of orders."""

import re

import pytest

from macaron.errors import MacaronError
from macaron.lab.ode_pages import ORDER_SELECTION, write_order_page
from macaron.ode.measure import parse_selection


def test_the_page_has_the_slopes_in_a_table_and_is_the_same_each_time(tmp_path):
    first, second = tmp_path / "deep" / "er" / "a.html", tmp_path / "b.html"
    write_order_page(first, ["strang-gfg:euler", "ruth3-fg"])
    write_order_page(second, ["strang-gfg:euler", "ruth3-fg"])
    assert first.read_bytes() == second.read_bytes()
    text = first.read_text()
    slopes = dict(re.findall(r'<th scope="row">([^<]*)</th><td class="number">(\d\.\d\d)</td></tr>', text))
    assert list(slopes) == ["strang-gfg (Macaron), euler", "ruth3-fg, exact"]
    assert list(map(float, slopes.values())) == pytest.approx([2, 4], abs=0.15)
    assert text.count(", log scale</text>") == 2  # both axes


def test_the_default_selection_compares_like_with_like():
    chosen = [(entry.name, method) for entry, method in parse_selection(ORDER_SELECTION)]
    for method in ("euler", "exact"):
        assert {("lie-fg", method), ("strang-gfg", method)} <= set(chosen)
    assert len(set(chosen)) == len(ORDER_SELECTION)


def test_a_scheme_has_one_colour_and_its_exact_line_alone_is_whole(tmp_path):
    write_order_page(tmp_path / "a.html", ["lie-fg:euler", "lie-fg", "macaron:euler"])
    text = (tmp_path / "a.html").read_text()
    drawn = re.findall(r'<path class="line( dashed)?" style="--colour:var\(--series-(\d)\)"', text)
    assert drawn == [(" dashed", "0"), ("", "0"), (" dashed", "1")]


def test_schemes_as_json_are_drawn_with_exact_flows():
    text = '{"name": "mine", "branches": [{"weight": 1, "steps": [["F", 1], ["G", 1]]}]}'
    [(entry, method)] = parse_selection([text])
    assert (entry.name, method) == ("mine", "exact")


def test_wrong_requests():
    with pytest.raises(MacaronError, match="did you mean 'euler'"):
        parse_selection(["strang-gfg:euller"])
