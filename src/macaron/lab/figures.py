"""Figures as image files, drawn by matplotlib: the errors of schemes against their step, and their trajectories.

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
from macaron.ode.trajectories import DURATION, SchemeTrajectories, TrajectoryComparison
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
# Without blue and vermilion, which are the operators' colours wherever operators are drawn.
TRAJECTORY_COLOURS = ("#CC79A7", "#009E73", "#E69F00", "#4D4D4D", "#56B4E9", "#8C564B")
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


def write_trajectory_figure(path: Path, found: TrajectoryComparison, steps: int) -> None:
    """Draw the trajectories with a given number of steps, by integrator, and the errors of all numbers of steps."""
    from matplotlib.figure import Figure

    methods = list(dict.fromkeys(each.method for each in found.schemes))
    names = list(dict.fromkeys(each.scheme.name for each in found.schemes))
    with drawing():
        figure = Figure(figsize=(5 + 4.2 * len(methods), 5.2), layout="constrained")
        *panels, errors = figure.subplots(1, len(methods) + 1, width_ratios=(*(1 for _ in methods), 1.3))
        everything = np.concatenate([each.of(steps).nodes.reshape(-1, 2) for each in found.schemes])
        for method, paths in zip(methods, panels, strict=True):
            chosen = [each for each in found.schemes if each.method == method]
            _draw_paths(paths, found.exact, chosen, [_colour(each, names) for each in chosen], steps)
            paths.update_datalim(everything)  # one scale for all panels
            paths.autoscale_view()
            sub_steps = {"euler": "Euler steps, as in layers", "exact": "exact sub-flows, as in the theorem"}
            paths.set_title(f"{steps} step{'s' * (steps > 1)}: {sub_steps.get(method, method)}", loc="left")
        for each in found.schemes:
            shown = [(one.steps, one.error) for one in each.trajectories]
            style: Any = LINES.get(each.method, "--")
            errors.loglog(
                *zip(*shown, strict=True),
                color=_colour(each, names),
                linestyle=style,
                marker="o",
                markersize=5,
                linewidth=1.8,
                label=f"{scheme_label(each.scheme.name, each.method)}\nhalf the step: error / "
                f"{each.trajectories[-1].ratio:.2f}",
            )
        errors.set_xscale("log", base=2)
        errors.set_xticks([one.steps for one in found.schemes[0].trajectories])
        errors.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        x_label, y_label = f"steps for a time of {DURATION:g} (log scale)", "distance from the exact end (log scale)"
        errors.set(xlabel=x_label, ylabel=y_label)
        errors.set_title("Error at the end", loc="left")
        errors.legend(frameon=False, loc="lower left", labelspacing=0.7, handlelength=2.6)
        clean_axes(errors)
        write_figure(path, figure)


def _colour(each: SchemeTrajectories, names: Sequence[str]) -> str:
    """One colour for each scheme, whatever its integrator."""
    return TRAJECTORY_COLOURS[names.index(each.scheme.name) % len(TRAJECTORY_COLOURS)]


def _draw_paths(
    axes: Any, exact: Array, schemes: Sequence[SchemeTrajectories], colours: Sequence[str], steps: int
) -> None:
    """Draw the exact path, wide and grey, and those of schemes on it."""
    wide = {"color": "#C9CDD1", "linewidth": 6, "solid_capstyle": "round", "zorder": 1}
    line = {"linewidth": 1.3, "marker": "o", "markersize": 4.5, "markeredgecolor": "white", "markeredgewidth": 0.6}
    for i in range(exact.shape[1]):
        axes.plot(*exact[:, i].T, label=None if i else "exact flow", **wide)
        for each, colour in zip(schemes, colours, strict=True):
            name = None if i else scheme_label(each.scheme.name)
            axes.plot(*each.of(steps).nodes[:, i].T, label=name, color=colour, zorder=2, **line)
    axes.set_aspect("equal")
    axes.set_axis_off()
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.02), handlelength=2.2)
