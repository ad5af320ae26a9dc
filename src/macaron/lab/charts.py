"""Charts as inline SVG, which need no script; base.js adds a read-out of the values at the pointer.

The drawing stretches with the page while its texts keep their size: positions are fractions of the plot's area (per
cent, or thousandths inside the nested SVG that holds the lines), and the texts of the axes are in the plot's padding.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Self

import numpy as np

from macaron.lab.page import Raw, escape, html_table, script_json

#: The number of colours: --series-0 to --series-7 in base.css.
COLOURS = 8
#: Points of a series that are drawn at most, of a series that shows each as a dot, rows of the table below a chart.
DRAWN, DOTTED, ROWS = 500, 30, 30
#: A logarithmic axis marks every x value if there are at most this many.
DOUBLINGS = 8
SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line: points by ascending x, a colour by number (default: its index), a band of (x, low, high) around it."""

    name: str
    points: Sequence[Point]
    colour: int | None = None
    band: Sequence[tuple[float, float, float]] = ()
    dashed: bool = False


@dataclass(frozen=True)
class Dots:
    """A row of a dot chart: a value with its interval, and the single values it is the mean of."""

    name: str
    value: float
    interval: Point | None = None
    points: tuple[float, ...] = ()
    colour: int = 0
    digits: int = 2
    sign: bool = False


@dataclass(frozen=True)
class Scale:
    """An axis from low to high, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(
        cls, values: Sequence[float], *, log: bool = False, tight: bool = False, from_zero: bool = False
    ) -> Self:
        """A scale that contains the values: with a margin, or (``tight``) from the smallest to the largest."""
        low, high = min(values), max(values)
        if log:
            if low == high:
                low, high = low / 2, high * 2
            margin = 1.0 if tight else (high / low) ** 0.04
            return cls(low / margin, high * margin, log=True)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # rounding, not a difference
            half = abs(low) / 10 or 1.0
            low, high = low - half, high + half
        margin = 0.0 if tight else (high - low) * 0.05
        # A margin below zero would suggest that values could be negative.
        return cls(0.0 if 0 <= low < margin or (from_zero and low == 0) else low - margin, high + margin)

    def share(self, value: float) -> float:
        """The position of a value: 0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def percent(self, value: float, *, down: bool = False, whole: int = 100) -> str:
        """`share` of ``whole``; ``down`` counts from the other end, as the y of an SVG does."""
        share = 1 - self.share(value) if down else self.share(value)
        return f"{round(whole * share, 2) + 0:g}"  # never -0

    def ticks(self, most: int = 5) -> list[float]:
        """Round values to mark, about ``most`` of them."""
        from matplotlib.ticker import MaxNLocator

        def inside(marks: Iterable[float]) -> list[float]:
            return [mark for mark in marks if -1e-9 <= self.share(mark) <= 1 + 1e-9]

        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for digits in ((1, 2, 5), (1, 3), (1,)):
                # Parsed from text: 10.0 ** -5 is not the float 1e-05.
                found = inside(float(f"{digit}e{power}") for power in powers for digit in digits)
                if 3 <= len(found) <= most + 1:
                    return found
            if len(found) > most:
                return found[:: math.ceil(len(found) / most)]
        rounded = map(float, MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high))
        return inside(mark for mark in rounded if mark > 0 or not self.log)


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
) -> Raw:
    """Lines on common axes, a legend that shows values, and the data as a collapsed table, for screen readers."""

    def drawable(x: float, *ys: float) -> bool:
        return all(math.isfinite(v) and (v > 0 or not log) for v, log in ((x, log_x), *((y, log_y) for y in ys)))

    lines = []
    for i, each in enumerate(series):
        points = thin([point for point in each.points if drawable(*point)], DRAWN)
        band = [edge for edge in each.band if drawable(*edge)]
        colour = (i if each.colour is None else each.colour) % COLOURS
        lines += [replace(each, points=points, band=band, colour=colour)] if points else []
    xs = sorted({x for line in lines for x, _ in line.points})
    if not xs:
        caption = f"<figcaption>{escape(title)}</figcaption>"
        return Raw(f'<figure class="chart">{caption}<p class="empty">No values yet.</p></figure>')
    ys = [y for line in lines for _, y in line.points] + [y for line in lines for _, *ends in line.band for y in ends]
    across, up = Scale.around(xs, log=log_x, tight=True), Scale.around(ys, log=log_y, from_zero=from_zero)
    axes = {"x": [across.low, across.high], "y": [up.low, up.high], "log_x": log_x, "log_y": log_y, "x_label": x_label}
    # For the read-out of base.js.
    drawn = []
    for line in lines:
        places = [[float(f"{point[axis]:.9g}") for point in line.points] for axis in (0, 1)]
        drawn.append({"name": line.name, "colour": line.colour, "x": places[0], "y": places[1]})
    return Raw(f"""<figure class="chart" data-read>
<figcaption><span class="name">{escape(title)}</span>
<span class="at" aria-hidden="true">{escape(x_label)} {number(xs[-1])}</span></figcaption>
{_legend(lines)}
<div class="plot"><svg height="{height}" role="img"><title>{escape(title)}</title>
<desc>{escape(_describe(lines, x_label, y_label, log_x, log_y))}</desc>
{_axes(across, up, height, x_label, y_label, xs)}
{_drawing(lines, across, up)}
</svg></div><output class="visually-hidden"></output>
<script type="application/json">{script_json({**axes, "series": drawn})}</script>
{_table(lines, title, x_label)}
</figure>""")


