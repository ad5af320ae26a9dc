"""The files of a recipe: found or fetched, fingerprinted, and streamed in chunks of lines."""

import gzip
import hashlib
import io
import lzma
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

from macaron.data.prepared import SPLITS, Split
from macaron.data.progress import Progress
from macaron.data.settings import CorpusSettings, FetchSettings, PairsSettings, TextSettings
from macaron.errors import MacaronError
from macaron.files import open_binary
from macaron.text.pipeline import State

ENDINGS = ("", ".gz", ".xz")
#: A line of a megabyte is no sentence: such files have lost their line ends, and must not fill the memory.
MAX_LINE = 1 << 20
_END: Any = object()


@dataclass(frozen=True)
class AlignedFiles:
    """Files that are aligned line by line: the two sides of a corpus, or a single text."""

    paths: tuple[Path, ...]
    state: State = "raw"


@dataclass(frozen=True)
class Chunk:
    """Some lines of aligned files, as bytes without line ends. It is what one worker does at a time.

    :param columns: the lines of each file; None stands for a line above `MAX_LINE`
    :param last: the files end with this chunk
    """

    files: AlignedFiles
    first_line: int
    columns: tuple[list[bytes | None], ...]
    last: bool = False


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
        from macaron.data.prepare.fetch import fetch

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


# Reading


def chunks(files: AlignedFiles, max_lines: int, max_bytes: int) -> Iterator[Chunk]:
    """Stream aligned files in chunks. Files that are empty or of different length are refused.

    :param max_lines: lines of a chunk
    :param max_bytes: a chunk ends after the line that reaches this size
    """
    streams = [raw_lines(path) for path in files.paths]
    columns: tuple[list[bytes | None], ...] = tuple([] for _ in streams)
    done = size = 0
    blank = len(streams) == 1  # a text of blank lines is empty; pairs of blank lines are pairs
    for lines in zip_longest(*streams, fillvalue=_END):
        if any(line is _END for line in lines):
            raise _misaligned(files, streams, lines, done + len(columns[0]))
        if len(columns[0]) >= max_lines or size >= max_bytes:
            yield Chunk(files, done + 1, columns)
            done += len(columns[0])
            columns, size = tuple([] for _ in streams), 0
        for column, line in zip(columns, lines, strict=True):
            column.append(line)
            size += len(line or b"")
        blank = blank and lines[0] is not None and not lines[0].strip()
    if blank or not columns[0]:
        raise MacaronError(f"{' and '.join(map(str, files.paths))}: empty. Give files with text, or leave them out.")
    yield Chunk(files, done + 1, columns, last=True)


def _misaligned(
    files: AlignedFiles, streams: Sequence[Iterator[bytes | None]], lines: Sequence[Any], count: int
) -> MacaronError:
    lengths = [count + (line is not _END) + sum(1 for _ in stream) for stream, line in zip(streams, lines, strict=True)]
    names, sizes = " and ".join(map(str, files.paths)), " and ".join(f"{length:,}" for length in lengths)
    return MacaronError(
        f"{names} are not aligned: they have {sizes} lines. Line n of one must translate line n of the other."
    )


def raw_lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file as bytes, without a byte-order mark and line ends; over-long ones as None.

    Lines end at ``\\n`` alone, as everywhere in Macaron: see `macaron.files`.
    """
    try:
        with open_binary(path) as opened, io.BufferedReader(cast(io.RawIOBase, opened), 1 << 20) as file:
            first = True
            while line := file.readline(MAX_LINE):
                if first:
                    first = False
                    if line.startswith((b"\xff\xfe", b"\xfe\xff")):
                        raise MacaronError(f"{path}: this is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8")
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if len(line) == MAX_LINE and not line.endswith(b"\n"):
                    while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                        pass
                    yield None
                else:
                    yield line.removesuffix(b"\n").removesuffix(b"\r")
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise MacaronError(f"{path}: cannot be decompressed ({error}). Fetch or copy the file again.") from None
    except OSError as error:
        raise MacaronError(f"{path}: {error.strerror or error}") from None


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
