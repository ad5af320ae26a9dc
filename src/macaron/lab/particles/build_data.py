"""The data of ``macaron particles``: one JSON object, from which the page, the figure and the animation are made."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from macaron.errors import MacaronError, UsageError
from macaron.lab.particles.depth import cosines, depth
from macaron.lab.particles.projection import VIEWS, align, bounds
from macaron.lab.particles.traced_model import PartName, TracedModel, TracedPart, TracedSentence
from macaron.ode.describe import equations

FORMAT = "macaron-particles-1"
#: Words that the lens names for a state, and neighbours of a particle.
LENS_WORDS, NEIGHBOURS = 3, 3
#: Coordinates are rounded to a thousandth of the axes, which is about a pixel.
RESOLUTION = 1 / 1000
#: The time of a prologue, and of everything after the last layer, in layers.
END_TIME = 0.5


def build_data(
    models: Sequence[Path],
    sentence: str,
    *,
    target: str | None = None,
    parts: Sequence[PartName] = ("encoder", "decoder"),
) -> dict[str, Any]:
    """Trace a sentence through one model, or through two for comparison.

    Two models may be of different kinds. Parts of the same name and tokens are rotated towards each other
    (``aligned``); others only share the scale of their axes.
    """
    for what, text in (("the sentence", sentence), ("the target", target or "")):
        if any(0xD800 <= ord(character) < 0xE000 for character in text):
            raise MacaronError(f"{what} is not valid Unicode: {text[:80]!r}. Encode it in UTF-8.")
    loaded = [TracedModel(path) for path in models]
    if target is not None and ("decoder" not in parts or all(model.kind != "translation" for model in loaded)):
        raise UsageError("--target is for the decoder of a translation model: leave it out")
    for model in loaded:
        only, other = ("a decoder", "encoder") if model.kind == "language" else ("an encoder", "decoder")
        if model.kind != "translation" and list(parts) == [other]:
            raise UsageError(f"{model.path} has only {only}: leave out --part {other}")
    if len({model.name for model in loaded}) < len(loaded):
        # Same names are replaced by paths; the same model twice gets a number.
        paths = [str(model.path) for model in loaded]
        for i, model in enumerate(loaded):
            model.name = paths[i] + (f" ({paths[: i + 1].count(paths[i])})" if paths[i] in paths[:i] else "")
    sentence = " ".join(sentence.split())
    return assemble(sentence, [model.trace(sentence, parts, target) for model in loaded])


def _equation(traced: TracedSentence) -> str:
    config, part = traced.model.model.config, traced.parts[0]
    own = part.name == "encoder" or traced.model.kind == "language"
    settings = config if own else config.decoder_layer_settings()
    return "\n".join(equations(part.scheme, settings.velocity_value(), settings.layer_integrator))


def assemble(sentence: str, traced: Sequence[TracedSentence]) -> dict[str, Any]:
    """The data of traced sentences."""
    words: dict[str, int] = {}  # all words of the lenses, written once
    aligned = len(traced) > 1 and _align(traced)
    models = [
        {
            "name": each.model.name,
            "kind": each.model.kind,
            "scheme": each.parts[0].scheme.name,
            "equation": _equation(each),
            "parameters": each.model.model.num_parameters(),
            "output": each.output,
            "target": each.target,
            "source": each.source,
            "parts": [_part(each.model, part, traced, words) for part in each.parts],
        }
        for each in traced
    ]
    return {"format": FORMAT, "sentence": sentence, "aligned": aligned, "words": list(words), "models": models}


def _align(traced: Sequence[TracedSentence]) -> bool:
    """Rotate the parts of later models towards the first model's; return whether that was possible for all."""
    first = {part.name: part for part in traced[0].parts}
    everywhere = True
    for part in (part for each in traced[1:] for part in each.parts):
        leader = first.get(part.name)
        if leader is None or leader.tokens != part.tokens:
            everywhere = False
            continue
        traces = [leader.trace, part.trace]
        ends = [each.layer_ends for each in traces]
        shapes = {(t.stack.num_layers, t.stack.prologue is None, t.stack.epilogue is None) for t in traces}
        # A post-norm stack has no frame after its last layer.
        if len(shapes) > 1 or len(ends[0]) != len(ends[1]):
            ends = [[own[0], own[-1]] for own in ends]  # only the start and the end are at the same depth
        part.views = {view: align(leader.views[view], part.views[view], *ends) for view in VIEWS}
        part.aligned = leader.aligned = True
    return everywhere


