"""Particles as a figure and an animation: sub-steps only, beside which the final norm would hide everything."""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import Any

import numpy as np

from macaron.lab.particles.projection import View
from macaron.lab.particles.trace import END, MEANING

#: The same as on the pages: distinct to colour-blind readers.
COLOURS = {"F": "#0072B2", "G": "#D55E00", "H": "#009E73"}
INK, PALE = "#222222", "#8A8A8A"
STYLE = Path(__file__).parents[1] / "assets" / "particles.mplstyle"
#: Height of a panel divided by its width.
SHAPE = 0.75
#: The animation: images per sub-step and in all at most.
IMAGES_PER_STEP, MAX_IMAGES = 6, 96


class Track:
    """One panel: a part of a model without the final norm; points (frames, T, 2), and times (frames,) from 0 to 1."""

    def __init__(self, model: str, part: Mapping[str, Any], view: View) -> None:
        self.frames = [frame for frame in part["frames"] if frame["operator"] != END]
        self.points = np.array([frame[view] for frame in self.frames], dtype=np.float64)
        times = np.array(part["times"][: len(self.frames)]) - part["times"][0]
        self.times, self.tokens = times / (times[-1] or 1.0), part["tokens"]
        shares = " + ".join(f"{100 * share:.0f}\N{NO-BREAK SPACE}%" for share in part["variance"][view])
        normalised = " normalised," if view == "normalised" else ""
        self.title = f"{model} ({part['scheme']}), {part['name']}:{normalised} {shares} of the variance"


def tracks(data: Mapping[str, Any], view: View = "raw") -> list[list[Track]]:
    """The panels of a figure: a row per model, a column per part."""
    return [[Track(model["name"], part, view) for part in model["parts"]] for model in data["models"]]


@contextmanager
def _drawing() -> Iterator[None]:
    import matplotlib

    with matplotlib.rc_context(fname=STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters that the font lacks
        yield


@_drawing()
def png(data: Mapping[str, Any], view: View = "raw") -> bytes:
    """A still figure: the trails of all particles, from the start (rings) to the end (dots and words)."""
    figure, panels = _canvas(tracks(data, view), data["sentence"], 150, "after the last sub-step")
    return _image(figure, panels, 1.0).getvalue()


@_drawing()
def gif(data: Mapping[str, Any], view: View = "raw") -> bytes:
    """An animation of the sub-steps."""
    from PIL import Image

    rows = tracks(data, view)
    # Small images where there are many panels, to limit the size of the file.
    dpi = {1: 110, 2: 96}.get(sum(map(len, rows)), 76)
    figure, panels = _canvas(rows, data["sentence"], dpi, "current state")
    steps = max(len(track.points) for _, track in panels) - 1
    times = np.linspace(0.0, 1.0, min(MAX_IMAGES, IMAGES_PER_STEP * steps) + 1).tolist()
    images: list[Any] = [Image.open(_image(figure, panels, time)).convert("RGB") for time in times]
    # One palette for all images, so that nothing flickers: that of the last one, which has all colours.
    palette = images[-1].quantize(256, Image.Quantize.MAXCOVERAGE)
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    durations = [700, *[70] * (len(others) - 1), 2500]  # in milliseconds: pauses at both ends
    stream = io.BytesIO()
    first.save(stream, format="GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return stream.getvalue()


def _image(figure: Any, panels: Sequence[tuple[Any, Track]], time: float) -> io.BytesIO:
    drawn = [artist for axes, track in panels for artist in _draw(axes, track, time)]
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None})
    for artist in drawn:
        artist.remove()
    return stream


def _draw(axes: Any, track: Track, time: float) -> list[Any]:
    """The particles at a time between two frames, with their words, trails and the name of the sub-step."""
    from matplotlib.collections import LineCollection

    position = float(np.interp(time, track.times, np.arange(len(track.times))))
    index = math.ceil(position - 1e-9)
    share = position - (index - 1)
    share = share * share * (3 - 2 * share)  # slow at both ends
    now = (1 - share) * track.points[index - 1] + share * track.points[index]
    passed = np.stack([*track.points[:index], now])
    lines = np.stack([passed[:-1], passed[1:]], axis=2).reshape(-1, 2, 2)
    # In the colours of the operators; the first trails are faint.
    moves = zip(track.frames[1 : index + 1], 0.35 + 0.55 * track.times[1 : index + 1], strict=True)
    colours = [(COLOURS.get(frame["operator"], PALE), alpha) for frame, alpha in moves for _ in track.tokens]
    # Words are on the outer sides of their dots.
    sides = np.where(track.points[-1, :, 0] < track.points[-1, :, 0].mean(), -1, 1)
    style: dict[str, Any] = {"textcoords": "offset points", "fontsize": 8, "color": INK, "annotation_clip": False}
    words = [
        axes.annotate(token, point, (4 * side, 3), ha="left" if side > 0 else "right", **style)
        for token, point, side in zip(track.tokens, now, sides, strict=True)
    ]
    frame = track.frames[index]
    return [
        axes.add_collection(LineCollection(list(lines), colors=colours, linewidths=1.1, zorder=2)),
        axes.scatter(*now.T, s=16, color=INK, linewidths=0, zorder=4),
        axes.text(0.01, 0.01, frame["label"], transform=axes.transAxes, color=COLOURS.get(frame["operator"], INK)),
        *words,
    ]


def _canvas(rows: Sequence[Sequence[Track]], sentence: str, dpi: int, dots: str) -> tuple[Any, list[tuple[Any, Track]]]:
    """A figure with its panels, which show the first states (rings) only."""
    from matplotlib.figure import Figure

    width = max(len(row) for row in rows)
    figure = Figure(figsize=(5.9 * width + 0.2, 4.7 * len(rows) + 0.8), dpi=dpi, layout="constrained")
    grid = figure.subplots(len(rows), width, squeeze=False)
    panels = []
    for row, line in zip(rows, grid, strict=True):
        for axes in line[len(row) :]:
            axes.set_axis_off()
        for column, (track, axes) in enumerate(zip(row, line, strict=False)):
            panels.append((axes, track))
            axes.set_title("\n".join(wrap(track.title, 66)), loc="left")
            axes.scatter(*track.points[0].T, s=14, facecolors="white", edgecolors=PALE, linewidths=0.9, zorder=3)
            # A column is the same part of all models, on the same axes: the particles, and room for their words.
            points = np.concatenate([other[column].points.reshape(-1, 2) for other in rows if len(other) > column])
            (x, y), (wide, high) = (points.max(0) + points.min(0)) / 2, points.max(0) - points.min(0)
            half = 0.6 * max(wide, high / SHAPE, 1e-9)
            axes.set(xlim=(x - half, x + half), ylim=(y - SHAPE * half, y + SHAPE * half), box_aspect=SHAPE)
    figure.suptitle("\n".join(wrap(sentence, 72 * width, max_lines=2, placeholder=" ...")), fontsize=11)
    used = {frame["operator"] for _, track in panels for frame in track.frames}
    for op in sorted(used & COLOURS.keys()):
        panels[0][0].plot([], [], color=COLOURS[op], label=MEANING[op])
    for label, fill in (("embedding", "none"), (dots, "full")):
        panels[0][0].plot([], [], "o", ms=4, color=INK, fillstyle=fill, label=label)
    figure.legend(loc="outside lower center", ncols=5, frameon=False)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the layout is fixed from here on
    return figure, panels
