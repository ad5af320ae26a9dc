"""The particle page: a sentence in one model or two, animated. And all files that ``macaron particles`` writes."""

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from macaron.errors import UsageError
from macaron.files import atomic_file
from macaron.lab.charts import Series, line_chart
from macaron.lab.page import asset, fill
from macaron.lab.particles.projection import VIEWS, View

#: An operator's name, its effect on particles, its name in networks if different, the colour of its curves.
OPERATORS = {
    "G": ("Convection", "each word by itself", "feed-forward", 1),
    "F": ("Diffusion", "words attract words", "self-attention", 0),
    "H": ("Cross-attention", "source words attract target words", None, 2),
}

#: Measures of whole layers; the others are of sub-steps.
PER_LAYER = ("commutator", "truncation")

Data = Mapping[str, Any]


def particles_page(data: Data) -> str:
    """The page of `macaron.lab.particles.build_data.build_data`: self-contained, with the data compressed in it."""
    models: list[Data] = data["models"]
    parts = [part for model in models for part in model["parts"]]
    names, shown = list(dict.fromkeys(part["name"] for part in parts)), []
    for model in models:
        for part in model["parts"]:
            raw, normalised = (100 * sum(part["variance"][view]) for view in VIEWS)
            where = f"{model['name']}, {part['name']}" if len(models) > 1 else part["name"]
            shown.append(f"{where}: {raw:.0f} % raw, {normalised:.0f} % normalised, of {part['dimension']} dimensions")
    packed = base64.b64encode(zlib.compress(to_json(data).encode(), 9)).decode()
    return fill(
        "particles.html",
        sentence=data["sentence"],
        models=models,
        aligned=data["aligned"],
        operators=OPERATORS,
        used={frame["operator"] for part in parts for frame in part["frames"]},
        parts=names,
        shown=shown,
        lens_notes=[part["lens_note"] for part in parts if part.get("lens_note")],
        charts=partial(_depth_charts, models),
        data={"particles": packed},
    )


def to_json(data: Data) -> str:
    """The data as one line of JSON."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def check_out(path: Path, view: View | None = None) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    kind = path.suffix.lower()
    if kind not in (".html", ".json", ".png", ".gif"):
        raise UsageError(f"--out {path}: the name must end in one of .html, .json, .png, .gif")
    if view is not None and kind in (".html", ".json"):
        raise UsageError(f"--view is for .png and .gif: {path} has both views")
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder: name a file in it, such as {path / 'page.html'}")


def write(path: Path, data: Data, view: View | None = None) -> None:
    """Write the data in the format that the file name asks for."""
    kind = path.suffix.lower()
    if kind == ".html":
        content = particles_page(data).encode("utf-8")
    elif kind == ".json":
        content = (to_json(data) + "\n").encode("utf-8")
    else:
        from macaron.lab.particles.animation import gif, png

        content = (png if kind == ".png" else gif)(data, view or "raw")
    with atomic_file(path) as file:
        file.write(content)


def _depth_charts(models: Sequence[Data], name: str) -> Iterator[tuple[float, Markup, str]]:
    """The charts of a part, each with all models; the second model's lines are dashed."""
    for about in json.loads(asset("particles-depth.json")):  # the text of the page: titles and explanations
        series, per_layer = [], about["measure"] in PER_LAYER
        for m, model in enumerate(models):
            for part in (part for part in model["parts"] if part["name"] == name):
                for what, colour, points in _lines(part, about["measure"]):
                    label = f"{model['name']}: {what}" if what and len(models) > 1 else what or model["name"]
                    shade = colour if colour is not None else 5 if len(models) == 1 else 3 + m
                    series.append(Series(label, points, colour=shade, dashed=m > 0))
        axes = {"x_label": "layer" if per_layer else "layers passed", "y_label": about["label"]}
        chart = line_chart(series, title=about["title"], **axes, height=190, from_zero=True)
        # The value of layer 3 is drawn at 3, but layer 3 lasts from 2 to 3: the time line is shifted by its middle.
        yield 0.5 if per_layer else 0, chart, about["meaning"]


def _lines(part: Data, measure: str) -> Iterator[tuple[str, int | None, list[tuple[float, float]]]]:
    """The lines of a measure, each with its name and colour, if it is not its model's: one per operator or pair."""
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
            yield " and ".join(pair), (5, 3, 4)[i] if len(pairs) > 1 else None, line
    else:
        yield "", None, [(t, value) for t, value in zip(part["times"], values, strict=True) if value is not None]
