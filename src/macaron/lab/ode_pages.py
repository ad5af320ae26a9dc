"""The pages of ``macaron ode``: errors against the step; particles under schemes, with a slider for the steps."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from macaron.lab.charts import Series, line_chart, number
from macaron.lab.page import Raw, asset, escape, html_table, note, render_page, section, write_page
from macaron.ode.catalogue import ALIASES
from macaron.ode.measure import OrderMeter, parse_selection
from macaron.ode.trajectories import (
    AS_LAYERS,
    DURATION,
    EXACT,
    SchemeTrajectories,
    Trajectory,
    TrajectoryComparison,
    compare,
)
from macaron.ode.word_series import Array

# Transformer and Macaron, both as networks compute them (Euler) and as the theorem has them (exact sub-flows); then
# schemes up to fourth order with exact sub-flows.
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

#: The sub-flows of some trajectories, in words.
Group = tuple[str, TrajectoryComparison]


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
    write_page(path, render_page(heading, section("Errors", chart, table)))


def write_trajectory_page(path: Path, selection: Sequence[str], seed: int, steps: int) -> None:
    """Write the page, which shows one group of trajectories at a time.

    Without a selection there are two: Lie and Strang, with the Euler sub-steps of layers and with exact ones.
    """
    chosen = {"": selection} if selection else {"Euler, as in layers": AS_LAYERS, "exact, as in the theorem": EXACT}
    groups = [(name, compare(schemes, seed)) for name, schemes in chosen.items()]
    first = groups[0][1]
    drawing = _Drawing(groups)
    caveats = note("trajectories", "euler") + "\n" if len(groups) > 1 else ""
    caveats += note("trajectories", "system", seed=first.seed, time=DURATION)
    body = [
        section("Paths", _stage(groups, drawing, steps), id="paths"),
        section("Errors", _error_chart(groups), id="errors"),
        section("What this shows, and what it does not", caveats, id="caveats"),
    ]
    names = "Lie and Strang" if len(groups) > 1 else " and ".join(dict.fromkeys(s.scheme.name for s in first.schemes))
    page = render_page(
        f"{names} on five particles",
        "\n".join(body),
        lead=note("trajectories", "lead") if len(groups) > 1 else "",
        styles=["trajectories.css"],
        scripts=["trajectories.js"],
        data={"trajectories": _data(groups, drawing, steps)},
    )
    write_page(path, page)


class _Drawing:
    """The map from the particles' plane to the units of the drawing."""

    def __init__(self, groups: Sequence[Group]) -> None:
        # Trajectories with fewer than four steps may go far and leave the frame.
        drawn = (one for _, found in groups for each in found.schemes for one in each.trajectories)
        many = [one.nodes.reshape(-1, 2) for one in drawn if one.steps >= 4]
        points = np.concatenate([groups[0][1].exact.reshape(-1, 2), *many])
        self.low, self.high = points.min(0), points.max(0)
        self.scale = float((_WIDTH - 2 * _MARGIN) / (self.high[0] - self.low[0]))
        self.height = round(float(self.high[1] - self.low[1]) * self.scale + 2 * _MARGIN)

    def points(self, states: Array) -> list[list[float]]:
        """The path of each particle, from states (k, n, 2), as [x, y, x, y, ...] rounded to tenths."""
        x = _MARGIN + (states[..., 0] - self.low[0]) * self.scale
        y = _MARGIN + (self.high[1] - states[..., 1]) * self.scale
        paths = np.stack([x.T, y.T], axis=-1).reshape(states.shape[1], -1)
        return [[round(value, 1) for value in path] for path in paths.tolist()]


def _data(groups: Sequence[Group], drawing: _Drawing, steps: int) -> dict[str, object]:
    def plain(one: Trajectory) -> dict[str, object]:
        return {
            "nodes": drawing.points(one.nodes),
            "moves": [[operator, drawing.points(states)] for operator, states in one.moves],
            "error": number(one.error),
            "ratio": f"{one.ratio:.2f}",
        }

    return {
        "steps": [one.steps for one in groups[0][1].schemes[0].trajectories],
        "start": steps,
        "groups": [
            {"name": name, "schemes": [{"trajectories": list(map(plain, each.trajectories))} for each in found.schemes]}
            for name, found in groups
        ],
    }


def _stage(groups: Sequence[Group], drawing: _Drawing, steps: int) -> str:
    """The drawing for ``steps``, which is also what a reader without scripts sees; the controls; the errors."""
    found = groups[0][1]
    exact = "".join(f'<path d="{_line(path)}"/>' for path in drawing.points(found.exact))
    layers, entries, options, rows = [], [], [], []
    for i, each in enumerate(found.schemes):
        one, label = each.of(steps), escape(_label(each, groups))
        colour = f'style="--colour:var(--series-{COLOURS[i % len(COLOURS)]})"'
        paths = drawing.points(one.nodes)
        lines, dots = "".join(map(_line, paths)), "".join(map(_dots, paths))
        drawn = f'<path class="line" d="{lines}"/><path class="nodes" d="{dots}"/>'
        layers.append(f'<g class="trajectory" {colour}>{drawn}</g>')
        name = f'<span class="swatch" {colour}></span>{label}'
        entries.append(f"<li>{name}</li>")
        options.append(f'<option value="{i}">{escape(each.scheme.name)}</option>')
        error, ratio = f'<span class="error">{number(one.error)}</span>', f'<span class="ratio">{one.ratio:.2f}</span>'
        rows.append((Raw(name), Raw(error), Raw(f"÷ {ratio}")))
    counts = [one.steps for one in found.schemes[0].trajectories]
    choices = "".join(f'<option value="{i}">{escape(name)}</option>' for i, (name, _) in enumerate(groups))
    described = f"The paths of {found.exact.shape[1]} particles: exact (wide and grey), and by each scheme."
    headers, caption = ["scheme", "error at the end", "with half the step"], "Error at the chosen number of steps"
    table = html_table(headers, rows, caption=caption, numeric=[1, 2])
    return asset("trajectories.html").format(
        width=_WIDTH,
        height=drawing.height,
        described=described,
        exact=exact,
        layers="".join(layers),
        entries="".join(entries),
        steps=steps,
        last=len(counts) - 1,
        index=counts.index(steps),
        hidden=" hidden" if len(groups) == 1 else "",
        choices=choices,
        options="".join(options),
        table=table,
    )


def _label(each: SchemeTrajectories, groups: Sequence[Group]) -> str:
    return scheme_label(each.scheme.name, each.method if len(groups) == 1 else "")


def _line(path: Sequence[float]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in zip(path[::2], path[1::2], strict=True))


def _dots(path: Sequence[float]) -> str:
    # Lines of zero length with round ends: dots whose size does not scale with the drawing.
    return "".join(f"M{x:g} {y:g}h0" for x, y in zip(path[::2], path[1::2], strict=True))


def _error_chart(groups: Sequence[Group]) -> str:
    series = [
        Series(
            scheme_label(each.scheme.name, each.method),
            [(float(one.steps), one.error) for one in each.trajectories],
            colour=COLOURS[i % len(COLOURS)],
            dashed=each.method != "exact",
        )
        for _, found in groups
        for i, each in enumerate(found.schemes)
    ]
    title, y_label = "Error at the end against the number of steps", "distance from the exact end"
    return line_chart(series, title=title, x_label="steps", y_label=y_label, log_x=True, log_y=True)
