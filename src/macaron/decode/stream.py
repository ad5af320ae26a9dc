"""Lines of text: windows of input as it arrives, output that is complete or absent."""

import os
import select
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import AnyStr, BinaryIO

from macaron.errors import MacaronError
from macaron.files import LONGEST_LINE, atomic_file, decode_line, read_lines

_BLOCK = 1 << 16
_PATIENCE = 0.02  # seconds to wait for more input before a window is translated
_LOOK = 0.5  # seconds between looks for signals while nothing arrives
GROWTH = 16  # size of the largest window in units of the first


def windows(path: Path | None, size: int) -> Iterator[list[str]]:
    """The lines of a file or of standard input in lists, without their line ends.

    A window ends when it is full or when no more input arrives: interactive input is answered line by line. The first
    window is small, so that output starts early; later ones are larger, for batches of similar length.

    :param size: characters in the first window
    """
    if path is not None and path.is_file():
        yield from full_windows(read_lines(path), size)
        return
    if path is None and sys.stdin is None:
        raise MacaronError("standard input is closed: give the text with --input FILE")
    with nullcontext(sys.stdin) if path is None else path.open("rb", buffering=0) as file:  # a pipe or a device
        yield from full_windows(_arriving_lines(file.fileno(), str(path or "standard input")), size)


def full_windows(lines: Iterable[AnyStr | None], size: int) -> Iterator[list[AnyStr]]:
    """Lists of lines with about ``size`` characters, then up to `GROWTH` times more; None ends a list early."""
    window: list[AnyStr] = []
    room, largest = size, size * GROWTH
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
    while block := _next_block(descriptor):
        rest += block
        if b"\n" in block:
            *whole, last = rest.split(b"\n")
            for number, raw in enumerate(whole, start=count + 1):
                yield decode_line(raw, name, number)
            count, rest = count + len(whole), last
        if len(rest) > LONGEST_LINE:
            break  # it is refused
        if not select.select([descriptor], [], [], _PATIENCE)[0]:
            yield None
    if rest:
        yield decode_line(rest, name, count + 1)


def _next_block(descriptor: int) -> bytes:
    """The next bytes; none at the end. A signal right before a read that waits would be noticed only after it."""
    while not select.select([descriptor], [], [], _LOOK)[0]:
        pass
    return os.read(descriptor, _BLOCK)


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
