"""The files of a recipe: found, or fetched if they are missing: single files, archives, and dumps of Wikipedia."""

import hashlib
import http.client
import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from glob import glob
from itertools import chain
from pathlib import Path
from typing import Any, TypedDict
from urllib.parse import urlsplit

from macaron.data.prepare.archive import extract
from macaron.data.prepare.cleaning import AlignedFiles
from macaron.data.prepare.wikipedia import extract_dump
from macaron.data.prepared import SPLITS, Split
from macaron.data.settings import (
    ArchiveSettings,
    CorpusSettings,
    FetchSettings,
    PairsSettings,
    TextSettings,
    WikipediaSettings,
    file_name,
)
from macaron.errors import MacaronError, require
from macaron.files import ENDINGS, LOCK, alone, find_compressed, refusing
from macaron.json_files import Count, Record, read_json
from macaron.processes import Advance, Progress, Workers

BLOCK, TIMEOUT = 1 << 18, 60.0
#: Failures in a row without a single byte before giving up, and the first of the growing pauses between.
ATTEMPTS, PAUSE = 5, 1.0
#: Answers that may be different when asked again; all other 4xx and 5xx are final.
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
#: The files of a recipe by split.
SplitFiles = dict[Split, tuple[AlignedFiles, ...]]
#: These, the names of missing files without an address, and what has to be fetched.
Found = tuple[SplitFiles, list[str], Sequence[CorpusSettings | FetchSettings]]


def gather(
    settings: PairsSettings | TextSettings, older: Mapping[str, Any], progress: Progress, workers: int | None
) -> tuple[SplitFiles, list[Record], list[Record]]:
    """The files, their fingerprints, and a record of all downloads, with what prepared.json of an earlier run knows.

    What is missing and has an address is fetched; all else that is missing is named.
    """
    search = partial(_find_texts, settings) if isinstance(settings, TextSettings) else partial(_find_corpora, settings)
    files, missing, absent = search()
    downloads: dict[str, Record] = {record["file"]: record for record in older.get("downloads", [])}
    if absent and not missing:
        _fetch(settings, absent, downloads, progress, workers)
        files, missing, absent = search()
        missing += [str(settings.root / item.path) for item in absent]  # fetched a moment ago
    require(not missing, "these files are missing:\n  " + "\n  ".join(dict.fromkeys(missing)))
    known = {entry["file"]: entry for entry in older.get("inputs", [])}
    fingerprints = []
    for each in chain.from_iterable(files[split] for split in SPLITS if split in files):
        state = {"state": each.state} if settings.kind == "text" else {}
        fingerprints += [{**fingerprint(path, known.get(str(path))), **state} for path in each.paths]
    return files, fingerprints, list(downloads.values())


def _find_corpora(settings: PairsSettings) -> Found:
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
    root, downloads = settings.root, settings.downloads or settings.root / "downloads"
    whole = os.path.abspath(root)
    for item in absent:  # files that are there are read from anywhere
        inside = Path(os.path.abspath(root / item.path)).is_relative_to(whole)
        require(inside, f"{item.path!r} would be written outside data.root ({whole}): give a path below it")
    for item in absent:
        path = root / item.path
        if isinstance(item, WikipediaSettings):
            dump = downloads / file_name(item.urls)
            _obtain(item, dump, records, progress, f"; or its text, at {path}")
            with Workers(workers) as pool:
                extract_dump(dump, path, pool, progress, min_words=item.min_words)
        elif isinstance(item, FetchSettings):
            _obtain(item, path, records, progress)
    for archive in settings.archives if isinstance(settings, PairsSettings) else ():
        corpora = [item for item in absent if isinstance(item, CorpusSettings) and item.archive == archive.name]
        if not corpora:
            continue
        path = downloads / file_name(archive.urls)
        prefixes = ", ".join(f"{root / corpus.path}.*" for corpus in corpora)
        _obtain(archive, path, records, progress, f"; or its text, at {prefixes}")
        wanted = {}
        for corpus in corpora:
            for member, language in zip((corpus.source, corpus.target), settings.languages, strict=True):
                wanted[(member or "").removeprefix("./")] = root / f"{corpus.path}.{language}", corpus
        with progress.step(f"unpacking {path.name}", "files") as step:
            extract(path, wanted)
            step(len(wanted))


