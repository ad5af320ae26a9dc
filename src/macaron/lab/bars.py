"""Charts of bars with intervals, and what all charts share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from macaron.lab.page import escape, html_table
from macaron.lab.scales import Scale, number, tick_texts

#: Colours there are: --series-0 to --series-7 in base.css.
COLOURS = 8


@dataclass(frozen=True)
class Bar:
    """One bar: a value, and the ends of its interval if it has one."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    colour: int | None = None


def bar_chart(groups: Sequence[tuple[str, Sequence[Bar]]], *, title: str, y_label: str, from_zero: bool = True) -> str:
    """Horizontal bars in named groups, each with its value and interval written above it."""
    bars = [bar for _, group in groups for bar in group if math.isfinite(bar.value)]
    if not bars:
        return nothing(title)
    ends = [end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None]
    along = Scale.around(ends, from_zero=from_zero)
    zero = min(max(along.low, 0.0), along.high)
    parts: list[str] = []
    y = 0
    for name, group in groups:
        if name:
            parts.append(f'<text x="0" y="{y + 14}" font-weight="600">{escape(name)}</text>')
            y += 26
        for i, bar in enumerate(each for each in group if math.isfinite(each.value)):
            parts += _bar(bar, i if bar.colour is None else bar.colour, y, along, zero)
            y += 42
        y += 12
    ticks = along.ticks(5)
    names, unit = tick_texts(ticks)
    axis = escape(f"{y_label} ({unit})" if unit else y_label)
    marks = "".join(
        f'<line class="grid" x1="{along.percent(t)}%" x2="{along.percent(t)}%" y1="0" y2="{y}"/>' for t in ticks
    )
    texts = "".join(
        f'<text x="{along.percent(t)}%" y="{y + 16}" text-anchor="{"start" if t == along.low else "middle"}">'
        f"{text}</text>"
        for t, text in zip(ticks, names, strict=True)
    )
    said = "; ".join(
        f"{f'{name}, ' if name else ''}{bar.name} {_with_interval(bar)}" for name, group in groups for bar in group
    )
    rows = [[name, bar.name, number(bar.value), _interval(bar) or "–"] for name, group in groups for bar in group]
    return "\n".join(
        [
            '<figure class="chart">',
            f"<figcaption>{escape(title)}</figcaption>",
            f'<div class="plot bars"><svg height="{y}" role="img"><title>{escape(title)}</title>',
            f"<desc>Bars of {escape(y_label)}. {escape(said)}.</desc>",
            f'{marks}<g class="ticks">{texts}',
            f'<text x="100%" y="{y + 34}" text-anchor="end">{axis}</text></g>',
            *parts,
            "</svg></div>",
            details(html_table(["group", "bar", y_label, "interval"], rows, caption=title, numeric=(2, 3))),
            "</figure>",
        ]
    )


def _bar(bar: Bar, colour: int, y: int, along: Scale, zero: float) -> list[str]:
    left, right = sorted((along.share(zero), along.share(bar.value)))
    parts = [
        f'<text x="0" y="{y + 12}">{escape(bar.name)}</text>',
        f'<text x="100%" y="{y + 12}" text-anchor="end">{escape(_with_interval(bar))}</text>',
        f'<rect class="bar" style="--colour:var(--series-{colour % COLOURS})" x="{100 * left:.2f}%" '
        f'width="{100 * (right - left):.2f}%" y="{y + 18}" height="12" rx="2"/>',
    ]
    if bar.low is not None and bar.high is not None:
        low, high = along.percent(bar.low), along.percent(bar.high)
        parts += [
            f'<line class="halo" x1="{low}%" x2="{high}%" y1="{y + 24}" y2="{y + 24}"/>',
            f'<line class="interval" x1="{low}%" x2="{high}%" y1="{y + 24}" y2="{y + 24}"/>',
            *(f'<line class="interval" x1="{x}%" x2="{x}%" y1="{y + 20}" y2="{y + 28}"/>' for x in (low, high)),
        ]
    return parts


def _interval(bar: Bar) -> str:
    return "" if bar.low is None or bar.high is None else f"{number(bar.low)} to {number(bar.high)}"


def _with_interval(bar: Bar) -> str:
    interval = _interval(bar)
    return f"{number(bar.value)} ({interval})" if interval else number(bar.value)


def nothing(title: str) -> str:
    """A chart that has nothing to show yet."""
    return f'<figure class="chart"><figcaption>{escape(title)}</figcaption><p class="empty">No values yet.</p></figure>'


def details(table: str) -> str:
    """A chart's values for who cannot see it, folded away for who can."""
    return f"<details><summary>Data as a table</summary>{table}</details>"
