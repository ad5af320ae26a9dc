"""Charts as inline SVG, which need no script; base.js adds a read-out of the values at the pointer.

The drawing stretches with the page while its texts keep their size: positions are fractions of the plot's area (per
cent, or thousandths inside the nested SVG that holds the lines), and the texts of the axes are in the plot's padding.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from macaron.lab.page import escape, html_table, script_json
from macaron.lab.scales import Scale, number, thin, tick_texts

#: The number of colours: --series-0 to --series-7 in base.css.
COLOURS = 8
#: The maximum number of points drawn for a series; more cannot be seen.
DRAWN = 500
#: A series of at most this many points shows each as a dot.
DOTTED = 30
#: A logarithmic axis marks every x value if there are at most this many.
DOUBLINGS = 8
#: The maximum number of rows in the table below a chart.
ROWS = 30


@dataclass(frozen=True)
class Series:
    """One line: points by ascending x, a colour by number (default: its index), a band of (x, low, high) around it."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int | None = None
    band: Sequence[tuple[float, float, float]] = ()
    dashed: bool = False


@dataclass(frozen=True)
class Dots:
    """A row of a dot chart: a value with its interval, and the single values it is the mean of."""

    name: str
    value: float
    interval: tuple[float, float] | None = None
    points: tuple[float, ...] = ()
    colour: int = 0
    digits: int = 2
    sign: bool = False

    @property
    def text(self) -> str:
        """The value and its interval."""
        form = f"{'+' if self.sign else ''}.{self.digits}f"
        interval = f" ({self.interval[0]:{form}} to {self.interval[1]:{form}})" if self.interval else ""
        return f"{self.value:{form}}{interval}".replace("-", "−")


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
    """Lines on common axes, a legend that shows values, and the data as a collapsed table, for screen readers."""

    def drawable(x: float, *ys: float) -> bool:
        return all(math.isfinite(v) and (v > 0 or not log) for v, log in ((x, log_x), *((y, log_y) for y in ys)))

    lines = []
    for i, each in enumerate(series):
        points = [point for point in each.points if drawable(*point)]
        band = [edge for edge in each.band if drawable(*edge)]
        colour = (i if each.colour is None else each.colour) % COLOURS
        lines.append(replace(each, points=points, band=band, colour=colour))
    xs = sorted({x for line in lines for x, _ in line.points})
    if not xs:
        caption = f"<figcaption>{escape(title)}</figcaption>"
        return f'<figure class="chart">{caption}<p class="empty">No values yet.</p></figure>'
    ys = [y for line in lines for _, y in line.points] + [y for line in lines for _, *ends in line.band for y in ends]
    across, up = Scale.around(xs, log=log_x, tight=True), Scale.around(ys, log=log_y, from_zero=from_zero)
    return f"""<figure class="chart" data-read>
<figcaption><span class="name">{escape(title)}</span>
<span class="at" aria-hidden="true">{escape(x_label)} {number(xs[-1])}</span></figcaption>
{_legend(lines)}
<div class="plot"><svg height="{height}" role="img"><title>{escape(title)}</title>
<desc>{escape(_describe(lines, x_label, y_label, log_x, log_y))}</desc>
{_axes(across, up, height, x_label, y_label, xs)}
{_drawing(lines, across, up)}
</svg></div><output class="visually-hidden"></output>
<script type="application/json">{_readings(lines, across, up, x_label)}</script>
{_table(lines, title, x_label)}
</figure>"""


