"""The articles of a Wikipedia dump (``...-pages-articles.xml.bz2``) as plain text.

A paragraph a line, a blank line between articles: what `macaron prepare` reads. The dump is streamed: one process
decompresses and parses it, the others remove the markup, and memory does not grow with its size.
"""

import bz2
import gzip
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast
from xml.etree import ElementTree

from macaron.data.progress import Progress
from macaron.data.wikitext import DROPPED_NAMESPACES, paragraphs
from macaron.errors import MacaronError
from macaron.files import open_binary
from macaron.processes import Workers

#: The numbers of the namespaces of articles, of files and of categories, the same in every language.
_ARTICLES, _MEDIA, _FILES, _CATEGORIES = "0", "-2", "6", "14"
#: A batch is what one worker does at a time: about so many characters.
BATCH = 1 << 20


@dataclass(frozen=True)
class Batch:
    """The markup of some articles, and what a worker must know about the dump."""

    pages: list[str]
    dropped: frozenset[str]
    min_words: int


@dataclass(frozen=True)
class Extracted:
    """The text of a batch, ready to be written."""

    text: bytes
    articles: int
    pages: int


def extract_dump(dump: Path, path: Path, workers: Workers, progress: Progress, *, min_words: int = 0) -> int:
    """Write the text of a dump to a file, ``.gz`` or plain, which appears when it is complete.

    :param min_words: leave out articles with fewer words
    :return: the number of articles
    """
    part = path.with_name(f"{path.name}.part")
    articles = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            stack.callback(part.unlink, missing_ok=True)
            with progress.step(f"taking the text out of {dump.name}", "articles") as step, part.open("wb") as raw:
                with _compressed(raw, path) as file:
                    for extracted in workers.map(extract_batch, batches(dump, min_words)):
                        file.write(extracted.text)
                        articles += extracted.articles
                        step(extracted.articles)
                raw.flush()
                os.fsync(raw.fileno())
            if not articles:
                raise MacaronError(f"{dump}: there is no article in it. Is it a ...-pages-articles.xml.bz2 of a wiki?")
            part.replace(path)
    except OSError as error:
        raise MacaronError(
            f"cannot write {path}: {error.strerror or error}. Make room for the text, or choose another data.root."
        ) from error
    return articles


def _compressed(raw: BinaryIO, path: Path) -> AbstractContextManager[IO[bytes]]:
    if path.suffix != ".gz":
        return nullcontext(raw)
    # A level at which one process keeps up with the parser; and no time in the header, so that the file repeats.
    return cast(IO[bytes], gzip.GzipFile(filename="", mode="wb", compresslevel=5, fileobj=raw, mtime=0))


def extract_batch(batch: Batch) -> Extracted:
    """The text of some articles; those that have none, or too little, are left out."""
    documents = []
    for markup in batch.pages:
        found = paragraphs(markup, batch.dropped)
        if found and (not batch.min_words or sum(len(line.split()) for line in found) >= batch.min_words):
            documents.append("".join([line + "\n" for line in found]) + "\n")
    return Extracted("".join(documents).encode("utf-8", "replace"), len(documents), len(batch.pages))


def batches(dump: Path, min_words: int = 0) -> Iterator[Batch]:
    """The markup of the articles of a dump, in its order; redirects and pages that are no articles are left out."""
    dropped = set(DROPPED_NAMESPACES)
    pages: list[str] = []
    size = 0
    for element in _elements(dump):
        if _name(element) == "namespace":
            if element.get("key") in (_MEDIA, _FILES, _CATEGORIES) and element.text:
                dropped.add(element.text.lower())
            continue
        markup = _article(element)
        if markup is None:
            continue
        pages.append(markup)
        size += len(markup)
        if size >= BATCH:
            yield Batch(pages, frozenset(dropped), min_words)
            pages, size = [], 0
    if pages:
        yield Batch(pages, frozenset(dropped), min_words)


def _elements(dump: Path) -> Iterator[ElementTree.Element]:
    """The pages and the names of namespaces, each forgotten when the next one comes."""
    try:
        with _open(dump) as file:
            events = ElementTree.iterparse(file, ("start", "end"))
            _, root = next(events)
            for event, element in events:
                if event == "end" and _name(element) in ("page", "namespace"):
                    yield element
                    if _name(element) == "page":
                        root.clear()
    except ElementTree.ParseError as error:
        line, column = error.position
        raise MacaronError(
            f"{dump}, line {line} of the XML, column {column + 1}: {error.msg.partition(':')[0]}. "
            "The dump is damaged: delete it, to fetch it again."
        ) from None
    except (EOFError, ValueError) as error:
        raise MacaronError(f"{dump}: cannot be read ({error}). Delete it, to fetch it again.") from None
    except OSError as error:
        # bz2 says "Invalid data stream" without a number.
        reason = error.strerror or f"{error}. Delete it, to fetch it again"
        raise MacaronError(f"{dump}: {reason}.") from None


def _open(dump: Path) -> IO[bytes]:
    # bz2 reads streams that follow one another, as in the multistream dumps.
    return bz2.open(dump, "rb") if dump.suffix == ".bz2" else open_binary(dump)


def _article(page: ElementTree.Element) -> str | None:
    """The markup of the last revision of an article; None for anything else."""
    markup: str | None = None
    for child in page:
        match _name(child):
            case "ns" if child.text != _ARTICLES:
                return None
            case "redirect":
                return None
            case "revision":
                for field in child:
                    if _name(field) == "model" and field.text != "wikitext":
                        return None
                    if _name(field) == "text":
                        markup = field.text
    return markup


def _name(element: ElementTree.Element) -> str:
    # The namespace of the XML goes up with the version of the export.
    return element.tag.rpartition("}")[2]
