"""Files and folders: written completely or not at all (the only writers of the toolkit), and text read by lines.

Everything is written beside its final path (within a file system a rename is one step) as ``.NAME.partial`` and renamed
at the end. An error or Ctrl-C leaves what was there before.
"""

import bz2
import errno
import fcntl
import gzip
import json
import lzma
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from macaron.errors import FULL, MacaronError, cannot_write

#: The endings of a text file, plain or compressed.
ENDINGS = ("", ".gz", ".xz")
#: Bytes of memory that decompressing may take: eight times what ``xz -9`` needs.
_XZ_MEMORY = 1 << 29
_PARTIAL, _OLD, _REMOVED = ".partial", ".old", ".removed"
_EARLIER = ".writing"  # what earlier versions of Macaron left


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write, which becomes ``path`` if the block succeeds. Permissions and links are kept.

    Missing parent folders are created. Devices and pipes are written directly, never replaced.
    """
    final = Path(os.path.realpath(path))  # through a link, not over it
    special = final.exists() and not final.is_file()
    partial = final if special else final.with_name(f".{final.name}.{os.getpid()}{_PARTIAL}")
    try:
        with _refusing(path):
            final.parent.mkdir(parents=True, exist_ok=True)
            file = partial.open("wb")
        with _refusing(path, inside=partial), file:
            yield file
            file.flush()
            if not special:
                os.fsync(file.fileno())
        if special:
            return
        with _refusing(path):
            if final.exists():
                partial.chmod(final.stat().st_mode & 0o777)
            partial.replace(final)
    finally:
        if not special:
            with suppress(OSError):  # renamed, or never made
                partial.unlink()


def check_unused(folder: Path, remedy: str = "continue with --resume, or give another --out") -> None:
    """Refuse a folder for new results that holds something already."""
    if folder.exists() and not folder.is_dir():
        raise MacaronError(f"{folder} is a file: give a folder")
    if folder.exists() and any(folder.iterdir()):
        raise MacaronError(f"{folder} is not empty: {remedy}")


def one_line(text: str) -> str:
    """A text as one line of a file: line breaks become spaces."""
    return text.replace("\r", " ").replace("\n", " ")


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    with atomic_file(path) as file:
        file.write(text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, indented by one."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``path`` if the block succeeds.

    The files are on the disk before the rename. What a killed process left is removed by the next one, and the folder
    that it was replacing is put back first. Two processes that write the same folder at once are refused.
    """
    final = Path(os.path.realpath(path))
    if final.exists() and not final.is_dir():
        raise MacaronError(f"{path} is a file, not a folder. Choose another path.")
    partial, old = (final.with_name(f".{final.name}{suffix}") for suffix in (_PARTIAL, _OLD))
    lock = _locked(path, partial)
    try:
        with _refusing(path):
            _put_back(old)
            for leftover in partial.iterdir():
                remove(leftover)
        with _refusing(path, inside=partial):
            yield partial
        with _refusing(path):
            for file in (*partial.rglob("*"), partial):
                if file.is_file():  # some libraries write private files
                    file.chmod(partial.stat().st_mode & 0o666)
                _sync(file)
            if final.exists():
                final.rename(old)
            partial.rename(final)
            _sync(final.parent)
    except BaseException:  # Ctrl-C as well
        _put_back(old)
        remove(partial)
        raise
    else:
        remove(old)  # not the partial folder: it may be that of the next process already
    finally:
        os.close(lock)