def _axes(across: Scale, up: Scale, height: int, x_label: str, y_label: str, xs: list[float]) -> str:
    ticks = up.ticks()
    texts, unit = tick_texts(ticks, up.log)
    left = "".join(
        f'<line class="grid" x1="0" x2="100%" y1="{y}%" y2="{y}%"/>'
        f'<text x="-8" y="{y}%" dy=".35em" text-anchor="end">{text}</text>'
        for y, text in zip((up.percent(tick, down=True) for tick in ticks), texts, strict=True)
    )
    left += f'<text x="-3.4rem" y="-14">{_axis_name(y_label, unit, up.log)}</text>'
    ticks = across.ticks()
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

    def path(points: Sequence[Point]) -> str:
        return "M" + "L".join(
            f"{across.percent(x, whole=1000)} {up.percent(y, down=True, whole=1000)}" for x, y in points
        )

    strokes, dots = [], []
    for line in lines:
        style = f'style="--colour:var(--series-{line.colour})"'
        if line.band:
            edge = [(x, high) for x, _, high in line.band] + [(x, low) for x, low, _ in reversed(line.band)]
            strokes.append(f'<path class="band" {style} d="{path(edge)}Z"/>')
        if len(line.points) > 1:
            kind = " dashed" if line.dashed else " thin" if len(line.points) > 200 else ""
            strokes.append(f'<path class="line{kind}" {style} d="{path(line.points)}"/>')
        if len(line.points) == 1 or (len(line.points) <= DOTTED and not line.dashed):
            places = ((across.percent(x), up.percent(y, down=True)) for x, y in line.points)
            spots = "".join(f'<circle cx="{x}%" cy="{y}%" r="2.5"/>' for x, y in places)
            dots.append(f'<g class="dot" {style}>{spots}</g>')
    inner = 'viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%"'
    return "\n".join([f"<svg {inner}>{''.join(strokes)}</svg>", *dots])


def _legend(lines: Sequence[Series]) -> str:
    """Names with their last values; base.js replaces these by the values at the pointer."""
    entries = []
    for line in lines:
        style = f'class="swatch{" dashed" if line.dashed else ""}" style="--colour:var(--series-{line.colour})"'
        entries.append(f"<li><span {style}></span>{escape(line.name)} <b>{number(line.points[-1][1])}</b></li>")
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _describe(lines: Sequence[Series], x_label: str, y_label: str, log_x: bool, log_y: bool) -> str:
    up, across = (" (logarithmic)" if log else "" for log in (log_y, log_x))
    parts = [f"{y_label}{up} against {x_label}{across}."]
    for line in lines:
        lowest, highest = (extreme(line.points, key=lambda point: point[1]) for extreme in (min, max))
        marks = (("", line.points[0]), ("", line.points[-1]), ("lowest ", lowest), ("highest ", highest))
        parts.append(f"{line.name}: {', '.join(f'{said}{number(y)} at {number(x)}' for said, (x, y) in marks)}.")
    return " ".join(parts)


def _table(lines: Sequence[Series], title: str, x_label: str) -> str:
    values = [dict(line.points) for line in lines]
    shared = Counter(x for points in values for x in points)
    chosen: list[float] = []
    # Rows where most series have a value come first: others would be mostly gaps.
    for count in sorted(set(shared.values()), reverse=True):
        xs = sorted(x for x in shared if shared[x] == count)
        places = np.linspace(0, len(xs) - 1, min(len(xs), ROWS - len(chosen)))
        chosen += [xs[round(place)] for place in places]
    rows = [[number(x), *(number(each[x]) if x in each else "–" for each in values)] for x in sorted(chosen)]
    headers = [x_label, *(line.name for line in lines)]
    caption = title if len(rows) == len(shared) else f"{title}: {len(rows)} of {len(shared):,} points"
    table = html_table(headers, rows, caption=caption, numeric=range(len(headers)))
    return f"<details><summary>Data as a table</summary>{table}</details>"


