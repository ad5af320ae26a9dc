"""The words of a sentence as particles: what ``macaron particles`` shows, as plain data.

The data are one JSON object. A page, a figure and an animation are made of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.errors import MacaronError
from macaron.lab.particles.depth import cosines, depth, moves_of
from macaron.lab.particles.models import Part, PartName, Specimen, Subject, check_parts
from macaron.lab.particles.projection import Array, Projection, align, bounds, fit
from macaron.lab.particles.states import END, Walk
from macaron.ode.describe import equations

FORMAT = "macaron-particles-1"
VIEWS = ("raw", "normalised")
#: Words that the lens names for a state, and neighbours of a particle.
LENS_WORDS, NEIGHBOURS = 3, 3
#: Coordinates are rounded to less than this part of what is shown, which is about a pixel.
FINEST = 1 / 1000


def particles(
    models: Sequence[Path],
    sentence: str,
    *,
    target: str | None = None,
    parts: Sequence[PartName] = ("encoder", "decoder"),
) -> dict[str, Any]:
    """Follow a sentence through one model, or through two side by side.

    Two models need not be of one kind. Parts of the same name whose tokens are equal are turned towards each other
    (``aligned``); others share the scale of their axes, and no more.

    :param models: model folders, or folders of runs
    :param target: what decoders are run over; by default each model's own translation
    """
    for what, text in (("the sentence", sentence), ("the target", target or "")):
        if any(0xD800 <= ord(letter) < 0xE000 for letter in text):
            raise MacaronError(f"{what} is not valid Unicode: {text[:80]!r}. Write it in UTF-8.")
    specimens = [Specimen(path) for path in models]
    check_parts(specimens, parts, target)
    _tell_apart(specimens)
    sentence = " ".join(sentence.split())
    return assemble(sentence, [specimen.observe(sentence, parts, target) for specimen in specimens])


def _tell_apart(specimens: Sequence[Specimen]) -> None:
    """Models of the same name are called by their paths; the same model twice has a number."""
    if len({specimen.name for specimen in specimens}) < len(specimens):
        seen: list[str] = []
        for specimen in specimens:
            specimen.name = str(specimen.path)
            seen.append(specimen.name)
            specimen.name += f" ({seen.count(specimen.name)})" if specimen.name in seen[:-1] else ""


def assemble(sentence: str, subjects: Sequence[Subject]) -> dict[str, Any]:
    """All data of a page."""
    words = _Numbered()
    shadows = [[_Shadow.of(part) for part in subject.parts] for subject in subjects]
    aligned = len(subjects) > 1 and _align(shadows)
    models = []
    for subject, own in zip(subjects, shadows, strict=True):
        scheme = subject.parts[0].scheme
        models.append(
            {
                "name": subject.name,
                "kind": subject.kind,
                "scheme": scheme.name,
                "equation": "\n".join(equations(scheme)),
                "parameters": subject.parameters,
                "output": subject.output,
                "target": subject.target,
                "source": subject.source,
                "parts": [_part(subject, shadow, shadows, words) for shadow in own],
            }
        )
    return {"format": FORMAT, "sentence": sentence, "aligned": aligned, "words": words.names, "models": models}


class _Numbered:
    """Words that are named many times and written once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, word: str) -> int:
        return self.numbers.setdefault(word, len(self.numbers))

    @property
    def names(self) -> list[str]:
        return list(self.numbers)


@dataclass
class _Shadow:
    """A part with its two projections."""

    part: Part
    views: dict[str, Projection]
    aligned: bool = False

    @classmethod
    def of(cls, part: Part) -> "_Shadow":
        raw = [frame.state for frame in part.walk.frames]
        return cls(part, {"raw": fit(_array(raw)), "normalised": fit(_array(normalised(part.walk)))})


def normalised(walk: Walk) -> list[Tensor]:
    """Every state (T, D) through the final norm; of a post-norm stack, which has none, through a plain layer norm."""
    norm = walk.stack.norm
    states = []
    for frame in walk.frames:
        if norm is None:
            states.append(F.layer_norm(frame.state, frame.state.shape[-1:]))
        else:
            states.append(frame.state if frame.operator == END else norm(frame.state).detach())
    return states


def _array(states: Sequence[Tensor]) -> Array:
    return torch.stack(list(states)).double().numpy()


def _align(shadows: Sequence[Sequence[_Shadow]]) -> bool:
    """Turn the parts of later models towards the first model's; whether that was possible for all."""
    first = {shadow.part.name: shadow for shadow in shadows[0]}
    everywhere = True
    for shadow in (shadow for own in shadows[1:] for shadow in own):
        leader = first.get(shadow.part.name)
        if leader is None or leader.part.tokens != shadow.part.tokens:
            everywhere = False
            continue
        ends = [leader.part.walk.layer_ends, shadow.part.walk.layer_ends]
        if _outline(leader.part.walk) != _outline(shadow.part.walk):
            ends = [[each[0], each[-1]] for each in ends]  # the same depth is where both begin and where they end
        shadow.views = {view: align(leader.views[view], shadow.views[view], *ends) for view in VIEWS}
        shadow.aligned = leader.aligned = True
    return everywhere


