"""The particle page: a sentence on its way through one model or two, to be played, stepped through and read."""

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from macaron.lab.page import Raw, escape, html_table, render_page, section
from macaron.lab.particles.curves import OPERATORS, curves

STYLES = ("particles.css",)
SCRIPTS = ("particles-labels.js", "particles-stage.js", "particles-readout.js", "particles-player.js", "particles.js")
#: The first is shown first: raw states of a trained model are often a crowd and one word far away.
VIEWS = ("normalised", "raw")
#: Time that a prologue, or all that follows the last layer, takes on the clock: half a layer.
END = 0.5

Data = Mapping[str, Any]


def particles_page(data: dict[str, Any]) -> str:
    """The page of what `macaron.lab.particles.follow.particles` has found. Self-contained: it opens offline.

    The data stand in the page deflated, with the moments of all frames on the common clock.
    """
    data = _with_times(data)
    models: list[Data] = data["models"]
    parts = list(dict.fromkeys(part["name"] for model in models for part in model["parts"]))
    body = "\n".join(
        [
            "<noscript><p>The stage needs JavaScript; the curves and their tables below do not.</p></noscript>",
            '<div id="particles">',
            _legend(models),
            _toolbar(parts),
            f'<div class="arena" data-models="{len(models)}">',
            f'<div class="panels">{"".join(map(_panel, models))}</div>',
            _TRANSPORT,
            f'<div class="readouts">{"".join(map(_readout, models))}</div>',
            "</div>",
            '<p role="status" class="visually-hidden"></p>',
            '<details class="table"><summary>Data as a table</summary><div class="table-body"></div></details>',
            _KEYS,
            "</div>",
            section("What this picture cannot show", _limits(data), id="limits"),
            section("By depth", *(curves(models, part, alone=len(parts) == 1) for part in parts), id="depth"),
            section("The models" if len(models) > 1 else "The model", _table(models), id="models"),
        ]
    )
    names = " and ".join(f"<b>{escape(model['name'])}</b>" for model in models)
    lead = Raw(
        f"Each point is a word of “{escape(data['sentence'])}” inside {names}. Every layer moves all "
        "points in a few sub-steps."
    )
    return render_page(
        "A sentence as particles", body, lead=lead, styles=STYLES, scripts=SCRIPTS, data={"particles": _packed(data)}
    )


def _packed(data: Data) -> str:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _with_times(data: Data) -> dict[str, Any]:
    """The same with ``layers`` and ``times`` in each part.

    Times say when each frame is reached, counted in layers of the deepest model.
    """
    models = []
    deepest = {
        name: max(_layers(part) for model in data["models"] for part in model["parts"] if part["name"] == name)
        for name in {part["name"] for model in data["models"] for part in model["parts"]}
    }
    for model in data["models"]:
        parts = [
            {**part, "layers": _layers(part), "times": _times(part, deepest[part["name"]])} for part in model["parts"]
        ]
        models.append({**model, "parts": parts})
    return {**data, "models": models}


def _layers(part: Data) -> int:
    """Layers of a stack: frames before the first are of layer 0, those after the last of one more than there are."""
    inside = [frame["layer"] for frame in part["frames"] if frame["label"].startswith("Layer ")]
    return max(inside, default=1)


def _times(part: Data, deepest: int) -> list[float]:
    """Schemes have different numbers of sub-steps; a layer takes the same time in all of them."""
    frames, layers = part["frames"], _layers(part)
    counts: dict[int, int] = {}
    for frame in frames[1:]:
        counts[frame["layer"]] = counts.get(frame["layer"], 0) + 1
    stretch = deepest / layers
    times = [-END if 0 in counts else 0.0]
    done: dict[int, int] = {}
    for frame in frames[1:]:
        layer = frame["layer"]
        done[layer] = done.get(layer, 0) + 1
        share = done[layer] / counts[layer]
        if layer == 0:
            time = END * (share - 1)
        elif layer > layers:
            time = deepest + END * share
        else:
            time = stretch * (layer - 1 + share)
        times.append(round(time, 6))
    return times


def _legend(models: Sequence[Data]) -> str:
    used = {frame["operator"] for model in models for part in model["parts"] for frame in part["frames"]}
    items = [
        f'<li class="op-{operator}" data-operator="{operator}"><svg aria-hidden="true">'
        '<line x1="0" x2="100%" y1="6" y2="6"/><circle cx="100%" cy="6" r="4.5"/></svg>'
        f"<span><b>{name}</b> <i>{operator}</i> {what}{_also(also)}</span></li>"
        for operator, (name, what, also, _) in OPERATORS.items()
        if operator in used
    ]
    return f'<ul class="operators" aria-label="Operators">{"".join(items)}</ul>'


