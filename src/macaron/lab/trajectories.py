"""The page of trajectories: a slider for the number of steps, and what it does to each scheme's path and error."""

from collections.abc import Sequence
from pathlib import Path

from macaron.lab.charts import Series, line_chart
from macaron.lab.page import Raw, escape, html_table, render_page, section, write_page
from macaron.lab.scales import number
from macaron.ode.flows import Array
from macaron.ode.trajectories import SELECTION, Comparison, Trajectories, compare
from macaron.ode.trajectory_plot import label

#: The colours of schemes on the page; blue and vermilion are the operators'.
COLOURS = (3, 2, 4, 5, 6, 7)
#: What else a plain page shows: the same schemes with the sub-steps that networks take.
AS_NETWORKS = tuple(f"{name}:euler" for name in SELECTION)
#: Width of the drawing in its own units, and its margin.
_WIDTH, _MARGIN = 1000.0, 40.0

_LEAD = (
    "Attention (F) and the feed-forward network (G) move five particles at once; a network applies them in turns. A "
    "Transformer layer is a step of Lie: F, then G. A Macaron layer is a step of Strang: half G, F, half G. Smaller "
    "steps bring both nearer to the exact path, and Strang much sooner."
)


def write_trajectory_page(path: Path, selection: Sequence[str], seed: int, steps: int) -> None:
    """Write the page; without a selection it has Lie and Strang, with exact and with Euler sub-steps."""
    groups = [("exactly", selection or SELECTION)]
    if not selection:
        groups.append(("by Euler steps", AS_NETWORKS))
    found = [(name, compare(chosen, seed)) for name, chosen in groups]
    write_page(path, trajectory_page(found, steps))


def trajectory_page(groups: Sequence[tuple[str, Comparison]], steps: int) -> str:
    """The page as text: each group is one way to follow sub-flows, shown one at a time."""
    first = groups[0][1]
    drawing = _Drawing(groups)
    body = "\n".join(
        [
            section("Paths", _stage(groups, drawing, steps), id="paths"),
            section("Errors", _error_chart(groups), _error_table(groups), id="errors"),
            section("What this shows, and what not", *_caveats(first, len(groups) > 1), id="caveats"),
        ]
    )
    names = " and ".join(dict.fromkeys(each.scheme.name for each in first.schemes))
    title = "Lie and Strang, seen on five particles" if len(groups) > 1 else f"{names}, seen on five particles"
    return render_page(
        title,
        body,
        lead=_LEAD if len(groups) > 1 else "",
        styles=["trajectories.css"],
        scripts=["trajectories.js"],
        data={"trajectories": _data(groups, drawing, steps)},
    )


class _Drawing:
    """From the plane of the particles to the units of the drawing."""

    def __init__(self, groups: Sequence[tuple[str, Comparison]]) -> None:
        # Very long steps may go far beyond the rest: they are seen to leave the frame.
        points = [groups[0][1].exact.reshape(-1, 2)]
        walks = [walk for _, found in groups for each in found.schemes for walk in each.walks]
        points += [walk.nodes.reshape(-1, 2) for walk in walks if walk.steps >= 4]
        low = [min(float(p[:, k].min()) for p in points) for k in range(2)]
        high = [max(float(p[:, k].max()) for p in points) for k in range(2)]
        self.low, self.high = low, high
        self.scale = (_WIDTH - 2 * _MARGIN) / (high[0] - low[0])
        self.height = round((high[1] - low[1]) * self.scale + 2 * _MARGIN)

    def points(self, states: Array) -> list[list[float]]:
        """The way of each particle, (k, n, 2), as x, y, x, y, ... in tenths."""
        x = _MARGIN + (states[..., 0] - self.low[0]) * self.scale
        y = _MARGIN + (self.high[1] - states[..., 1]) * self.scale
        return [
            [round(float(value), 1) for place in zip(x[:, i], y[:, i], strict=True) for value in place]
            for i in range(states.shape[1])
        ]


def _data(groups: Sequence[tuple[str, Comparison]], drawing: _Drawing, steps: int) -> dict[str, object]:
    return {
        "steps": [walk.steps for walk in groups[0][1].schemes[0].walks],
        "start": steps,
        "groups": [
            {"name": name, "schemes": [_scheme(each, drawing) for each in found.schemes]} for name, found in groups
        ],
    }


def _scheme(found: Trajectories, drawing: _Drawing) -> dict[str, object]:
    return {
        "walks": [
            {
                "nodes": drawing.points(walk.nodes),
                "moves": [[operator, drawing.points(states)] for operator, states in walk.moves],
                "error": number(walk.error),
                "ratio": f"{walk.ratio:.2f}",
            }
            for walk in found.walks
        ]
    }


