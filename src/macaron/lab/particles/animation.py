"""Particles as a still figure and as an animation.

They show sub-steps only: the final norm contracts the raw states so much that nothing else would be visible.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from macaron.lab.figures import clean_axes, drawing, rendered
from macaron.lab.particles.projection import Array, View
from macaron.lab.particles.trace import END, MEANING

#: The same as on the pages: distinct to colour-blind readers.
COLOURS = {"F": "#0072B2", "G": "#D55E00", "H": "#009E73"}
INK, PALE = "#222222", "#8A8A8A"
#: Height of a panel divided by its width, and the margin around the particles.
SHAPE, MARGIN = 0.75, 0.09
#: Characters in a line of a panel's title.
TITLE = 66

#: The animation: images per sub-step and in all at most, milliseconds per image.
IMAGES_PER_STEP, MAX_IMAGES, DURATION = 6, 96, 70
FIRST_PAUSE, LAST_PAUSE = 700, 2500
#: Resolution of animations by number of panels, to limit the size of the file.
GIF_DPI = {1: 110, 2: 96}
GIF_DPI_MANY = 76
#: Shades of each colour towards white in an animation's palette.
SHADES = 24

_TEXT: dict[str, Any] = {"fontsize": 8, "color": INK, "zorder": 5, "parse_math": False, "annotation_clip": False}


@dataclass(frozen=True, eq=False)
class Track:
    """One panel: a part of a model.

    :param frames: without the final norm
    :param points: (frames, T, 2)
    :param times: (frames,), from 0 to 1
    """

    title: str
    tokens: list[str]
    frames: list[dict[str, Any]]
    points: Array
    times: Array


def tracks(data: Mapping[str, Any], view: View = "raw") -> list[list[Track]]:
    """The panels of a figure: a row per model, a column per part."""
    return [[_track(model["name"], part, view) for part in model["parts"]] for model in data["models"]]


def _track(model: str, part: Mapping[str, Any], view: View) -> Track:
    frames = [frame for frame in part["frames"] if frame["operator"] != END]
    times = np.array(part["times"][: len(frames)]) - part["times"][0]
    shares = " + ".join(f"{100 * share:.0f}\N{NO-BREAK SPACE}%" for share in part["variance"][view])
    normalised = " normalised," if view == "normalised" else ""
    title = f"{model} ({part['scheme']}), {part['name']}:{normalised} {shares} of the variance"
    points = np.array([frame[view] for frame in frames], dtype=np.float64)
    return Track(title, part["tokens"], frames, points, times / (times[-1] or 1.0))


def png(data: Mapping[str, Any], view: View = "raw") -> bytes:
    """A still figure: the trails of all particles, from the start (rings) to the end (dots and words)."""
    with drawing(9, 10):
        figure, panels = _canvas(tracks(data, view), data["sentence"], 150, "after the last sub-step")
        for axes, track in panels:
            for i in range(1, len(track.points)):
                ends = np.stack([track.points[i - 1], track.points[i]], axis=1)
                axes.add_collection(_lines(ends, track.frames[i]["operator"], 0.35 + 0.55 * track.times[i]))
            axes.scatter(*track.points[-1].T, s=16, color=INK, linewidths=0, zorder=4)
            _label_ends(axes, track)
        return rendered(figure, "png", 150)


def gif(data: Mapping[str, Any], view: View = "raw") -> bytes:
    """An animation of the sub-steps."""
    from PIL import Image

    with drawing(9, 10):
        rows = tracks(data, view)
        figure, panels = _canvas(rows, data["sentence"], GIF_DPI.get(sum(map(len, rows)), GIF_DPI_MANY), "now")
        moving = [_MovingPanel(axes, track) for axes, track in panels]
        longest = max(len(track.points) for _, track in panels) - 1
        images: list[Any] = []
        for time in np.linspace(0.0, 1.0, min(MAX_IMAGES, IMAGES_PER_STEP * longest) + 1):
            for each in moving:
                each.move_to(float(time))
            figure.canvas.draw()
            images.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()))
    # One palette for all images: no flicker, and rare colours are kept.
    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette())
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    durations = [FIRST_PAUSE, *[DURATION] * (len(others) - 1), LAST_PAUSE]
    stream = io.BytesIO()
    first.save(stream, format="GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return stream.getvalue()


def _palette() -> list[int]:
    """Red, green and blue of white, and of every colour in shades towards white."""
    found = [255, 255, 255]
    for colour in (*COLOURS.values(), INK, PALE):
        ink = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        for share in np.linspace(0, 0.95, SHADES):
            found += [int(part) for part in np.rint(ink + share * (255 - ink))]
    return found


class _MovingPanel:
    """The particles of one panel, at any time."""

    def __init__(self, axes: Any, track: Track) -> None:
        self.track = track
        self.trails = [axes.add_collection(_lines(np.empty((0, 2, 2)), op, 0.55)) for op in COLOURS]
        self.dots = axes.scatter(*track.points[0].T, s=16, color=INK, linewidths=0, zorder=4)
        self.names = [
            axes.annotate(token, point, xytext=(4, 3), textcoords="offset points", **_TEXT)
            for token, point in zip(track.tokens, track.points[0], strict=True)
        ]
        self.note = axes.text(0.01, 0.01, "", transform=axes.transAxes, va="bottom", fontsize=8.5)

    def move_to(self, time: float) -> None:
        """Draw the particles between two frames, and their trails."""
        track = self.track
        last = len(track.points) - 1
        index = min(int(np.searchsorted(track.times, time - 1e-9, side="right")), last) if time > 0 else 0
        now = track.points[0]
        if index:
            since, until = track.times[index - 1], track.times[index]
            share = min(1.0, (time - since) / (until - since)) if until > since else 1.0
            share = share * share * (3 - 2 * share)  # slow at both ends
            now = (1 - share) * track.points[index - 1] + share * track.points[index]
        for operator, trail in zip(COLOURS, self.trails, strict=True):
            ends = [
                np.stack([track.points[i - 1], track.points[i] if i < index else now], axis=1)
                for i in range(1, index + 1)
                if track.frames[i]["operator"] == operator
            ]
            trail.set_segments(np.concatenate(ends) if ends else [])
        self.dots.set_offsets(now)
        for name, point in zip(self.names, now, strict=True):
            name.xy = point
        self.note.set_text(track.frames[index]["label"])
        self.note.set_color(COLOURS.get(track.frames[index]["operator"], INK))


def _lines(ends: Array, operator: str, alpha: float) -> Any:
    from matplotlib.collections import LineCollection

    return LineCollection(list(ends), colors=COLOURS[operator], linewidths=1.1, alpha=alpha, zorder=2)


def _canvas(rows: Sequence[Sequence[Track]], sentence: str, dpi: int, dots: str) -> tuple[Any, list[tuple[Any, Track]]]:
    """A figure with its panels, which show the first states (rings) only.

    :param dots: what the dots mean, for the legend
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    width = max(len(row) for row in rows)
    figure = Figure(figsize=(5.9 * width + 0.2, 4.7 * len(rows) + 0.8), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), width, squeeze=False)
    panels = []
    for row, line in zip(rows, grid, strict=True):
        for axes in line[len(row) :]:
            axes.set_axis_off()
        for column, (track, axes) in enumerate(zip(row, line, strict=False)):
            panels.append((axes, track))
            axes.set_title("\n".join(wrap(track.title, TITLE)), loc="left", parse_math=False)
            # A column is the same part of all models, on the same axes.
            _limit(axes, np.concatenate([other[column].points.reshape(-1, 2) for other in rows if len(other) > column]))
            clean_axes(axes)
            axes.tick_params(labelcolor=PALE, labelsize=7)
            axes.scatter(*track.points[0].T, s=14, facecolors="white", edgecolors=PALE, linewidths=0.9, zorder=3)
    title = wrap(sentence, 72 * width, max_lines=2, placeholder=" ...")
    figure.suptitle("\n".join(title), fontsize=11, parse_math=False)
    used = {frame["operator"] for _, track in panels for frame in track.frames}
    handles: list[Any] = [Line2D([], [], color=COLOURS[op], label=MEANING[op]) for op in COLOURS if op in used]
    dot: Any = {"linestyle": "", "marker": "o", "markersize": 4}
    handles.append(Line2D([], [], **dot, markerfacecolor="white", markeredgecolor=PALE, label="embedding"))
    handles.append(Line2D([], [], **dot, color=INK, label=dots))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8.5)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # the layout is fixed from here on
    return figure, panels


