"""Tags and literals in a translation: tags around the words that render those they belonged to.

An alignment gives each word of the translation a place in the source. An element takes the run of words in which most
come from its own words; runs of siblings do not overlap, and those of children are inside their parent's. So the tags
stay balanced, whatever the alignment says.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from macaron.settings import load_toml

Span = tuple[int, int]
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
#: The regular expressions of text, as strings.
PATTERNS: dict[str, str] = load_toml(Path(__file__).with_name("text_pieces.toml"))[0]
_NUMBER = re.compile(PATTERNS["number"])
#: In a translation a number may have other separators: 15000, 15,000; with decimals 1.234,56 and 1,234.56.
_SEPARATORS = re.compile(r"(?<=\d)[.,'’\s](?=\d{3})"), re.compile(r"(?<=\d)(?:[.,'’]|\s(?=\d{3}))(?=\d)")
#: The order of marks at the same place.
_CLOSE, _POINT, _OPEN, _LITERAL = range(4)
#: Markup in a translation: its place, its order there, the end of the text that it replaces, and the markup.
Mark = tuple[int, int, int, str]


class Link(NamedTuple):
    """A word of a translation and the word of the source that it renders, both as spans of characters."""

    source: Span
    target: Span


#: The words of a translation in order, each linked to a word of the source.
Alignment = tuple[Link, ...]


class Word(NamedTuple):
    """A word of a translation, and the place in the source that it comes from."""

    start: int
    end: int
    origin: float


@dataclass
class Element:
    """A pair of tags around characters of a sentence, markup between two of them, or a literal in their place.

    :param start: the first character; `end` the first one after it
    :param opening: the tag, the markup, or the literal
    """

    start: int
    end: int
    opening: str
    closing: str = ""
    children: "list[Element]" = field(default_factory=list)
    literal: bool = False

    def markup(self) -> str:
        """All its tags, without text."""
        return self.opening + "".join(child.markup() for child in self.children) + self.closing


def word_spans(text: str) -> list[Span]:
    """The words and the punctuation marks of a text."""
    return [match.span() for match in _WORD.finditer(text)]


def place_tags(
    sentence: str,
    text: str,
    alignment: Alignment | None,
    elements: Sequence[Element],
    escape: Callable[[str], str] = str,
) -> str:
    """The translation of a sentence with the tags and the literals of the sentence.

    A literal replaces what stood for it, if the translation has that; otherwise the words that are linked to it.
    Without an alignment, one element takes the whole sentence, and several are distributed in order.

    :param elements: nested as in the sentence
    """
    marks: list[Mark] = []
    words: list[Word] = []
    elements = _find_literals(sentence, text, elements, alignment is not None, marks, words)
    if alignment is not None:
        linked = [Word(*link.target, sum(link.source) / 2) for link in alignment]
    else:
        pairs = [element for element in elements if element.start < element.end]
        scale = len(sentence) / max(len(text), 1)
        linked = [Word(*span, sum(span) / 2 * scale) for span in word_spans(text)]
        if len(pairs) == 1:
            linked = [word._replace(origin=pairs[0].start) for word in linked]
    taken = {place for word in words for place in range(word.start, word.end)}
    words += [word for word in linked if taken.isdisjoint(range(word.start, word.end))]
    _place(elements, sorted(words), len(text), text, marks)
    parts: list[str] = []
    cursor = 0
    for at, _, end, markup in sorted(marks, key=itemgetter(0, 1)):
        parts += [escape(text[cursor:at]), markup]
        cursor = end
    return "".join([*parts, escape(text[cursor:])])


def _find_literals(
    sentence: str, text: str, elements: Sequence[Element], aligned: bool, marks: list[Mark], words: list[Word]
) -> list[Element]:
    """Put back the literals whose stand-ins are in the translation; the other elements."""
    left: list[Element] = []
    for element in elements:
        stand_in = sentence[element.start : element.end]
        if not element.literal:
            element.children = _find_literals(sentence, text, element.children, aligned, marks, words)
        elif stand_in:
            pattern = re.compile(rf"(?<!\w){re.escape(stand_in)}(?!\w)", re.IGNORECASE)
            number = is_number(stand_in)
            if number and element.opening == stand_in and _has_digits(text, stand_in):
                continue
            taken = {word.start for word in words}
            matches = [*pattern.finditer(text)] or [
                match for match in _NUMBER.finditer(text) if number and match[0] not in sentence
            ]
            found = next((match for match in matches if match.start() not in taken), None)
            if found is not None:
                marks.append((found.start(), _LITERAL, found.end(), element.opening))
                words.append(Word(*found.span(), (element.start + element.end) / 2))
                continue
            element.end = element.end if aligned else element.start
        left.append(element)
    return left


def is_number(text: str) -> bool:
    """Whether a literal is a number."""
    return _NUMBER.fullmatch(text) is not None


def _has_digits(text: str, number: str) -> bool:
    """Whether a number is in a text, perhaps with other separators."""
    digits = re.sub(r"\D", "", number)
    return any(re.search(rf"(?<!\w){digits}(?!\w)", each.sub("", text)) for each in _SEPARATORS)


def _place(elements: Sequence[Element], words: Sequence[Word], end: int, text: str, marks: list[Mark]) -> None:
    """Place elements among some words; ``end`` is where those go that find no place."""
    pairs = [element for element in elements if element.start < element.end]
    owners = [
        next((index for index, pair in enumerate(pairs) if pair.start <= word.origin < pair.end), None)
        for word in words
    ]
    for index, pair in enumerate(pairs):
        free = [place for place, owner in enumerate(owners) if owner is None]
        if index not in owners and free and not pair.literal:  # nothing renders its words: the nearest has to do
            owners[min(free, key=lambda place: abs(words[place].origin - (pair.start + pair.end) / 2))] = index
    points = [element for element in elements if element.start == element.end]
    for index, pair in enumerate(pairs):
        first, last = _best_run(owners, index)
        inside = words[first:last]
        if not inside:
            points.append(pair)
        elif pair.literal:
            marks.append((inside[0].start, _LITERAL, inside[-1].end, pair.opening))
        else:
            marks.append((inside[0].start, _OPEN, inside[0].start, pair.opening))
            _place(pair.children, inside, inside[-1].end, text, marks)
            marks.append((inside[-1].end, _CLOSE, inside[-1].end, pair.closing))
    for point in points:
        after = [word for word in words if word.origin >= point.start]
        at = min(after, key=lambda word: word.origin).start if after else end
        markup = point.markup()
        if point.literal:
            markup = f" {markup}" if text[:at] and not text[at - 1].isspace() else f"{markup} "
        marks.append((at, _POINT, at, markup))


def _best_run(owners: Sequence[int | None], own: int) -> Span:
    """The run with the most words of an owner in excess of words without one, and with none of another's."""
    best, most = (0, 0), 0
    start = excess = 0
    for place, owner in enumerate(owners):
        if owner not in (own, None) or (excess <= 0 and owner is None):
            start, excess = place + 1, 0
        elif owner is None:
            excess -= 1
        else:
            excess += 1
            if excess >= most:
                best, most = (start, place + 1), excess
    return best
