"""The texts that a recipe names: found by their patterns, or fetched, and fingerprinted."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from macaron.data.corpus import fingerprint
from macaron.data.documents_cleaning import TextFile
from macaron.data.progress import Progress
from macaron.data.settings import FetchSettings, TextFileSettings, TextSettings, WikipediaSettings
from macaron.errors import MacaronError
from macaron.processes import Workers


@dataclass(frozen=True)
class TextInputs:
    """The texts of a recipe in their order, with fingerprints and an account of what was fetched."""

    texts: list[TextFile]
    fingerprints: list[dict[str, Any]]
    downloads: list[dict[str, Any]]


def gather_texts(
    recipe: TextSettings, older: Mapping[str, Any], progress: Progress, workers: int | None = None
) -> TextInputs:
    """Find all texts; fetch what is not here and can be had; name all that are missing.

    :param older: prepared.json of an earlier run; its fingerprints spare reading files that have not changed
    """
    to_come = {recipe.root / item.path for item in (*recipe.fetch, *recipe.wikipedia)}
    missing = [text.path for text in recipe.train if not _found(recipe, text) and not _matches(recipe, text, to_come)]
    if missing:
        raise MacaronError(
            "these files are missing:\n  " + "\n  ".join(str(recipe.root / path) for path in dict.fromkeys(missing))
        )
    downloads: list[dict[str, Any]] = list(older.get("downloads", []))
    absent = [item for item in (*recipe.fetch, *recipe.wikipedia) if not (recipe.root / item.path).is_file()]
    if absent:
        fetched = _fetch(recipe, absent, downloads, progress, workers)
        names = {record["file"] for record in fetched}
        downloads = [record for record in downloads if record["file"] not in names] + fetched
    texts: dict[Path, TextFile] = {}
    for text in recipe.train:
        for path in _found(recipe, text):
            if path in texts:
                raise MacaronError(f"{path} is named twice in data.train, at last by {text.path!r}: leave one out")
            texts[path] = TextFile(path, text.state)
    by_name = {entry["file"]: entry for entry in older.get("inputs", [])}
    fingerprints = [{**fingerprint(path, by_name.get(str(path))), "state": text.state} for path, text in texts.items()]
    return TextInputs(list(texts.values()), fingerprints, downloads)


def _found(recipe: TextSettings, text: TextFileSettings) -> list[Path]:
    """The files of a path or pattern, by name. One that is there is no pattern, whatever its letters."""
    path = recipe.root / text.path
    if path.is_file():
        return [path]
    # What a download or a dump has not finished is no text.
    found = (Path(name) for name in sorted(glob(str(path), recursive=True)))
    return [file for file in found if file.is_file() and not re.search(r"\.part(\.json)?$", file.name)]


def _matches(recipe: TextSettings, text: TextFileSettings, to_come: set[Path]) -> bool:
    path = recipe.root / text.path
    return path in to_come or any(file.match(str(path)) for file in to_come)


def _fetch(
    recipe: TextSettings,
    absent: list[FetchSettings],
    known: list[dict[str, Any]],
    progress: Progress,
    workers: int | None,
) -> list[dict[str, Any]]:
    from macaron.data.fetch import get_file

    trusted = {record["file"]: record["sha256"] for record in known}
    records = []
    for item in absent:
        path = recipe.root / item.path
        if not isinstance(item, WikipediaSettings):
            remedy = f"Or get the file by other means, and put it at {path}"
            records.append(get_file(item.urls, path, item.checksum, trusted, remedy, progress))
            continue
        from macaron.data.wikipedia import extract_dump

        dump = recipe.downloads_folder / item.file_name
        remedy = f"Or get the dump by other means, and put it at {dump}; or its text, at {path}"
        records.append(get_file(item.urls, dump, item.checksum, trusted, remedy, progress))
        with Workers(workers) as pool:
            extract_dump(dump, path, pool, progress, min_words=item.min_words)
    return records
