"""The articles of a Wikipedia dump (``...-pages-articles.xml.bz2``) as plain text.

One paragraph per line, a blank line between articles, as `macaron prepare` reads it. The dump is streamed: one process
decompresses and parses it, the others remove the markup, and memory does not grow with its size.
"""

import gzip
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from macaron.data.prepare.wikitext import DROPPED_NAMESPACES, paragraphs
from macaron.errors import MacaronError
from macaron.files import atomic_file, open_binary
from macaron.limits import Bounded
from macaron.processes import Progress, Workers

IS_IT = "Is it a ...-pages-articles.xml.bz2 of a wiki?"
#: Numbers of namespaces, the same in every language.
_ARTICLES, _MEDIA, _FILES, _CATEGORIES = "0", "-2", "6", "14"
#: Characters of a batch, about: what one worker does at a time.
BATCH = 1 << 20
#: Bytes and elements of a page in the XML. Wikipedia's limit of an article is 2 MiB.
LARGEST_PAGE, MOST_ELEMENTS = 1 << 24, 100_000
#: The markup of some articles, and the namespaces whose links are dropped with their text.
PageBatch = tuple[list[str], frozenset[str]]


def extract_dump(dump: Path, path: Path, workers: Workers, progress: Progress, *, min_words: int = 0) -> int:
    """Write the text of a dump to a file, ``.gz`` or plain. The file appears when it is complete.

    :return: the number of articles
    """
    articles = 0
    with (
        progress.step(f"extracting the text of {dump.name}", "articles") as step,
        atomic_file(path) as raw,
        # A level at which one process keeps up with the parser; no time in the header: the file is reproducible.
        gzip.GzipFile("", "wb", compresslevel=5, fileobj=raw, mtime=0)
        if path.suffix == ".gz"
        else nullcontext(raw) as file,
    ):
        for text, count in workers.map(partial(extract_batch, min_words=min_words), batches(dump)):
            file.write(text)
            articles += count
            step(count)
        if not articles:
            raise MacaronError(f"{dump}: there is no article in it. {IS_IT}")
    return articles


def extract_batch(batch: PageBatch, min_words: int) -> tuple[bytes, int]:
    """The text of some articles, and their number; those with too few words are left out."""
    pages, dropped = batch
    documents = []
    for markup in pages:
        found = paragraphs(markup, dropped)
        if found and (not min_words or sum(len(line.split()) for line in found) >= min_words):
            documents.append("".join([line + "\n" for line in found]) + "\n")
    return "".join(documents).encode("utf-8", "replace"), len(documents)


def batches(dump: Path) -> Iterator[PageBatch]:
    """The markup of the articles of a dump, in its order; redirects and other pages are left out."""
    dropped = set(DROPPED_NAMESPACES)
    pages: list[str] = []
    size = 0
    for element in _elements(dump):
        if _name(element) == "namespace":
            if element.get("key") in (_MEDIA, _FILES, _CATEGORIES) and element.text:
                dropped.add(element.text.lower())
            continue
        fields = {_name(each): each.text for each in element.iter()}  # of a page; those of its last revision
        is_article = fields.get("ns") in (_ARTICLES, None) and fields.get("model") in ("wikitext", None)
        markup = fields.get("text")
        if markup is None or not is_article or "redirect" in fields:
            continue
        pages.append(markup)
        size += len(markup)
        if size >= BATCH:
            yield pages, frozenset(dropped)
            pages, size = [], 0
    if pages:
        yield pages, frozenset(dropped)


def _elements(dump: Path) -> Iterator[ElementTree.Element]:
    """The pages and the names of namespaces; each is freed when the next one is read."""
    remedy = "Delete it to fetch it again."
    try:
        # bz2 reads concatenated streams, as in the multistream dumps.
        message = f"{dump}: a page has more than {LARGEST_PAGE:,} bytes. {IS_IT}"
        with open_binary(dump, remedy) as file:
            stream, depth, elements = Bounded(file, LARGEST_PAGE, message, block=BATCH), 1, 0
            events = ElementTree.iterparse(stream, ("start", "end"))
            _, root = next(events)
            for event, element in events:
                depth += 1 if event == "start" else -1
                elements += 1
                if event == "end" and _name(element) in ("page", "namespace"):
                    yield element
                    elements = 0
                if depth == 1:
                    root.clear()
                    stream.left = LARGEST_PAGE
                if elements > 2 * MOST_ELEMENTS:
                    raise MacaronError(f"{dump}: a page has more than {MOST_ELEMENTS:,} elements. {IS_IT}")
    except ElementTree.ParseError as error:
        line, column = error.position
        raise MacaronError(
            f"{dump}, line {line} of the XML, column {column + 1}: {error.msg.partition(':')[0]}. "
            f"The dump is damaged. {remedy}"
        ) from None
    except (ValueError, LookupError) as error:  # LookupError: an unknown encoding
        raise MacaronError(f"{dump}: cannot be read ({error}). {remedy}") from None


def _name(element: ElementTree.Element) -> str:
    # The namespace of the XML changes with the version of the export.
    return element.tag.rpartition("}")[2]
