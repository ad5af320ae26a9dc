"""Particles as a still figure and as an animation.

They show sub-steps only: the final norm contracts the raw states so much that nothing else would be visible.
"""

import io
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from macaron.lab.particles.projection import Array, View
from macaron.lab.particles.trace import END, MEANING

#: The same as on the pages: distinct to colour-blind readers.
COLOURS = {"F": "#0072B2", "G": "#D55E00", "H": "#009E73"}
INK, PALE = "#222222", "#8A8A8A"
#: Height of a panel divided by its width, and the margin around the particles.
SHAPE, MARGIN = 0.75, 0.09
#: Characters in a line of a panel's title.
TITLE = 66
#: Offsets of a word from its dot in points, the best first.
LABEL_OFFSETS = [(4, 3), (4, -9), (-4, 3), (-4, -9), (0, 8), (0, -14), (9, 10), (-9, 10), (9, -17), (-9, -17)]

#: The animation: images per sub-step and in all at most, milliseconds per image.
IMAGES_PER_STEP, MAX_IMAGES, DURATION = 6, 96, 70
FIRST_PAUSE, LAST_PAUSE = 700, 2500
#: Resolution of animations by number of panels, to limit the size of the file.
GIF_DPI = {1: 110, 2: 96}
GIF_DPI_MANY = 76

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
    stream = io.BytesIO()
    with _drawing():
        figure, panels = _canvas(tracks(data, view), data["sentence"], 150, "after the last sub-step")
        for axes, track in panels:
            _Panel(axes, track)
        figure.savefig(stream, format="png", dpi=150, metadata={"Software": None})
    return stream.getvalue()


def gif(data: Mapping[str, Any], view: View = "raw") -> bytes:
    """An animation of the sub-steps."""
    from PIL import Image

    with _drawing():
        rows = tracks(data, view)
        dpi = GIF_DPI.get(sum(map(len, rows)), GIF_DPI_MANY)
        figure, panels = _canvas(rows, data["sentence"], dpi, "current state")
        moving = [_Panel(axes, track) for axes, track in panels]
        longest = max(len(track.points) for _, track in panels) - 1
        images: list[Any] = []
        for time in np.linspace(0.0, 1.0, min(MAX_IMAGES, IMAGES_PER_STEP * longest) + 1):
            for each in moving:
                each.move_to(float(time))
            figure.canvas.draw()
            images.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()))
    # One palette for all images, so that nothing flickers: that of the last one, which has all colours.
    palette = images[-1].quantize(256, Image.Quantize.MAXCOVERAGE)
    first, *others = (image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images)
    durations = [FIRST_PAUSE, *[DURATION] * (len(others) - 1), LAST_PAUSE]
    stream = io.BytesIO()
    first.save(stream, format="GIF", save_all=True, append_images=others, duration=durations, loop=0)
    return stream.getvalue()


