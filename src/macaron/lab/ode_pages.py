"""The pages of ``macaron ode``: errors against the step; particles under schemes, with a slider for the steps."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup, escape

from macaron.lab.charts import Series, line_chart, number
from macaron.lab.page import fill, html_table, section, write_page
from macaron.ode.catalogue import ALIASES
from macaron.ode.measure import OrderMeter, parse_selection
from macaron.ode.trajectories import AS_LAYERS, DURATION, EXACT, STEPS, SchemeTrajectories, Trajectory, compare
from macaron.ode.word_series import Array

# Both as networks compute them (Euler) and as the theorem has them (exact); then schemes up to fourth order.
ORDER_SELECTION = (
    *("lie-fg:euler", "strang-gfg:euler"),
    *("lie-fg", "strang-gfg", "best22-fgfg", "ruth3-fg", "yoshida4-gfg", "blanes-moan4-g"),
)
# From a whole unit of time down to where the steepest lines reach rounding.
DRAWN_STEPS: Array = 2.0 ** -np.arange(0, 9.25, 0.5)
#: The colours of schemes on the page; 0 and 1 are the operators'.
COLOURS = (3, 2, 4, 5, 6, 7)
#: Width of the drawing in its own units, and its margin.
_WIDTH, _MARGIN = 1000.0, 40.0

#: The paths of all particles, each [x, y, x, y, ...], from states (k, n, 2).
Paths = Callable[[Array], list[list[float]]]


def scheme_label(name: str, method: str = "") -> str:
    """The name of a scheme, of its network, and, if given, of its integrator: ``strang-gfg (Macaron), euler``."""
    networks = {scheme: f" ({alias.capitalize()})" for alias, scheme in ALIASES.items()}
    return name + networks.get(name, "") + (f", {method}" if method else "")


def write_order_page(path: Path, selection: Sequence[str] = ORDER_SELECTION) -> None:
    """Write the page: the local error against the step, the geometric mean over all systems; and the slopes."""
    drawn, meter = OrderMeter(steps=DRAWN_STEPS), OrderMeter()
    chosen = parse_selection(selection)
    names = list(dict.fromkeys(scheme.name for scheme, _ in chosen))
    lines, slopes = [], []
    for scheme, method in chosen:
        errors = np.exp(np.mean(np.log(drawn.errors(scheme, method)), axis=1))
        points = list(zip(DRAWN_STEPS.tolist(), errors.tolist(), strict=True))
        label, colour = scheme_label(scheme.name, method), names.index(scheme.name)
        lines.append(Series(label, points[::-1], colour, dashed=method != "exact"))
        slopes.append((label, f"{meter.local_order(scheme, method):.2f}"))
    title, y_label = "Error of one step against the step", "error of one step"
    chart = line_chart(lines, title=title, x_label="step γ", y_label=y_label, log_x=True, log_y=True, height=420)
    headers = ["scheme, integrator of the sub-flows", "slope"]
    table = html_table(headers, slopes, caption="The slopes, measured", numeric=[1])
    heading = "Local error of splitting schemes on a particle system"
    write_page(path, fill("page.html", title=heading, body=section("Errors", chart, table)))


def write_trajectory_page(path: Path, selection: Sequence[str], seed: int, steps: int) -> None:
    """Write the page, with one group of trajectories at a time; by default Lie and Strang, as in layers and exact."""
    chosen = {"": selection} if selection else {"Euler, as in layers": AS_LAYERS, "exact, as in the theorem": EXACT}
    found = {name: compare(schemes, seed) for name, schemes in chosen.items()}
    (exact, first), several = next(iter(found.values())), len(found) > 1
    names = "Lie and Strang" if several else " and ".join(dict.fromkeys(each.scheme.name for each in first))
    paths, height = _drawing(exact, [each for _, schemes in found.values() for each in schemes])
    groups: list[dict[str, Any]] = []
    lines = []
    for name, (_, schemes) in found.items():
        groups.append({"name": name, "schemes": [[_data(one, paths) for one in each.trajectories] for each in schemes]})
        for i, each in enumerate(schemes):
            points = [(float(one.steps), one.error) for one in each.trajectories]
            label = scheme_label(each.scheme.name, each.method)
            lines.append(Series(label, points, COLOURS[i % len(COLOURS)], dashed=each.method != "exact"))
    title, y_label = "Error at the end against the number of steps", "distance from the exact end"
    chart = line_chart(lines, title=title, x_label="steps", y_label=y_label, log_x=True, log_y=True)
    index, shown, rows = STEPS.index(steps), [], []
    for i, (each, drawn) in enumerate(zip(first, groups[0]["schemes"], strict=True)):
        one, colour = drawn[index], COLOURS[i % len(COLOURS)]
        label = escape(scheme_label(each.scheme.name, "" if several else each.method))
        name = Markup(f'<span class="swatch" style="--colour:var(--series-{colour})"></span>{label}')
        shown.append({"name": name, "scheme": each.scheme.name, "colour": colour, "nodes": one["nodes"]})
        values = (f'<span class="error">{one["error"]}</span>', f'÷ <span class="ratio">{one["ratio"]}</span>')
        rows.append((name, *map(Markup, values)))
    headers, caption = ["scheme", "error at the end", "with half the step"], "Error at the chosen number of steps"
    # The drawing for ``steps`` is also what a reader without scripts sees.
    page = fill(
        "trajectories.html",
        names=names,
        width=f"{_WIDTH:g}",
        height=height,
        exact=paths(exact),
        shown=shown,
        groups=groups,
        several=several,
        steps=steps,
        index=index,
        last=len(STEPS) - 1,
        table=html_table(headers, rows, caption=caption, numeric=[1, 2]),
        line=_line,
        chart=chart,
        seed=seed,
        time=DURATION,
        data={"trajectories": {"steps": STEPS, "start": steps, "groups": groups}},
    )
    write_page(path, page)


def _drawing(exact: Array, schemes: Sequence[SchemeTrajectories]) -> tuple[Paths, int]:
    """The map from the particles' plane to the units of the drawing, and its height."""
    # Trajectories with fewer than four steps may go far and leave the frame.
    drawn = [one.nodes for each in schemes for one in each.trajectories if one.steps >= 4]
    points = np.concatenate([states.reshape(-1, 2) for states in (exact, *drawn)])
    (left, bottom), (right, top) = points.min(0), points.max(0)
    scale = (_WIDTH - 2 * _MARGIN) / (right - left)

    def paths(states: Array) -> list[list[float]]:
        placed = _MARGIN + (states - (left, top)) * (scale, -scale)
        by_particle = placed.swapaxes(0, 1).reshape(states.shape[1], -1).tolist()
        return [[round(value, 1) for value in path] for path in by_particle]

    return paths, round(float(top - bottom) * scale + 2 * _MARGIN)


def _data(one: Trajectory, paths: Paths) -> dict[str, Any]:
    moves = [[operator, paths(states)] for operator, states in one.moves]
    return {"nodes": paths(one.nodes), "moves": moves, "error": number(one.error), "ratio": f"{one.ratio:.2f}"}


def _line(paths: Sequence[Sequence[float]], dots: bool = False) -> str:
    """The d of SVG paths, or of a dot at each of their points."""
    points = ([f"{x:g} {y:g}" for x, y in zip(path[::2], path[1::2], strict=True)] for path in paths)
    return "".join("".join(f"M{p}h0" for p in each) if dots else "M" + "L".join(each) for each in points)
