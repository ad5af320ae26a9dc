"""The files of a recipe: found, or fetched if they are missing: single files, archives, and dumps of Wikipedia."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from macaron.data.prepare.archive import extract
from macaron.data.prepare.download import checksum_of, download
from macaron.data.prepare.inputs import ENDINGS, Record, SplitFiles, find_file, fingerprint, search
from macaron.data.prepared import SPLITS
from macaron.data.progress import Progress
from macaron.data.settings import (
    ArchiveSettings,
    CorpusSettings,
    FetchSettings,
    PairsSettings,
    TextSettings,
    WikipediaSettings,
    file_name,
)
from macaron.errors import MacaronError
from macaron.processes import Workers


def gather(
    settings: PairsSettings | TextSettings,
    older: Mapping[str, Any],
    progress: Progress,
    workers: int | None = None,
) -> tuple[SplitFiles, list[Record], list[Record]]:
    """Find all files; fetch those that are missing and have an address; name all others that are missing.

    :param older: prepared.json of an earlier run; its fingerprints save reading files that have not changed
    :return: the files, their fingerprints, and a record of all downloads
    """
    files, missing, absent = search(settings)
    downloads: list[Record] = list(older.get("downloads", []))
    if absent and not missing:
        fetched = Fetcher(settings, downloads, progress, workers).fetch(absent)
        names = {record["file"] for record in fetched}
        downloads = [record for record in downloads if record["file"] not in names] + fetched
        files, missing, absent = search(settings)
        missing += [str(settings.root / item.path) for item in absent]  # fetched a moment ago
    if missing:
        raise MacaronError("these files are missing:\n  " + "\n  ".join(dict.fromkeys(missing)))
    known = {entry["file"]: entry for entry in older.get("inputs", [])}
    fingerprints = []
    for split in SPLITS:
        for each in files.get(split, ()):
            state = {"state": each.state} if settings.kind == "text" else {}
            fingerprints += [{**fingerprint(path, known.get(str(path))), **state} for path in each.paths]
    return files, fingerprints, downloads


class Fetcher:
    """Fetches and unpacks the missing files of a recipe.

    :param known: the records of earlier runs: a file without a checksum must be the same as then
    """

    def __init__(
        self,
        settings: PairsSettings | TextSettings,
        known: Sequence[Record],
        progress: Progress,
        workers: int | None = None,
    ) -> None:
        self.settings, self.root, self.progress, self.workers = settings, settings.root, progress, workers
        self.trusted = {record["file"]: record["sha256"] for record in known}

    def fetch(self, absent: Sequence[CorpusSettings | FetchSettings]) -> list[Record]:
        """Fetch what is missing, and return a record of each download."""
        settings = self.settings
        records: list[Record] = []
        for item in absent:
            if isinstance(item, WikipediaSettings):
                records.append(self._dump(item, settings.downloads_folder / file_name(item.urls)))
            elif isinstance(item, FetchSettings):
                records.append(self._file(item.urls, self.root / item.path, item.checksum))
            elif item.url is not None:
                records += self._sides(item)
        for archive in settings.archives if isinstance(settings, PairsSettings) else ():
            corpora = [item for item in absent if isinstance(item, CorpusSettings) and item.archive == archive.name]
            if corpora:
                records.append(self._archive(archive, corpora))
        return records

    def _sides(self, corpus: CorpusSettings) -> list[Record]:
        records = []
        prefix = self.root / corpus.path
        for language in self.settings.languages:
            if find_file(prefix, language) is None:
                url = (corpus.url or "").format(lang=language)
                ending = Path(urlsplit(url).path).suffix
                path = prefix.with_name(f"{prefix.name}.{language}{ending if ending in ENDINGS else ''}")
                records.append(self._file((url,), path, corpus.checksums.get(language)))
        return records

    def _archive(self, archive: ArchiveSettings, corpora: Sequence[CorpusSettings]) -> Record:
        path = self.settings.downloads_folder / file_name(archive.urls)
        prefixes = ", ".join(f"{self.root / corpus.path}.*" for corpus in corpora)
        record = self._file(archive.urls, path, archive.checksum, f"; or its text, at {prefixes}")
        wanted = {}
        for corpus in corpora:
            prefix = self.root / corpus.path
            for member, language in zip((corpus.source, corpus.target), self.settings.languages, strict=True):
                target = prefix.with_name(f"{prefix.name}.{language}")
                wanted[(member or "").removeprefix("./")] = target, corpus
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