def _limit(axes: Any, points: Array) -> None:
    """Set the limits of axes to show all points (n, 2), with the same unit in both directions."""
    (left, bottom), (right, top) = points.min(0), points.max(0)
    width = max(right - left, (top - bottom) / SHAPE, 1e-9) * (1 + 2 * MARGIN)
    # A little more room on the right, where the words are.
    axes.set_xlim((left + right) / 2 - 0.48 * width, (left + right) / 2 + 0.52 * width)
    axes.set_ylim((bottom + top - SHAPE * width) / 2, (bottom + top + SHAPE * width) / 2)
    axes.set_box_aspect(SHAPE)


def _label_ends(axes: Any, track: Track) -> None:
    """Write each word at the first offset from its dot where it covers no other word, or the fewest."""
    offsets = [(4, 3), (4, -9), (-4, 3), (-4, -9), (0, 8), (0, -14), (9, 10), (-9, 10), (9, -17), (-9, -17)]
    taken: list[Any] = []
    for token, point in zip(track.tokens, track.points[-1], strict=True):
        candidates = []
        for offset in offsets:
            side = {1: "left", 0: "center", -1: "right"}[int(np.sign(offset[0]))]
            text = axes.annotate(token, point, xytext=offset, textcoords="offset points", ha=side, **_TEXT)
            box = text.get_window_extent()
            candidates.append((sum(bool(box.overlaps(other)) for other in taken), text, box))
            if not candidates[-1][0]:
                break
        best = min(candidates, key=lambda candidate: candidate[0])
        for candidate in candidates:
            if candidate is not best:
                candidate[1].remove()
        taken.append(best[2])
