"""Digests of the files of a folder: recorded when it is written, verified when it is read.

``digests.json`` holds them, by the path in the folder::

    {"format": 1, "files": {"config.json": {"bytes": 1234, "sha256": "0123..."}, ...}}

Model folders, checkpoints and prepared folders have one. A folder without it is not verified, and neither is a file
that it does not name. Hidden files, Markdown and subfolders with digests of their own are not recorded.
"""

import hashlib
import os
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, TypedDict

from macaron.errors import MacaronError, command_line
from macaron.files import write_json
from macaron.json_files import Count, Record, read_json

DIGESTS = "digests.json"
FORMAT = 1
#: A folder that has one of these files is sealed as a whole.
_MARKS = {DIGESTS, "prepared.json", "tokenizer.json", "model.safetensors", "weights.safetensors"}
#: Which files of a folder have been found unchanged: by name, size, times, inode and digest.
_VERIFIED = ".verified.json"
#: Bytes that are read at a time: with few, a thread would wait for Python's lock as often.
_BLOCK = 1 << 22
#: Bytes of digests.json: some 20,000 files.
_LARGEST = 1 << 22
#: Nanoseconds after which a change of a file is certain to change its time, too.
_SETTLED = 1_000_000_000
#: By path, size, times and inode.
_known: dict[tuple[str | int, ...], "Future[str]"] = {}


class _Entry(TypedDict):
    bytes: Count
    sha256: str


class _Digests(TypedDict):
    format: int
    files: dict[str, _Entry]


class DamagedFile(MacaronError):
    """A file is not as it was written."""


def seal(folder: str | Path, names: Collection[str] | None = None) -> None:
    """Record the digests of a folder's files, as they are now.

    :param names: patterns of the files that were written; what is recorded of others stays. Default: all files anew.
    """
    folder = Path(folder)
    kept: dict[str, Any] = {}
    if names is None:
        found = _files_of(folder)
    else:
        with suppress(DamagedFile):  # it is replaced
            kept = {name: each for name, each in (recorded(folder) or {}).items() if not _matches(name, names)}
        paths = (path for pattern in names for path in folder.glob(pattern) if path.is_file())
        found = [path.relative_to(folder).as_posix() for path in paths]
    new = {name: {"bytes": (folder / name).stat().st_size, "sha256": _sha256(folder / name)} for name in found}
    write_json(folder / DIGESTS, {"format": FORMAT, "files": dict(sorted({**kept, **new}.items()))})


def _files_of(folder: Path) -> list[str]:
    found: list[str] = []
    for place, folders, files in os.walk(folder):
        inside = Path(place).relative_to(folder)
        folders[:] = sorted(name for name in folders if name[0] != "." and not (Path(place) / name / DIGESTS).is_file())
        kept = filter(_is_recorded, sorted(files))
        found += [(inside / name).as_posix() for name in kept if (Path(place) / name).is_file()]  # no pipe
    if odd := [name for name in found if name.encode(errors="replace").decode() != name]:
        raise MacaronError(f"{folder}: the name {odd[0]!r} is not UTF-8. Rename the file, or remove it.")
    return found


def _is_recorded(name: str) -> bool:
    return name[0] != "." and not name.endswith(".md") and name != DIGESTS


def folders_within(path: Path) -> list[Path]:
    """The models, checkpoints and prepared folders at a path and below it, the innermost first."""
    if not path.is_dir():
        raise MacaronError(f"{path}: no such folder. Give a model, a run, a checkpoint or a prepared folder.")
    found = []
    for place, folders, files in os.walk(path):
        folders[:] = sorted((name for name in folders if name[0] != "."), reverse=True)
        found += [] if _MARKS.isdisjoint(files) else [Path(place)]
    if not found:
        raise MacaronError(f"{path}: no model, checkpoint or prepared data in it")
    return found[::-1]


def recorded(folder: Path) -> dict[str, _Entry] | None:
    """What a folder's digests.json records, by file; None if there is none."""
    path = folder / DIGESTS
    try:
        content: _Digests = read_json(path, _Digests, largest=_LARGEST)
        files = content["files"]  # whatever is sealed has some
        if content["format"] == FORMAT and files and not any({"/", ".."} & {*PurePosixPath(f).parts} for f in files):
            return files
    except FileNotFoundError:
        return None
    except MacaronError:
        if not folder.is_dir():
            return None
    raise DamagedFile(f"{path}: damaged, or of a later version. {_remedy(folder)}")


