"""The files of a recipe: found, or fetched if they are missing: single files, archives, and dumps of Wikipedia."""

import os
import re
from collections.abc import Mapping, Sequence
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from macaron.data.prepare.archive import extract
from macaron.data.prepare.cleaning import AlignedFiles
from macaron.data.prepare.download import checksum_of, download
from macaron.data.prepare.wikipedia import extract_dump
from macaron.data.prepared import SPLITS, Split
from macaron.data.settings import (
    CorpusSettings,
    FetchSettings,
    PairsSettings,
    TextSettings,
    WikipediaSettings,
    file_name,
)
from macaron.errors import MacaronError, require
from macaron.files import ENDINGS, find_compressed
from macaron.json_files import Record
from macaron.processes import Progress, Workers

#: The files of a recipe by split.
SplitFiles = dict[Split, tuple[AlignedFiles, ...]]


def gather(
    settings: PairsSettings | TextSettings, older: Mapping[str, Any], progress: Progress, workers: int | None
) -> tuple[SplitFiles, list[Record], list[Record]]:
    """Find all files; fetch those that are missing and have an address; name all others that are missing.

    :param older: prepared.json of an earlier run; its fingerprints save reading files that have not changed
    :return: the files, their fingerprints, and a record of all downloads
    """
    files, missing, absent = _search(settings)
    downloads: dict[str, Record] = {record["file"]: record for record in older.get("downloads", [])}
    if absent and not missing:
        _fetch(settings, absent, downloads, progress, workers)
        files, missing, absent = _search(settings)
        missing += [str(settings.root / item.path) for item in absent]  # fetched a moment ago
    if missing:
        raise MacaronError("these files are missing:\n  " + "\n  ".join(dict.fromkeys(missing)))
    known = {entry["file"]: entry for entry in older.get("inputs", [])}
    fingerprints = []
    for each in chain.from_iterable(files[split] for split in SPLITS if split in files):
        state = {"state": each.state} if settings.kind == "text" else {}
        fingerprints += [{**fingerprint(path, known.get(str(path))), **state} for path in each.paths]
    return files, fingerprints, list(downloads.values())


#: The files by split, the names of missing files without an address, and what has to be fetched.
Found = tuple[SplitFiles, list[str], Sequence[CorpusSettings | FetchSettings]]


def _search(settings: PairsSettings | TextSettings) -> Found:
    return _find_texts(settings) if isinstance(settings, TextSettings) else _find_corpora(settings)


def _find_corpora(settings: PairsSettings) -> Found:
    """Two files for each prefix. A missing one is named with the endings that were tried."""
    tried = ", ".join(ending for ending in ENDINGS if ending)
    found: SplitFiles = {}
    missing: list[str] = []
    absent: list[CorpusSettings | FetchSettings] = []
    for split in SPLITS:
        corpora: tuple[CorpusSettings, ...] = getattr(settings, split)
        for corpus in corpora:
            prefix = settings.root / corpus.path
            sides = {language: find_compressed(Path(f"{prefix}.{language}")) for language in settings.languages}
            paths = tuple(path for path in sides.values() if path is not None)
            lacking = [language for language, path in sides.items() if path is None]
            if not lacking:
                found[split] = (*found.get(split, ()), AlignedFiles(paths, corpus.state, corpus.path, corpus.tag))
            elif corpus.archive is not None:
                absent.append(corpus)
            elif corpus.url is not None:
                ending = Path(urlsplit(corpus.url).path).suffix
                for language in lacking:
                    path = f"{corpus.path}.{language}{ending if ending in ENDINGS else ''}"
                    url = corpus.url.replace("{lang}", language)
                    absent.append(FetchSettings(path, (url,), corpus.checksums.get(language)))
            else:
                # One of the two files was given, or their folder.
                hint = "; give the prefix of both files, without the ending" if prefix.exists() else ""
                missing += [f"{prefix}.{language} (also tried: {tried}{hint})" for language in lacking]
    return found, missing, absent


