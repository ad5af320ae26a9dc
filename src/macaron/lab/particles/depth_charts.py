"""The charts below the particles: measures of the words over depth."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from macaron.lab.charts import Series, line_chart
from macaron.lab.page import escape

Data = Mapping[str, Any]

#: An operator's name, its effect on particles, its name in networks if different, and the colour of its curves (that of
#: --op-F, --op-G, --op-H).
OPERATORS = {
    "G": ("Convection", "each word by itself", "feed-forward", 1),
    "F": ("Diffusion", "words attract words", "self-attention", 0),
    "H": ("Cross-attention", "source words attract target words", None, 2),
}

#: Measures of whole layers; the others are of sub-steps.
PER_LAYER = ("commutator", "truncation")
#: The name of a line (default: its model's), its colour (default: its model's) and its points.
Line = tuple[str, int | None, list[tuple[float, float]]]


def depth_charts(models: Sequence[Data], name: str, *, alone: bool) -> str:
    """The charts of a part, each with all models; the second model's lines are dashed.

    :param alone: whether the page has no other part
    """
    charts = []
    for title, label, meaning, measure in _CHARTS:
        series = []
        for m, model in enumerate(models):
            for part in (part for part in model["parts"] if part["name"] == name):
                for what, colour, line in _lines(part, measure):
                    own = f"{model['name']}: {what}" if what and len(models) > 1 else what or model["name"]
                    shade = colour if colour is not None else 5 if len(models) == 1 else 3 + m
                    series.append(Series(own, line, colour=shade, dashed=m > 0))
        per_layer = measure in PER_LAYER
        axis = "layer" if per_layer else "layers passed"
        chart = line_chart(series, title=title, x_label=axis, y_label=label, height=190, from_zero=True)
        # The value of layer 3 is drawn at 3, but layer 3 lasts from 2 to 3: the time line is shifted by its middle.
        charts.append(f'<div data-shift="{0.5 if per_layer else 0}">{chart}<p class="note">{meaning}</p></div>')
    heading = "" if alone else f"<h3>{escape(name.capitalize())}</h3>"
    return f'<div data-part="{escape(name)}">{heading}<div class="charts">{"".join(charts)}</div></div>'


def _lines(part: Data, measure: str) -> Iterator[Line]:
    """The lines of a measure: one per operator, one per pair of operators, or a single one."""
    values = part["depth"].get(measure, part["depth"]["moves"])
    if measure in ("size", "relative"):
        moments = [t for t, frame in zip(part["times"], part["frames"], strict=True) if frame["operator"] in OPERATORS]
        moves = list(zip(moments, values, strict=True))
        for operator, (name, _, _, colour) in OPERATORS.items():
            line = [(time, move[measure]) for time, move in moves if move["operator"] == operator]
            if line:
                yield f"{name.lower()} ({operator})", colour, line
    elif measure in PER_LAYER:
        pairs = list(dict.fromkeys(row.get("pair", "") for row in values))
        for i, pair in enumerate(pairs):
            line = [(row["layer"], row["relative"]) for row in values if row.get("pair", "") == pair]
            yield " and ".join(pair), (None if len(pairs) == 1 else (5, 3, 4)[i % 3]), line
    else:
        yield "", None, [(t, value) for t, value in zip(part["times"], values, strict=True) if value is not None]


#: Title, y axis, explanation, measure.
_CHARTS = [
    (
        "Length of the moves",
        "mean length of the move",
        "Lengths in the full space. If moves stay large to the end, no layer is idle.",
        "size",
    ),
    (
        "Length of the moves, relative to the norm",
        "move / norm",
        "Relative to the norm before the move. Where moves are small compared with the state, the layers are small "
        "steps of a solver and the picture of a flow is accurate.",
        "relative",
    ),
    (
        "Angle between consecutive moves",
        "degrees",
        "Unrelated moves have 90°; a smaller angle continues the last move, a larger one reverses it.",
        "angles",
    ),
    (
        "Similarity of the words",
        "mean cosine",
        "1: all states point in the same direction. Diffusion mixes words, so it tends to rise with depth.",
        "similarity",
    ),
    (
        "Effective dimension of the words",
        "participation ratio",
        "The effective number of directions in which the words differ. It falls where they cluster.",
        "spread",
    ),
    (
        "Commutator of the operators",
        "relative commutator",
        "0: the order of the sub-steps does not matter; 1: the largest possible effect; 0.71: two unrelated changes. "
        "Splitting has an error only where operators do not commute.",
        "commutator",
    ),
    (
        "Local error of a layer",
        "error / move of the layer",
        "The layer compared with the flow of its own operators together, computed in many small steps. Schemes of "
        "higher order are designed to make this small.",
        "truncation",
    ),
]
