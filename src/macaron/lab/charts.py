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
from markupsafe import Markup

from macaron.lab.page import fill, html_table, script_json

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

    @property
    def text(self) -> str:
        """The value and its interval."""
        form, ends = f"{'+' if self.sign else ''}.{self.digits}f", self.interval
        text = f"{self.value:{form}}" + (f" ({ends[0]:{form}} to {ends[1]:{form}})" if ends else "")
        return text.replace("-", "−")


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
) -> Markup:
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
        return fill("line-chart.html", title=title, lines=())
    ys = [y for line in lines for _, y in line.points] + [y for line in lines for _, *ends in line.band for y in ends]
    across, up = Scale.around(xs, log=log_x, tight=True), Scale.around(ys, log=log_y, from_zero=from_zero)
    below, left = across.ticks(), up.ticks()
    if log_x and len(xs) <= DOUBLINGS:
        below = xs  # doublings (1, 2, 4, 8) are all marked
    elif all(x == int(x) for x in xs):
        below = [tick for tick in below if tick == int(tick)]  # nothing lies between two epochs
    (x_texts, x_unit), (y_texts, y_unit) = tick_texts(below, log_x), tick_texts(left, log_y)
    axes = {"x": [across.low, across.high], "y": [up.low, up.high], "log_x": log_x, "log_y": log_y, "x_label": x_label}
    # For the read-out of base.js.
    drawn = []
    for line in lines:
        places = [[float(f"{point[axis]:.9g}") for point in line.points] for axis in (0, 1)]
        drawn.append({"name": line.name, "colour": line.colour, "x": places[0], "y": places[1]})

    def path(points: Sequence[Point]) -> str:
        pairs = ((across.percent(x, whole=1000), up.percent(y, down=True, whole=1000)) for x, y in points)
        return "M" + "L".join(map(" ".join, pairs))

    return fill(
        "line-chart.html",
        title=title,
        x_label=x_label,
        y_label=y_label,
        height=height,
        lines=lines,
        last=xs[-1],
        across=across,
        up=up,
        left=list(zip(left, y_texts, strict=True)),
        below=list(zip(below, x_texts, strict=True)),
        x_unit=x_unit,
        y_unit=y_unit,
        number=number,
        mark=lambda point: f"{number(point[1])} at {number(point[0])}",
        path=path,
        edge=lambda band: [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)],
        dotted=DOTTED,
        data=script_json({**axes, "series": drawn}),
        table=_table(lines, title, x_label),
    )


def _table(lines: Sequence[Series], title: str, x_label: str) -> Markup:
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
    return html_table(headers, rows, caption=caption, numeric=range(len(headers)))


def dot_chart(rows: Sequence[Dots], *, title: str, x_label: str, zero: bool = False, note: str = "") -> Markup:
    """Values with intervals on a common axis. Names and numbers are text; screen readers do not see the drawing."""
    places = [end for row in rows for end in (row.value, *(row.interval or ()), *row.points)]
    along = Scale.around([*places, 0.0] if zero else places)
    ticks = along.ticks()
    texts, unit = tick_texts(ticks)
    return fill(
        "dot-chart.html",
        title=title,
        note=note,
        x_label=x_label,
        unit=unit,
        rows=rows,
        along=along,
        grid=[(tick, "grid") for tick in ticks if tick or not zero] + ([(0.0, "zero")] if zero else []),
        ticks=list(zip(ticks, texts, strict=True)),
        colours=COLOURS,
    )


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
