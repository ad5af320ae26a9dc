"""``macaron prepare``: corpora in, a prepared folder out (see `macaron.data.prepared`, `macaron.data.documents`).

1. Every corpus is streamed through the workers, which clean it; what is left lies in plain files aside.
2. Duplicates and overlap are found by hashes, and the pairs to validate on are held out.
3. The joint subword vocabulary is learned.
4. The text is encoded into token stores, and the folder takes its place.

Memory does not grow with the corpus but for 2 bytes a pair, and 40 bytes for one in 16 pairs in step 2. The steps for
plain text are in `macaron.data.documents_job`; there only the sample for the vocabulary grows, up to its limit.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, overload

from macaron.data.aside import AsideFolder
from macaron.data.corpus import CHUNK_LINES
from macaron.data.documents import PreparedText
from macaron.data.documents_inputs import gather_texts
from macaron.data.documents_job import TextJob
from macaron.data.inputs import gather
from macaron.data.job import Job
from macaron.data.prepared import KINDS, MANIFEST, SPLITS, DataKind, PreparedData, read_manifest
from macaron.data.progress import Progress
from macaron.data.settings import PairsSettings, TextSettings
from macaron.errors import MacaronError
from macaron.processes import Workers
from macaron.settings import to_data

#: Goes up when the same recipe and files would give something else: older folders are then prepared again.
VERSION = 1
#: Where things are does not decide what is in the folder.
_PLACES = ("out", "root", "downloads", "archives", "fetch", "wikipedia")


Data = TypeVar("Data", PreparedData, PreparedText)


@dataclass(frozen=True)
class Outcome(Generic[Data]):
    """What `prepare` did.

    :param reason: why the folder was written; None if it was complete and nothing had changed
    """

    data: Data
    reason: str | None


class _Inputs(Protocol):
    """What was found, besides the files themselves."""

    @property
    def fingerprints(self) -> list[dict[str, Any]]:
        """Of the files, in their order."""

    @property
    def downloads(self) -> list[dict[str, Any]]:
        """An account of what was fetched."""


@overload
def prepare(
    recipe: PairsSettings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    chunk_lines: int | None = None,
) -> Outcome[PreparedData]: ...
@overload
def prepare(
    recipe: TextSettings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    chunk_lines: int | None = None,
) -> Outcome[PreparedText]: ...
@overload
def prepare(
    recipe: PairsSettings | TextSettings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    chunk_lines: int | None = None,
) -> Outcome[PreparedData] | Outcome[PreparedText]: ...
def prepare(
    recipe: PairsSettings | TextSettings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    chunk_lines: int | None = None,
) -> Outcome[PreparedData] | Outcome[PreparedText]:
    """Prepare a corpus for training; the result does not depend on the number of worker processes.

    :param workers: number of processes, by default one for every core
    """
    progress = progress or Progress(quiet=True)
    if isinstance(recipe, TextSettings):
        older = _older(recipe.out, "text")
        texts = gather_texts(recipe, older, progress, workers)

        def write_text(folder: Path, pool: Workers) -> dict[str, Any]:
            return TextJob(recipe, folder, pool, progress, chunk_lines).run(texts.texts)

        return Outcome(*_prepare(recipe, older, texts, PreparedText.open, write_text, workers, progress))
    older = _older(recipe.out, "pairs")
    inputs = gather(recipe, older, progress)

    def write_pairs(folder: Path, pool: Workers) -> dict[str, Any]:
        return Job(recipe, folder, pool, progress, chunk_lines or CHUNK_LINES).run(inputs.corpora)

    return Outcome(*_prepare(recipe, older, inputs, PreparedData.open, write_pairs, workers, progress))


def _prepare(
    recipe: PairsSettings | TextSettings,
    older: dict[str, Any],
    inputs: _Inputs,
    open_data: Callable[[Path], Data],
    write: Callable[[Path, Workers], dict[str, Any]],
    workers: int | None,
    progress: Progress,
) -> tuple[Data, str | None]:
    """Write the folder if it must be written; what is in it is the business of the functions."""
    settings = _settings(recipe)
    reason = _reason(recipe.out.absolute(), older, settings, inputs)
    if reason is None:
        try:
            data = open_data(recipe.out)
            data.check()
            return data, None
        except MacaronError as error:
            reason = str(error)
    if older:
        progress.say(f"{recipe.out} is prepared again: {reason}")
    with AsideFolder(recipe.out) as aside, Workers(workers) as pool:
        try:
            manifest = write(aside.path, pool)
            manifest |= {"settings": settings, "inputs": inputs.fingerprints, "downloads": inputs.downloads}
            (aside.path / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8")
            aside.commit()
        except OSError as error:
            raise MacaronError(
                f"cannot write {recipe.out}: {error.strerror or error}. Nothing was changed; make room for the "
                "token stores and twice the text, or choose another place with --out."
            ) from error
    return open_data(recipe.out), reason


def _settings(recipe: PairsSettings | TextSettings) -> dict[str, Any]:
    kind = {"kind": "text"} if recipe.kind == "text" else {}
    return {"version": VERSION, **kind, **to_data(recipe)}


def _decisive(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what is in the folder. Of a corpus that is its state; its text is compared apart."""
    decisive = {key: value for key, value in settings.items() if key not in _PLACES}
    for split in SPLITS:
        if settings.get("kind") == "text":  # by patterns, of which each may mean several files
            decisive.pop(split, None)
        else:
            decisive[split] = [corpus["state"] for corpus in settings.get(split, [])]
    return decisive


def _older(out: Path, kind: DataKind) -> dict[str, Any]:
    """What an older prepared folder says of itself; a folder of somebody else's is left alone."""
    out = out.absolute()
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    if not (out / MANIFEST).is_file():
        raise MacaronError(f"{out} exists and was not written by 'macaron prepare'. Choose another place with --out.")
    try:
        older = read_manifest(out)
    except MacaronError:  # an older version's, or damaged: to be replaced
        return {}
    held = older.get("kind", "pairs")
    if held != kind:
        raise MacaronError(f"{out} holds {KINDS[held]}. Choose another place with --out.")
    return older


def _reason(out: Path, older: dict[str, Any], settings: dict[str, Any], inputs: _Inputs) -> str | None:
    """Say why the folder must be written; None if it should be up to date."""
    if not older:
        return "it is of another version, or damaged" if (out / MANIFEST).exists() else "for the first time"
    old, new = _decisive(older.get("settings", {})), _decisive(settings)
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    if changed:
        return f"changed: {', '.join(changed)}"
    # The same contents in another place, or touched, are the same.
    if _contents(older.get("inputs", [])) != _contents(inputs.fingerprints):
        return "the input files have changed"
    return None


def _contents(fingerprints: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    return [(entry["sha256"], entry.get("state")) for entry in fingerprints]
