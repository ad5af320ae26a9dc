"""Charts of a comparison: points with their intervals, and the curves of training by kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from macaron.data.prepared import DataKind
from macaron.lab.charts import Series, line_chart
from macaron.lab.compare.runs import Kind, Run
from macaron.lab.page import escape
from macaron.lab.scales import Scale

#: What is drawn against updates and seconds: names in metrics.jsonl for training and validation, and in words.
CURVES: dict[DataKind, tuple[str, str, str]] = {
    "pairs": ("nll", "valid_nll", "nll per token (nats)"),
    "text": ("loss", "valid_loss", "loss (nats)"),
}
_BLEU = ("valid_sacrebleu", "valid_tokenised_bleu")
_COLOURS = 8  # --series-0 to --series-7 in base.css


@dataclass(frozen=True)
class Dots:
    """A line of a dot chart: a value with its interval, and the single values it is the mean of."""

    name: str
    value: float
    low: float | None
    high: float | None
    points: tuple[float, ...] = ()
    colour: int = 0
    digits: int = 2
    sign: bool = False

    @property
    def text(self) -> str:
        """The value, and its interval."""
        form = f"{'+' if self.sign else ''}.{self.digits}f"
        interval = "" if self.low is None or self.high is None else f" ({self.low:{form}} to {self.high:{form}})"
        return f"{self.value:{form}}{interval}".replace("-", "−")


def dot_chart(rows: Sequence[Dots], *, title: str, x_label: str, zero: bool = False, note: str = "") -> str:
    """Values on a common axis that need not begin at zero; with ``zero``, a line says where no difference is.

    The names and numbers are text of the page; the drawing beside them adds nothing that could not be read.
    """
    ends = [end for row in rows for end in (row.value, row.low, row.high, *row.points) if end is not None]
    along = Scale.around([*ends, 0.0] if zero else ends)
    ticks = along.ticks(5)
    lines = [(tick, "grid") for tick in ticks if tick or not zero] + ([(0.0, "zero")] if zero else [])
    grid = "".join(
        f'<line class="{kind}" x1="{along.percent(tick)}%" x2="{along.percent(tick)}%" y1="0" y2="100%"/>'
        for tick, kind in lines
    )
    texts = "".join(
        f'<text x="{along.percent(tick)}%" y="14" text-anchor="middle">{_tick(tick)}</text>' for tick in ticks
    )
    entries = [
        f'<li><span>{escape(row.name)}</span> <span class="number">{escape(row.text)}</span>'
        f'<svg height="26" aria-hidden="true">{grid}{_marks(row, along)}</svg></li>'
        for row in rows
    ]
    return "\n".join(
        [
            '<figure class="chart">',
            f"<figcaption>{escape(title)}</figcaption>",
            *([f'<p class="note">{escape(note)}</p>'] if note else []),
            f'<ul class="dots">{"".join(entries)}</ul>',
            f'<div class="dots-axis" aria-hidden="true"><svg height="18">{texts}</svg>{escape(x_label)}</div>',
            "</figure>",
        ]
    )


def _marks(row: Dots, along: Scale) -> str:
    style = f'style="--colour:var(--series-{row.colour % _COLOURS})"'
    parts = []
    if row.low is not None and row.high is not None:
        low, high = along.percent(row.low), along.percent(row.high)
        parts.append(f'<line class="span" x1="{low}%" x2="{high}%" y1="13" y2="13"/>')
        parts += [f'<line class="span" x1="{x}%" x2="{x}%" y1="9" y2="17"/>' for x in (low, high)]
    x = along.percent(row.value)
    if len(row.points) > 1:
        parts += [f'<circle class="one" cx="{along.percent(point)}%" cy="13" r="4"/>' for point in row.points]
        parts.append(f'<line class="mean" x1="{x}%" x2="{x}%" y1="4" y2="22"/>')
    else:
        parts.append(f'<circle class="one whole" cx="{x}%" cy="13" r="5"/>')
    return f"<g {style}>{''.join(parts)}</g>"


def curves(kinds: Sequence[Kind]) -> list[str]:
    """Training and validation of each kind against updates and against seconds; BLEU where it was measured."""
    train, valid, words = CURVES[kinds[0].runs[0].kind]
    charts = [
        line_chart(
            [
                series
                for colour, kind in enumerate(kinds)
                for series in (
                    _series(kind, valid, against, colour, "validation"),
                    _series(kind, train, against, colour, "training", dashed=True),
                )
            ],
            title=f"Loss against {against}",
            x_label=against,
            y_label=words,
            log_y=True,
        )
        for against in ("updates", "seconds")
    ]
    for name in _BLEU:
        if all(_points(run, name, "updates") for kind in kinds for run in kind.runs):
            drawn = [_series(kind, name, "updates", colour, "validation") for colour, kind in enumerate(kinds)]
            charts.append(line_chart(drawn, title="BLEU against updates", x_label="updates", y_label=name))
    return charts


def _series(kind: Kind, name: str, against: str, colour: int, what: str, dashed: bool = False) -> Series:
    """The mean over seeds where all have a value, and the band from the lowest to the highest."""
    runs = [_points(run, name, against) for run in kind.runs]
    shared = sorted(set.intersection(*(set(points) for points in runs)))
    means, band = [], []
    for update in shared:
        at = [points[update] for points in runs]
        x = sum(x for x, _ in at) / len(at)
        values = [value for _, value in at]
        means.append((x, sum(values) / len(values)))
        band.append((x, min(values), max(values)))
    return Series(f"{kind.label}, {what}", means, colour, band if len(runs) > 1 and not dashed else None, dashed)


def _points(run: Run, name: str, against: str) -> dict[int, tuple[float, float]]:
    """By update: the place on the axis, and the value."""
    found = {}
    for record in run.metrics:
        if record.get(name) is not None and (against == "updates" or record.get("seconds") is not None):
            update = int(record["update"])
            found[update] = (float(update if against == "updates" else record["seconds"]), float(record[name]))
    return found


def _tick(value: float) -> str:
    return f"{value:.6g}".replace("-", "−")
