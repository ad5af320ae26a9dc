"""The running text of a page in wiki markup: no templates, tables, lists, headings, references, files or categories.

BERT's authors used "only the text passages" of Wikipedia, and so do we. Every step is linear in the length of the page.
Markup that is opened and never closed loses its brackets, not the rest of the page.
"""

import html
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import chain

#: Namespaces whose links are dropped. A dump names them in its own language as well.
DROPPED_NAMESPACES = frozenset(("file", "image", "category", "media"))

#: Elements that are removed with their contents. Of all others only the tags are removed.
_ELEMENTS = (
    "ref|references|math|chem|ce|gallery|timeline|score|imagemap|hiero|syntaxhighlight|source|code|pre|table|style|"
    "templatestyles|mapframe|maplink|graph|poem|includeonly|noinclude|section|indicator|categorytree|inputbox"
)
_ELEMENT = re.compile(rf"<(/?)\s*({_ELEMENTS})\b([^<>]*)>", re.IGNORECASE)

#: Templates and links anywhere, tables at the beginning of a line.
_BRACKET = re.compile(r"(?P<open>\{\{|\[\[|^[ \t:]*\{\|)|(?:\}\}|\]\]|^[ \t]*\|\}(?!\}))", re.MULTILINE)
_KINDS = {"{{": "template", "}}": "template", "[[": "link", "]]": "link"}
_INTERWIKI = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_REDIRECT = re.compile(r"\s*#\s*redirect\b", re.IGNORECASE)

#: Templates that are part of their sentence, and the arguments that are kept.
_KEPT = {
    **dict.fromkeys(("lang", "transl", "transliteration"), (2,)),
    **dict.fromkeys(("nowrap", "nobr", "abbr", "small", "em", "as of"), (1,)),
    **dict.fromkeys(("convert", "cvt"), (1, 2)),
}
_MARKS = {"snd": " – ", "spnd": " – ", "ndash": "–", "endash": "–", "mdash": "—", "emdash": "—", "'": "'", "nbsp": " "}
_PARAMETER = re.compile(r"\{\{\{[^{}]*\}\}\}")

#: Markup inside a line: external links, line breaks, other tags, magic words, bold and italics.
_INLINE = (
    (re.compile(r"\[(?:(?:https?:|ftp:)?//|mailto:)[^\s\[\]]+([^\[\]\n]*)\]", re.IGNORECASE), r"\1"),
    (re.compile(r"<\s*/?\s*(?:br|hr|p|div|li|td|tr)\b[^<>]*>", re.IGNORECASE), " "),
    (re.compile(r"</?[a-zA-Z][^<>]*>"), ""),
    (re.compile(r"__[A-Z]{3,}__"), ""),
    (re.compile(r"'{2,}"), ""),
)
#: Remains of removed markup: empty brackets, spaces before a comma.
_TIDY = (
    (re.compile(r"[(\[]\s*(?:[,;:/|–-]\s*)*[)\]]"), ""),
    (re.compile(r"([(\[])\s*(?:[,;:]\s*)+"), r"\1"),
    (re.compile(r"(?<![\s,;–—])(?:\s*+[,;–—])++\s*([)\]])"), r"\1"),
    (re.compile(r"\s+([,.;:!?)\]])"), r"\1"),
    (re.compile(r"([(\[])\s+"), r"\1"),
    (re.compile(r",(?:\s*,)+"), ","),
)
_LETTER = re.compile(r"[^\W\d_]")


def paragraphs(markup: str, dropped: Collection[str] = DROPPED_NAMESPACES) -> list[str]:
    """The paragraphs of a page, one line each; none for a redirect.

    :param dropped: namespaces whose links are removed with their text, in lower case
    """
    if _REDIRECT.match(markup):
        return []
    closed, end, rest = markup.rpartition("-->")  # before it every comment ends: no search is in vain
    text = _COMMENT.sub("", closed + end) + rest
    text = _without_brackets(_PARAMETER.sub("", _without_elements(text)), dropped)
    return _lines(html.unescape(_substituted(text, _INLINE)))


def _without_elements(text: str) -> str:
    """Remove the elements whose contents are not text. Of one that is not closed, only the tag."""
    tags = list(_ELEMENT.finditer(text))
    closing: dict[str, list[re.Match[str]]] = {}
    for tag in tags:
        if tag[1]:
            closing.setdefault(tag[2].lower(), []).append(tag)
    kept, position = [], 0
    for tag in tags:
        if tag.start() < position:
            continue
        kept.append(text[position : tag.start()])
        position = tag.end()
        if not tag[1] and not tag[3].endswith("/"):
            closers = closing.get(tag[2].lower(), [])
            following = bisect_right(closers, tag.start(), key=re.Match.start)
            if following < len(closers):
                position = closers[following].end()
    return "".join([*kept, text[position:]])


def _without_brackets(text: str, dropped: Collection[str]) -> str:
    """Replace templates, tables and links by what is read of them, inner ones first.

    A bracket without its partner is removed. Inside a pair of another kind it is ordinary text.
    """
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
    """The text of the few templates that are part of a sentence."""
    name, *given = inside.split("|")
    name = name.strip().lower()
    kept, arguments = _KEPT.get(name, ()), [argument for argument in given if "=" not in argument]
    if not kept or len(arguments) < max(kept):
        return _MARKS.get(name, "")
    text = " ".join([arguments[number - 1] for number in kept])
    return f"As of {text}" if name == "as of" else text


def _link(inside: str, dropped: Collection[str]) -> str:
    target, _, rest = inside.partition("|")
    namespace, colon, _ = target.partition(":")
    if colon and namespace.strip().lower() in dropped:
        return ""
    if colon and not rest and _INTERWIKI.fullmatch(namespace):  # the same page in another language
        return ""
    shown = rest.rpartition("|")[2] if rest else ""
    return shown.strip() or target.strip().lstrip(":")


def _lines(text: str) -> list[str]:
    """Adjacent lines are one paragraph; headings, lists and remains of tables are left out."""
    found: list[str] = []
    parts: list[str] = []
    for given in (*text.split("\n"), ""):
        line = " ".join(given.split())
        if line and line[0] not in "=*#:;|!{}" and not line.startswith("----"):
            parts.append(line)
            continue
        if parts:
            paragraph = " ".join(_substituted(" ".join(parts), _TIDY).split())
            if _LETTER.search(paragraph):
                found.append(paragraph)
            parts = []
    return found


def _substituted(text: str, substitutions: Iterable[tuple[re.Pattern[str], str]]) -> str:
    for pattern, replacement in substitutions:
        text = pattern.sub(replacement, text)
    return text