def _part(
    model: TracedModel, part: TracedPart, traced: Sequence[TracedSentence], words: dict[str, int]
) -> dict[str, Any]:
    same = [other for each in traced for other in each.parts if other.name == part.name]
    axes = {view: bounds([other.views[view] for other in same]) for view in VIEWS}
    decimals = {view: _decimals(axes[view]) for view in VIEWS}
    lenses = _lenses(model, part, words)
    states = [frame.state.double() for frame in part.trace.frames]
    frames = []
    for index, frame in enumerate(part.trace.frames):
        attention = None
        if frame.attention is not None:
            to = part.name if frame.operator == "F" else "encoder"
            attention = {"to": to, "weights": (100 * frame.attention).round().int().tolist()}
        points: dict[str, Any] = {}
        for view in VIEWS:
            shown = part.views[view].shown[index].tolist()
            points[view] = [[_plain(round(x, decimals[view])) for x in point] for point in shown]
        moved = (states[index] - states[max(index - 1, 0)]).norm(dim=-1)
        frames.append(
            {
                "operator": frame.operator,
                "layer": frame.layer,
                "step": frame.step,
                "coefficient": _rounded(frame.coefficient),
                "label": frame.label,
                **points,
                "norm": _rounded(frame.state.norm(dim=-1).tolist(), 3),
                "move": _rounded(moved.tolist(), 3),
                "nearest": _nearest(frame.state),
                "lens": lenses[index] if lenses is not None else None,
                "attention": attention,
            }
        )
    layers = part.trace.stack.num_layers
    return {
        "name": part.name,
        "scheme": part.scheme.name,
        "tokens": part.tokens,
        "dimension": states[0].shape[-1],
        "aligned": part.aligned,
        "lens_note": part.lens_note,
        "variance": {view: _rounded(part.views[view].shares[:2].tolist()) for view in VIEWS},
        "axes": {view: [round(edge, decimals[view]) for edge in axes[view]] for view in VIEWS},
        "layers": layers,
        "times": frame_times(frames, layers, max(other.trace.stack.num_layers for other in same)),
        "frames": frames,
        "depth": _rounded(depth(part.trace)),
    }


def frame_times(frames: Sequence[Mapping[str, Any]], layers: int, deepest: int) -> list[float]:
    """When each frame is reached, in layers of the deepest model: a layer takes the same time in every scheme."""
    # Layer i lasts from edge i to edge i + 1.
    edges = [-END_TIME, *np.linspace(0, deepest, layers + 1).tolist(), deepest + END_TIME]
    counts = Counter(frame["layer"] for frame in frames[1:])
    times = [edges[0] if 0 in counts else 0.0]
    for frame in frames[1:]:
        start, end = edges[frame["layer"]], edges[frame["layer"] + 1]
        times.append(round(start + (end - start) * frame["step"] / counts[frame["layer"]], 6))
    return times


@torch.no_grad()
def _lenses(model: TracedModel, part: TracedPart, words: dict[str, int]) -> list[list[list[list[int]]]] | None:
    """For every frame and particle the predicted words and their probabilities in percent.

    The best word, and the next two if they do not round to 0.
    """
    if part.lens is None:
        return None
    plain = part.trace.stack.norm is None
    states = [frame.state for frame in part.trace.frames] if plain else part.trace.normalised()
    lenses = []
    for state in states:
        best = torch.softmax(part.lens(state), dim=-1).topk(LENS_WORDS, dim=-1)
        rows = zip(best.indices.tolist(), (100 * best.values).round().int().tolist(), strict=True)
        found = [[pair for rank, pair in enumerate(zip(*row, strict=True)) if pair[1] or rank == 0] for row in rows]
        lenses.append([[[words.setdefault(model.labels(id), len(words)), p] for id, p in pairs] for pairs in found])
    return lenses


def _nearest(state: Tensor) -> list[list[int]]:
    table = cosines(state.double()).fill_diagonal_(-2)
    count = min(NEIGHBOURS, len(state) - 1)
    return [row[:count] for row in table.argsort(dim=-1, descending=True, stable=True).tolist()]


def _decimals(axes: Sequence[float]) -> int:
    span = max(axes[1] - axes[0], axes[3] - axes[2])
    return max(0, int(np.ceil(-np.log10(span * RESOLUTION)))) if span > 0 else 0


def _rounded(data: Any, digits: int = 4) -> Any:
    if isinstance(data, dict):
        return {key: _rounded(value, digits) for key, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value, digits) for value in data]
    return _plain(float(f"{data:.{digits}g}")) if isinstance(data, float) else data


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value  # 3 instead of 3.0, 0 instead of -0.0
