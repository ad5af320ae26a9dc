"""Finding the files of a corpus and streaming their lines, in pairs and in chunks."""

import gzip
import hashlib
import io
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from macaron.errors import MacaronError
from macaron.files import open_binary
from macaron.text.pipeline import State

ENDINGS = ("", ".gz", ".xz")
#: Nobody translates a line of a megabyte; such files have lost their line ends, and must not fill the memory.
MAX_LINE = 1 << 20
#: A chunk is what one worker does at a time: so many lines, or fewer if they are long.
CHUNK_LINES = 10_000
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Corpus:
    """The two files of a corpus, found."""

    source: Path
    target: Path
    state: State = "raw"


@dataclass(frozen=True)
class Chunk:
    """Some lines of a corpus, still bytes, without line ends; None stands for a line that is far too long."""

    corpus: Corpus
    first_line: int
    source: list[bytes | None]
    target: list[bytes | None]


def find_file(prefix: Path, language: str) -> Path | None:
    """Find ``PREFIX.LANGUAGE``, plain or compressed; the plain one first."""
    for ending in ENDINGS:
        path = Path(f"{prefix}.{language}{ending}")
        if path.is_file():
            return path
    return None


def missing_files(prefixes: Sequence[Path], languages: Sequence[str]) -> list[str]:
    """The files that are missing, each with the endings that were tried."""
    tried = ", ".join(ending for ending in ENDINGS if ending)
    missing = []
    for prefix in prefixes:
        # Somebody gave one of the files, or the folder they are in.
        hint = "; give the prefix of both files, without the ending" if prefix.exists() else ""
        missing += [
            f"{prefix}.{language} (also tried: {tried}{hint})"
            for language in languages
            if find_file(prefix, language) is None
        ]
    return missing


def chunks(corpus: Corpus, chunk_lines: int = CHUNK_LINES) -> Iterator[Chunk]:
    """Stream a corpus in chunks. Files that are empty or of different length are refused."""
    source, target = raw_lines(corpus.source), raw_lines(corpus.target)
    done = 0
    lines: tuple[list[bytes | None], list[bytes | None]] = ([], [])
    size = 0
    while True:
        left, right = next(source, _END), next(target, _END)
        if left is _END or right is _END:
            break
        lines[0].append(cast(bytes | None, left))
        lines[1].append(cast(bytes | None, right))
        size += len(cast(bytes, left or b"")) + len(cast(bytes, right or b""))
        if len(lines[0]) >= chunk_lines or size >= CHUNK_BYTES:
            yield Chunk(corpus, done + 1, *lines)
            done += len(lines[0])
            lines, size = ([], []), 0
    _check_ends(corpus, done + len(lines[0]), left, right, source, target)
    if lines[0]:
        yield Chunk(corpus, done + 1, *lines)


_END: Any = object()


def _check_ends(
    corpus: Corpus, count: int, left: Any, right: Any, source: Iterator[bytes | None], target: Iterator[bytes | None]
) -> None:
    """Both files have ended, after at least one line."""
    left_count = count + (left is not _END) + sum(1 for _ in source)
    right_count = count + (right is not _END) + sum(1 for _ in target)
    if left_count != right_count:
        raise MacaronError(
            f"{corpus.source} has {left_count:,} lines, {corpus.target} has {right_count:,}: they are not aligned. "
            "Line n of one must translate line n of the other."
        )
    if not left_count:
        raise MacaronError(f"{corpus.source} and {corpus.target} are empty. Give files with text, or leave them out.")


def raw_lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file as bytes, without a byte-order mark and line ends; over-long ones as None.

    Lines end at ``\\n`` alone, as everywhere in Macaron: see `macaron.text.files`.
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
