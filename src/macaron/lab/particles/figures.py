"""Particles as a still figure and as an animation, drawn from the data of a page.

They show sub-steps only: in the raw view the final norm draws all particles together, and nothing else could be seen.
"""

import io
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import numpy as np

from macaron.lab.particles.projection import Array, View
from macaron.lab.particles.states import END, MEANING

#: As on the pages: colours that stay apart for the colour-blind.
COLOURS = {"F": "#0072B2", "G": "#D55E00", "H": "#009E73"}
INK, PALE = "#222222", "#8A8A8A"
#: Height of a panel by its width, and what is left free around the particles.
SHAPE, MARGIN = 0.75, 0.09
#: Letters that a panel has room for in a line of its title: names of models may be long.
TITLE = 66
STYLE: Any = {"font.size": 9, "axes.titlesize": 10}

#: The animation: pictures for one sub-step at best, pictures in all at most, milliseconds for each.
INBETWEEN, MOST_PICTURES, DURATION = 6, 96, 70
FIRST_PAUSE, LAST_PAUSE = 700, 2500
#: Dots in an inch of animations, by the number of panels: a file should stay small enough to send.
GIF_DPI = {1: 110, 2: 96}
GIF_DPI_MANY = 76
#: Shades of each colour on its way to white, in an animation's palette.
SHADES = 24


@dataclass(frozen=True, eq=False)
class Track:
    """One part of a model, ready to be drawn.

    :param points: (frames, T, 2)
    :param times: of the frames, from 0 to 1, layers of equal length
    """

    title: str
    tokens: list[str]
    points: Array
    operators: list[str]
    labels: list[str]
    axes: list[float]
    times: Array


def tracks(data: dict[str, Any], view: View = "raw") -> list[list[Track]]:
    """The panels of a figure: a row for each model, a column for each part."""
    shown: dict[str, list[list[float]]] = {}  # by part: panels that are to be compared have the same axes
    for part in (part for model in data["models"] for part in model["parts"]):
        shown.setdefault(part["name"], []).extend(point for frame in _moving(part) for point in frame[view])
    corners = {name: np.array(points) for name, points in shown.items()}
    return [[_track(model, part, corners[part["name"]], view) for part in model["parts"]] for model in data["models"]]


def _moving(part: dict[str, Any]) -> list[dict[str, Any]]:
    return [frame for frame in part["frames"] if frame["operator"] != END]


def _track(model: dict[str, Any], part: dict[str, Any], shown: Array, view: View) -> Track:
    frames = _moving(part)
    (left, bottom), (right, top) = shown.min(0), shown.max(0)
    shares = " + ".join(f"{100 * share:.0f}\N{NO-BREAK SPACE}%" for share in part["variance"][view])
    normalised = " normalised," if view == "normalised" else ""
    return Track(
        title=f"{model['name']} ({part['scheme']}), {part['name']}:{normalised} {shares} of the variance",
        tokens=part["tokens"],
        points=np.array([frame[view] for frame in frames], dtype=np.float64),
        operators=[frame["operator"] for frame in frames],
        labels=[frame["label"] for frame in frames],
        axes=[left, right, bottom, top],
        times=_times(frames),
    )


def _times(frames: Sequence[dict[str, Any]]) -> Array:
    """When each frame is reached: a layer takes the same time whatever the number of its sub-steps."""
    sizes: dict[int, int] = {}
    for frame in frames:
        sizes[frame["layer"]] = max(sizes.get(frame["layer"], 0), frame["step"])
    first = 0 if sizes[0] else 1  # without a prologue, layer 0 is the start alone
    times = [max(first, frame["layer"]) + frame["step"] / max(sizes[frame["layer"]], 1) for frame in frames]
    times[0] = float(first)
    whole = times[-1] - times[0]
    return (np.array(times) - times[0]) / (whole or 1.0)


