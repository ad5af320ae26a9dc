"""HTML as blocks of text with inline tags, found by the tokenizer's rules of the HTML standard.

What is not text of a block is never changed, so nothing has to be understood about it: broken markup stays as broken
as it was. Every token is found by one pass over the document.
"""

import re
from collections.abc import Iterator
from functools import partial
from html import escape, unescape
from typing import NamedTuple

from macaron.decode.marked_text import MarkedBlock

_VALUE = r"\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z)|(?![\"'>])[^ \t\n\f\r>]*+"
_ATTRIBUTE = rf"(=?[^ \t\n\f\r/>=]*+)(?:[ \t\n\f\r]*+=[ \t\n\f\r]*+({_VALUE}))?+"
#: A comment; other declarations and bogus comments; a tag. Markup that is not closed reaches to the end.
_MARKUP = re.compile(
    r"<!--(?:-?>|.*?(?:--!?>|\Z))"
    r"|<(?:[!?]|/(?![a-zA-Z]))[^>]*+(?:>|\Z)"
    r"|<(?P<close>/?)(?P<name>[a-zA-Z][^ \t\n\f\r/>]*+)"
    rf"(?P<attributes>(?:[ \t\n\f\r/]++|(?=[^>]){_ATTRIBUTE})*+)(?:>|\Z)",
    re.DOTALL,
)
_ATTRIBUTES = re.compile(_ATTRIBUTE)
#: Characters of text: references, white space, others. Numbers of many digits are no references.
_CHARACTERS = re.compile(r"&(?:#[0-9]{1,10}|#[xX][0-9a-fA-F]{1,10}|[a-zA-Z][a-zA-Z0-9]{0,31});?|\s+|[^&\s]+|&")
_SCRIPT = re.compile(r"<!--|-->|<(/?)script(?=[ \t\n\f\r/>])", re.IGNORECASE)

#: Elements that are parts of a sentence; all others end it.
_INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark math nobr output q s "  # noqa: SIM905
    "samp small span strike strong sub sup svg time tt u var wbr".split()
)
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
#: Elements whose content is not markup; only that of the title is text to translate.
_RAW = {"iframe", "noembed", "noframes", "plaintext", "script", "style", "textarea", "title", "xmp"}
_UNTOUCHED = (_RAW - {"title"}) | {"code", "kbd", "math", "pre", "samp", "svg"}
#: Text that stays as it is may be part of a sentence if it is short and ends none.
_SHORT = re.compile(r"(?:[^.!?…。！？]|[.!?…](?! )){1,100}")


class Token(NamedTuple):
    """A part of a document: text (without a name), a tag, or markup that is neither (its name is ``!``)."""

    start: int
    end: int
    name: str = ""
    closing: bool = False
    attributes: str = ""


def html_blocks(document: str) -> list[MarkedBlock]:
    """The blocks of an HTML document or fragment that have text to translate."""
    make = partial(MarkedBlock, document, escape=partial(escape, quote=False))
    blocks = [make(0)]
    tokens = _tokens(document)
    for token in tokens:
        block, end = blocks[-1], token.end
        inline = token.name in _INLINE
        if not token.name:
            for part in _characters(document, token):
                block.add(*part)
        elif token.name == "!":
            block.add_tag(token.start, end)
        elif not token.closing and _is_untouched(token):
            text, end = _skip(document, token, tokens)
            if inline and not text:
                block.add_tag(token.start, end)
            elif inline and _SHORT.fullmatch(text):
                block.add_literal(text, token.start, end)
            else:
                blocks.append(make(end))
        elif inline:
            block.add_tag(token.start, end, "" if token.name in _VOID else token.name, token.closing)
        else:
            blocks.append(make(end))
        block.end = end
    return [block for block in blocks if block.letters]


def _tokens(document: str) -> Iterator[Token]:
    at = 0
    while (found := _MARKUP.search(document, at)) is not None:
        if at < found.start():
            yield Token(at, found.start())
        name, closing = (found["name"] or "!").lower(), bool(found["close"])
        yield Token(found.start(), found.end(), name, closing, found["attributes"] or "")
        at = found.end()
        if name in _RAW and not closing:
            end = _end_of_raw(document, name, at)
            if at < end:
                yield Token(at, end, "" if name == "title" else "!")
            at = end
    if at < len(document):
        yield Token(at, len(document))


def _end_of_raw(document: str, name: str, at: int) -> int:
    """Where the content of an element ends that is not markup. Inside a comment, a script may have scripts."""
    if name != "script":
        end = re.compile(rf"</{name}(?=[ \t\n\f\r/>])", re.IGNORECASE).search(document, at)
        return len(document) if end is None or name == "plaintext" else end.start()
    comment = inner = False
    for found in _SCRIPT.finditer(document, at):
        if found[1] is None:
            comment, inner = found[0] == "<!--", False
        elif found[1] and not inner:
            return found.start()
        else:
            inner = comment and not found[1]
    return len(document)


def _is_untouched(token: Token) -> bool:
    if token.name in _UNTOUCHED:
        return True
    if token.name in _VOID or "translate" not in token.attributes.lower():
        return False
    # The first of several attributes with one name counts.
    found = {name.lower(): value.strip("\"'") for name, value in reversed(_ATTRIBUTES.findall(token.attributes))}
    return found.get("translate", "").lower() == "no" or "notranslate" in found.get("class", "").split()


def _skip(document: str, opened: Token, tokens: Iterator[Token]) -> tuple[str, int]:
    """The text of an element that stays as it is, and the element's end."""
    depth, end = 1, opened.end
    letters: list[str] = []
    for token in tokens:
        end = token.end
        if not token.name:
            letters += [text for text, _, _ in _characters(document, token)]
        elif token.name == opened.name:
            depth += -1 if token.closing else 1
        if not depth:
            break
    return " ".join("".join(letters).split()), end


def _characters(document: str, token: Token) -> Iterator[tuple[str, int, int]]:
    for part in _CHARACTERS.finditer(document, token.start, token.end):
        text = part[0]
        yield unescape(text) if text[0] == "&" else text, part.start(), part.end()