def _find_texts(settings: TextSettings) -> Found:
    """Files and patterns; files in the order of their names."""
    fetched = (*settings.fetch, *settings.wikipedia)
    absent = [item for item in fetched if not (settings.root / item.path).is_file()]
    to_come = [settings.root / item.path for item in absent]
    missing = []
    texts: dict[Path, AlignedFiles] = {}
    for text in settings.train:
        pattern = settings.root / text.path
        # The path of an existing file is not a pattern, whatever its letters. An unfinished download is not a text.
        names = [str(pattern)] if pattern.is_file() else sorted(glob(str(pattern), recursive=True))
        paths = [Path(name) for name in names if Path(name).is_file() and not re.search(r"\.part(\.json)?$", name)]
        if not paths and not any(path == pattern or path.match(str(pattern)) for path in to_come):
            missing.append(str(pattern))
        for path in paths:
            if path in texts:
                raise MacaronError(f"{path} is named twice in data.train, the second time by {text.path!r}: remove one")
            texts[path] = AlignedFiles((path,), text.state)
    return {"train": tuple(texts.values())}, missing, absent


def fingerprint(path: Path, known: Record | None = None) -> Record:
    """Size, time and SHA-256. If the first two are still those of a known fingerprint, the file is not read again."""
    status = path.stat()
    facts: Record = {"file": str(path), "bytes": status.st_size, "modified_ns": status.st_mtime_ns}
    if known is not None and all(known.get(key) == value for key, value in facts.items()):
        return known
    return {**facts, "sha256": checksum_of(path).removeprefix("sha256:")}


def _fetch(
    settings: PairsSettings | TextSettings,
    absent: Sequence[CorpusSettings | FetchSettings],
    records: dict[str, Record],
    progress: Progress,
    workers: int | None,
) -> None:
    """Fetch and unpack what is missing. Every download is noted in ``records``, by the name of its file."""
    root, downloads = settings.root, settings.downloads_folder
    whole = os.path.abspath(root)
    for item in absent:  # files that are there are read from anywhere
        inside = Path(os.path.abspath(root / item.path)).is_relative_to(whole)
        require(inside, f"{item.path!r} would be written outside data.root ({whole}): give a path below it")
    for item in absent:
        path = root / item.path
        if isinstance(item, WikipediaSettings):
            dump = downloads / file_name(item.urls)
            _download(item.urls, dump, item.checksum, records, progress, f"; or its text, at {path}")
            with Workers(workers) as pool:
                extract_dump(dump, path, pool, progress, min_words=item.min_words)
        elif isinstance(item, FetchSettings):
            _download(item.urls, path, item.checksum, records, progress)
    for archive in settings.archives if isinstance(settings, PairsSettings) else ():
        corpora = [item for item in absent if isinstance(item, CorpusSettings) and item.archive == archive.name]
        if not corpora:
            continue
        path = downloads / file_name(archive.urls)
        prefixes = ", ".join(f"{root / corpus.path}.*" for corpus in corpora)
        _download(archive.urls, path, archive.checksum, records, progress, f"; or its text, at {prefixes}")
        wanted = {}
        for corpus in corpora:
            for member, language in zip((corpus.source, corpus.target), settings.languages, strict=True):
                wanted[(member or "").removeprefix("./")] = root / f"{corpus.path}.{language}", corpus
        with progress.step(f"unpacking {path.name}", "files") as step:
            extract(path, wanted)
            step(len(wanted))


def _download(
    urls: Sequence[str],
    path: Path,
    checksum: str | None,
    records: dict[str, Record],
    progress: Progress,
    alternative: str = "",
) -> None:
    # From the first address that has it; one that is there is checked. Without a checksum it must be as the first time.
    remedy = f"Or get the file by other means, and put it at {path}{alternative}."
    first_time = records.get(path.name)
    expected = checksum or (f"sha256:{first_time['sha256']}" if first_time else None)
    url = urls[0]
    if not path.is_file():
        failures = []
        for url in urls:
            try:
                download(url, path, checksum, progress)
                break
            except MacaronError as error:
                failures.append(str(error))
        else:
            raise MacaronError("\n".join([*failures, remedy]))
    if expected is not None and (found := checksum_of(path, expected)) != expected:
        whose = "the recipe's" if checksum else "that of the first download"
        raise MacaronError(
            f"{path}: its checksum is {found}, {whose} is {expected}. Delete the file to fetch it again. {remedy}"
        )
    records[path.name] = {
        "url": url,
        "file": path.name,
        "sha256": checksum_of(path).removeprefix("sha256:"),
        "checked": f"against {checksum}"
        if checksum
        else ("same as first download" if first_time else "trusted on first use"),
    }
