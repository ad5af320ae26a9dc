"""Files and folders: written completely or not at all (the only writers of the toolkit), and text read by lines.

Everything is written beside its final path as ``.NAME.partial`` and renamed at the end. An error, Ctrl-C or SIGTERM
leaves what was there before; what a killed process left is removed by the next one that writes to the same path.

What only one process at a time may write has a lock, which the system ends with its process. The file that a killed one
leaves locks nothing on its host; on another host that cannot be known.
"""

import bz2
import errno
import fcntl
import gzip
import io
import json
import lzma
import os
import shutil
import struct
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO, cast

from macaron.errors import FULL, CannotWrite, MacaronError
from macaron.limits import RATIO, Bounded

#: The endings of a text file, plain or compressed.
ENDINGS = ("", ".gz", ".xz")
# RuntimeError: encrypted, unknown method.
_GENERAL = (OSError, EOFError, ValueError, LookupError, RuntimeError, MemoryError)
#: Errors of Python for damaged archives, but for those of their own modules.
DAMAGED = (*_GENERAL, struct.error, zlib.error, lzma.LZMAError)
#: Bytes of a line of text; of one of a corpus: longer ones are skipped, the file probably lacks line breaks.
LONGEST_LINE, MAX_LINE = 1 << 26, 1 << 20
#: Bytes of memory that decompressing may take: eight times what ``xz -9`` needs.
_XZ_MEMORY = 1 << 29
#: Bytes that a compressed file may hold, if that is more than `RATIO` times its size.
_LEAST = 1 << 23
_PARTIAL, _OLD, _REMOVED = ".partial", ".old", ".removed"


#: The end of the name of a lock file; the whole name of that in the folder of a run.
LOCK = ".lock"


def hold(path: Path, create: bool = True, certain: bool = False) -> int | None:
    """Open a file and lock it until it is closed; None if another process holds it.

    :param certain: on a file system without locks the file counts as held, otherwise as free
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if certain or isinstance(error, BlockingIOError):
                os.close(descriptor)
                return None
        if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
        os.close(descriptor)  # its owner has removed it meanwhile


@contextmanager
def locked(lock: Path, what: Path) -> Iterator[None]:
    """A context in which only this process writes ``what``; its lock file is removed at the end."""
    here = os.uname().nodename
    descriptor = hold(lock, certain=True)
    process, host = _owner(lock)
    if descriptor is None and host == here and not _runs(process):  # a file system without locks
        descriptor = hold(lock)
    if descriptor is None or host not in (here, ""):
        if descriptor is not None:
            os.close(descriptor)
        by = f"process {process}" if process else "another process"
        by += f" on {host}" if host not in (here, "") else ""
        left = "" if host == here else f" If there is no such process any more, remove {lock}"
        raise MacaronError(f"{what} is being written by {by}. Wait for it to end.{left}")
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {here}\n".encode(), 0)
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def new_file(path: Path, alike: str) -> BinaryIO:
    """Open a file that only this process writes, after removing those like it that nobody writes any more."""
    for left in path.parent.glob(alike):
        with suppress(OSError):  # removed by another process, or a folder
            if (abandoned := hold(left, create=False, certain=True)) is not None:
                left.unlink()
                os.close(abandoned)
    descriptor = hold(path)
    if descriptor is None:
        raise MacaronError(f"{path} is being written by another process. Wait for it to end.")
    os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "wb")


def _owner(lock: Path) -> tuple[int, str]:
    try:
        process, host = (lock.read_text(encoding="utf-8") if lock.is_file() else "").split()
        return int(process), host
    except (OSError, ValueError):
        return 0, ""  # not noted yet


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        pass
    return True


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write, which becomes ``path`` if the block succeeds. Permissions and links are kept.

    Missing parent folders are created. Devices and pipes are written directly, never replaced.
    """
    final = Path(os.path.realpath(path))  # through a link, not over it
    special = final.exists() and not final.is_file()
    partial = final if special else final.with_name(f".{final.name}.{os.getpid()}{_PARTIAL}")
    try:
        with refusing(path):
            final.parent.mkdir(parents=True, exist_ok=True)
            try:
                file = final.open("wb") if special else new_file(partial, f".{escape(final.name)}.*{_PARTIAL}")
            except MacaronError:  # somebody writes it already: it is not ours to remove
                special = True
                raise
        with refusing(path, inside=partial), file:
            yield file
            file.flush()
            if not special:
                os.fsync(file.fileno())
        if special:
            return
        with refusing(path):
            if final.exists():
                partial.chmod(final.stat().st_mode & 0o777)
            partial.replace(final)
    finally:
        if not special:
            with suppress(OSError):  # renamed, or never made
                partial.unlink()