def png(data: dict[str, Any], view: View = "raw") -> bytes:
    """A still figure: the trails of all particles, from the start (rings) to the end (dots and words)."""
    with _quiet():
        figure, panels = _canvas(tracks(data, view), data["sentence"], 150, still=True)
        for axes, track in panels:
            for (index, before), after in zip(enumerate(track.points[:-1]), track.points[1:], strict=True):
                operator = track.operators[index + 1]
                ends = np.stack([before, after], axis=1)
                axes.add_collection(_lines(ends, operator, 0.35 + 0.55 * track.times[index + 1]))
            _rings(axes, track)
            axes.scatter(*track.points[-1].T, s=16, color=INK, linewidths=0, zorder=4)
        for axes, track in panels:
            _name_ends(axes, track)
        stream = io.BytesIO()
        figure.savefig(stream, format="png", metadata={"Software": None})
        return stream.getvalue()


def gif(data: dict[str, Any], view: View = "raw") -> bytes:
    """An animation of the same, sub-step by sub-step."""
    from PIL import Image

    with _quiet():
        rows = tracks(data, view)
        dpi = GIF_DPI.get(sum(map(len, rows)), GIF_DPI_MANY)
        figure, panels = _canvas(rows, data["sentence"], dpi, still=False)
        moving = [_Moving(axes, track) for axes, track in panels]
        longest = max(len(track.points) for _, track in panels) - 1
        number = min(MOST_PICTURES, INBETWEEN * longest)
        pictures: list[Any] = []
        for time in np.linspace(0.0, 1.0, number + 1):
            for each in moving:
                each.move_to(float(time))
            figure.canvas.draw()
            pictures.append(Image.fromarray(np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()))
    # One palette for all: nothing flickers, and no colour is lost that few dots have.
    palette = Image.new("P", (1, 1))
    palette.putpalette(_palette())
    few = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    durations = [FIRST_PAUSE, *[DURATION] * (len(few) - 2), LAST_PAUSE]
    stream = io.BytesIO()
    few[0].save(stream, format="GIF", save_all=True, append_images=few[1:], duration=durations, loop=0)
    return stream.getvalue()


def _palette() -> list[int]:
    """Red, green and blue of white and of every colour that is drawn, on its way to white."""
    found = [255, 255, 255]
    for colour in (*COLOURS.values(), INK, PALE):
        ink = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
        for share in np.linspace(0, 0.95, SHADES):
            found += [int(part) for part in np.rint(ink + share * (255 - ink))]
    return found


class _Moving:
    """The particles of one panel, at any time."""

    def __init__(self, axes: Any, track: Track) -> None:
        self.track = track
        self.trails = [axes.add_collection(_lines(np.empty((0, 2, 2)), op, 0.55)) for op in COLOURS]
        _rings(axes, track)
        self.dots = axes.scatter(*track.points[0].T, s=16, color=INK, linewidths=0, zorder=4)
        self.names = [
            axes.annotate(token, point, xytext=(4, 3), textcoords="offset points", **_TEXT)
            for token, point in zip(track.tokens, track.points[0], strict=True)
        ]
        place = {"transform": axes.transAxes, "va": "bottom", "fontsize": 8.5}
        self.note = axes.text(0.01, 0.01, "", **place)

    def move_to(self, time: float) -> None:
        """Show the moment: particles between two frames, trails behind them."""
        track = self.track
        last = len(track.points) - 1
        index = min(int(np.searchsorted(track.times, time - 1e-9, side="right")), last) if time > 0 else 0
        now = track.points[0]
        if index:
            since, until = track.times[index - 1], track.times[index]
            share = min(1.0, (time - since) / (until - since)) if until > since else 1.0
            share = share * share * (3 - 2 * share)  # away gently, and to rest
            now = (1 - share) * track.points[index - 1] + share * track.points[index]
        for operator, trail in zip(COLOURS, self.trails, strict=True):
            ends = [
                np.stack([track.points[i - 1], track.points[i] if i < index else now], axis=1)
                for i in range(1, index + 1)
                if track.operators[i] == operator
            ]
            trail.set_segments(np.concatenate(ends) if ends else [])
        self.dots.set_offsets(now)
        for name, point in zip(self.names, now, strict=True):
            name.xy = point
        self.note.set_text(track.labels[index])
        self.note.set_color(COLOURS.get(track.operators[index], INK))


