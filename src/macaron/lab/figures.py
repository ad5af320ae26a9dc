"""Figures as image files, drawn by matplotlib: the errors of schemes against their step.

The same data give the same file. Pages draw their charts as SVG (`macaron.lab.charts`).
"""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from macaron.errors import UsageError
from macaron.files import atomic_file
from macaron.ode.catalogue import ALIASES
from macaron.ode.measure import OrderMeter, parse_selection
from macaron.ode.word_series import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXTENSIONS = (".svg", ".png")
# Transformer and Macaron, both as networks compute them (Euler) and as the theorem has them (exact sub-flows); then
# schemes up to fourth order with exact sub-flows.
ORDER_SELECTION = (
    *("lie-fg:euler", "strang-gfg:euler"),
    *("lie-fg", "strang-gfg", "best22-fgfg", "ruth3-fg", "yoshida4-gfg", "blanes-moan4-g"),
)
# From a whole unit of time down to where the steepest lines reach rounding.
DRAWN_STEPS: Array = 2.0 ** -np.arange(0, 9.25, 0.5)
# Okabe and Ito's colours, distinct to colour-blind readers and in print.
COLOURS = ("#4D4D4D", "#D55E00", "#E69F00", "#009E73", "#56B4E9", "#0072B2", "#CC79A7", "#8C564B")
MARKERS = "osD^v<>h"
# Each scheme has its colour and marker, each integrator its line style.
LINES: dict[str, Any] = {
    "exact": "-",
    "euler": (0, (4, 1.6)),
    "midpoint": (0, (6, 1.4, 1, 1.4)),
    "heun": (0, (1, 1.2)),
    "rk3": (0, (8, 1.4, 1, 1.4, 1, 1.4)),
    "rk4": (0, (10, 2)),
}


def check_figure_path(path: Path) -> None:
    """Refuse a file that is neither SVG nor PNG, before anything is computed."""
    if path.suffix.lower() not in EXTENSIONS:
        raise UsageError(f"cannot write a figure to {path}: its name must end in .svg or .png")


@contextmanager
def drawing(font_size: float = 10, title_size: float = 11) -> Iterator[None]:
    """The style of all figures. Text stays text in an SVG, and its ids are the same in every run."""
    import matplotlib

    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "macaron", "font.size": font_size}
    with matplotlib.rc_context({**style, "axes.titlesize": title_size}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters that the font lacks
        yield


def clean_axes(axes: Any) -> None:
    """Axes without a box: a faint grid, and grey lines on the left and at the bottom."""
    axes.grid(True, which="major", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(color="#888888")


def rendered(figure: "Figure", kind: str, dpi: int = 160) -> bytes:
    """The content of an image file, ``kind`` being ``svg`` or ``png``, without date and version."""
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=dpi, metadata={"Date" if kind == "svg" else "Software": None})
    return stream.getvalue()


def write_figure(path: Path, figure: "Figure") -> None:
    """Write a figure as SVG or PNG, by the name of the file, which is checked before anything is computed."""
    with atomic_file(path) as file:
        file.write(rendered(figure, path.suffix[1:].lower()))


def scheme_label(name: str, method: str = "") -> str:
    """The name of a scheme, of its network, and, if given, of its integrator: ``strang-gfg (Macaron), euler``."""
    networks = {scheme: f" ({alias.capitalize()})" for alias, scheme in ALIASES.items()}
    return name + networks.get(name, "") + (f", {method}" if method else "")


@dataclass(frozen=True, eq=False)
class ErrorCurve:
    """The errors of one scheme at the drawn steps, and the measured slope."""

    name: str
    method: str
    errors: Array
    slope: float


def error_curves(selection: Sequence[str] = ORDER_SELECTION) -> list[ErrorCurve]:
    """Measure the curves, each error being the geometric mean over all systems."""
    drawn, meter = OrderMeter(steps=DRAWN_STEPS), OrderMeter()
    curves = []
    for scheme, method in parse_selection(selection):
        slope = meter.local_order(scheme, method)
        errors = np.exp(np.mean(np.log(drawn.errors(scheme, method)), axis=1))
        curves.append(ErrorCurve(scheme.name, method, errors, slope))
    return curves


def write_order_figure(path: Path, curves: Sequence[ErrorCurve]) -> None:
    """Draw the local error against the step."""
    from matplotlib.figure import Figure

    with drawing(title_size=12):
        figure = Figure(figsize=(8.6, 5.2), layout="constrained")
        axes = figure.add_subplot()
        names = list(dict.fromkeys(curve.name for curve in curves))
        for curve in curves:
            i, exact = names.index(curve.name), curve.method == "exact"
            colour = COLOURS[i % len(COLOURS)]
            axes.loglog(
                DRAWN_STEPS,
                curve.errors,
                color=colour,
                marker=MARKERS[i % len(MARKERS)],
                markevery=(0 if exact else 1, 2),  # staggered: an exact and an Euler line may coincide
                markersize=5,
                markerfacecolor=colour if exact else "white",
                markeredgecolor="white" if exact else colour,
                markeredgewidth=0.6 if exact else 1.2,
                linewidth=1.8,
                linestyle=LINES.get(curve.method, "--"),
                label=f"{scheme_label(curve.name, curve.method)}\nslope {curve.slope:.2f}",
            )
        axes.set_xscale("log", base=2)
        axes.set(xlabel="step γ (log scale)", ylabel="error of one step (log scale)")
        axes.set_title("Local error of splitting schemes on a particle system", loc="left", pad=12)
        clean_axes(axes)
        axes.margins(x=0.02)
        axes.legend(
            title="scheme, integrator of the sub-flows",
            loc="center left",
            bbox_to_anchor=(1.01, 0.5),
            frameon=False,
            labelspacing=0.9,
            handlelength=2.6,
            alignment="left",
        )
        write_figure(path, figure)