@contextmanager
def _drawing() -> Iterator[None]:
    """The style of a figure."""
    import matplotlib

    with matplotlib.rc_context({"font.size": 9, "axes.titlesize": 10}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # characters that the font lacks
        yield


class _Panel:
    """The particles of one panel, at the end at first."""

    def __init__(self, axes: Any, track: Track) -> None:
        self.axes, self.track = axes, track
        self.trails = axes.add_collection(_trails(track, track.points))
        self.dots = axes.scatter(*track.points[-1].T, s=16, color=INK, linewidths=0, zorder=4)
        self.note = axes.text(0.01, 0.01, "", transform=axes.transAxes, va="bottom", fontsize=8.5)
        # Each word is at the first offset from its dot where it covers no other word at the end, or the fewest.
        self.names, taken = [], list[Any]()
        for token, point in zip(track.tokens, track.points[-1], strict=True):
            self.names.append(axes.annotate(token, point, xytext=(0, 0), textcoords="offset points", **_TEXT))
            boxes = [_moved(self.names[-1], offset) for offset in LABEL_OFFSETS]
            covered = [sum(bool(box.overlaps(other)) for other in taken) for box in boxes]
            taken.append(_moved(self.names[-1], LABEL_OFFSETS[covered.index(min(covered))]))

    def move_to(self, time: float) -> None:
        """Draw the particles between two frames, and their trails."""
        track = self.track
        position = float(np.interp(time, track.times, np.arange(len(track.times))))
        index = math.ceil(position - 1e-9)
        share = position - (index - 1)
        share = share * share * (3 - 2 * share)  # slow at both ends
        now = (1 - share) * track.points[index - 1] + share * track.points[index]
        passed = np.concatenate([track.points[:index], now[np.newaxis]])
        self.trails.remove()
        self.trails = self.axes.add_collection(_trails(track, passed))
        self.dots.set_offsets(now)
        for name, point in zip(self.names, now, strict=True):
            name.xy = point
        self.note.set_text(track.frames[index]["label"])
        self.note.set_color(COLOURS.get(track.frames[index]["operator"], INK))


def _trails(track: Track, points: Array) -> Any:
    """The lines between consecutive states (frames, T, 2), in the colours of the operators; the first are faint."""
    from matplotlib.collections import LineCollection

    ends = np.stack([points[:-1], points[1:]], axis=2).reshape(-1, 2, 2)
    passed = zip(track.frames[1 : len(points)], 0.35 + 0.55 * track.times[1 : len(points)], strict=True)
    colours = [(COLOURS.get(frame["operator"], PALE), alpha) for frame, alpha in passed for _ in track.tokens]
    return LineCollection(list(ends), colors=colours, linewidths=1.1, zorder=2)


def _canvas(rows: Sequence[Sequence[Track]], sentence: str, dpi: int, dots: str) -> tuple[Any, list[tuple[Any, Track]]]:
    """A figure with its panels, which show the first states (rings) only."""
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
            # No box: a faint grid, and grey lines on the left and at the bottom.
            axes.grid(True, which="major", color="#E6E6E6", linewidth=0.8)
            axes.set_axisbelow(True)
            axes.minorticks_off()
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color("#888888")
            axes.tick_params(color="#888888", labelcolor=PALE, labelsize=7)
            axes.scatter(*track.points[0].T, s=14, facecolors="white", edgecolors=PALE, linewidths=0.9, zorder=3)
    title = wrap(sentence, 72 * width, max_lines=2, placeholder=" ...")
    figure.suptitle("\n".join(title), fontsize=11, parse_math=False)
    used = {frame["operator"] for _, track in panels for frame in track.frames}
    dot: Any = {"linestyle": "", "marker": "o", "markersize": 4}
    handles = [
        *(Line2D([], [], color=COLOURS[op], label=MEANING[op]) for op in COLOURS if op in used),
        Line2D([], [], **dot, markerfacecolor="white", markeredgecolor=PALE, label="embedding"),
        Line2D([], [], **dot, color=INK, label=dots),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8.5)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # the layout is fixed from here on
    return figure, panels


def _limit(axes: Any, points: Array) -> None:
    (left, bottom), (right, top) = points.min(0), points.max(0)
    width = max(right - left, (top - bottom) / SHAPE, 1e-9) * (1 + 2 * MARGIN)
    # A little more room on the right, where the words are.
    axes.set_xlim((left + right) / 2 - 0.48 * width, (left + right) / 2 + 0.52 * width)
    axes.set_ylim((bottom + top - SHAPE * width) / 2, (bottom + top + SHAPE * width) / 2)
    axes.set_box_aspect(SHAPE)


def _moved(text: Any, offset: tuple[int, int]) -> Any:
    """Move an annotation to an offset from its point; return the box that it covers."""
    side = {1: "left", 0: "center", -1: "right"}[int(np.sign(offset[0]))]
    text.set(position=offset, horizontalalignment=side)
    return text.get_window_extent()
