"""The data of ``macaron particles``: one JSON object, from which the page, the figure and the animation are made."""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

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
        for i, model in enumerate(loaded, start=1):
            model.name = f"{model.path} ({i})"
    sentence = " ".join(sentence.split())
    return assemble(sentence, [model.trace(sentence, parts, target) for model in loaded])


def assemble(sentence: str, traced: Sequence[TracedSentence]) -> dict[str, Any]:
    """The data of traced sentences."""
    words: dict[str, int] = {}  # all words of the lenses, written once
    aligned = len(traced) > 1 and _align(traced)
    models = []
    for each in traced:
        first, settings = each.parts[0], each.model.model.config
        if first.name == "decoder" and each.model.kind == "translation":
            settings = settings.decoder_layer_settings()
        equation = equations(first.scheme, settings.velocity_value(), settings.layer_integrator)
        models.append(
            {
                "name": each.model.name,
                "kind": each.model.kind,
                "scheme": first.scheme.name,
                "equation": "\n".join(equation),
                "parameters": each.model.model.num_parameters(),
                "output": each.output,
                "target": each.target,
                "source": each.source,
                "parts": [_part(each.model, part, traced, words) for part in each.parts],
            }
        )
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
    spans = {view: max(right - left, top - bottom) for view, (left, right, bottom, top) in axes.items()}
    decimals = {view: max(0, math.ceil(-math.log10(span * RESOLUTION))) if span else 0 for view, span in spans.items()}
    points = {view: np.round(part.views[view].shown, decimals[view]).tolist() for view in VIEWS}
    lenses = _lenses(model, part, words)
    frames, before = [], part.trace.frames[0].state
    for index, frame in enumerate(part.trace.frames):
        attention = None
        if frame.attention is not None:
            to = part.name if frame.operator == "F" else "encoder"
            attention = {"to": to, "weights": (100 * frame.attention).round().int().tolist()}
        moved, before = (frame.state.double() - before.double()).norm(dim=-1), frame.state
        nearest = cosines(before.double()).fill_diagonal_(-2).argsort(dim=-1, descending=True, stable=True)
        frames.append(
            {
                "operator": frame.operator,
                "layer": frame.layer,
                "step": frame.step,
                "coefficient": _rounded(frame.coefficient),
                "label": frame.label,
                "raw": points["raw"][index],
                "normalised": points["normalised"][index],
                "norm": _rounded(frame.state.norm(dim=-1).tolist(), 3),
                "move": _rounded(moved.tolist(), 3),
                "nearest": nearest[:, : min(NEIGHBOURS, len(nearest) - 1)].tolist(),
                "lens": lenses and lenses[index],
                "attention": attention,
            }
        )
    layers = part.trace.stack.num_layers
    return {
        "name": part.name,
        "scheme": part.scheme.name,
        "tokens": part.tokens,
        "dimension": before.shape[-1],
        "aligned": part.aligned,
        "lens_note": part.lens_note,
        "variance": {view: _rounded(part.views[view].shares[:2].tolist()) for view in VIEWS},
        "axes": {view: np.round(axes[view], decimals[view]).tolist() for view in VIEWS},
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
def _lenses(model: TracedModel, part: TracedPart, words: dict[str, int]) -> list[Any] | None:
    """For every frame and particle the best predicted words in per cent: one, and the next two if they are not 0."""
    if part.lens is None:
        return None
    plain = part.trace.stack.norm is None
    lenses = []
    for state in [frame.state for frame in part.trace.frames] if plain else part.trace.normalised():
        best = torch.softmax(part.lens(state), dim=-1).topk(LENS_WORDS, dim=-1)
        lens: list[list[list[int]]] = []
        for ids, shares in zip(best.indices.tolist(), (100 * best.values).round().int().tolist(), strict=True):
            read = [pair for pair in zip(ids, shares, strict=True) if pair[1] or pair[0] == ids[0]]
            lens.append([[words.setdefault(model.labels(id), len(words)), share] for id, share in read])
        lenses.append(lens)
    return lenses


def _rounded(data: Any, digits: int = 4) -> Any:
    return json.loads(json.dumps(data), parse_float=lambda number: float(f"{float(number):.{digits}g}"))