def _obtain(
    item: FetchSettings | ArchiveSettings,
    path: Path,
    records: dict[str, Record],
    progress: Progress,
    alternative: str = "",
) -> None:
    # From the first address that has it; one that is there is checked. Without a checksum it must be as the first time.
    remedy = f"Or get the file by other means, and put it at {path}{alternative}."
    first_time, checksum, url = records.get(path.name), item.checksum, item.urls[0]
    expected = checksum or (f"sha256:{first_time['sha256']}" if first_time else None)
    if not path.is_file():
        failures = []
        for url in item.urls:
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
    checked = "same as first download" if first_time else "trusted on first use"
    records[path.name] = {
        "url": url,
        "file": path.name,
        "sha256": checksum_of(path).removeprefix("sha256:"),
        "checked": f"against {checksum}" if checksum else checked,
    }


class _Note(TypedDict):
    """PATH.part.json: what the server said about the file."""

    url: str
    validator: str | None
    total: Count | None


def download(url: str, path: Path, checksum: str | None, progress: Progress) -> None:
    """Fetch a file, as ``PATH.part`` until it is complete and right; resumed if the server's file is still the same."""
    require(urlsplit(url).scheme in ("http", "https"), f"{url}: only http and https addresses are fetched")
    part, note = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
    failures = 0
    with alone(path, path.with_name(f".{path.name}{LOCK}")), progress.step(f"fetching {path.name}", "bytes") as step:
        while True:
            before = part.stat().st_size if part.exists() else 0
            try:
                if _fetch_some(url, part, note, step):
                    break
                reason = "the connection was closed early"
            except urllib.error.HTTPError as error:
                reason = f"{error.code} {error.reason}"
                if error.code not in _TEMPORARY:
                    raise MacaronError(f"cannot fetch {url}: {reason}") from None
            except (ValueError, http.client.InvalidURL) as error:
                raise MacaronError(f"cannot fetch {url}: not an address ({error})") from None
            except (OSError, http.client.HTTPException) as error:  # URLError has its cause in `reason`
                reason = str(getattr(error, "reason", error)) or type(error).__name__
            failures = 0 if part.exists() and part.stat().st_size > before else failures + 1
            if failures >= ATTEMPTS:
                raise MacaronError(f"cannot fetch {url}: {reason}")
            time.sleep(PAUSE * 2**failures / 2)
        if checksum is not None and (found := checksum_of(part, checksum)) != checksum:
            part.unlink()
            note.unlink(missing_ok=True)
            raise MacaronError(f"{url}: wrong checksum {found}, expected {checksum}. The download was deleted")
        part.replace(path)
        note.unlink(missing_ok=True)


def _fetch_some(url: str, part: Path, note: Path, step: Advance) -> bool:
    """Request the missing bytes; return whether the file is complete."""
    known: dict[str, Any] = {}
    with suppress(OSError, MacaronError):
        known = read_json(note, _Note)
    offset = part.stat().st_size if part.exists() and known.get("url") == url else 0
    if offset and known.get("total") == offset:
        return True
    request = urllib.request.Request(url, headers={"Accept-Encoding": "identity", "User-Agent": "macaron"})
    if offset:
        request.add_header("Range", f"bytes={offset}-")
        if known["validator"] is not None:  # a file that has changed meanwhile is sent from its beginning
            request.add_header("If-Range", known["validator"])
    try:
        response = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not offset:
            raise
        part.unlink()  # another file by now
        return False
    with response:
        start, total = _extent(response)
        if start and (start != offset or known.get("total") not in (None, total)):
            part.unlink(missing_ok=True)  # a range that was not asked for, or of another file
            return False
        offset = start
        tag = response.headers.get("ETag") or "W/"  # a weak tag does not guarantee the same bytes
        validator = response.headers.get("Last-Modified") if tag.startswith("W/") else tag
        path = part.with_suffix("")
        with refusing(path):
            note.write_text(json.dumps({"url": url, "validator": validator, "total": total}), "utf-8")
        step(offset, total=total)
        with part.open("ab" if offset else "wb") as file:
            while block := response.read(BLOCK):
                with refusing(path):
                    file.write(block)
                    file.flush()
                step(len(block))
                offset += len(block)
    return total is None or offset == total


def _extent(response: Any) -> tuple[int, int | None]:
    """The offset of the first byte in the response, and the size of the whole file if it is known."""
    if response.status != 206:
        length = response.headers.get("Content-Length", "")
        return 0, int(length) if length.isdecimal() else None
    span = re.match(r"bytes (\d+)-\d+/(\d*)", response.headers.get("Content-Range", ""))
    if span is None:
        return -1, None
    return int(span[1]), int(span[2]) if span[2] else None


def checksum_of(path: Path, like: str | None = None) -> str:
    """The checksum of a file, as ``sha256:...`` or with the algorithm of another checksum."""
    algorithm = like.partition(":")[0] if like else "sha256"
    with path.open("rb") as file:
        return f"{algorithm}:{hashlib.file_digest(file, algorithm).hexdigest()}"
