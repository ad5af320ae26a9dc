"""The files of a recipe: found, fingerprinted, and streamed in chunks of lines."""

import gzip
import hashlib
import io
import lzma
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from glob import glob
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

from macaron.data.prepared import SPLITS, Split
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


#: The files of a recipe by split.
SplitFiles = dict[Split, tuple[AlignedFiles, ...]]
#: What prepared.json holds about a file or a download.
Record = dict[str, Any]


#: The files by split, the names of missing files without an address, and what has to be fetched.
Found = tuple[SplitFiles, list[str], Sequence[CorpusSettings | FetchSettings]]


def search(settings: PairsSettings | TextSettings) -> Found:
    """Find the files of a recipe."""
    return _find_texts(settings) if isinstance(settings, TextSettings) else _find_corpora(settings)


def find_file(prefix: Path, language: str) -> Path | None:
    """Find ``PREFIX.LANGUAGE``, plain or compressed; the plain one first."""
    paths = (Path(f"{prefix}.{language}{ending}") for ending in ENDINGS)
    return next((path for path in paths if path.is_file()), None)


def _find_corpora(settings: PairsSettings) -> Found:
    """Two files for each prefix. A missing one is named with the endings that were tried."""
    tried = ", ".join(ending for ending in ENDINGS if ending)
    found: SplitFiles = {}
    missing: list[str] = []
    absent: list[CorpusSettings] = []
    for split in SPLITS:
        corpora: tuple[CorpusSettings, ...] = getattr(settings, split)
        for corpus in corpora:
            prefix = settings.root / corpus.path
            sides = {language: find_file(prefix, language) for language in settings.languages}
            paths = tuple(path for path in sides.values() if path is not None)
            if len(paths) == len(sides):
                found[split] = (*found.get(split, ()), AlignedFiles(paths, corpus.state))
            elif corpus.url is not None or corpus.archive is not None:
                absent.append(corpus)
            else:
                # One of the two files was given, or their folder.
                hint = "; give the prefix of both files, without the ending" if prefix.exists() else ""
                missing += [f"{prefix}.{side} (also tried: {tried}{hint})" for side, path in sides.items() if not path]
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


def fingerprint(path: Path, known: Record | None = None) -> Record:
    """What tells whether a file has changed: size, time and SHA-256.

    :param known: an earlier fingerprint; if size and time are still the same, the file is not read again
    """
    try:
        status = path.stat()
        facts: Record = {"file": str(path), "bytes": status.st_size, "modified_ns": status.st_mtime_ns}
        if known is not None and all(known.get(key) == value for key, value in facts.items()):
            return known
        with path.open("rb") as file:
            return {**facts, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}
    except OSError as error:
        raise MacaronError(f"{path}: {error.strerror or error}") from None
