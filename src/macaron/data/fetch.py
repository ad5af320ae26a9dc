"""Fetching the corpora of a recipe that are not here yet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from macaron.data.archive import Wanted, extract
from macaron.data.corpus import ENDINGS, find_file
from macaron.data.download import checksum_of, download
from macaron.data.progress import Progress
from macaron.data.settings import ArchiveSettings, CorpusSettings, PairsSettings
from macaron.errors import MacaronError

Record = dict[str, Any]


def fetch_corpora(
    recipe: PairsSettings, absent: Sequence[CorpusSettings], known: Sequence[Record], progress: Progress
) -> list[Record]:
    """Fetch and unpack what is missing, and return an account of it: url, file, sha256, how it was checked.

    :param known: the account of earlier runs: a file without a checksum of its own must be what it was then
    """
    trusted = {record["file"]: record["sha256"] for record in known}
    records: list[Record] = []
    for corpus in absent:
        if corpus.url is not None:
            records += _fetch_files(recipe, corpus, trusted, progress)
    for archive in recipe.archives:
        corpora = [corpus for corpus in absent if corpus.archive == archive.name]
        if corpora:
            records.append(_fetch_archive(recipe, archive, corpora, trusted, progress))
    return records


def _fetch_files(
    recipe: PairsSettings, corpus: CorpusSettings, trusted: Mapping[str, str], progress: Progress
) -> list[Record]:
    records = []
    for language in (recipe.source_lang, recipe.target_lang):
        prefix = recipe.root / corpus.path
        if find_file(prefix, language) is not None:
            continue
        url = (corpus.url or "").format(lang=language)
        ending = Path(urlsplit(url).path).suffix
        path = prefix.with_name(f"{prefix.name}.{language}{ending if ending in ENDINGS else ''}")
        remedy = f"Or get the file by other means, and put it at {path}"
        records.append(get_file((url,), path, corpus.checksums.get(language), trusted, remedy, progress))
    return records


def _fetch_archive(
    recipe: PairsSettings,
    archive: ArchiveSettings,
    corpora: Sequence[CorpusSettings],
    trusted: Mapping[str, str],
    progress: Progress,
) -> Record:
    path = recipe.downloads_folder / archive.file_name
    prefixes = ", ".join(f"{recipe.root / corpus.path}.*" for corpus in corpora)
    remedy = f"Or get the archive by other means, and put it at {path}; or its text, at {prefixes}"
    record = get_file(archive.urls, path, archive.checksum, trusted, remedy, progress)
    wanted = {}
    for corpus in corpora:
        prefix = recipe.root / corpus.path
        for member, language in ((corpus.source, recipe.source_lang), (corpus.target, recipe.target_lang)):
            target = prefix.with_name(f"{prefix.name}.{language}")
            wanted[(member or "").removeprefix("./")] = Wanted(target, corpus.format, corpus.replace)
    with progress.step(f"unpacking {path.name}", "files") as step:
        extract(path, wanted)
        step(len(wanted))
    return record


def get_file(
    urls: Sequence[str],
    path: Path,
    checksum: str | None,
    trusted: Mapping[str, str],
    remedy: str,
    progress: Progress,
) -> Record:
    """Fetch a file from the first address that has it, or check the one that is here."""
    first_time = trusted.get(path.name)
    expected = checksum or (f"sha256:{first_time}" if first_time else None)
    url = urls[0]
    if path.is_file():
        _check(path, expected, checksum is not None, remedy)
    else:
        failures = []
        for url in urls:
            try:
                download(url, path, checksum, progress)
                break
            except MacaronError as error:
                failures.append(str(error))
        else:
            raise MacaronError("\n".join([*failures, f"{remedy}."]))
        _check(path, expected, checksum is not None, remedy)
    return {
        "url": url,
        "file": path.name,
        "sha256": checksum_of(path).removeprefix("sha256:"),
        "checked": f"against {checksum}" if checksum else "trusted on first use" if not first_time else "as at first",
    }


def _check(path: Path, expected: str | None, official: bool, remedy: str) -> None:
    if expected is not None and (found := checksum_of(path, expected)) != expected:
        whose = "the recipe's" if official else "that of the first download"
        raise MacaronError(
            f"{path}: its checksum is {found}, {whose} is {expected}. Delete the file, to fetch it again. {remedy}."
        )
