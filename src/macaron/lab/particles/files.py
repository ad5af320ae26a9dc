"""What ``macaron particles`` writes: a page, its data, a figure or an animation, by the name of the file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from macaron.decode.stream import output
from macaron.errors import MacaronError, UsageError
from macaron.lab.particles.projection import View


def to_json(data: dict[str, Any]) -> str:
    """The data on one line, the same for the same data."""
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _json(data: dict[str, Any]) -> bytes:
    return to_json(data).encode("utf-8")


def _html(data: dict[str, Any]) -> bytes:
    from macaron.lab.particles.page import particles_page

    return particles_page(data).encode("utf-8")


def _png(data: dict[str, Any], view: View) -> bytes:
    from macaron.lab.particles.figures import png

    return png(data, view)


def _gif(data: dict[str, Any], view: View) -> bytes:
    from macaron.lab.particles.figures import gif

    return gif(data, view)


BOTH_VIEWS: dict[str, Callable[[dict[str, Any]], bytes]] = {".html": _html, ".json": _json}
ONE_VIEW: dict[str, Callable[[dict[str, Any], View], bytes]] = {".png": _png, ".gif": _gif}


def check_out(path: Path, view: View | None = None) -> None:
    """Refuse a file that cannot be written, before anything is computed."""
    kind = path.suffix.lower()
    if kind not in (*BOTH_VIEWS, *ONE_VIEW):
        raise UsageError(f"--out {path}: its name must end in one of {', '.join((*BOTH_VIEWS, *ONE_VIEW))}")
    if view is not None and kind in BOTH_VIEWS:
        raise UsageError(f"--view is for .png and .gif: {path} has both views")
    if path.is_dir():
        raise UsageError(f"--out {path} is a folder: name a file in it, such as {path / 'page.html'}")


def write(path: Path, data: dict[str, Any], view: View | None = None) -> None:
    """Write the data as the name of the file asks. It is there entirely or not at all; missing folders are made.

    :param view: of a figure or an animation; raw by default
    """
    check_out(path, view)
    kind = path.suffix.lower()
    content = BOTH_VIEWS[kind](data) if kind in BOTH_VIEWS else ONE_VIEW[kind](data, view or "raw")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MacaronError(f"{path.parent} cannot be made: {error.strerror}. Choose another place.") from error
    with output(path) as file:
        file.write(content)