def check_unused(folder: Path, remedy: str = "continue with --resume, or give another --out") -> None:
    """Refuse a folder for new results that holds something already."""
    _refuse_file(folder)
    if folder.exists() and any(path.name != LOCK for path in folder.iterdir()):
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
def writing(folder: Path) -> Iterator[None]:
    """A context in which only this process writes into a folder; one that is made here and stays empty is removed."""
    new = not folder.exists()
    _refuse_file(folder)
    try:
        with alone(folder, folder / LOCK):
            yield
    finally:
        if new and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which takes the place of ``path`` if the block succeeds.

    What a killed process left is removed by the next one, and the folder that it was replacing is put back first.
    """
    final = Path(os.path.realpath(path))
    _refuse_file(path)
    old, partial, removed, lock = _beside(final)
    with alone(path, lock):
        try:
            with refusing(path):
                _put_back(old)
                remove(partial)
                remove(removed)
                partial.mkdir()
            with refusing(path, inside=partial):
                yield partial
            with refusing(path):
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
        remove(old)


def tidy(path: Path) -> None:
    """Remove what a killed process left beside an `atomic_folder`; not while another process writes the folder."""
    old, *others, lock = _beside(Path(os.path.realpath(path)))
    with suppress(MacaronError, OSError):  # whoever writes the folder is told why that is not possible
        if any(each.exists() for each in (old, *others, lock)):
            with alone(path, lock):
                _put_back(old)
                for each in others:
                    remove(each)


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
        elif path.name.endswith((_PARTIAL, _REMOVED, LOCK)) and path.name != LOCK:
            remove(path)


@contextmanager
def open_binary(path: Path, remedy: str = "Fetch or copy the file again.") -> Iterator[BinaryIO]:
    """Open a plain, ``.gz``, ``.xz`` or ``.bz2`` file for reading bytes; errors name the file, and a remedy."""
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}
    try:
        if path.suffix == ".xz":  # its header says how much memory it takes
            with path.open("rb") as file:
                lzma.LZMADecompressor(memlimit=_XZ_MEMORY).decompress(file.read(1 << 16), 1)
        with openers.get(path.suffix, open)(path, "rb") as file:
            most = max(_LEAST, RATIO * path.stat().st_size)
            message = f"{path}: unpacks to more than the limit of {most:,} bytes. Is it text? Give it unpacked."
            yield io.BufferedReader(Bounded(file, most, message)) if path.suffix in openers else file
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

    Lines end at ``\\n`` alone (a ``\\r`` before it is dropped): files that are aligned line by line must stay aligned.
    """
    for number, raw in enumerate(raw_lines(Path(path), LONGEST_LINE + 1), start=1):
        yield decode_line(raw, path, number)


def raw_lines(path: Path, too_long: int | None = None) -> Iterator[bytes | None]:
    """Yield the lines of a file as bytes, without a byte-order mark and line ends.

    One of ``too_long`` bytes, by default `MAX_LINE`, or more is None, and is not in memory as a whole.
    """
    most = too_long or MAX_LINE
    with open_binary(path) as opened, io.BufferedReader(cast(io.RawIOBase, opened), 1 << 20) as file:
        mark = cast(io.BufferedReader, opened).peek(3)[:3]  # peek copies the whole buffer: the smaller one
        if mark[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
            raise MacaronError(f"{path}: this is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8")
        opened.read(3 if mark == BOM_UTF8 else 0)
        while line := file.readline(most):
            if len(line) == most and not line.endswith(b"\n"):
                yield None
                while (rest := file.readline(most)) and not rest.endswith(b"\n"):
                    pass
            else:
                yield line.removesuffix(b"\n").removesuffix(b"\r")


def decode_line(raw: bytes | bytearray | None, name: str | Path, number: int) -> str:
    """A line of UTF-8 as text, without a byte order mark or a carriage return; the name is for the error."""
    if raw is None or len(raw) > LONGEST_LINE:
        raise MacaronError(f"{name}, line {number}: longer than {LONGEST_LINE:,} bytes. Is it text?")
    try:
        line = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = f"not valid UTF-8 (byte {error.start + 1} of the line)"
        raise MacaronError(f"{name}, line {number}: {wrong}. Convert the text to UTF-8, or remove the line.") from None
    return (line.removeprefix("\ufeff") if number == 1 else line).removesuffix("\r")


def _refuse_file(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise MacaronError(f"{folder} is a file: give a folder")


@contextmanager
def alone(path: Path, lock: Path) -> Iterator[None]:
    """A context in which only this process writes ``path``; the lock's folder is made."""
    with ExitStack() as stack:
        with refusing(path):
            with suppress(FileExistsError):  # a file: the lock itself is refused there
                lock.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(lock, path))
        yield


@contextmanager
def refusing(path: Path, inside: Path | None = None) -> Iterator[None]:
    """Turn failed writes into an error that names ``path``, of all or of those inside another path.

    The system names no path where a write fails for lack of space; errors of anything else pass unchanged.
    """
    try:
        yield
    except (OSError, CannotWrite) as error:
        cause = error.error if isinstance(error, CannotWrite) else error
        name = error.path if isinstance(error, CannotWrite) else error.filename
        if inside is not None:
            named = name is not None and Path(os.fsdecode(name)).is_relative_to(inside)
            if not named and not (name is None and cause.errno in (*FULL, errno.EIO)):
                raise
        raise CannotWrite(path, cause) from cause


def _beside(final: Path) -> list[Path]:
    """The names that a folder has while it is written: what it replaces, itself, what is removed, and its lock."""
    return [final.with_name(f".{final.name}{suffix}") for suffix in (_OLD, _PARTIAL, _REMOVED, LOCK)]


def _put_back(old: Path) -> None:
    """Name the folder that was to be replaced as before, or remove it where its successor is complete."""
    final = old.with_name(old.name.removeprefix(".").removesuffix(_OLD))
    if final.exists():
        remove(old)
    elif old.exists():
        old.rename(final)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
