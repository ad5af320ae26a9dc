"""A folder that appears complete or not at all: written aside, then renamed."""

import fcntl
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from macaron.errors import MacaronError


class AsideFolder:
    """Write into ``.NAME.partial`` beside the folder; `commit` puts it in the place of what was there.

    What a killed process left behind is removed by the next one. Two at once are refused.
    """

    def __init__(self, final: Path) -> None:
        self.given, self.final = final, final.absolute()
        self.path = self.final.with_name(f".{self.final.name}.partial")
        self._old = self.final.with_name(f".{self.final.name}.old")
        self._lock = -1
        self._committed = False

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MacaronError(f"{self.given} cannot be made: {error.strerror}. Choose another place.") from error
        # The folder itself is locked: the lock goes with it when it is renamed, and nothing is left lying about.
        self._lock = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._lock).st_ino != self.path.stat().st_ino:
                raise FileNotFoundError
        except OSError:
            os.close(self._lock)
            raise MacaronError(f"{self.given} is being written by another process. Wait for it to end.") from None
        for leftover in self.path.iterdir():
            _remove(leftover)
        _remove(self._old)
        return self

    def commit(self) -> None:
        """Put the folder in its place; a process that is killed meanwhile leaves the old one, none or the new one."""
        if self.final.exists():
            self.final.rename(self._old)
        self.path.rename(self.final)
        self._committed = True
        _remove(self._old)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._committed:
            _remove(self.path)
        os.close(self._lock)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
