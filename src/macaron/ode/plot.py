"""The figure of orders: local error against step, a line for each scheme and way to follow its sub-flows."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from macaron.errors import UsageError
from macaron.ode.catalogue import ALIASES
from macaron.ode.catalogue import scheme as find_scheme
from macaron.ode.flows import Array
from macaron.ode.lookup import unknown
from macaron.ode.measure import OrderMeter, methods
from macaron.ode.scheme import Scheme

# Transformer and Macaron, both as networks compute them (Euler) and as the theorem means them (exact flows); then
# with exact flows what else there is, up to fourth order.
SELECTION = (
    "lie-fg:euler",
    "strang-gfg:euler",
    "lie-fg",
    "strang-gfg",
    "best22-fgfg",
    "ruth3-fg",
    "yoshida4-gfg",
    "blanes-moan4-g",
)
EXTENSIONS = (".svg", ".png")
# The range that is drawn: from a whole unit of time down to where the steepest lines meet rounding.
DRAWN_STEPS: Array = 2.0 ** -np.arange(0, 9.25, 0.5)
# Colours that stay apart for the colour-blind, and in print.
COLOURS = ("#4D4D4D", "#D55E00", "#E69F00", "#009E73", "#56B4E9", "#0072B2", "#CC79A7", "#8C564B")
MARKERS = "osD^v<>h"
# A scheme has one colour and marker, a way to follow its sub-flows one kind of line.
LINES: dict[str, Any] = {
    "exact": "-",
    "euler": (0, (4, 1.6)),
    "midpoint": (0, (6, 1.4, 1, 1.4)),
    "heun": (0, (1, 1.2)),
    "rk3": (0, (8, 1.4, 1, 1.4, 1, 1.4)),
    "rk4": (0, (10, 2)),
}


@dataclass(frozen=True, eq=False)
class Curve:
    """One line of the figure: the errors at the drawn steps, and the slope that the table of orders has."""

    name: str
    method: str
    errors: Array
    slope: float


def check_path(path: Path) -> None:
    """Refuse a file that is neither SVG nor PNG, before anything is computed."""
    if path.suffix.lower() not in EXTENSIONS:
        raise UsageError(f"cannot write a figure to {path}: its name must end in .svg or .png")


def parse(selection: Sequence[str]) -> list[tuple[Scheme, str]]:
    """Read ``NAME`` and ``NAME:INTEGRATOR``; sub-flows are exact without an integrator."""
    chosen = []
    for entry in selection:
        name, method = entry, "exact"
        if ":" in entry and not entry.lstrip().startswith("{"):
            name, _, method = entry.rpartition(":")
        if method not in methods():
            raise unknown("integrator", method, methods())
        chosen.append((find_scheme(name), method))
    return chosen


def curves(selection: Sequence[str] = SELECTION) -> list[Curve]:
    """Measure the chosen lines, the geometric mean over all systems at each step."""
    drawn, meter = OrderMeter(steps=DRAWN_STEPS), OrderMeter()
    lines = []
    for scheme, method in parse(selection):
        slope = meter.local_order(scheme, method)
        errors = np.exp(np.mean(np.log(drawn.errors(scheme, method)), axis=1))
        lines.append(Curve(scheme.name, method, errors, slope))
    return lines


def write_figure(path: Path, lines: Sequence[Curve]) -> None:
    """Draw the lines to an SVG or PNG file; the same lines give the same file. Missing folders are made."""
    check_path(path)
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text in an SVG; ids and metadata must not change from run to run.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "macaron", "font.size": 10, "axes.titlesize": 12}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(8.6, 5.2), layout="constrained")
        axes = figure.add_subplot()
        places = {name: place for place, name in enumerate(dict.fromkeys(line.name for line in lines))}
        for line in lines:
            i, exact = places[line.name], line.method == "exact"
            axes.loglog(
                DRAWN_STEPS,
                line.errors,
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                markevery=(0 if exact else 1, 2),  # staggered: lines of two kinds may coincide
                markersize=5,
                markerfacecolor=COLOURS[i % len(COLOURS)] if exact else "white",
                markeredgecolor="white" if exact else COLOURS[i % len(COLOURS)],
                markeredgewidth=0.6 if exact else 1.2,
                linewidth=1.8,
                linestyle=LINES.get(line.method, "--"),
                label=_label(line),
            )
        axes.set_xscale("log", base=2)
        axes.set_xlabel("step γ")
        axes.set_ylabel("error of one step")
        axes.set_title("Local error of splitting schemes on a particle system", loc="left", pad=12)
        axes.grid(True, which="major", color="#E6E6E6", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#888888")
        axes.tick_params(color="#888888")
        axes.margins(x=0.02)
        axes.legend(
            title="scheme, how its sub-flows are followed",
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            frameon=False,
            labelspacing=0.9,
            handlelength=2.6,
            alignment="left",
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
        figure.savefig(path, dpi=160, metadata=metadata)


def _label(line: Curve) -> str:
    network = {name: f" ({alias.capitalize()})" for alias, name in ALIASES.items()}.get(line.name, "")
    return f"{line.name}{network}, {line.method}\nslope {line.slope:.2f}"
