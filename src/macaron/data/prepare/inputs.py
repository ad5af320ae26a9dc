"""Reading aligned files in chunks of lines."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

from macaron.errors import MacaronError
from macaron.files import open_binary
from macaron.text.pipeline import State

#: Longer lines are skipped, so that they do not fill the memory: the file probably lacks line breaks.
MAX_LINE = 1 << 20
_END: Any = object()


@dataclass(frozen=True)
class AlignedFiles:
    """Files that are aligned line by line: the two sides of a corpus, or a single text.

    :param prefix: what the recipe calls the corpus
    """

    paths: tuple[Path, ...]
    state: State = "raw"
    prefix: str = ""
    tag: str | None = None


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


def chunks(files: AlignedFiles, max_lines: int, max_bytes: int) -> Iterator[Chunk]:
    """Stream aligned files in chunks. Files that are empty or of different length are refused."""
    names = " and ".join(map(str, files.paths))
    streams = [raw_lines(path) for path in files.paths]
    columns: tuple[list[bytes | None], ...] = tuple([] for _ in streams)
    done = size = 0
    blank = len(streams) == 1  # a text of blank lines is empty; pairs of blank lines are pairs
    for lines in zip_longest(*streams, fillvalue=_END):
        if _END in lines:
            sizes = " and ".join(f"{sum(1 for _ in raw_lines(path)):,}" for path in files.paths)
            raise MacaronError(
                f"{names} are not aligned: they have {sizes} lines. Line n of one must translate line n of the other."
            )
        if len(columns[0]) >= max_lines or size >= max_bytes:
            yield Chunk(files, done + 1, columns)
            done += len(columns[0])
            columns, size = tuple([] for _ in streams), 0
        for column, line in zip(columns, lines, strict=True):
            column.append(line)
            size += len(line or b"")
        blank = blank and lines[0] is not None and not lines[0].strip()
    if blank or not columns[0]:
        raise MacaronError(f"{names}: empty. Give files with text, or leave them out.")
    yield Chunk(files, done + 1, columns, last=True)


def raw_lines(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file as bytes, without a byte-order mark and line ends; over-long ones as None.

    Lines end at ``\\n`` alone, as everywhere in Macaron: see `macaron.files`.
    """
    with open_binary(path) as opened, io.BufferedReader(cast(io.RawIOBase, opened), 1 << 20) as file:
        mark = cast(io.BufferedReader, opened).peek(3)[:3]  # peek copies the whole buffer: the smaller one
        if mark[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise MacaronError(f"{path}: this is UTF-16. Convert it: iconv -f UTF-16 -t UTF-8")
        opened.read(3 if mark == b"\xef\xbb\xbf" else 0)
        while line := file.readline(MAX_LINE):
            if len(line) == MAX_LINE and not line.endswith(b"\n"):
                while (rest := file.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                    pass
                yield None
            else:
                yield line.removesuffix(b"\n").removesuffix(b"\r")