def _also(text: str | None) -> str:
    """What a narrow screen has no room for."""
    return f' <span class="also">({text})</span>' if text else ""


def _toolbar(parts: Sequence[str]) -> str:
    def switch(group: str, label: str, choices: Sequence[str]) -> str:
        buttons = "".join(
            f'<button type="button" data-{group}-choice="{choice}" aria-pressed="{str(not i).lower()}">'
            f"{choice.capitalize()}</button>"
            for i, choice in enumerate(choices)
        )
        return f'<span class="switch" role="group" aria-label="{label}">{buttons}</span>'

    return "\n".join(
        [
            '<div class="toolbar">',
            switch("part", "Part of the model", parts) if len(parts) > 1 else "",
            switch("view", "States normalised, or as they are", VIEWS),
            '<label>Trails <select id="trails"><option value="move">one move</option>'
            '<option value="layer" selected>one layer</option><option value="path">whole path</option>'
            '<option value="off">none</option></select></label>',
            '<label><input type="checkbox" id="attention" checked> Attention</label>',
            '<label><input type="checkbox" id="follow"> Zoom<span class="also"> to the layer</span></label>',
            "</div>",
        ]
    )


def _panel(model: Data) -> str:
    name, scheme = escape(model["name"]), escape(model["scheme"])
    return "\n".join(
        [
            f'<section class="panel" aria-label="{name}">',
            f'<div class="head"><h2>{name} <small>{scheme}</small></h2><p class="now"></p></div>',
            '<div class="sentence" aria-hidden="true"></div>',
            f'<div class="stage"><svg role="group" aria-label="The words of the sentence in {name}"></svg>',
            '<p class="tip" aria-hidden="true" hidden></p></div>',
            '<div class="steps" aria-hidden="true"></div>',
            "</section>",
        ]
    )


def _readout(model: Data) -> str:
    return f'<div class="readout" role="group" aria-label="Read-out of {escape(model["name"])}"></div>'


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
<dt><kbd>Home</kbd> <kbd>End</kbd></dt><dd>first or last</dd>
<dt><kbd>+</kbd> <kbd>-</kbd></dt><dd>faster or slower</dd>
<dt><kbd>Tab</kbd>, then <kbd>↑</kbd> <kbd>↓</kbd></dt>
<dd>from word to word; <kbd>Enter</kbd> keeps one, <kbd>Esc</kbd> lets it go</dd>
</dl></details>"""


def _limits(data: Data) -> str:
    models: Sequence[Data] = data["models"]
    several = len(models) > 1
    shown = [
        f"{escape(model['name']) + ', ' if several else ''}{part['name']}: {_percent(part['variance']['raw'])} raw, "
        f"{_percent(part['variance']['normalised'])} normalised, of {part['dimension']} dimensions"
        for model in models
        for part in model["parts"]
    ]
    items = [
        f"It is a shadow. Two axes show only a share of the variance of all states ({'; '.join(shown)}). The axes are "
        "principal components of all frames together, so they stay where they are while the words move.",
        "Near in the picture is not near in the space: two points on one spot may be far apart in all that is hidden. "
        "Nearest words, norms and lengths of moves are computed in the full space.",
        "A straight line between two frames is drawn, not computed: the network has no states between its sub-steps. A "
        "move that looks short may be long in directions that are hidden.",
        "<b>Normalised</b> shows states as the output would read them, through the final norm. <b>Raw</b> shows the "
        "states themselves: they often grow with depth, and a word or two may run far away from all others.",
        "Attention is a mean over heads. It says whom a word listened to, not what it heard.",
        "The predicted words come from a logit lens: the state is read as if it were the last one. Early in the stack "
        "that is a guess. " + " ".join(escape(note) for note in _notes(models)),
    ]
    if several:
        items.append(
            "Two models have two spaces. The second picture is turned (and mirrored, if need be) to fit the first, so "
            "where they agree is partly our doing; how far words move and gather is not."
            if data["aligned"]
            else "Two models have two spaces, and here their words differ, so the pictures could not all be turned to "
            "fit each other: compare how far words move and gather, not where they are."
        )
    return f'<ul class="limits">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def _notes(models: Sequence[Data]) -> list[str]:
    notes = [part.get("lens_note") for model in models for part in model["parts"]]
    return list(dict.fromkeys(note for note in notes if note))


def _percent(shares: Sequence[float]) -> str:
    return f"{100 * sum(shares):.0f} %"


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
    return html_table(
        ["Model", "Scheme", "One layer", "Parameters", "Output"], rows, caption="What the pictures are of", numeric=(3,)
    )
