"""Reading text files line by line, with the line named in every complaint."""

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from macaron.errors import MacaronError


def open_binary(path: Path) -> BinaryIO:
    """Open a plain, ``.gz`` or ``.xz`` file for reading bytes."""
    match path.suffix:
        case ".gz":
            return cast(BinaryIO, gzip.open(path, "rb"))
        case ".xz":
            return cast(BinaryIO, lzma.open(path, "rb"))
        case _:
            return path.open("rb")


def read_lines(path: str | Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file (plain, ``.gz``, ``.xz``) without their line ends.

    Lines end at ``\\n`` alone (a ``\\r`` before it is dropped): the other separators of Unicode, which
    ``str.splitlines`` would honour, are characters of the text, and two files that are aligned line by line
    must not fall apart over them.
    """
    path = Path(path)
    try:
        with open_binary(path) as file:
            for number, raw in enumerate(file, start=1):
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    raise MacaronError(
                        f"{path}, line {number}: not valid UTF-8 (byte {error.start + 1} of the line). "
                        "Convert the file to UTF-8 or remove the line."
                    ) from None
                if number == 1:
                    line = line.removeprefix("\ufeff")
                yield line.removesuffix("\n").removesuffix("\r")
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise MacaronError(f"{path}: cannot be decompressed ({error}). Fetch or copy the file again.") from None
    except OSError as error:
        raise MacaronError(f"{path}: {error.strerror or error}") from None