_TEXT: dict[str, Any] = {"fontsize": 8, "color": INK, "zorder": 5, "parse_math": False, "annotation_clip": False}


def _rings(axes: Any, track: Track) -> None:
    axes.scatter(*track.points[0].T, s=14, facecolors="white", edgecolors=PALE, linewidths=0.9, zorder=3)


def _lines(ends: Array, operator: str, alpha: float) -> Any:
    from matplotlib.collections import LineCollection

    return LineCollection(list(ends), colors=COLOURS[operator], linewidths=1.1, alpha=alpha, zorder=2)


def _canvas(
    rows: Sequence[Sequence[Track]], sentence: str, dpi: int, still: bool
) -> tuple[Any, list[tuple[Any, Track]]]:
    """A figure with its panels, empty but for what does not move."""
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
        for track, axes in zip(row, line, strict=False):
            panels.append((axes, track))
            axes.set_title("\n".join(wrap(track.title, TITLE)), loc="left", parse_math=False)
            _frame(axes, track.axes)
            axes.tick_params(colors=PALE, labelsize=7)
            axes.grid(color="#EEEEEE", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            axes.spines[["left", "bottom"]].set_color("#CCCCCC")
    title = wrap(sentence, 72 * width, max_lines=2, placeholder=" ...")
    figure.suptitle("\n".join(title), fontsize=11, parse_math=False)
    used = [op for op in COLOURS if any(op in track.operators for _, track in panels)]
    handles: list[Any] = [Line2D([], [], color=COLOURS[op], label=MEANING[op]) for op in used]
    dot: Any = {"linestyle": "", "marker": "o", "markersize": 4}
    handles.append(Line2D([], [], **dot, markerfacecolor="white", markeredgecolor=PALE, label="as embedded"))
    handles.append(Line2D([], [], **dot, color=INK, label="after the last sub-step" if still else "now"))
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), frameon=False, fontsize=8.5)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # everything has its place now, and keeps it
    return figure, panels


def _frame(axes: Any, bounds: Sequence[float]) -> None:
    """Show all, a unit being as long upwards as sideways."""
    left, right, bottom, top = bounds
    width = max(right - left, (top - bottom) / SHAPE, 1e-9) * (1 + 2 * MARGIN)
    # Words stand to the right of their dots: a little more room there.
    axes.set_xlim((left + right) / 2 - 0.48 * width, (left + right) / 2 + 0.52 * width)
    axes.set_ylim((bottom + top - SHAPE * width) / 2, (bottom + top + SHAPE * width) / 2)
    axes.set_box_aspect(SHAPE)


def _name_ends(axes: Any, track: Track) -> None:
    """Write the words at the ends, each at the first place beside its dot that no other word has taken."""
    places = [(4, 3), (4, -9), (-4, 3), (-4, -9), (0, 8), (0, -14), (9, 10), (-9, 10), (9, -17), (-9, -17)]
    taken: list[Any] = []
    for token, point in zip(track.tokens, track.points[-1], strict=True):
        best: tuple[int, Any, Any] | None = None
        for offset in places:
            side = {1: "left", 0: "center", -1: "right"}[int(np.sign(offset[0]))]
            text = axes.annotate(token, point, xytext=offset, textcoords="offset points", ha=side, **_TEXT)
            box = text.get_window_extent()
            hidden = sum(bool(box.overlaps(other)) for other in taken)
            if best is None or hidden < best[0]:
                if best is not None:
                    best[1].remove()
                best = (hidden, text, box)
            else:
                text.remove()
            if not best[0]:
                break
        assert best is not None
        taken.append(best[2])


@contextmanager
def _quiet() -> Iterator[None]:
    """Our style; and no words about letters that the font lacks."""
    import matplotlib

    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield
