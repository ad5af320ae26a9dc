"""A model folder is written aside and renamed: it is there complete, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from macaron.errors import MacaronError


def check_free(path: Path, force: bool) -> None:
    """Refuse a place that holds something else; with ``force`` an older model folder may be replaced."""
    if path.is_dir():
        if not any(path.iterdir()):
            return
        if not force:
            raise MacaronError(f"{path}: the folder is not empty; choose another, or replace it with --force")
        if not (path / "config.json").is_file():
            raise MacaronError(f"{path}: not a model folder (it has no config.json), so it is not replaced either")
    elif path.exists() or path.is_symlink():
        raise MacaronError(f"{path}: not a folder; choose another place")


@contextmanager
def new_folder(path: Path, force: bool = False) -> Iterator[Path]:
    """A folder to write into, which becomes ``path`` if the block succeeds and vanishes if it fails."""
    path = path.resolve()  # through a link, to the place it means
    check_free(path, force)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place: only within a file system is renaming one step.
    aside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        os.chmod(aside, 0o777 & ~_umask())  # mkdtemp makes private folders
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():
                file.chmod(0o666 & ~_umask())  # some writers make private files, too
        if path.is_dir() and any(path.iterdir()):
            check_free(path, force)  # again: the block may have taken long
            old = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
            path.rename(old / path.name)
            try:
                aside.rename(path)
            except BaseException:  # Ctrl-C as well: the old folder is about to be deleted
                (old / path.name).rename(path)
                raise
            finally:
                shutil.rmtree(old, ignore_errors=True)
        else:
            aside.rename(path)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
