"""The figure of trajectories: where schemes go beside the exact path, and how their errors shrink with the step."""

from pathlib import Path
from typing import Any

from macaron.ode.catalogue import ALIASES
from macaron.ode.plot import check_path
from macaron.ode.trajectories import Comparison, Trajectories

#: Not blue and vermilion: those are the operators' colours wherever operators are drawn.
COLOURS = ("#CC79A7", "#009E73", "#E69F00", "#4D4D4D", "#56B4E9", "#8C564B")


def label(found: Trajectories) -> str:
    """A scheme and the network it is, and how its sub-flows are followed unless exactly."""
    network = {name: f" ({alias.capitalize()})" for alias, name in ALIASES.items()}.get(found.scheme.name, "")
    return f"{found.scheme.name}{network}" + ("" if found.method == "exact" else f", {found.method}")


def write_trajectories(path: Path, found: Comparison, steps: int) -> None:
    """Draw the paths in so many steps, and all errors, to an SVG or PNG file; the same data give the same file."""
    check_path(path)
    import matplotlib
    from matplotlib.figure import Figure

    # Text stays text in an SVG; ids and metadata must not change from run to run.
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": "macaron", "font.size": 10, "axes.titlesize": 11}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(9.6, 5.2), layout="constrained")
        paths, errors = figure.subplots(1, 2, width_ratios=(1, 1.05))
        _draw_paths(paths, found, steps)
        _draw_errors(errors, found)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else {"Software": None}
        figure.savefig(path, dpi=160, metadata=metadata)


def _draw_paths(axes: Any, found: Comparison, steps: int) -> None:
    particles = found.exact.shape[1]
    for i in range(particles):
        name = "exact flow" if i == 0 else None
        axes.plot(*found.exact[:, i].T, color="#C9CDD1", linewidth=6, solid_capstyle="round", label=name, zorder=1)
    for each, colour in zip(found.schemes, _colours(found), strict=True):
        nodes = each.walk(steps).nodes
        for i in range(particles):
            name = label(each) if i == 0 else None
            line = {"color": colour, "linewidth": 1.3, "marker": "o", "markersize": 4.5, "zorder": 2}
            axes.plot(*nodes[:, i].T, label=name, markeredgecolor="white", markeredgewidth=0.6, **line)
    axes.set_aspect("equal")
    axes.set_axis_off()
    count = f"{steps} steps" if steps > 1 else "one step"
    axes.set_title(f"{particles} particles after {count}", loc="left")
    axes.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.02), handlelength=2.2)


def _draw_errors(axes: Any, found: Comparison) -> None:
    for each, colour in zip(found.schemes, _colours(found), strict=True):
        walks = each.walks
        counts = [walk.steps for walk in walks]
        axes.loglog(counts, [walk.error for walk in walks], color=colour, marker="o", markersize=5, linewidth=1.8)
        last = walks[-1]
        text = f"{label(each)}\nhalf the step: error / {last.ratio:.2f}"
        # Beside its line, above a falling one: there is room on the left of the last points.
        axes.annotate(
            text, (walks[-2].steps, walks[-2].error), (-8, -2), textcoords="offset points", ha="right", va="top"
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks([walk.steps for walk in found.schemes[0].walks])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(f"steps for a time of {found.duration:g}")
    axes.set_title("Error at the end", loc="left")
    axes.grid(True, which="major", color="#E6E6E6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.minorticks_off()
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(color="#888888")


def _colours(found: Comparison) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(len(found.schemes))]
