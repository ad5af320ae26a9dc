"""Text from the official archives: plain lines, ``<seg>`` elements, and TED's training files."""

import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import IO

from macaron.data.settings import ArchiveFormat, CorpusSettings
from macaron.errors import MacaronError
from macaron.files import atomic_file

#: Lines of train.tags files that are not sentences; titles and descriptions are, without their tags.
_TED_DROP = re.compile(rb"<(url|talkid|keywords|speaker|reviewer|translator|doc)\b|</doc>")
_TED_TAGS = re.compile(rb"</?(title|description)>")
_SEGMENT = re.compile(rb"<seg[^>]*>(.*?)</seg>", re.DOTALL | re.IGNORECASE)


def extract(archive: Path, wanted: Mapping[str, tuple[Path, CorpusSettings]]) -> None:
    """Extract the text of some members, in one pass; each file appears when it is complete.

    :param wanted: by member: the file to write, and the corpus that says how
    """
    left = dict(wanted)
    names: list[str] = []
    try:
        for name, file in members(archive):
            names.append(name)
            if name in left:
                _write(file, *left.pop(name))
            if not left:
                return
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise MacaronError(
            f"{archive}: not an archive, or damaged ({error}). Delete it to fetch it again, or put a good one there."
        ) from None
    alike = [name for name in names if name.rpartition("/")[2] in {member.rpartition("/")[2] for member in left}]
    shown = ", ".join((alike or names)[:8]) or "nothing"
    raise MacaronError(f"{archive}: no {', '.join(sorted(left))} in it. It holds {shown}")


def members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The names and contents of an archive's files, in its order; nothing is written to the paths that it names."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zipped:
            for info in zipped.infolist():
                if not info.is_dir():
                    with zipped.open(info) as file:
                        yield info.filename.removeprefix("./"), file
        return
    # Streaming: an archive of gigabytes is decompressed once, not once for every member.
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name.removeprefix("./"), content


def _write(file: IO[bytes], path: Path, corpus: CorpusSettings) -> None:
    replace = [(old.encode(), new.encode()) for old, new in corpus.replace.items()]
    with atomic_file(path) as out:
        for sentence in _sentences(file, corpus.format):
            out.write(reduce(lambda text, pair: text.replace(*pair), replace, sentence) + b"\n")


def _sentences(file: IO[bytes], form: ArchiveFormat) -> Iterator[bytes]:
    if form == "sgm":
        for segment in _SEGMENT.findall(file.read()):
            # Entities stay: the usual scripts, and sacreBLEU, leave them too.
            yield b" ".join(segment.split())
        return
    for raw in file:
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if form == "lines":
            yield line
        elif not _TED_DROP.search(line):
            yield _TED_TAGS.sub(b"", line).strip()
