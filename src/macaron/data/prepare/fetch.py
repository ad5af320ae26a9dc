"""The files of a recipe: found or fetched (single files, archives, dumps of Wikipedia), and fingerprinted."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from macaron.data.prepare.archive import Wanted, extract
from macaron.data.prepare.download import checksum_of, download
from macaron.data.prepare.inputs import AlignedFiles
from macaron.data.prepared import SPLITS, Split
from macaron.data.progress import Progress
from macaron.data.settings import (
    ArchiveSettings,
    CorpusSettings,
    FetchSettings,
    PairsSettings,
    TextSettings,
    WikipediaSettings,
)
from macaron.errors import MacaronError
from macaron.processes import Workers

#: A record of a download: url, file, sha256, how it was checked.
Record = dict[str, Any]
ENDINGS = ("", ".gz", ".xz")


@dataclass(frozen=True)
class Inputs:
    """The files of a recipe by split, their fingerprints, and a record of all downloads."""

    files: dict[Split, tuple[AlignedFiles, ...]]
    fingerprints: list[dict[str, Any]]
    downloads: list[dict[str, Any]]


def gather(
    settings: PairsSettings | TextSettings,
    older: Mapping[str, Any],
    progress: Progress,
    workers: int | None = None,
) -> Inputs:
    """Find all files; fetch those that are missing and have an address; name all others that are missing.

    :param older: prepared.json of an earlier run; its fingerprints save reading files that have not changed
    """
    missing, absent = _absent_texts(settings) if isinstance(settings, TextSettings) else _absent_corpora(settings)
    if missing:
        raise MacaronError("these files are missing:\n  " + "\n  ".join(dict.fromkeys(missing)))
    downloads: list[dict[str, Any]] = list(older.get("downloads", []))
    if absent:
        fetched = fetch(settings, absent, downloads, progress, workers)
        names = {record["file"] for record in fetched}
        downloads = [record for record in downloads if record["file"] not in names] + fetched
    files = _texts(settings) if isinstance(settings, TextSettings) else _corpora(settings)
    known = {entry["file"]: entry for entry in older.get("inputs", [])}
    fingerprints = []
    for split in SPLITS:
        for each in files.get(split, ()):
            state = {"state": each.state} if settings.kind == "text" else {}
            fingerprints += [{**fingerprint(path, known.get(str(path))), **state} for path in each.paths]
    return Inputs(files, fingerprints, downloads)


# Pairs: two files for each prefix.


def find_file(prefix: Path, language: str) -> Path | None:
    """Find ``PREFIX.LANGUAGE``, plain or compressed; the plain one first."""
    for ending in ENDINGS:
        path = Path(f"{prefix}.{language}{ending}")
        if path.is_file():
            return path
    return None


def _absent_corpora(settings: PairsSettings) -> tuple[list[str], list[CorpusSettings]]:
    """The missing files that have no address, each with the endings that were tried; and all incomplete corpora."""
    tried = ", ".join(ending for ending in ENDINGS if ending)
    missing, incomplete = [], []
    for corpus in (*settings.train, *settings.valid, *settings.test):
        prefix = settings.root / corpus.path
        absent = [language for language in settings.languages if find_file(prefix, language) is None]
        # One of the two files was given, or their folder.
        hint = "; give the prefix of both files, without the ending" if prefix.exists() else ""
        if corpus.url is None and corpus.archive is None:
            missing += [f"{prefix}.{language} (also tried: {tried}{hint})" for language in absent]
        if absent:
            incomplete.append(corpus)
    return missing, incomplete


def _corpora(settings: PairsSettings) -> dict[Split, tuple[AlignedFiles, ...]]:
    found: dict[Split, tuple[AlignedFiles, ...]] = {}
    for split in SPLITS:
        corpora: tuple[CorpusSettings, ...] = getattr(settings, split)
        for corpus in corpora:
            prefix = settings.root / corpus.path
            sides = [find_file(prefix, language) for language in settings.languages]
            if None in sides:  # fetched a moment ago
                raise MacaronError(f"{prefix}: its files have disappeared")
            found[split] = (*found.get(split, ()), AlignedFiles(tuple(cast(list[Path], sides)), corpus.state))
    return found


# Documents: files and patterns.


def _find_texts(settings: TextSettings, pattern: str) -> list[Path]:
    """The files of a path or pattern, by name. The path of an existing file is not a pattern, whatever its letters."""
    path = settings.root / pattern
    if path.is_file():
        return [path]
    found = (Path(name) for name in sorted(glob(str(path), recursive=True)))
    # An unfinished download is not a text.
    return [file for file in found if file.is_file() and not re.search(r"\.part(\.json)?$", file.name)]


def _absent_texts(settings: TextSettings) -> tuple[list[str], list[FetchSettings]]:
    """The missing texts that have no address, and all files to fetch."""
    fetched = (*settings.fetch, *settings.wikipedia)
    to_come = {settings.root / item.path for item in fetched}
    missing = []
    for text in settings.train:
        path = settings.root / text.path
        expected = path in to_come or any(file.match(str(path)) for file in to_come)
        if not expected and not _find_texts(settings, text.path):
            missing.append(str(path))
    return missing, [item for item in fetched if not (settings.root / item.path).is_file()]


def _texts(settings: TextSettings) -> dict[Split, tuple[AlignedFiles, ...]]:
    texts: dict[Path, AlignedFiles] = {}
    for text in settings.train:
        for path in _find_texts(settings, text.path):
            if path in texts:
                raise MacaronError(f"{path} is named twice in data.train, the second time by {text.path!r}: remove one")
            texts[path] = AlignedFiles((path,), text.state)
    return {"train": tuple(texts.values())}


def fingerprint(path: Path, known: dict[str, Any] | None = None) -> dict[str, Any]:
    """What tells whether a file has changed: size, time and SHA-256.

    :param known: an earlier fingerprint; if size and time are still the same, the file is not read again
    """
    try:
        status = path.stat()
        facts: dict[str, Any] = {"file": str(path), "bytes": status.st_size, "modified_ns": status.st_mtime_ns}
        if known is not None and all(known.get(key) == value for key, value in facts.items()):
            return known
        with path.open("rb") as file:
            return {**facts, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise MacaronError(f"{path}: {error.strerror or error}") from None


# Fetching


def fetch(
    settings: PairsSettings | TextSettings,
    absent: Sequence[CorpusSettings | FetchSettings],
    known: Sequence[Record],
    progress: Progress,
    workers: int | None = None,
) -> list[Record]:
    """Fetch and unpack what is missing, and return a record of each download.

    :param known: the records of earlier runs: a file without a checksum must be the same as then
    """
    return _Fetcher(settings.root, {record["file"]: record["sha256"] for record in known}, progress, workers).run(
        settings, absent
    )


class _Fetcher:
    """Fetches files; those without a checksum must have the one that is trusted since their first download."""

    def __init__(self, root: Path, trusted: Mapping[str, str], progress: Progress, workers: int | None) -> None:
        self.root, self.trusted, self.progress, self.workers = root, trusted, progress, workers

    def run(
        self, settings: PairsSettings | TextSettings, absent: Sequence[CorpusSettings | FetchSettings]
    ) -> list[Record]:
        records: list[Record] = []
        for item in absent:
            if isinstance(item, WikipediaSettings):
                records.append(self._dump(item, settings.downloads_folder / item.file_name))
            elif isinstance(item, FetchSettings):
                records.append(self._file(item.urls, self.root / item.path, item.checksum))
            elif item.url is not None:
                records += self._sides(item, settings.languages)
        for archive in settings.archives if isinstance(settings, PairsSettings) else ():
            corpora = [item for item in absent if isinstance(item, CorpusSettings) and item.archive == archive.name]
            if corpora:
                records.append(self._archive(archive, corpora, settings))
        return records

    def _sides(self, corpus: CorpusSettings, languages: Sequence[str]) -> list[Record]:
        records = []
        prefix = self.root / corpus.path
        for language in languages:
            if find_file(prefix, language) is None:
                url = (corpus.url or "").format(lang=language)
                ending = Path(urlsplit(url).path).suffix
                path = prefix.with_name(f"{prefix.name}.{language}{ending if ending in ENDINGS else ''}")
                records.append(self._file((url,), path, corpus.checksums.get(language)))
        return records

    def _archive(
        self, archive: ArchiveSettings, corpora: Sequence[CorpusSettings], settings: PairsSettings | TextSettings
    ) -> Record:
        path = settings.downloads_folder / archive.file_name
        prefixes = ", ".join(f"{self.root / corpus.path}.*" for corpus in corpora)
        record = self._file(archive.urls, path, archive.checksum, f"; or its text, at {prefixes}")
        wanted = {}
        for corpus in corpora:
            prefix = self.root / corpus.path
            for member, language in zip((corpus.source, corpus.target), settings.languages, strict=True):
                target = prefix.with_name(f"{prefix.name}.{language}")
                wanted[(member or "").removeprefix("./")] = Wanted(target, corpus.format, corpus.replace)
        with self.progress.step(f"unpacking {path.name}", "files") as step:
            extract(path, wanted)
            step(len(wanted))
        return record

    def _dump(self, item: WikipediaSettings, dump: Path) -> Record:
        from macaron.data.prepare.wikipedia import extract_dump

        path = self.root / item.path
        record = self._file(item.urls, dump, item.checksum, f"; or its text, at {path}")
        with Workers(self.workers) as pool:
            extract_dump(dump, path, pool, self.progress, min_words=item.min_words)
        return record

    def _file(self, urls: Sequence[str], path: Path, checksum: str | None, alternative: str = "") -> Record:
        """Fetch a file from the first address that has it, or check an existing one."""
        remedy = f"Or get the file by other means, and put it at {path}{alternative}."
        first_time = self.trusted.get(path.name)
        expected = checksum or (f"sha256:{first_time}" if first_time else None)
        url = urls[0]
        if not path.is_file():
            failures = []
            for url in urls:
                try:
                    download(url, path, checksum, self.progress)
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
        checked = "as at first" if first_time else "trusted on first use"
        return {
            "url": url,
            "file": path.name,
            "sha256": checksum_of(path).removeprefix("sha256:"),
            "checked": f"against {checksum}" if checksum else checked,
        }
