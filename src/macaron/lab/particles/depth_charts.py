"""The charts below the particles: measures of the words over depth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from macaron.lab.charts import Series, line_chart
from macaron.lab.page import escape

Data = Mapping[str, Any]

#: An operator's name, its effect on particles, its name in networks if different, and the colour of its curves (that of
#: --op-F, --op-G, --op-H).
OPERATORS = {
    "G": ("Convection", "each word by itself", "feed-forward", 1),
    "F": ("Diffusion", "words attract words", "self-attention", 0),
    "H": ("Cross-attention", "source words attract", None, 2),
}

#: The name of a line (default: its model's), its colour (default: its model's) and its points.
Line = tuple[str, int | None, list[tuple[float, float]]]
#: Title, y axis, explanation, and the lines of a part.
DepthChart = tuple[str, str, str, Callable[[Data], Iterator[Line]]]


def depth_charts(models: Sequence[Data], name: str, *, alone: bool) -> str:
    """The charts of a part, each with all models; the second model's lines are dashed.

    :param alone: whether the page has no other part
    """
    charts = []
    for title, label, meaning, points in _CHARTS:
        series = []
        for m, model in enumerate(models):
            for part in (part for part in model["parts"] if part["name"] == name):
                for what, colour, line in points(part):
                    own = f"{model['name']}: {what}" if what and len(models) > 1 else what or model["name"]
                    shade = colour if colour is not None else 5 if len(models) == 1 else 3 + m
                    series.append(Series(own, line, colour=shade, dashed=m > 0))
        per_layer = points in (_commutator, _truncation)
        axis = "layer" if per_layer else "layers passed"
        chart = line_chart(series, title=title, x_label=axis, y_label=label, height=190, from_zero=True)
        # The value of layer 3 is drawn at 3, but layer 3 lasts from 2 to 3: the time line is shifted by its middle.
        charts.append(f'<div data-shift="{0.5 if per_layer else 0}">{chart}<p class="note">{meaning}</p></div>')
    heading = "" if alone else f"<h3>{escape(name.capitalize())}</h3>"
    return f'<div data-part="{escape(name)}">{heading}<div class="charts">{"".join(charts)}</div></div>'


def _moves(key: str) -> Callable[[Data], Iterator[Line]]:
    def curves(part: Data) -> Iterator[Line]:
        moments = [t for t, frame in zip(part["times"], part["frames"], strict=True) if frame["operator"] in OPERATORS]
        moves = list(zip(moments, part["depth"]["moves"], strict=True))
        for operator, (name, _, _, colour) in OPERATORS.items():
            line = [(time, move[key]) for time, move in moves if move["operator"] == operator]
            if line:
                yield f"{name.lower()} ({operator})", colour, line

    return curves


def _by_frame(key: str) -> Callable[[Data], Iterator[Line]]:
    def curve(part: Data) -> Iterator[Line]:
        values = zip(part["times"], part["depth"][key], strict=True)
        yield "", None, [(time, value) for time, value in values if value is not None]

    return curve


def _commutator(part: Data) -> Iterator[Line]:
    rows = part["depth"]["commutator"]
    pairs = list(dict.fromkeys(row.get("pair", "FG") for row in rows))
    for i, pair in enumerate(pairs):
        line = [(row["layer"], row["relative"]) for row in rows if row.get("pair", "FG") == pair]
        yield " and ".join(pair), (None if len(pairs) == 1 else (5, 3, 4)[i % 3]), line


def _truncation(part: Data) -> Iterator[Line]:
    yield "", None, [(row["layer"], row["relative"]) for row in part["depth"]["truncation"]]


_CHARTS: list[DepthChart] = [
    (
        "Length of the moves",
        "mean length of the move",
        "Lengths in the full space. If moves stay large to the end, no layer is idle.",
        _moves("size"),
    ),
    (
        "Length of the moves, relative to the norm",
        "move / norm",
        "Relative to the norm before the move. Where moves are small compared with the state, the layers are small "
        "steps of a solver and the picture of a flow is accurate.",
        _moves("relative"),
    ),
    (
        "Angle between consecutive moves",
        "degrees",
        "Unrelated moves have 90°; a smaller angle continues the last move, a larger one reverses it.",
        _by_frame("angles"),
    ),
    (
        "Similarity of the words",
        "mean cosine",
        "1: all states point in the same direction. Diffusion mixes words, so it tends to rise with depth.",
        _by_frame("similarity"),
    ),
    (
        "Effective dimension of the words",
        "participation ratio",
        "The effective number of directions in which the words differ. It falls where they cluster.",
        _by_frame("spread"),
    ),
    (
        "Commutator of the operators",
        "relative commutator",
        "0: the order of the sub-steps does not matter; 1: the largest possible effect; 0.71: two unrelated changes. "
        "Splitting has an error only where operators do not commute.",
        _commutator,
    ),
    (
        "Local error of a layer",
        "error / move of the layer",
        "The layer compared with the flow of its own operators together, computed in many small steps. Schemes of "
        "higher order are designed to make this small.",
        _truncation,
    ),
]
