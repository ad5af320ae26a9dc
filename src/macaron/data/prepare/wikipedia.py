"""The articles of a Wikipedia dump (``...-pages-articles.xml.bz2``) as plain text.

One paragraph per line, a blank line between articles, as `macaron prepare` reads it. One process decompresses and
parses the dump, the others remove the markup; memory does not grow with its size.

As for BERT only the running text is kept: no templates, tables, lists, headings, references, files or categories. Every
step is linear in the length of the page. Markup that is never closed loses its brackets, not the rest of the page.
"""

import gzip
import html
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from xml.etree import ElementTree

from macaron.errors import MacaronError, require
from macaron.files import atomic_file, open_binary
from macaron.limits import Bounded
from macaron.processes import Progress, Workers
from macaron.settings import load_toml

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
    """Write the text of a dump to a file, ``.gz`` or plain. The file appears when it is complete."""
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
        require(bool(articles), f"{dump}: there is no article in it. {IS_IT}")
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
        reason = f"column {column + 1}: {error.msg.partition(':')[0]}"
        raise MacaronError(f"{dump}, line {line} of the XML, {reason}. The dump is damaged. {remedy}") from None
    except (ValueError, LookupError) as error:  # LookupError: an unknown encoding
        raise MacaronError(f"{dump}: cannot be read ({error}). {remedy}") from None


def _name(element: ElementTree.Element) -> str:
    # The namespace of the XML changes with the version of the export.
    return element.tag.rpartition("}")[2]


_TABLES, _ = load_toml(Path(__file__).with_suffix(".toml"))
DROPPED_NAMESPACES = frozenset(_TABLES["dropped_namespaces"])
_ELEMENT = re.compile(rf"<(/?)\s*({'|'.join(_TABLES['elements'])})\b([^<>]*)>", re.IGNORECASE)
_INLINE, _TIDY = ([(re.compile(old), new) for old, new in _TABLES[name]] for name in ("inline", "tidy"))
_BRACKET, _COMMENT, _REDIRECT = (re.compile(_TABLES[name]) for name in ("bracket", "comment", "redirect"))
_PARAMETER, _INTERWIKI = (re.compile(_TABLES[name]) for name in ("parameter", "interwiki"))
_PROSE, _LETTER = (re.compile(_TABLES[name]) for name in ("prose", "letter"))
_KINDS = {"{{": "template", "}}": "template", "[[": "link", "]]": "link"}


def paragraphs(markup: str, dropped: Collection[str] = DROPPED_NAMESPACES) -> list[str]:
    """The paragraphs of a page, one line each; links to dropped namespaces (in lower case) go. None for a redirect."""
    if _REDIRECT.match(markup):
        return []
    closed, end, rest = markup.rpartition("-->")  # before it every comment ends: no search is in vain
    text = _COMMENT.sub("", closed + end) + rest
    text = _without_brackets(_PARAMETER.sub("", _without_elements(text)), dropped)
    return _lines(html.unescape(_substituted(text, _INLINE)))


def _without_elements(text: str) -> str:
    tags = list(_ELEMENT.finditer(text))
    closed: dict[str, int] = {}  # by name: the end of the nearest closing tag
    ends: list[int] = []
    for tag in reversed(tags):
        name = tag[2].lower()
        if tag[1]:
            closed[name] = tag.end()
        opens = not tag[1] and not tag[3].endswith("/")
        ends.append(closed.get(name, tag.end()) if opens else tag.end())
    kept, position = [], 0
    for tag, end in zip(tags, reversed(ends), strict=True):
        if tag.start() >= position:
            kept.append(text[position : tag.start()])
            position = end
    return "".join([*kept, text[position:]])


def _without_brackets(text: str, dropped: Collection[str]) -> str:
    # Templates, tables and links become what is read of them, inner ones first. A bracket without its partner is
    # removed. Inside a pair of another kind it is ordinary text.
    levels: list[tuple[str, list[str]]] = [("", [])]  # the kind of each open bracket, and the text after it
    opened: Counter[str] = Counter()
    position = 0
    for bracket in _BRACKET.finditer(text):
        levels[-1][1].append(text[position : bracket.start()])
        position = bracket.end()
        kind = _KINDS.get(bracket[0], "table")
        if bracket["open"]:
            levels.append((kind, []))
            opened[kind] += 1
        elif opened[kind]:
            closed = [levels.pop()]
            while closed[-1][0] != kind:
                closed.append(levels.pop())
            opened.subtract(each for each, _ in closed)
            inside = "".join(chain.from_iterable(parts for _, parts in reversed(closed)))
            read = _template(inside) if kind == "template" else _link(inside, dropped) if kind == "link" else ""
            levels[-1][1].append(read)
    levels[-1][1].append(text[position:])
    return "".join(chain.from_iterable(parts for _, parts in levels))


def _template(inside: str) -> str:
    name, *given = inside.split("|")
    name = name.strip().lower()
    kept, arguments = _TABLES["kept"].get(name, ()), [argument for argument in given if "=" not in argument]
    if not kept or len(arguments) < max(kept):
        return str(_TABLES["marks"].get(name, ""))
    text = " ".join([arguments[number - 1] for number in kept])
    return f"As of {text}" if name == "as of" else text


def _link(inside: str, dropped: Collection[str]) -> str:
    target, _, rest = inside.partition("|")
    namespace, colon, _ = target.partition(":")
    interwiki = not rest and _INTERWIKI.fullmatch(namespace)  # the same page in another language
    if colon and (interwiki or namespace.strip().lower() in dropped):
        return ""
    shown = rest.rpartition("|")[2] if rest else ""
    return shown.strip() or target.strip().lstrip(":")


def _lines(text: str) -> list[str]:
    lines = (" ".join(line.split()) for line in text.split("\n"))
    joined = (" ".join(run) for prose, run in groupby(lines, lambda line: bool(_PROSE.match(line))) if prose)
    tidied = (" ".join(_substituted(paragraph, _TIDY).split()) for paragraph in joined)
    return [paragraph for paragraph in tidied if _LETTER.search(paragraph)]


def _substituted(text: str, substitutions: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in substitutions:
        text = pattern.sub(replacement, text)
    return text