def _axes(across: Scale, up: Scale, height: int, x_label: str, y_label: str, xs: list[float]) -> str:
    ticks = up.ticks(5)
    texts, unit = tick_texts(ticks, up.log)
    left = "".join(
        f'<line class="grid" x1="0" x2="100%" y1="{y}%" y2="{y}%"/>'
        f'<text x="-8" y="{y}%" dy=".35em" text-anchor="end">{text}</text>'
        for y, text in zip((up.percent(tick, down=True) for tick in ticks), texts, strict=True)
    )
    left += f'<text x="-3.4rem" y="-14">{_axis_name(y_label, unit, up.log)}</text>'
    ticks = across.ticks(5)
    if across.log and len(xs) <= DOUBLINGS:
        ticks = xs  # doublings (1, 2, 4, 8) are all marked
    elif all(x == int(x) for x in xs):
        ticks = [tick for tick in ticks if tick == int(tick)]  # nothing lies between two epochs
    texts, unit = tick_texts(ticks, across.log)
    below = "".join(
        f'<line class="axis" x1="{x}%" x2="{x}%" y1="{height}" y2="{height + 4}"/>'
        f'<text x="{x}%" y="{height + 18}" text-anchor="middle">{text}</text>'
        for x, text in zip(map(across.percent, ticks), texts, strict=True)
    )
    below += f'<text x="100%" y="{height + 38}" text-anchor="end">{_axis_name(x_label, unit, across.log)}</text>'
    return f'{left}<line class="axis" x1="0" x2="100%" y1="100%" y2="100%"/>{below}'


def _axis_name(label: str, unit: str, log: bool = False) -> str:
    return escape((f"{label} ({unit})" if unit else label) + (", log scale" if log else ""))


def _drawing(lines: Sequence[Series], across: Scale, up: Scale) -> str:
    """The lines and bands in an SVG that stretches; the dots beside it, since they must stay round."""

    def path(points: Sequence[tuple[float, float]]) -> str:
        return "M" + "L".join(
            f"{across.percent(x, whole=1000)} {up.percent(y, down=True, whole=1000)}" for x, y in points
        )

    strokes, dots = [], []
    for line in lines:
        style, drawn = f'style="--colour:var(--series-{line.colour})"', thin(line.points, DRAWN)
        if line.band:
            edge = [(x, high) for x, _, high in line.band] + [(x, low) for x, low, _ in reversed(line.band)]
            strokes.append(f'<path class="band" {style} d="{path(edge)}Z"/>')
        if len(drawn) > 1:
            kind = " dashed" if line.dashed else " thin" if len(line.points) > 200 else ""
            strokes.append(f'<path class="line{kind}" {style} d="{path(drawn)}"/>')
        if len(drawn) == 1 or (len(drawn) <= DOTTED and not line.dashed):
            spots = (f'<circle cx="{across.percent(x)}%" cy="{up.percent(y, down=True)}%" r="2.5"/>' for x, y in drawn)
            dots.append(f'<g class="dot" {style}>{"".join(spots)}</g>')
    inner = 'viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%"'
    return "\n".join([f"<svg {inner}>{''.join(strokes)}</svg>", *dots])


