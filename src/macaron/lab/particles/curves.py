"""The curves below the particles: what happens to the words with depth."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from macaron.lab.charts import Series, line_chart
from macaron.lab.page import escape

Data = Mapping[str, Any]

#: An operator's name, what it does to particles, its name in networks where that is another, and the colour of its
#: curves, that of --op-F, --op-G, --op-H.
OPERATORS = {
    "G": ("Convection", "each word alone", "feed-forward", 1),
    "F": ("Diffusion", "words pull on words", "self-attention", 0),
    "H": ("Cross-attention", "source words pull", None, 2),
}

#: The name of a line (none: that of its model), its colour (none: one of its model) and its points.
Line = tuple[str, int | None, list[tuple[float, float]]]
#: Title, y axis, what it means, and the lines of a part.
Curve = tuple[str, str, str, Callable[[Data], Iterator[Line]]]


def curves(models: Sequence[Data], name: str, *, alone: bool) -> str:
    """The curves of a part, all models in one chart each: the second model's lines are dashed.

    :param alone: whether the page has no other part
    """
    charts = []
    for title, label, meaning, points in _CURVES:
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
        # A value of layer 3 stands at 3, in the middle of the time that layer takes (from 2 to 3).
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


_CURVES: list[Curve] = [
    (
        "How far a sub-step moves the words",
        "mean length of the move",
        "Lengths in the full space. Moves that stay large to the end mean that no layer is idle.",
        _moves("size"),
    ),
    (
        "The same, against their norm",
        "move / norm",
        "Against the norm before the move. Moves that are small beside the state are small steps of a solver: there "
        "the picture of a flow is good.",
        _moves("relative"),
    ),
    (
        "How much a move turns from the one before",
        "degrees",
        "90° is what two moves have that know nothing of each other; less means going on, more means taking back.",
        _by_frame("angles"),
    ),
    (
        "How alike the words become",
        "mean cosine",
        "1: all states point the same way. Diffusion mixes words, so it tends to rise with depth.",
        _by_frame("similarity"),
    ),
    (
        "In how many dimensions they lie",
        "participation ratio",
        "The effective number of directions in which the words differ. It falls where they gather.",
        _by_frame("spread"),
    ),
    (
        "How little the operators commute",
        "relative commutator",
        "0: the order of the sub-steps does not matter; 1: it matters as much as it can; 0.71 is what two changes have "
        "that know nothing of each other. Splitting costs only where they do not commute.",
        _commutator,
    ),
    (
        "How far a layer is from the flow",
        "error / move of the layer",
        "The layer against its own operators run together in many small steps. A scheme of higher order is meant to "
        "make this small.",
        _truncation,
    ),
]