def _outline(walk: Walk) -> tuple[int, bool, bool]:
    """What two stacks must agree in for their layers to end at the same depth."""
    return walk.stack.num_layers, walk.stack.prologue is None, walk.stack.epilogue is None


def _part(subject: Subject, shadow: _Shadow, shadows: Sequence[Sequence[_Shadow]], words: _Numbered) -> dict[str, Any]:
    part, walk = shadow.part, shadow.part.walk
    same = [other for own in shadows for other in own if other.part.name == part.name]
    axes = {view: bounds([other.views[view] for other in same]) for view in VIEWS}
    places = {view: _decimals(axes[view]) for view in VIEWS}
    lenses = _lenses(subject, part, words)
    frames = []
    for index, (frame, moved) in enumerate(zip(walk.frames, moves_of(walk), strict=True)):
        attention = None
        if frame.attention is not None:
            to = part.name if frame.operator == "F" else "encoder"
            attention = {"to": to, "weights": (100 * frame.attention).round().int().tolist()}
        points = {view: _points(shadow.views[view].shown[index], places[view]) for view in VIEWS}
        frames.append(
            {
                "operator": frame.operator,
                "layer": frame.layer,
                "step": frame.step,
                "coefficient": _short(frame.coefficient, 4),
                "label": frame.label,
                **points,
                "norm": [_short(float(size), 3) for size in frame.state.norm(dim=-1)],
                "move": [_short(float(size), 3) for size in moved],
                "nearest": _nearest(frame.state),
                "lens": lenses[index] if lenses is not None else None,
                "attention": attention,
            }
        )
    return {
        "name": part.name,
        "scheme": part.scheme.name,
        "tokens": part.tokens,
        "dimension": walk.output.shape[-1],
        "aligned": shadow.aligned,
        "lens_note": part.lens_note,
        "variance": {view: [_short(share, 4) for share in shadow.views[view].variance] for view in VIEWS},
        "axes": {view: [round(edge, places[view]) for edge in axes[view]] for view in VIEWS},
        "frames": frames,
        "depth": _rounded(depth(walk)),
    }


@torch.no_grad()
def _lenses(subject: Subject, part: Part, words: _Numbered) -> list[list[list[list[int]]]] | None:
    """For every frame and particle the words that its state predicts, and how sure they are in percent.

    The best word, and of the next two those that round to more than nothing.
    """
    if part.lens is None:
        return None
    norm = part.walk.stack.norm
    states = [frame.state for frame in part.walk.frames] if norm is None else normalised(part.walk)
    found = []
    for state in states:
        best = torch.softmax(part.lens(state), dim=-1).topk(LENS_WORDS, dim=-1)
        rows = zip(best.indices.tolist(), (100 * best.values).round().int().tolist(), strict=True)
        found.append([_readings(subject, ids, percents, words) for ids, percents in rows])
    return found


def _readings(subject: Subject, ids: list[int], percents: list[int], words: _Numbered) -> list[list[int]]:
    pairs = zip(ids, percents, strict=True)
    return [[words(subject.words(word)), percent] for rank, (word, percent) in enumerate(pairs) if percent or not rank]


def _nearest(state: Tensor) -> list[list[int]]:
    """The nearest other particles of each, by cosine."""
    table = cosines(state.double()).fill_diagonal_(-2)
    count = min(NEIGHBOURS, len(state) - 1)
    return [row[:count] for row in table.argsort(dim=-1, descending=True, stable=True).tolist()]


def _decimals(axes: Sequence[float]) -> int:
    """Decimals that are worth writing for what spans so much."""
    span = max(axes[1] - axes[0], axes[3] - axes[2])
    return max(0, int(np.ceil(-np.log10(span * FINEST)))) if span > 0 else 0


def _points(points: Array, decimals: int) -> list[list[float]]:
    return [[_plain(round(float(x), decimals)) for x in point] for point in points]


def _plain(value: float) -> float:
    return int(value) if value == int(value) else value  # 3, not 3.0, and no -0.0


def _short(value: float, digits: int) -> float:
    return _plain(float(f"{value:.{digits}g}"))


def _rounded(data: Any, digits: int = 4) -> Any:
    """The same with numbers as short as they may be read."""
    if isinstance(data, dict):
        return {key: _rounded(value, digits) for key, value in data.items()}
    if isinstance(data, list):
        return [_rounded(value, digits) for value in data]
    return _short(data, digits) if isinstance(data, float) else data