def _legend(lines: Sequence[Series]) -> str:
    """Names with their last values; base.js replaces these by the values at the pointer."""
    entries = []
    for line in lines:
        style = f'class="swatch{" dashed" if line.dashed else ""}" style="--colour:var(--series-{line.colour})"'
        value = number(line.points[-1][1]) if line.points else "–"
        entries.append(f"<li><span {style}></span>{escape(line.name)} <b>{value}</b></li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _describe(lines: Sequence[Series], x_label: str, y_label: str, log_x: bool, log_y: bool) -> str:
    up, across = (" (logarithmic)" if log else "" for log in (log_y, log_x))
    parts = [f"{y_label}{up} against {x_label}{across}."]
    for line in lines:
        if not line.points:
            parts.append(f"{line.name}: no values.")
            continue
        lowest, highest = (extreme(line.points, key=lambda point: point[1]) for extreme in (min, max))
        marks = (("", line.points[0]), ("", line.points[-1]), ("lowest ", lowest), ("highest ", highest))
        parts.append(f"{line.name}: {', '.join(f'{said}{number(y)} at {number(x)}' for said, (x, y) in marks)}.")
    return " ".join(parts)


def _readings(lines: Sequence[Series], across: Scale, up: Scale, x_label: str) -> str:
    """The drawn values to six digits, for the read-out of base.js."""

    def six(value: float) -> float | int:
        short = float(f"{value:.6g}") if abs(value) < 1e6 else round(value)
        return int(short) if short == int(short) else short

    drawn = [(line, sorted(thin(line.points, DRAWN))) for line in lines]
    series = [
        {"name": line.name, "colour": line.colour, "x": [six(x) for x, _ in points], "y": [six(y) for _, y in points]}
        for line, points in drawn
    ]
    axes = {"x": [across.low, across.high], "y": [up.low, up.high], "log_x": across.log, "log_y": up.log}
    return script_json({**axes, "x_label": x_label, "series": series})


def _table(lines: Sequence[Series], title: str, x_label: str) -> str:
    values = [dict(line.points) for line in lines]
    shared = Counter(x for points in values for x in points)
    # Rows where most series have a value come first: others would be mostly gaps.
    chosen: list[float] = []
    for count in sorted(set(shared.values()), reverse=True):
        xs, room = sorted(x for x in shared if shared[x] == count), ROWS - len(chosen)
        if room > 1:
            chosen += xs if len(xs) <= room else [xs[round(i * (len(xs) - 1) / (room - 1))] for i in range(room)]
    rows = [[number(x), *(number(each[x]) if x in each else "–" for each in values)] for x in sorted(chosen)]
    headers = [x_label, *(line.name for line in lines)]
    caption = title if len(rows) == len(shared) else f"{title}: {len(rows)} of {len(shared):,} points"
    table = html_table(headers, rows, caption=caption, numeric=range(len(headers)))
    return f"<details><summary>Data as a table</summary>{table}</details>"


def dot_chart(rows: Sequence[Dots], *, title: str, x_label: str, zero: bool = False, note: str = "") -> str:
    """Values with their intervals on a common axis, which need not begin at zero.

    The names and numbers are text of the page; the drawing repeats them and is hidden from screen readers.
    """
    ends = [end for row in rows for end in (row.value, *(row.interval or ()), *row.points)]
    along = Scale.around([*ends, 0.0] if zero else ends)
    ticks = along.ticks(5)
    lines = [(tick, "grid") for tick in ticks if tick or not zero] + ([(0.0, "zero")] if zero else [])
    places = [(along.percent(tick), kind) for tick, kind in lines]
    grid = "".join(f'<line class="{kind}" x1="{x}%" x2="{x}%" y1="0" y2="100%"/>' for x, kind in places)
    names, unit = tick_texts(ticks)
    marked = zip(map(along.percent, ticks), (name.replace("-", "−") for name in names), strict=True)
    texts = "".join(f'<text x="{x}%" y="14" text-anchor="middle">{text}</text>' for x, text in marked)
    entries = [
        f'<li><span>{escape(row.name)}</span> <span class="number">{escape(row.text)}</span>'
        f'<svg height="26" aria-hidden="true">{grid}{_marks(row, along)}</svg></li>'
        for row in rows
    ]
    below = f'\n<p class="note">{escape(note)}</p>' if note else ""
    return f"""<figure class="chart">
<figcaption>{escape(title)}</figcaption>{below}
<ul class="dots">{"".join(entries)}</ul>
<div class="dots-axis" aria-hidden="true"><svg height="18">{texts}</svg>{_axis_name(x_label, unit)}</div>
</figure>"""


def _marks(row: Dots, along: Scale) -> str:
    parts = []
    if row.interval:
        low, high = map(along.percent, row.interval)
        parts.append(f'<line class="span" x1="{low}%" x2="{high}%" y1="13" y2="13"/>')
        parts += [f'<line class="span" x1="{x}%" x2="{x}%" y1="9" y2="17"/>' for x in (low, high)]
    x = along.percent(row.value)
    if len(row.points) > 1:
        parts += [f'<circle class="one" cx="{along.percent(point)}%" cy="13" r="4"/>' for point in row.points]
        parts.append(f'<line class="mean" x1="{x}%" x2="{x}%" y1="4" y2="22"/>')
    else:
        parts.append(f'<circle class="one whole" cx="{x}%" cy="13" r="5"/>')
    return f'<g style="--colour:var(--series-{row.colour % COLOURS})">{"".join(parts)}</g>'