def _stage(groups: Sequence[tuple[str, Comparison]], drawing: _Drawing, steps: int) -> str:
    """The drawing as it is before anything is moved, the controls, and the errors of what is drawn."""
    found = groups[0][1]
    exact = "".join(f'<path d="{_line(way)}"/>' for way in drawing.points(found.exact))
    layers, entries, options, rows = [], [], [], []
    for i, each in enumerate(found.schemes):
        walk, name = each.walk(steps), label(each)
        colour = f'style="--colour:var(--series-{COLOURS[i % len(COLOURS)]})"'
        ways = drawing.points(walk.nodes)
        lines, dots = "".join(map(_line, ways)), "".join(map(_dots, ways))
        layers.append(f'<g class="walk" {colour}><path class="way" d="{lines}"/><path class="nodes" d="{dots}"/></g>')
        entries.append(f'<li><span class="swatch" {colour}></span>{escape(name)}</li>')
        options.append(f'<option value="{i}">of {escape(each.scheme.name)}</option>')
        rows.append(
            (
                Raw(f'<span class="swatch" {colour}></span>{escape(name)}'),
                Raw(f'<span class="error">{number(walk.error)}</span>'),
                Raw(f'÷ <span class="ratio">{walk.ratio:.2f}</span>'),
            )
        )
    counts = [walk.steps for walk in found.schemes[0].walks]
    choices = "".join(f'<option value="{i}">{escape(name)}</option>' for i, (name, _) in enumerate(groups))
    described = (
        f"The paths of {found.exact.shape[1]} particles: the exact ones, wide and grey, and those of the schemes."
    )
    table = html_table(
        ["scheme", "error at the end", "at half the step"], rows, caption="In so many steps", numeric=[1, 2]
    )
    return f"""<div class="trajectories">
<figure>
<svg viewBox="0 0 {_WIDTH:g} {drawing.height}" role="img" aria-labelledby="stage-name stage-text">
<title id="stage-name">Paths of the particles</title><desc id="stage-text">{described}</desc>
<g class="exact">{exact}</g><g class="moves"></g>{"".join(layers)}
</svg>
<figcaption><ul class="legend"><li><span class="swatch wide"></span>exact flow</li>{"".join(entries)}
<li class="operators" hidden><span class="swatch f"></span>along F<span class="swatch g"></span>along G</li>
</ul></figcaption>
</figure>
<div class="panel">
<div class="controls" hidden>
<label for="steps">Steps <output id="count" for="steps">{steps}</output></label>
<input type="range" id="steps" min="0" max="{len(counts) - 1}" step="1" value="{counts.index(steps)}">
<div class="choices">
<label{" hidden" if len(groups) == 1 else ""}>Sub-flows are followed<select id="group">{choices}</select></label>
<label>Sub-steps are shown<select id="moves"><option value="">of none</option>{"".join(options)}</select></label>
</div>
</div>
{table}
<p class="visually-hidden" id="said" aria-live="polite"></p>
</div>
</div>"""


def _line(way: Sequence[float]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in zip(way[::2], way[1::2], strict=True))


def _dots(way: Sequence[float]) -> str:
    # A line of no length with round ends: a dot whose size does not depend on that of the drawing.
    return "".join(f"M{x:g} {y:g}h0" for x, y in zip(way[::2], way[1::2], strict=True))


def _error_chart(groups: Sequence[tuple[str, Comparison]]) -> str:
    series = [
        Series(
            label(each),
            [(float(walk.steps), walk.error) for walk in each.walks],
            colour=COLOURS[i % len(COLOURS)],
            dashed=each.method != "exact",
        )
        for _, found in groups
        for i, each in enumerate(found.schemes)
    ]
    title, x_label = "Error at the end against the number of steps", "steps"
    return line_chart(
        series, title=title, x_label=x_label, y_label="distance from the exact end", log_x=True, log_y=True
    )


def _error_table(groups: Sequence[tuple[str, Comparison]]) -> str:
    """What the chart's own table has not: by how much each halving divides the error."""
    schemes = [each for _, found in groups for each in found.schemes]
    counts = [walk.steps for walk in schemes[0].walks]
    rows = [(f"{n}\u202fto\u202f{2 * n}", *(f"{each.walk(n).ratio:.2f}" for each in schemes)) for n in counts]
    headers = ["steps", *map(label, schemes)]
    caption = "What the error is divided by when the step halves: 2 is first order, 4 is second"
    return html_table(headers, rows, caption=caption, numeric=range(1, len(headers)))


def _caveats(found: Comparison, networks: bool) -> list[str]:
    euler = (
        "The theorem is about exact sub-flows. A plain residual layer takes one Euler step along each, which is itself "
        "of first order: choose Euler steps above, and both schemes halve their error, no more."
    )
    chosen = (
        f"One system, softmax attention and a small tanh network in the plane (seed {found.seed}), over a time of "
        f"{found.duration:g}. The usual seed was taken among 400 because its paths lie apart; the orders do not depend "
        "on it (macaron ode orders measures seven other systems)."
    )
    return [f"<p>{escape(text)}</p>" for text in ([euler] if networks else []) + [chosen]]
