"""Charts: where things are drawn, how numbers read, what a screen reader gets."""

import itertools
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.lab.charts import Dots, Scale, Series, dot_chart, line_chart, number, thin, tick_texts


def chart(*series, **settings):
    settings = {"title": "Loss", "x_label": "update", "y_label": "nats", **settings}
    return line_chart(series, **settings)


def paths(text):
    found = re.findall(r'<path class="line[^"]*" style="([^"]*)" d="M([^"]*)"', text)
    return [(style, [tuple(map(float, place.split())) for place in way.split("L")]) for style, way in found]


def readings(text):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', text)[1])


def test_points_lie_where_they_belong():
    [(style, places)] = paths(chart(Series("a", [(0, 0), (5, 10), (10, 5)]), from_zero=True))
    assert style == "--colour:var(--series-0)"
    assert [x for x, _ in places] == [0, 500, 1000]
    low, high, middle = (y for _, y in places)
    assert low == 1000
    assert high == pytest.approx(1000 * (1 - 10 / 10.5), abs=0.01)  # some air above the highest
    assert middle == pytest.approx((low + high) / 2, abs=0.01)


def test_logarithmic_axes_have_equal_steps_for_equal_factors():
    [(_, places)] = paths(chart(Series("a", [(1, 0.01), (10, 0.1), (100, 1)]), log_x=True, log_y=True))
    assert [x for x, _ in places] == [0, 500, 1000]
    assert places[1][1] == pytest.approx((places[0][1] + places[2][1]) / 2, abs=0.01)


def test_logarithmic_axes_say_so():
    points = Series("a", [(1, 0.01), (10, 0.1), (100, 1)])
    assert re.findall(r">([^<]*), log scale</text>", chart(points, log_x=True, log_y=True)) == ["nats", "update"]
    assert re.findall(r">([^<]*), log scale</text>", chart(points, log_y=True)) == ["nats"]
    assert "log scale" not in chart(points)


def test_what_has_no_place_is_left_out_and_the_rest_is_drawn():
    points = [(0, 1.0), (1, math.nan), (2, math.inf), (3, -1.0), (4, 0.0), (5, 2.0)]
    [(_, places)] = paths(chart(Series("a", points), log_y=True))
    assert [x for x, _ in places] == [0, 1000]
    assert len(readings(chart(Series("a", points)))["series"][0]["x"]) == 4


@pytest.mark.parametrize("series", [[], [Series("a", [])], [Series("a", [(1, math.nan)])]])
def test_nothing_to_draw_is_said(series):
    text = chart(*series)
    assert "No values yet." in text
    assert "<svg" not in text


def test_one_point_is_a_dot():
    text = chart(Series("a", [(3, 4)]))
    assert paths(text) == []
    assert '<span class="at" aria-hidden="true">update 3</span>' in text
    assert text.count("<circle") == 1


def test_colours_bands_and_dashes():
    band = [(0, 1, 3), (1, 2, 4)]
    text = chart(Series("a", [(0, 2), (1, 3)], colour=5, band=band), Series("b", [(0, 2), (1, 9)], dashed=True))
    assert [style for style, _ in paths(text)] == ["--colour:var(--series-5)", "--colour:var(--series-1)"]
    assert text.count('class="band"') == 1
    assert 'class="line dashed"' in text
    assert 'class="swatch dashed"' in text


def test_a_long_series_is_thinned_and_keeps_its_spike():
    points = [(float(i), 1.0) for i in range(20_000)]
    points[12_345] = (12_345.0, 99.0)
    text = chart(Series("a", points))
    [(_, places)] = paths(text)
    assert len(places) <= 500
    assert max(readings(text)["series"][0]["y"]) == 99
    assert len(text) < 40_000


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(6, 40))
def test_thinning_keeps_ends_extremes_and_order(values, most):
    points = [(float(i), value) for i, value in enumerate(values)]
    kept = thin(points, most)
    assert len(kept) <= max(most, 2)
    assert kept[0] == points[0]
    assert kept[-1] == points[-1]
    assert kept == sorted(set(kept))
    assert {max(values), min(values)} <= {y for _, y in kept}