def remove(path: Path) -> None:
    """Remove a file or a folder, if it is there. A folder is renamed first: it never looks complete while it is not."""
    if path.is_dir() and not path.is_symlink():
        if not path.name.endswith((_PARTIAL, _REMOVED)):
            hidden = path.with_name(f".{path.name.removeprefix('.').removesuffix(_OLD)}{_REMOVED}")
            shutil.rmtree(hidden, ignore_errors=True)
            path = path.rename(hidden)
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove what a killed process left in a folder, and put back a folder that it was about to replace."""
    for path in sorted(folder.glob(".*")) if folder.is_dir() else ():
        if path.name.endswith(_OLD):
            _put_back(path)
        elif path.name.endswith((_PARTIAL, _REMOVED, _EARLIER)):
            remove(path)


class GrowingFiles:
    """Files that grow together in steps, in one process or in several after each other: ``PATH.part``, then ``PATH``.

    What a step has written is on the disk before it is noted: a process that is killed loses its last step at most.

    :param note: JSON file with the sizes after the last step, and with what else the caller notes
    """

    def __init__(self, paths: Sequence[Path], note: Path) -> None:
        self.paths, self.note = paths, note
        self.parts = [path.with_name(f"{path.name}.part") for path in paths]
        #: What the last step noted.
        self.noted: dict[str, Any] = {}
        if note.exists():
            try:
                self.noted = json.loads(note.read_text(encoding="utf-8"))
                self._sizes: list[int] = self.noted["sizes"]
                self.complete: bool = self.noted["complete"]
            except (ValueError, LookupError, TypeError):
                raise MacaronError(f"{note} is not a note of unfinished files. Choose another path.") from None
        else:
            self._sizes, self.complete = [0] * len(paths), False

    @contextmanager
    def growing(self) -> Iterator[None]:
        """The files, open to be added to. They get their names if the block succeeds."""
        with ExitStack() as stack:
            with _refusing(self.note):
                self.note.parent.mkdir(parents=True, exist_ok=True)
                self._files = [stack.enter_context(part.open("ab")) for part in self.parts]
            for part, file, size in zip(self.parts, self._files, self._sizes, strict=True):
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise MacaronError(f"{part} is being written by another process. Wait for it to end.") from None
                if os.fstat(file.fileno()).st_size < size:
                    raise MacaronError(f"{part} lacks what {self.note} notes. Remove both, and begin again.")
                file.truncate(size)
                file.seek(size)
            yield
        self._write_note(complete=True)
        self.put_in_place()

    def add(self, contents: Sequence[bytes], noted: dict[str, Any]) -> None:
        """Add to each file, and note what is needed to go on from here."""
        with _refusing(self.note):
            for file, content in zip(self._files, contents, strict=True):
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        self.noted = noted
        self._sizes = [file.tell() for file in self._files]
        self._write_note(complete=False)

    def put_in_place(self) -> None:
        """Name complete files, those too that a killed process did not come to."""
        for part, path in zip(self.parts, self.paths, strict=True):
            if part.exists():
                part.replace(path)

    def _write_note(self, complete: bool) -> None:
        self.complete = complete
        self.noted = {**self.noted, "sizes": self._sizes, "complete": complete}
        write_json(self.note, self.noted)


@contextmanager
def open_binary(path: Path, remedy: str = "Fetch or copy the file again.") -> Iterator[BinaryIO]:
    """Open a plain, ``.gz``, ``.xz`` or ``.bz2`` file for reading bytes; errors name the file.

    :param remedy: of a file that cannot be decompressed
    """
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    try:
        if path.suffix == ".xz":  # its header says how much memory it takes
            with path.open("rb") as file:
                lzma.LZMADecompressor(memlimit=_XZ_MEMORY).decompress(file.read(1 << 16), 1)
        with openers.get(path.suffix, open)(path, "rb") as file:
            yield file
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        reason = getattr(error, "strerror", None)  # only the system's errors have one
        limit = f", {_XZ_MEMORY >> 20} MiB" if "limit" in str(error) else ""
        raise MacaronError(f"{path}: {reason or f'cannot be decompressed ({error}{limit}). {remedy}'}") from None


def find_compressed(path: Path) -> Path | None:
    """A file or its compressed form, the first of `ENDINGS` that exists; None if all are missing."""
    paths = (path.with_name(path.name + ending) for ending in ENDINGS)
    return next((path for path in paths if path.is_file()), None)


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file (plain, ``.gz``, ``.xz``) without their line ends.

    Lines end at ``\\n`` alone (a ``\\r`` before it is dropped): the other separators of Unicode, which
    ``str.splitlines`` would honour, are characters of the text, and two files that are aligned line by line
    must stay aligned.
    """
    with open_binary(Path(path)) as file:
        for number, raw in enumerate(file, start=1):
            yield decode_line(raw.removesuffix(b"\n"), path, number)


def decode_line(raw: bytes | bytearray, name: str | Path, number: int) -> str:
    """A line of UTF-8 as text, without a byte order mark or a carriage return; the name is for the error."""
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MacaronError(
            f"{name}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line). Convert the text to UTF-8 "
            "or remove the line."
        ) from None
    return (line.removeprefix("\ufeff") if number == 1 else line).removesuffix("\r")


@contextmanager
def _refusing(path: Path, inside: Path | None = None) -> Iterator[None]:
    """Turn failed writes into an error that names ``path``.

    :param inside: only those below this path. The system names no path where a write fails for lack of space; errors
        of anything else that the caller does, such as reading, pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if inside is not None:
            named = error.filename is not None and Path(os.fsdecode(error.filename)).is_relative_to(inside)
            if not named and not (error.filename is None and error.errno in (*FULL, errno.EIO)):
                raise
        raise cannot_write(path, error) from error


def _put_back(old: Path) -> None:
    """Name the folder that was to be replaced as before, or remove it where its successor is complete."""
    final = old.with_name(old.name.removeprefix(".").removesuffix(_OLD))
    if final.exists():
        remove(old)
    elif old.exists():
        old.rename(final)


def _locked(path: Path, partial: Path) -> int:
    """Make the partial folder and lock it: the lock goes with the folder, and no lock file is left."""
    with _refusing(path):
        partial.mkdir(parents=True, exist_ok=True)
        lock = os.open(partial, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_ino != partial.stat().st_ino:
            raise FileNotFoundError
    except OSError:
        os.close(lock)
        raise MacaronError(f"{path} is being written by another process. Wait for it to end.") from None
    return lock


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
