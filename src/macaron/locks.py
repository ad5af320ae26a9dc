"""Locks: what only one process at a time may write.

The system ends a lock with its process. The file that a killed one leaves locks nothing on its host; on another host
that cannot be known.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from macaron.errors import MacaronError

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
