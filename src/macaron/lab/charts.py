"""Charts as inline SVG: drawn here, so that they stand in a page without any script; base.js adds a read-out.

The drawing stretches with the page while its texts keep their size: positions are shares of the plot's area (per cent,
or thousandths inside the nested SVG that holds the lines), and the axes' texts stand in the plot's padding.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from macaron.lab.bars import COLOURS, Bar, bar_chart, details, nothing
from macaron.lab.page import escape, html_table
from macaron.lab.scales import Scale, number, thin, tick_texts

__all__ = ["Bar", "Series", "bar_chart", "line_chart"]

Points: TypeAlias = Sequence[tuple[float, float]]
#: At most so many points of a series are drawn: more than a screen can show.
DRAWN = 500
#: A series of at most so many points shows each as a dot.
DOTTED = 30
#: A logarithmic axis of at most so many places marks all of them.
DOUBLINGS = 8
#: Rows of the table below a chart.
ROWS = 30


@dataclass(frozen=True)
class Series:
    """One line: points by ascending x, a colour by number, a band of (x, low, high) around it."""

    name: str
    points: Points
    colour: int | None = None
    band: Sequence[tuple[float, float, float]] | None = None
    dashed: bool = False


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_y: bool = False,
    log_x: bool = False,
    height: int = 300,
    from_zero: bool = False,
) -> str:
    """Lines against a common axis, with a legend that reads the values and the data as a table."""
    lines = [_drawable(each, log_x, log_y) for each in series]
    if not any(points for points in lines):
        return nothing(title)
    bands = [_band(each, log_x, log_y) for each in series]
    across = Scale.around([x for points in lines for x, _ in points], log=log_x, tight=True)
    heights = [y for points in lines for _, y in points] + [y for band in bands for _, *ends in band for y in ends]
    up = Scale.around(heights, log=log_y, from_zero=from_zero)
    colours = [(i if each.colour is None else each.colour) % COLOURS for i, each in enumerate(series)]

    places = sorted({x for points in lines for x, _ in points})
    drawing = [_axes(across, up, height, x_label, y_label, places)]
    strokes, dots = [], []
    for each, points, band, colour in zip(series, lines, bands, colours, strict=True):
        style = f'style="--colour:var(--series-{colour})"'
        kind = " dashed" if each.dashed else " thin" if len(points) > 200 else ""
        if band:
            edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
            strokes.append(f'<path class="band" {style} d="{_path(edge, across, up)}Z"/>')
        drawn = thin(points, DRAWN)
        if len(drawn) > 1:
            strokes.append(f'<path class="line{kind}" {style} d="{_path(drawn, across, up)}"/>')
        if len(drawn) == 1 or (len(drawn) <= DOTTED and not each.dashed):
            spots = (f'<circle cx="{across.percent(x)}%" cy="{up.percent(y, down=True)}%" r="2.5"/>' for x, y in drawn)
            dots.append(f'<g class="dot" {style}>{"".join(spots)}</g>')
    last = max(points[-1][0] for points in lines if points)
    inner = 'viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%"'
    drawing.append(f"<svg {inner}>{''.join(strokes)}</svg>")
    drawing += dots
    return "\n".join(
        [
            '<figure class="chart" data-read>',
            f'<figcaption><span class="name">{escape(title)}</span>',
            f'<span class="at" aria-hidden="true">{escape(x_label)} {number(last)}</span></figcaption>',
            _legend(series, lines, colours),
            f'<div class="plot"><svg height="{height}" role="img"><title>{escape(title)}</title>',
            f"<desc>{escape(_describe(series, lines, x_label, y_label, log_x, log_y))}</desc>",
            *drawing,
            '</svg></div><output class="visually-hidden"></output>',
            f'<script type="application/json">{_readings(series, lines, colours, across, up, x_label)}</script>',
            _table(series, lines, title, x_label),
            "</figure>",
        ]
    )


def _drawable(series: Series, log_x: bool, log_y: bool) -> list[tuple[float, float]]:
    """The points that have a place on the axes."""
    return [(x, y) for x, y in series.points if _has_place(x, log_x) and _has_place(y, log_y)]


def _band(series: Series, log_x: bool, log_y: bool) -> list[tuple[float, float, float]]:
    return [
        (x, low, high)
        for x, low, high in series.band or ()
        if _has_place(x, log_x) and _has_place(low, log_y) and _has_place(high, log_y)
    ]


def _has_place(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _axes(across: Scale, up: Scale, height: int, x_label: str, y_label: str, places: list[float]) -> str:
    parts = []
    ticks = up.ticks(5)
    texts, unit = tick_texts(ticks, up.log)
    for tick, text in zip(ticks, texts, strict=True):
        y = up.percent(tick, down=True)
        parts.append(f'<line class="grid" x1="0" x2="100%" y1="{y}%" y2="{y}%"/>')
        parts.append(f'<text x="-8" y="{y}%" dy=".35em" text-anchor="end">{text}</text>')
    parts.append(f'<text x="-3.4rem" y="-14">{_axis_name(y_label, unit)}</text>')
    parts.append('<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>')
    ticks = across.ticks(5)
    if across.log and len(places) <= DOUBLINGS:
        ticks = places  # steps of 1, 2, 4, 8 are to be seen as such
    elif all(x == int(x) for x in places):
        ticks = [tick for tick in ticks if tick == int(tick)]  # between two epochs there is nothing to mark
    texts, unit = tick_texts(ticks, across.log)
    for tick, text in zip(ticks, texts, strict=True):
        x = across.percent(tick)
        parts.append(f'<line class="axis" x1="{x}%" x2="{x}%" y1="{height}" y2="{height + 4}"/>')
        parts.append(f'<text x="{x}%" y="{height + 18}" text-anchor="middle">{text}</text>')
    parts.append(f'<text x="100%" y="{height + 38}" text-anchor="end">{_axis_name(x_label, unit)}</text>')
    return "".join(parts)


def _axis_name(label: str, unit: str) -> str:
    return escape(f"{label} ({unit})" if unit else label)


def _path(points: Points, across: Scale, up: Scale) -> str:
    return "M" + "L".join(f"{across.thousandth(x)} {up.thousandth(y, down=True)}" for x, y in points)


def _legend(series: Sequence[Series], lines: Sequence[Points], colours: Sequence[int]) -> str:
    """Names with their last values: base.js exchanges these for the values under the pointer."""
    entries = []
    for each, points, colour in zip(series, lines, colours, strict=True):
        kind = "swatch dashed" if each.dashed else "swatch"
        swatch = f'<span class="{kind}" style="--colour:var(--series-{colour})"></span>'
        value = number(points[-1][1]) if points else "–"
        entries.append(f"<li>{swatch}{escape(each.name)} <b>{value}</b></li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _describe(
    series: Sequence[Series],
    lines: Sequence[Points],
    x_label: str,
    y_label: str,
    log_x: bool,
    log_y: bool,
) -> str:
    up, across = (" (logarithmic)" if log else "" for log in (log_y, log_x))
    parts = [f"{y_label}{up} against {x_label}{across}."]
    for each, points in zip(series, lines, strict=True):
        if not points:
            parts.append(f"{each.name}: no values.")
            continue
        (first_x, first), (last_x, last) = points[0], points[-1]
        low_x, low = min(points, key=lambda point: point[1])
        high_x, high = max(points, key=lambda point: point[1])
        parts.append(
            f"{each.name}: {number(first)} at {number(first_x)}, {number(last)} at {number(last_x)}, "
            f"lowest {number(low)} at {number(low_x)}, highest {number(high)} at {number(high_x)}."
        )
    return " ".join(parts)


def _readings(
    series: Sequence[Series],
    lines: Sequence[Points],
    colours: Sequence[int],
    across: Scale,
    up: Scale,
    x_label: str,
) -> str:
    """What base.js needs to read values off the chart: those that are drawn, to six digits."""
    entries = []
    for each, points, colour in zip(series, lines, colours, strict=True):
        drawn = sorted(thin(points, DRAWN))
        xs, ys = [_six(x) for x, _ in drawn], [_six(y) for _, y in drawn]
        entries.append({"name": each.name, "colour": colour, "x": xs, "y": ys})
    read = {
        "x": [across.low, across.high],
        "y": [up.low, up.high],
        "log_x": across.log,
        "log_y": up.log,
        "x_label": x_label,
        "series": entries,
    }
    return json.dumps(read, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def _six(value: float) -> float | int:
    short = float(f"{value:.6g}") if abs(value) < 1e6 else round(value)
    return int(short) if short == int(short) else short


def _table(series: Sequence[Series], lines: Sequence[Points], title: str, x_label: str) -> str:
    found = [dict(points) for points in lines]
    shared: dict[float, int] = {}
    for points in found:
        for x in points:
            shared[x] = shared.get(x, 0) + 1
    # Rows where most series have a value come first: others would be mostly gaps.
    chosen: list[float] = []
    for count in sorted(set(shared.values()), reverse=True):
        places = [x for x in sorted(shared) if shared[x] == count]
        room = ROWS - len(chosen)
        if room > 1:
            chosen += _evenly(places, room)
    rows = [[number(x), *(number(each[x]) if x in each else "–" for each in found)] for x in sorted(chosen)]
    headers = [x_label, *(each.name for each in series)]
    caption = title if len(rows) == len(shared) else f"{title}: {len(rows)} of {len(shared):,} places"
    return details(html_table(headers, rows, caption=caption, numeric=range(len(headers))))


def _evenly(values: Sequence[float], most: int) -> list[float]:
    if len(values) <= most:
        return list(values)
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]