def damaged(
    folder: Path, names: Sequence[str] | None = None, *, again: bool = False, remember: bool = False
) -> dict[str, str]:
    """The recorded files that are not as they were written, and what is wrong with each.

    :param names: patterns of the files to look at; default: all
    :param again: read files, too, that have not changed since they were last verified
    :param remember: note in the folder, if it can be written, what is unchanged, and rely on what is noted
    """
    wrong: dict[str, str] = {}
    before: Record = {}
    if remember and not again:
        with suppress(OSError, MacaronError):  # there is none, or it is damaged
            before = read_json(folder / _VERIFIED, Record)
    now = dict(before)
    for name, entry in (recorded(folder) or {}).items():
        path = folder / name
        if names is not None and not _matches(name, names):
            continue
        if not path.is_file():
            wrong[name] = "missing"
        elif (size := path.stat().st_size) != entry["bytes"]:
            wrong[name] = f"{size:,} bytes instead of {entry['bytes']:,}"
        elif before.get(name) != (seen := [*(identity := _identity(path)), entry["sha256"]]):
            settled = _is_settled(identity)
            if (_sha256 if again else digest)(path) != entry["sha256"]:
                wrong[name] = "changed since it was written"
            elif settled:
                now[name] = seen
    if remember and now != before and not wrong:
        with suppress(MacaronError):  # a folder that cannot be written is read again the next time
            write_json(folder / _VERIFIED, now)
    return wrong


def check(folder: Path, names: Sequence[str] | None = None, remedy: str | None = None, **reading: bool) -> None:
    """Refuse a folder with a damaged file; the other parameters are those of `damaged`."""
    for name, fault in damaged(folder, names, **reading).items():
        raise DamagedFile(f"{folder / name}: damaged ({fault}, see {DIGESTS}). {remedy or _remedy(folder)}")


def begin(folder: Path, names: Sequence[str]) -> None:
    """Check the small files of a folder (JSON), and begin to compute the digests of the others, beside imports."""
    check(folder, [name for name in names if name.endswith(".json")])
    found = [folder / name for name in recorded(folder) or {} if _matches(name, names)]

    def read() -> None:
        with suppress(OSError):  # `check` reports it
            for path in found:
                if _is_settled(_identity(path)):  # others would be read twice
                    digest(path)

    if found:  # a daemon: a command that ends for another reason does not wait for it
        threading.Thread(target=read, daemon=True).start()


@contextmanager
def checked(folder: Path, names: Sequence[str]) -> Iterator[None]:
    """A context in which these files of a folder are read. Damage is what is reported, whatever else goes wrong."""
    begin(folder, names)
    try:
        yield
    finally:
        check(folder, names)


def digest(path: Path) -> str:
    """The SHA-256 of a file, computed once for all threads while the file does not change."""
    identity = _identity(path)
    key: tuple[str | int, ...] = (os.path.abspath(path), *identity)
    mine = Future[str]()
    found = _known.setdefault(key, mine) if _is_settled(identity) else mine
    if found is mine:
        try:
            mine.set_result(_sha256(path))
        except OSError as error:
            _known.pop(key, None)
            mine.set_exception(error)
    return found.result()


def fingerprint(folder: Path, names: Sequence[str] = ("*",)) -> str:
    """A digest of all files in a model folder, weights, configuration, tokenizer, search settings; or of some files."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and _is_recorded(path.name))
    text = "".join(f"{file.name}\n{digest(file)}\n" for file in files if _matches(file.name, names))
    return hashlib.sha256(text.encode()).hexdigest()


def weights_fingerprint(folder: Path) -> str:
    """A digest of the weights and the configuration of a folder."""
    return fingerprint(folder, ["*.safetensors", "config.json"])[:16]


def _sha256(path: Path) -> str:
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256", _bufsize=_BLOCK).hexdigest()


def _identity(path: Path) -> tuple[int, ...]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def _is_settled(identity: tuple[int, ...]) -> bool:
    return time.time_ns() - max(identity[1:3]) > _SETTLED


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _remedy(folder: Path) -> str:
    accept = command_line("verify", str(folder), "--accept")
    return f"Copy the folder again. If you changed it on purpose: {accept}"