def test_a_screen_reader_gets_a_name_a_description_and_the_data():
    text = chart(
        Series("train & co", [(i, 100 - i) for i in range(100)]), Series("valid", [(50, 7), (99, 5)]), log_y=True
    )
    assert '<svg height="300" role="img"><title>Loss</title>' in text
    assert "nats (logarithmic) against update." in text
    assert "train &amp; co: 100 at 0, 1 at 99, lowest 1 at 99, highest 100 at 0." in text
    assert "valid: 7 at 50, 5 at 99" in text
    rows = re.findall(
        r'<tr><th class="number" scope="row">(\d+)</th><td class="number">(\S+)</td><td class="number">(\S+)</td>', text
    )
    assert len(rows) == 30
    assert ("50", "50", "7") in rows
    assert ("99", "1", "5") in rows
    assert rows == sorted(rows, key=lambda row: int(row[0]))
    assert "Loss: 30 of 100 points" in text


def test_text_from_outside_cannot_break_out():
    evil = '</script><script>alert(1)</script>"><img src=x>'
    text = chart(Series(evil, [(0, 1), (1, 2)]), title=evil, x_label=evil, y_label=evil)
    assert "<img" not in text
    assert text.count("<script") == 1
    assert readings(text)["series"][0]["name"] == evil


def test_dots_with_intervals():
    rows = [
        Dots("Lie & co", 20.0, (18.0, 22.0)),
        Dots("Strang", 40.0, colour=1),
        Dots("mean", 30.0, points=(29.0, 31.0)),
    ]
    text = dot_chart(rows, title="BLEU", x_label="BLEU", note="One seed.")
    xs = [float(x) for x in re.findall(r'<circle class="one whole" cx="([\d.]+)%"', text)]
    low, high = (float(x) for x in re.search(r'class="span" x1="([\d.]+)%" x2="([\d.]+)%"', text).groups())
    assert low < xs[0] < high < xs[1]
    assert xs[0] == pytest.approx((low + high) / 2, abs=0.02)
    # The values are text of the page; the drawing is hidden from screen readers.
    assert "<span>Lie &amp; co</span>" in text
    assert "20.00 (18.00 to 22.00)" in text
    assert text.count("<svg") == text.count('aria-hidden="true"') == 4
    assert text.count('<circle class="one"') == 2
    assert text.count('class="mean"') == 1


def test_differences_have_signs_and_a_line_at_zero():
    text = dot_chart([Dots("a", -0.5, (-1.0, 0.25), sign=True)], title="D", x_label="d", zero=True)
    assert "−0.50 (−1.00 to +0.25)" in text
    assert text.count('class="zero"') == 1
    assert 'class="zero"' not in dot_chart([Dots("a", 1.0)], title="D", x_label="d")


@given(st.floats(-1e9, 1e9), st.floats(1e-9, 1e9), st.integers(3, 8))
def test_ticks_are_round_few_and_inside(low, size, most):
    scale = Scale(low, low + size)
    if scale.high - scale.low < 1e-9 * max(abs(scale.low), abs(scale.high)):
        return  # nothing between two neighbouring floats
    ticks = scale.ticks(most)
    assert 1 <= len(ticks) <= most + 1
    slack = 1e-6 * size
    assert all(scale.low - slack <= tick <= scale.high + slack for tick in ticks)
    steps = {round((b - a) / size, 6) for a, b in itertools.pairwise(ticks)}
    assert len(steps) <= 1


@given(st.floats(1e-12, 1e9), st.floats(1.1, 1e9))
def test_logarithmic_ticks_are_inside(low, factor):
    scale = Scale(low, low * factor, log=True)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 7
    assert all(0 - 1e-6 <= scale.share(tick) <= 1 + 1e-6 for tick in ticks)


def test_how_numbers_read():
    assert [number(v) for v in (0, 1.23456, 999.94, 12345.6, 0.00012345, -2e-7, math.nan)] == [
        "0",
        "1.235",
        "999.9",
        "12,346",
        "1.23×10⁻⁴",
        "-2×10⁻⁷",
        "–",
    ]
    assert tick_texts([0, 0.0005, 0.001]) == (["0", "0.5", "1"], "10⁻³")
    assert tick_texts([0, 20_000]) == (["0", "20k"], "")
    assert tick_texts([0, 2_500_000]) == (["0", "2.5M"], "")
    assert tick_texts([1e-5, 1e-4, 0.01, 10], log=True) == (["10⁻⁵", "10⁻⁴", "0.01", "10"], "")


def test_whole_places_have_whole_ticks_and_doublings_are_all_marked():
    marks = lambda text: re.findall(r'text-anchor="middle">([^<]*)<', text)  # noqa: E731
    assert marks(chart(Series("a", [(1, 1), (2, 2), (3, 1)]))) == ["1", "2", "3"]
    assert marks(chart(Series("a", [(n, n) for n in (1, 2, 4, 8, 16)]), log_x=True)) == ["1", "2", "4", "8", "16"]
