"""Write the archive of the demo's corpus, ``src/macaron/data/demo_corpus.tar.bz2``.

    .venv/bin/python tools/make_demo_corpus.py [FILE]

The same bytes on every run: the grammar draws from a seed, and the archive stores no times and no owners. A test
compares the archive in the repository with what this script makes.
"""

import io
import sys
import tarfile
from pathlib import Path
from typing import BinaryIO

from demo_grammar import DemoCorpus, WordByWord, demo_corpus, learn_dictionary
from macaron.files import atomic_file
from macaron.shipped import ARCHIVE, BASELINE


def split_files(corpus: DemoCorpus) -> dict[str, bytes]:
    """train.de, train.en, valid.de ...: one sentence per line."""
    return {
        f"{split}.{language}": "".join(pair[side] + "\n" for pair in pairs).encode()
        for split, pairs in corpus.splits().items()
        for language, side in (("de", 0), ("en", 1))
    }


def contents(corpus: DemoCorpus) -> dict[str, bytes]:
    """The files of the archive by name, the translations of the baseline first."""
    baseline = WordByWord(learn_dictionary(corpus.train))
    translated = {
        split + BASELINE: "".join(baseline.translate(source) + "\n" for source, _ in pairs).encode()
        for split, pairs in (("test", corpus.test), ("novel", corpus.novel))
    }
    return {**translated, **split_files(corpus)}


def write_archive(files: dict[str, bytes], out: BinaryIO) -> None:
    """Write the files as a compressed archive with fixed times, owners and order."""
    with tarfile.open(fileobj=out, mode="w:bz2", compresslevel=9, format=tarfile.USTAR_FORMAT) as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ARCHIVE
    with atomic_file(path) as file:
        write_archive(contents(demo_corpus()), file)
    print(f"{path}: {path.stat().st_size:,} bytes")
