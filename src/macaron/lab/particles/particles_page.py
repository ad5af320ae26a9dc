"""The particle page: a sentence in one model or two, animated. And all files that ``macaron particles`` writes."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macaron.errors import UsageError
from macaron.files import atomic_file
from macaron.lab.page import Raw, escape, html_table, render_page, section
from macaron.lab.particles.depth_charts import OPERATORS, depth_charts
from macaron.lab.particles.projection import VIEWS, View

STYLES = ("particles.css",)
SCRIPTS = ("particles-labels.js", "particles-stage.js", "particles-readout.js", "particles-player.js", "particles.js")
#: Normalised first: the raw states of a trained model are often one cluster and a single distant word.
VIEW_CHOICES: tuple[View, ...] = ("normalised", "raw")

Data = Mapping[str, Any]


def particles_page(data: Data) -> str:
    """The page of `macaron.lab.particles.build_data.build_data`: self-contained, with the data compressed in it."""
    models: list[Data] = data["models"]
    parts = list(dict.fromkeys(part["name"] for model in models for part in model["parts"]))
    readouts = [
        f'<div class="readout" role="group" aria-label="Values in {escape(model["name"])}"></div>' for model in models
    ]
    body = f"""<noscript><p>The animation needs JavaScript; the charts and tables below do not.</p></noscript>
<div id="particles">
{_legend(models)}
{_toolbar(parts)}
<div class="arena" data-models="{len(models)}">
<div class="panels">{"".join(map(_panel, models))}</div>
{_TRANSPORT}
<div class="readouts">{"".join(readouts)}</div>
</div>
<p role="status" class="visually-hidden"></p>
<details class="table"><summary>Data as a table</summary><div class="table-body"></div></details>
{_KEYS}
</div>
{section("What this picture does not show", _limits(data), id="limits")}
{section("Over depth", *(depth_charts(models, part, alone=len(parts) == 1) for part in parts), id="depth")}
{section("The models" if len(models) > 1 else "The model", _table(models), id="models")}"""
    names = " and ".join(f"<b>{escape(model['name'])}</b>" for model in models)
    lead = Raw(
        f"Each point is a word of “{escape(data['sentence'])}” in {names}. Every layer moves all points in a few "
        "sub-steps."
    )
    packed = base64.b64encode(zlib.compress(to_json(data).encode(), 9)).decode()
    return render_page(
        "A sentence as particles", body, lead=lead, styles=STYLES, scripts=SCRIPTS, data={"particles": packed}
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
    """Write the data in the format that the file name asks for.

    :param view: the view of a figure or an animation; raw by default
    """
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


def _legend(models: Sequence[Data]) -> str:
    used = {frame["operator"] for model in models for part in model["parts"] for frame in part["frames"]}
    items = []
    for operator, (name, what, also, _) in OPERATORS.items():
        if operator in used:
            note = f' <span class="also">({also})</span>' if also else ""  # hidden on narrow screens
            items.append(
                f'<li class="op-{operator}" data-operator="{operator}"><svg aria-hidden="true">'
                '<line x1="0" x2="100%" y1="6" y2="6"/><circle cx="100%" cy="6" r="4.5"/></svg>'
                f"<span><b>{name}</b> <i>{operator}</i> {what}{note}</span></li>"
            )
    return f'<ul class="operators" aria-label="Operators">{"".join(items)}</ul>'


def _toolbar(parts: Sequence[str]) -> str:
    def switch(group: str, label: str, choices: Sequence[str]) -> str:
        buttons = "".join(
            f'<button type="button" data-{group}-choice="{choice}" aria-pressed="{str(not i).lower()}">'
            f"{choice.capitalize()}</button>"
            for i, choice in enumerate(choices)
        )
        return f'<span class="switch" role="group" aria-label="{label}">{buttons}</span>'

    return f"""<div class="toolbar">
{switch("part", "Part of the model", parts) if len(parts) > 1 else ""}
{switch("view", "View of the states", VIEW_CHOICES)}
<label>Trails <select id="trails"><option value="move">last move</option>\
<option value="layer" selected>this layer</option><option value="path">whole path</option>\
<option value="off">none</option></select></label>
<label><input type="checkbox" id="attention" checked> Attention</label>
<label><input type="checkbox" id="follow"> Zoom<span class="also"> to this layer</span></label>
</div>"""


def _panel(model: Data) -> str:
    name = escape(model["name"])
    return f"""<section class="panel" aria-label="{name}">
