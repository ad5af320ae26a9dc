"""The charts below the particles: measures of the words over depth."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from macaron.lab.charts import Series, line_chart
from macaron.lab.page import asset, escape

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
    for about in json.loads(asset("particles-depth.json")):  # the text of the page: titles and explanations
        series, measure = [], about["measure"]
        for m, model in enumerate(models):
            for part in (part for part in model["parts"] if part["name"] == name):
                for what, colour, line in _lines(part, measure):
                    own = f"{model['name']}: {what}" if what and len(models) > 1 else what or model["name"]
                    shade = colour if colour is not None else 5 if len(models) == 1 else 3 + m
                    series.append(Series(own, line, colour=shade, dashed=m > 0))
        per_layer = measure in PER_LAYER
        axis = "layer" if per_layer else "layers passed"
        title, y_label = about["title"], about["label"]
        chart = line_chart(series, title=title, x_label=axis, y_label=y_label, height=190, from_zero=True)
        # The value of layer 3 is drawn at 3, but layer 3 lasts from 2 to 3: the time line is shifted by its middle.
        note = f'<p class="note">{about["meaning"]}</p>'
        charts.append(f'<div data-shift="{0.5 if per_layer else 0}">{chart}{note}</div>')
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