def dot_chart(rows: Sequence[Dots], *, title: str, x_label: str, zero: bool = False, note: str = "") -> Raw:
    """Values with intervals on a common axis. Names and numbers are text; screen readers do not see the drawing."""
    places = [end for row in rows for end in (row.value, *(row.interval or ()), *row.points)]
    along = Scale.around([*places, 0.0] if zero else places)
    ticks = along.ticks()
    lines = [(tick, "grid") for tick in ticks if tick or not zero] + ([(0.0, "zero")] if zero else [])
    drawn = ((along.percent(tick), kind) for tick, kind in lines)
    grid = "".join(f'<line class="{kind}" x1="{x}%" x2="{x}%" y1="0" y2="100%"/>' for x, kind in drawn)
    names, unit = tick_texts(ticks)
    marked = zip(map(along.percent, ticks), (name.replace("-", "−") for name in names), strict=True)
    texts = "".join(f'<text x="{x}%" y="14" text-anchor="middle">{text}</text>' for x, text in marked)
    entries = []
    for row in rows:
        form, ends = f"{'+' if row.sign else ''}.{row.digits}f", row.interval
        text = f"{row.value:{form}}" + (f" ({ends[0]:{form}} to {ends[1]:{form}})" if ends else "")
        entries.append(
            f'<li><span>{escape(row.name)}</span> <span class="number">{text.replace("-", "−")}</span>'
            f'<svg height="26" aria-hidden="true">{grid}{_marks(row, along)}</svg></li>'
        )
    below = f'\n<p class="note">{escape(note)}</p>' if note else ""
    return Raw(f"""<figure class="chart">
<figcaption>{escape(title)}</figcaption>{below}
<ul class="dots">{"".join(entries)}</ul>
<div class="dots-axis" aria-hidden="true"><svg height="18">{texts}</svg>{_axis_name(x_label, unit)}</div>
</figure>""")


def _marks(row: Dots, along: Scale) -> str:
    parts, x = [], along.percent(row.value)
    if row.interval:
        low, high = map(along.percent, row.interval)
        parts.append(f'<line class="span" x1="{low}%" x2="{high}%" y1="13" y2="13"/>')
        parts += [f'<line class="span" x1="{end}%" x2="{end}%" y1="9" y2="17"/>' for end in (low, high)]
    if len(row.points) > 1:
        parts += [f'<circle class="one" cx="{along.percent(point)}%" cy="13" r="4"/>' for point in row.points]
        parts.append(f'<line class="mean" x1="{x}%" x2="{x}%" y1="4" y2="22"/>')
    else:
        parts.append(f'<circle class="one whole" cx="{x}%" cy="13" r="5"/>')
    return f'<g style="--colour:var(--series-{row.colour % COLOURS})">{"".join(parts)}</g>'


def number(value: float) -> str:
    """A value to four significant digits, for reading."""
    if not math.isfinite(value):
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return _power(value, 2) if 0 < abs(value) < 1e-3 else f"{value or 0:.4g}"


def tick_texts(ticks: Sequence[float], log: bool = False) -> tuple[list[str], str]:
    """The texts of ticks, and their common power of ten ("10⁻⁴", or nothing) for the axis label."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if log:
        return [f"{tick:.6g}" if 1e-3 <= tick < 1e4 else _power(tick, 3) for tick in ticks], ""
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return ["0" if tick == 0 else f"{tick / unit:.6g}{letter}" for tick in ticks], ""
    if 0 < largest < 1e-2:
        power = math.floor(math.log10(largest))
        return [f"{tick / 10.0**power:.4g}" for tick in ticks], f"10{str(power).translate(SUPERSCRIPT)}"
    return [f"{tick:.6g}" for tick in ticks], ""


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most ``most`` points: both ends, and the lowest and highest of each segment, so that no spike is lost."""
    if len(points) <= most:
        return list(points)
    kept = {0, len(points) - 1}
    for part in np.array_split(np.arange(1, len(points) - 1), max(1, (most - 2) // 2)):
        ys = [points[k][1] for k in part]
        kept |= {int(part[np.argmin(ys)]), int(part[np.argmax(ys)])}
    return [points[k] for k in sorted(kept)]


def _power(value: float, digits: int) -> str:
    mantissa, power = f"{value:.{digits}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".")
    ten = f"10{str(int(power)).translate(SUPERSCRIPT)}"
    return ten if mantissa == "1" else f"-{ten}" if mantissa == "-1" else f"{mantissa}×{ten}"


def duration(seconds: float) -> str:
    """A time as hours, minutes and seconds: ``3:05:12``."""
    return str(timedelta(seconds=round(seconds)))