<div class="head"><h2>{name} <small>{escape(model["scheme"])}</small></h2><p class="now"></p></div>
<div class="sentence" aria-hidden="true"></div>
<div class="stage"><svg role="group" aria-label="Words of the sentence in {name}"></svg>
<p class="tip" aria-hidden="true" hidden></p></div>
<div class="steps" aria-hidden="true"></div>
</section>"""


_TRANSPORT = """<div class="transport">
<input type="range" id="frame" min="0" max="0" value="0" step="1" aria-label="Sub-step">
<span class="buttons"><button type="button" id="play">Play</button>
<button type="button" id="back" aria-label="One sub-step back">◀</button>
<button type="button" id="forward" aria-label="One sub-step forward">▶</button></span>
<span class="count" aria-hidden="true"></span>
<label><span class="also">Speed </span><select id="speed" aria-label="Speed">
<option value="0.25">¼ ×</option><option value="0.5">½ ×</option>
<option value="1" selected>1 ×</option><option value="2">2 ×</option><option value="4">4 ×</option></select></label>
</div>"""

_KEYS = """<details><summary>Keys</summary><dl class="keys">
<dt><kbd>Space</kbd></dt><dd>play or pause</dd>
<dt><kbd>←</kbd> <kbd>→</kbd></dt><dd>one sub-step back or forward</dd>
<dt><kbd>Home</kbd> <kbd>End</kbd></dt><dd>first or last frame</dd>
<dt><kbd>+</kbd> <kbd>-</kbd></dt><dd>faster or slower</dd>
<dt><kbd>Tab</kbd>, then <kbd>↑</kbd> <kbd>↓</kbd></dt>
<dd>previous or next word; <kbd>Enter</kbd> selects it, <kbd>Esc</kbd> deselects</dd>
</dl></details>"""


def _limits(data: Data) -> str:
    models: Sequence[Data] = data["models"]
    several = len(models) > 1
    shown, notes = [], dict[str, None]()
    for model in models:
        for part in model["parts"]:
            raw, normalised = (100 * sum(part["variance"][view]) for view in VIEWS)
            where = f"{escape(model['name'])}, {part['name']}" if several else part["name"]
            shown.append(f"{where}: {raw:.0f} % raw, {normalised:.0f} % normalised, of {part['dimension']} dimensions")
            if part.get("lens_note"):
                notes[escape(part["lens_note"])] = None
    items = [
        f"It is a projection. Two axes show only a part of the variance of all states ({'; '.join(shown)}). The axes "
        "are principal components of all frames together, so they are the same in every frame.",
        "Points that are close in the picture may be far apart in the other dimensions. Nearest words, norms and "
        "lengths of moves are computed in the full space.",
        "The straight lines between frames are interpolated: the network has no states between its sub-steps. A move "
        "that looks short may be long in the other dimensions.",
        "<b>Normalised</b> shows the states after the final norm, as the output layer reads them. <b>Raw</b> shows "
        "the states themselves: they often grow with depth, and a word or two may be far away from all others.",
        "Attention is averaged over heads. It shows which words a word attended to, not what it took from them.",
        "The predicted words come from a logit lens: the state is read as if it were the last one. In early layers "
        "that is a guess. " + " ".join(notes),
    ]
    if several:
        items.append(
            "Two models have two different spaces. The second picture is rotated (and reflected, if needed) to fit the "
            "first, so agreement of positions is partly constructed; how far words move and cluster is not."
            if data["aligned"]
            else "Two models have two different spaces. Here their words differ, so not all pictures could be rotated "
            "to fit each other: compare how far words move and cluster, not where they are."
        )
    return f'<ul class="limits">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def _table(models: Sequence[Data]) -> str:
    rows = [
        [
            model["name"],
            model["scheme"],
            Raw(f'<pre class="equation">{escape(model["equation"])}</pre>'),
            f"{model['parameters']:,}",
            model["output"] or "–",
        ]
        for model in models
    ]
    headers = ["Model", "Scheme", "One layer", "Parameters", "Output"]
    return html_table(headers, rows, caption="The models in the pictures", numeric=(3,), stack=True)
