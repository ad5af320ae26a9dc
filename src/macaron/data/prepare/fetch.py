"""Fetching the files of a recipe that are missing: single files, archives, and dumps of Wikipedia."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from macaron.data.prepare.archive import Wanted, extract
from macaron.data.prepare.download import checksum_of, download
from macaron.data.prepare.inputs import ENDINGS, find_file
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
