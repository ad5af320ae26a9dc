"""``macaron prepare``: corpora in, a prepared folder out (see `macaron.data.prepared`).

1. Every corpus is streamed through the workers, which clean it; what is left lies in plain files aside.
2. Duplicates and overlap are found by hashes, and the pairs to validate on are held out.
3. The joint subword vocabulary is learned.
4. The text is encoded into token stores, and the folder takes its place.

Memory does not grow with the corpus but for 2 bytes a pair, and 40 bytes for one in 16 pairs in step 2.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macaron.data.aside import AsideFolder
from macaron.data.corpus import CHUNK_LINES
from macaron.data.inputs import Inputs, gather
from macaron.data.job import Job
from macaron.data.prepared import MANIFEST, SPLITS, PreparedData, read_manifest
from macaron.data.progress import Progress
from macaron.data.recipe import DataRecipe
from macaron.data.workers import Workers
from macaron.errors import MacaronError
from macaron.settings import to_data

#: Goes up when the same recipe and files would give something else: older folders are then prepared again.
VERSION = 1
#: Where things are does not decide what is in the folder.
_PLACES = ("out", "root", "downloads", "archives")


@dataclass(frozen=True)
class Outcome:
    """What `prepare` did.

    :param reason: why the folder was written; None if it was complete and nothing had changed
    """

    data: PreparedData
    reason: str | None


def prepare(
    recipe: DataRecipe,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
    chunk_lines: int = CHUNK_LINES,
) -> Outcome:
    """Prepare a corpus for training; the result does not depend on the number of worker processes.

    :param workers: number of processes, by default one for every core
    """
    progress = progress or Progress(quiet=True)
    out = recipe.out.absolute()
    older = _older(out)
    inputs = gather(recipe, older, progress)
    settings = _settings(recipe)
    reason = _reason(out, older, settings, inputs)
    if reason is None:
        return Outcome(PreparedData.open(recipe.out), None)
    if older:
        progress.say(f"{recipe.out} is prepared again: {reason}")
    with AsideFolder(recipe.out) as aside, Workers(workers) as pool:
        try:
            manifest = Job(recipe, aside.path, pool, progress, chunk_lines).run(inputs.corpora)
            manifest |= {"settings": settings, "inputs": inputs.fingerprints, "downloads": inputs.downloads}
            (aside.path / MANIFEST).write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "utf-8")
            aside.commit()
        except OSError as error:
            raise MacaronError(
                f"cannot write {recipe.out}: {error.strerror or error}. Nothing was changed; make room for the "
                "token stores and twice the text, or choose another place with --out."
            ) from error
    return Outcome(PreparedData.open(recipe.out), reason)


def _settings(recipe: DataRecipe) -> dict[str, Any]:
    return {"version": VERSION, **to_data(recipe)}


def _decisive(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide what is in the folder. Of a corpus that is its state; its text is compared apart."""
    decisive = {key: value for key, value in settings.items() if key not in _PLACES}
    for split in SPLITS:
        decisive[split] = [corpus["state"] for corpus in settings.get(split, [])]
    return decisive


def _older(out: Path) -> dict[str, Any]:
    """What an older prepared folder says of itself; a folder of somebody else's is left alone."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    if not (out / MANIFEST).is_file():
        raise MacaronError(f"{out} exists and was not written by 'macaron prepare'. Choose another place with --out.")
    try:
        return read_manifest(out)
    except MacaronError:  # an older version's, or damaged: to be replaced
        return {}


def _reason(out: Path, older: dict[str, Any], settings: dict[str, Any], inputs: Inputs) -> str | None:
    """Say why the folder must be written; None if it is up to date."""
    if not older:
        return "it is of another version, or damaged" if (out / MANIFEST).exists() else "for the first time"
    old, new = _decisive(older.get("settings", {})), _decisive(settings)
    changed = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    if changed:
        return f"changed: {', '.join(changed)}"
    # The same contents in another place, or touched, are the same.
    if [entry["sha256"] for entry in older.get("inputs", [])] != [entry["sha256"] for entry in inputs.fingerprints]:
        return "the input files have changed"
    try:
        data = PreparedData.open(out)
        for split in data.splits:
            data.pairs(split)
            if split != "train":
                for language in data.languages:
                    data.text(split, language)
        _ = data.tokenizer
    except MacaronError as error:
        return str(error)
    return None
