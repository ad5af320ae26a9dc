"""Lines in and out of a command: windows of input as it arrives, output that is complete or absent."""

import errno
import os
import select
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from macaron.errors import MacaronError
from macaron.files import read_lines

_BLOCK = 1 << 16
_PATIENCE = 0.02  # seconds without input after which what is there is translated
_GROWTH = 16  # the largest window in units of the first


def windows(path: Path | None, size: int) -> Iterator[list[str]]:
    """The lines of a file or of standard input in lists, without their line ends.

    A window ends when it is full, and before that when no more input arrives: a person who types gets an answer
    to each line. The first window is small, so that something is to be seen soon; later ones are larger, because
    sentences of like length are then easier to find.

    :param size: characters in the first window
    """
    if path is not None and path.is_file():
        yield from _full_windows(read_lines(path), size)
    elif path is not None:
        with path.open("rb", buffering=0) as file:  # a pipe or a device
            yield from _live_windows(file.fileno(), str(path), size)
    else:
        if sys.stdin is None:
            raise MacaronError("standard input is closed: give the text with --input FILE")
        yield from _live_windows(sys.stdin.fileno(), "standard input", size)


def _full_windows(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    window: list[str] = []
    room, largest = size, size * _GROWTH
    try:
        for line in lines:
            window.append(line)
            room -= len(line) + 1
            if room <= 0:
                yield window
                size = min(2 * size, largest)
                window, room = [], size
    except MacaronError:
        yield window  # what came before the bad line
        raise
    if window:
        yield window


def _live_windows(descriptor: int, name: str, size: int) -> Iterator[list[str]]:
    """Windows of a descriptor that may have more to say at any time.

    Read without Python's buffers: whether more is there can only be asked of the system.
    """
    lines = _Lines(name)
    largest = size * _GROWTH
    rest = bytearray()
    ended = False
    while not ended or lines.waiting:
        full = lines.waiting_size >= size
        if full or ended or (lines.waiting and not select.select([descriptor], [], [], _PATIENCE)[0]):
            yield from lines.take(size)
            size = min(2 * size, largest) if full else size
            continue
        block = os.read(descriptor, _BLOCK)
        ended = not block
        rest += block
        if ended and rest:
            lines.add(bytes(rest))
        elif b"\n" in block:
            *whole, last = bytes(rest).split(b"\n")
            rest = bytearray(last)
            for raw in whole:
                lines.add(raw)


class _Lines:
    """Lines that have arrived and wait for translation."""

    def __init__(self, name: str) -> None:
        self.name, self.taken = name, 0
        self.waiting: list[bytes] = []
        self.waiting_size = 0

    def add(self, raw: bytes) -> None:
        self.waiting.append(raw)
        self.waiting_size += len(raw) + 1

    def take(self, size: int) -> Iterator[list[str]]:
        """A window of about that many characters; if a line in it is bad, those before it and then the error."""
        window: list[str] = []
        used = 0
        for raw in self.waiting:
            if used >= size:
                break
            used += len(raw) + 1
            try:
                window.append(self._decode(raw, self.taken + len(window) + 1))
            except MacaronError:
                yield window
                raise
        del self.waiting[: len(window)]
        self.waiting_size -= used
        self.taken += len(window)
        yield window

    def _decode(self, raw: bytes, number: int) -> str:
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise MacaronError(
                f"{self.name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line). Convert the text "
                "to UTF-8 or remove the line."
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")
        return line.removesuffix("\r")


@contextmanager
def output(path: Path | None) -> Iterator[BinaryIO]:
    """Standard output, or a file that is written aside and takes its place when all went well."""
    if path is None:
        try:
            yield sys.stdout.buffer
        except BrokenPipeError:
            # The reader (`head`) has enough: no error. What is still buffered must go somewhere at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    place = Path(os.path.realpath(path))  # through a link, not over it
    if place.exists() and not place.is_file():
        with place.open("wb") as file:  # a pipe or a device has no place to take
            yield file
        return
    if not place.parent.is_dir():
        raise MacaronError(f"{path}: there is no folder {place.parent}. Make it, or write elsewhere.")
    descriptor, aside = tempfile.mkstemp(prefix=f".{place.name}.", dir=place.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(aside, place.stat().st_mode & 0o777 if place.exists() else 0o666 & ~mask)
        os.replace(aside, place)
    except OSError as error:
        os.unlink(aside)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise MacaronError(
                f"{path} could not be written ({error.strerror}); it is as it was. Free some space."
            ) from error
        raise
    except BaseException:
        os.unlink(aside)
        raise
