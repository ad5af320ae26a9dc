"""Text from the official archives: plain lines, ``<seg>`` elements, and TED's training files."""

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Container, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import IO, Any, NoReturn, cast

from macaron.data.settings import ArchiveFormat, CorpusSettings
from macaron.errors import MacaronError
from macaron.files import DAMAGED, LONGEST_LINE, MAX_LINE, atomic_file
from macaron.limits import RATIO, Bounded

#: Bytes that may be unpacked from an archive, if that is more than `RATIO` times its size.
LEAST = 1 << 26
#: Bytes of a file of ``<seg>`` elements, which is read as a whole.
LARGEST_SGM = 1 << 26
_BY_HAND = "If it is a good one, unpack it by hand."
#: Files in a tar; bytes of a header with a long name or the like (tarfile's time grows with its square), and of all.
MOST_FILES, LONGEST_HEADER, MOST_HEADERS = 100_000, 1 << 12, 1 << 23
_PACKED: dict[bytes, Any] = {
    **{b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open, b"\x5d\x00\x00": lzma.open},
}
#: Lines of train.tags files that are not sentences; titles and descriptions are, without their tags.
_TED_DROP = re.compile(rb"<(url|talkid|keywords|speaker|reviewer|translator|doc)\b|</doc>")
_TED_TAGS = re.compile(rb"</?(title|description)>")
# In time that grows with the text alone: a search for a whole element would begin again at every tag.
_SEGMENT, _SEGMENT_END = re.compile(rb"<seg[^<>]*>", re.IGNORECASE), re.compile(rb"</seg>", re.IGNORECASE)


class _Header(tarfile.TarInfo):
    """The headers of a tar; each tar has a subclass of its own. Extended ones are limited, sparse files refused."""

    #: Bytes of extended headers so far, those of long ones several times.
    read = 0

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        """The header in a block."""
        found = super().frombuf(buf, encoding, errors)
        if found.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it has a sparse file")
        if found.type in (b"x", b"g", b"X", b"L", b"K"):
            if found.size > LONGEST_HEADER:
                raise tarfile.ReadError(f"a header is larger than the limit of {LONGEST_HEADER:,} bytes")
            # tarfile copies a global one for every file; its time for another one grows with the square of its size.
            cls.read += found.size * (1024 if found.type == b"g" else 1 + found.size // 64)
            if cls.read > MOST_HEADERS:
                raise tarfile.ReadError(f"its headers are larger than the limit of {MOST_HEADERS:,} bytes in all")
        return found

    def _proc_gnusparse_10(self, *_: object) -> NoReturn:
        """What tarfile calls for a map of a sparse file, which may be as long as the archive."""
        raise tarfile.ReadError("it has a sparse file")


def extract(archive: Path, wanted: Mapping[str, tuple[Path, CorpusSettings]]) -> None:
    """Extract the text of some members, in one pass: by member, the file to write, and the corpus that says how."""
    left = dict(wanted)
    names: list[str] = []
    try:
        for name, file in members(archive, wanted):
            names.append(name)
            if name in left:
                path, corpus = left.pop(name)
                replace = [(old.encode(), new.encode()) for old, new in corpus.replace.items()]
                with atomic_file(path) as out:
                    for sentence in _sentences(f"{archive}, {name}", file, corpus.format):
                        out.write(reduce(_replaced, replace, sentence) + b"\n")
            if not left:
                return
    except (*DAMAGED, tarfile.TarError, zipfile.BadZipFile) as error:
        raise MacaronError(f"{archive}: not an archive, or damaged ({error}). Delete it to fetch it again.") from None
    alike = [name for name in names if name.rpartition("/")[2] in {member.rpartition("/")[2] for member in left}]
    shown = ", ".join((alike or names)[:8]) or "nothing"
    raise MacaronError(f"{archive}: no {', '.join(sorted(left))} in it. It holds {shown}")


def _replaced(text: bytes, pair: tuple[bytes, bytes]) -> bytes:
    old, new = pair
    if text.count(old) * len(new) > MAX_LINE:
        raise MacaronError(f"data.train: replace makes a line longer than {MAX_LINE:,} bytes of {old[:40].decode()!r}")
    return text.replace(old, new)


def members(archive: Path, wanted: Container[str] | None = None) -> Iterator[tuple[str, IO[bytes]]]:
    """The names and contents of an archive's files, in its order, within the limits; links and devices are left out."""
    most = max(LEAST, RATIO * archive.stat().st_size)
    message = f"{archive}: unpacks to more than the limit of {most:,} bytes. {_BY_HAND}"
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                name = info.filename.removeprefix("./")
                needed = wanted is None or name in wanted
                most -= info.file_size if needed else 0  # it gives no more than this
                if most < 0:
                    raise MacaronError(message)
                if not info.is_dir():
                    with zipped.open(info) if needed else io.BytesIO() as file:
                        yield name, file
        return
    with archive.open("rb") as file:
        head = file.read(6)
    opener = next((opener for magic, opener in _PACKED.items() if head.startswith(magic)), open)
    # Streaming: an archive of gigabytes is decompressed once, not once for every member.
    with (
        opener(archive, "rb") as file,
        tarfile.open(fileobj=Bounded(file, most, message), mode="r|", tarinfo=type("Header", (_Header,), {})) as tar,
    ):
        for count, member in enumerate(tar):
            if count >= MOST_FILES:
                raise MacaronError(f"{archive}: holds more than {MOST_FILES:,} files. {_BY_HAND}")
            content = tar.extractfile(member) if member.isfile() and not member.issparse() else None
            if content is not None:
                yield member.name.removeprefix("./"), content


def _sentences(name: str, file: IO[bytes], form: ArchiveFormat) -> Iterator[bytes]:
    if form == "sgm":
        text = file.read(LARGEST_SGM + 1)
        if len(text) > LARGEST_SGM:
            raise MacaronError(f"{name}: larger than {LARGEST_SGM:,} bytes, too large for a file of <seg> elements")
        for element in _SEGMENT_END.split(text)[:-1]:
            if begin := _SEGMENT.search(element):
                # Entities stay: the usual scripts, and sacreBLEU, leave them too.
                yield b" ".join(element[begin.end() :].split())
        return
    lines = io.BufferedReader(cast(io.RawIOBase, file), 1 << 20)
    while raw := lines.readline(LONGEST_LINE + 1):
        if len(raw) > LONGEST_LINE:
            raise MacaronError(f"{name}: a line is longer than {LONGEST_LINE:,} bytes. Is it text?")
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if form == "lines":
            yield line
        elif not _TED_DROP.search(line):
            yield _TED_TAGS.sub(b"", line).strip()
