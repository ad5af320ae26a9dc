"""The running text of a page in wiki markup: no templates, tables, lists, headings, references, files or categories.

BERT's authors used "only the text passages" of Wikipedia, and so do we. Every step is linear in the length of the page.
Markup that is opened and never closed loses its brackets, not the rest of the page.
"""

import html
import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator

#: Namespaces whose links are dropped. A dump names them in its own language as well.
DROPPED_NAMESPACES = frozenset(("file", "image", "category", "media"))

#: Elements that are removed with their contents. Of all others only the tags are removed.
_ELEMENTS = (
    "ref|references|math|chem|ce|gallery|timeline|score|imagemap|hiero|syntaxhighlight|source|code|pre|table|style|"
    "templatestyles|mapframe|maplink|graph|poem|includeonly|noinclude|section|indicator|categorytree|inputbox"
)
_ELEMENT = re.compile(rf"<(/?)\s*({_ELEMENTS})\b([^<>]*)>", re.IGNORECASE)

#: Templates and parameters anywhere, tables at the beginning of a line.
_BRACE = re.compile(r"(?P<open>\{\{|^[ \t:]*\{\|)|(?P<close>\}\}|^[ \t]*\|\}(?!\}))", re.MULTILINE)
_SQUARE = re.compile(r"\[\[|\]\]")
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
_INNERMOST = re.compile(r"\{\{([^{}|]*)((?:\|[^{}]*)?)\}\}")

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
    text = _without(text, _elements(text))
    text = _INNERMOST.sub(_in_sentence, _PARAMETER.sub("", text))
    text = _without(text, _templates_and_tables(text))
    return _lines(html.unescape(_substituted(_links(text, dropped), _INLINE)))


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Remove spans, which are in the order of their starts and may be nested."""
    kept, position = [], 0
    for start, end in spans:
        if start >= position:
            kept.append(text[position:start])
        position = max(position, end)
    return "".join([*kept, text[position:]])


def _elements(text: str) -> Iterator[tuple[int, int]]:
    """The elements whose contents are not text. Of one that is not closed, only the tag."""
    tags = list(_ELEMENT.finditer(text))
    closing: dict[str, list[re.Match[str]]] = {}
    for tag in tags:
        if tag[1]:
            closing.setdefault(tag[2].lower(), []).append(tag)
    position = 0
    for tag in tags:
        if tag.start() < position:
            continue
        position = tag.end()
        if not tag[1] and not tag[3].endswith("/"):
            closers = closing.get(tag[2].lower(), [])
            following = bisect_right(closers, tag.start(), key=re.Match.start)
            if following < len(closers):
                position = closers[following].end()
        yield tag.start(), position


def _in_sentence(template: re.Match[str]) -> str:
    """The text of the few templates that are part of a sentence; all others are returned, to be removed later."""
    name = template[1].strip().lower()
    if name in _MARKS:
        return _MARKS[name]
    kept = _KEPT.get(name)
    arguments = [argument for argument in _arguments(template[2]) if "=" not in argument] if kept else []
    if kept is None or len(arguments) < max(kept):
        return template[0]
    text = " ".join([arguments[number - 1] for number in kept])
    return f"As of {text}" if name == "as of" else text


def _arguments(text: str) -> list[str]:
    """The arguments of a template; a bar inside a link does not end one."""
    arguments: list[str] = []
    for part in text.split("|")[1:]:
        if arguments and arguments[-1].count("[[") > arguments[-1].count("]]"):
            arguments[-1] += "|" + part
        else:
            arguments.append(part)
    return arguments


def _templates_and_tables(text: str) -> list[tuple[int, int]]:
    """Templates and tables, nested ones included, and braces that are not closed."""
    templates: list[tuple[int, int]] = []
    tables: list[tuple[int, int]] = []
    gone: list[tuple[int, int]] = []
    for brace in _BRACE.finditer(text):
        mine, others = (templates, tables) if brace[0] in ("{{", "}}") else (tables, templates)
        if brace["open"]:
            mine.append(brace.span())
            continue
        start = brace.start()
        if mine:
            start, _ = mine.pop()
            # An open bracket inside it is ordinary text.
            while others and others[-1][0] > start:
                others.pop()
        gone.append((start, brace.end()))
    return sorted([*gone, *templates, *tables])


def _links(text: str, dropped: Collection[str]) -> str:
    """Replace links by their text; files and categories are removed, with the links in their captions."""
    levels: list[list[str]] = [[]]
    position = 0
    for bracket in _SQUARE.finditer(text):
        levels[-1].append(text[position : bracket.start()])
        position = bracket.end()
        if bracket[0] == "[[":
            levels.append([])
        elif len(levels) > 1:
            inside = "".join(levels.pop())
            levels[-1].append(_link(inside, dropped))
    levels[-1].append(text[position:])
    return "".join(["".join(level) for level in levels])


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
