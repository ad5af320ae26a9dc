"""Lines of text: windows of input as it arrives, long lines cut, output that is complete or absent."""

import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal

from macaron.errors import MacaronError
from macaron.files import atomic_file, decode_line, read_lines

LongLines = Literal["split", "refuse", "truncate"]

_BLOCK = 1 << 16
_PATIENCE = 0.02  # seconds to wait for more input before a window is translated
_GROWTH = 16  # size of the largest window in units of the first
#: Boundaries to cut a long line at, best first: sentences, clauses, words.
_BOUNDARIES = (
    re.compile(r"(?<=[.!?…])[\"'»”’)\]]*\s+|(?<=[。！？])"),
    re.compile(r"(?<=[,;:–—])\s+|(?<=[，、；：])"),
    re.compile(r"\s+"),
)


def windows(path: Path | None, size: int) -> Iterator[list[str]]:
    """The lines of a file or of standard input in lists, without their line ends.

    A window ends when it is full or when no more input arrives: interactive input is answered line by line. The first
    window is small, so that output starts early; later ones are larger, for batches of similar length.

    :param size: characters in the first window
    """
    if path is not None and path.is_file():
        yield from _full_windows(read_lines(path), size)
    elif path is not None:
        with path.open("rb", buffering=0) as file:  # a pipe or a device
            yield from _full_windows(_arriving_lines(file.fileno(), str(path)), size)
    else:
        if sys.stdin is None:
            raise MacaronError("standard input is closed: give the text with --input FILE")
        yield from _full_windows(_arriving_lines(sys.stdin.fileno(), "standard input"), size)


def _full_windows(lines: Iterable[str | None], size: int) -> Iterator[list[str]]:
    """Lists of lines with about ``size`` characters, then more; None among the lines ends a list early."""
    window: list[str] = []
    room, largest = size, size * _GROWTH
    try:
        for line in lines:
            if line is not None:
                window.append(line)
                room -= len(line) + 1
            if window and (line is None or room <= 0):
                yield window
                size = min(2 * size, largest) if room <= 0 else size
                window, room = [], size
    except MacaronError:
        yield window  # the lines before the bad one
        raise
    if window:
        yield window


def _arriving_lines(descriptor: int, name: str) -> Iterator[str | None]:
    """The lines of a descriptor whose input arrives at any time; None where the next line is not there yet.

    Read without Python's buffers: ``select`` does not see what is in them.
    """
    count, rest = 0, bytearray()
    while block := os.read(descriptor, _BLOCK):
        rest += block
        if b"\n" in block:
            *whole, last = rest.split(b"\n")
            for number, raw in enumerate(whole, start=count + 1):
                yield decode_line(raw, name, number)
            count, rest = count + len(whole), last
        if not select.select([descriptor], [], [], _PATIENCE)[0]:
            yield None
    if rest:
        yield decode_line(rest, name, count + 1)


@contextmanager
def output(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, a pipe or a device, or a file that is written completely or not at all."""
    if path is None:
        yield sys.stdout.buffer
        return
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise MacaronError(f"{path}: there is no folder {folder}. Make it, or write elsewhere.")
    with atomic_file(path) as file:
        yield file


def pieces(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut a text into parts that fit, each at the best kind of boundary, as near to the middle as possible.

    :param text: without white space at its ends
    :param fits: whether a text is short enough for the model
    """
    if fits(text) or len(text) < 2:
        return [text]
    cut = _cut(text)
    return [*pieces(text[:cut].strip(), fits), *pieces(text[cut:].strip(), fits)]


def longest_start(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The longest beginning that fits, ending between words if possible, as the only part."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle]) else (low, middle - 1)
    if low == len(text):
        return [text]
    words = text[:low] if text[low : low + 1].isspace() else text[:low].rpartition(" ")[0]
    return [words.rstrip() or text[:low]]


def _cut(text: str) -> int:
    for boundary in _BOUNDARIES:
        # The text has no white space at its ends: both sides of a cut inside are non-empty.
        inside = [match.end() for match in boundary.finditer(text) if match.end() < len(text)]
        if inside:
            return min(inside, key=lambda at: abs(at - len(text) / 2))
    return len(text) // 2
