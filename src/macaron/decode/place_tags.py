"""Tags in a translation: each around the words that render those it belonged to.

An alignment gives each word of the translation a place in the source. An element takes the run of words in which most
come from its own words; runs of siblings do not overlap, and those of children are inside their parent's. So the tags
stay balanced, whatever the alignment says.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

Span = tuple[int, int]
_WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]")
#: The order of marks at the same place.
_CLOSE, _POINT, _OPEN, _LITERAL = range(4)


class Link(NamedTuple):
    """A word of a translation and the word of the source that it renders, both as spans of characters."""

    source: Span
    target: Span


@dataclass(frozen=True)
class Alignment:
    """The words of a translation in order, each linked to a word of the source."""

    links: tuple[Link, ...]


class Word(NamedTuple):
    """A word of a translation, and the place in the source that it comes from."""

    start: int
    end: int
    origin: float


@dataclass
class Element:
    """A pair of tags around characters of the source, or markup between two of them.

    :param start: the first character; `end` the first one after it
    """

    start: int
    end: int
    opening: str
    closing: str = ""
    children: "list[Element]" = field(default_factory=list)

    def markup(self) -> str:
        """All its tags, without text."""
        return self.opening + "".join(child.markup() for child in self.children) + self.closing


def word_spans(text: str) -> list[Span]:
    """The words and the punctuation marks of a text."""
    return [match.span() for match in _WORD.finditer(text)]


def place_tags(
    text: str,
    words: Sequence[Word],
    elements: Sequence[Element],
    literals: Sequence[tuple[int, int, str]],
    escape: Callable[[str], str],
) -> str:
    """A translation with tags.

    :param elements: nested as they were; `words` are those of the translation
    :param literals: parts of the translation, each a word, and the markup that replaces it
    :param escape: makes text of the rest
    """
    marks = [(start, _LITERAL, end, markup) for start, end, markup in literals]
    _place(elements, words, 0, len(words), len(text), marks)
    parts: list[str] = []
    cursor = 0
    for at, _, end, markup in sorted(marks, key=lambda mark: mark[:2]):
        parts += [escape(text[cursor:at]), markup]
        cursor = end
    return "".join([*parts, escape(text[cursor:])])


def _place(
    elements: Sequence[Element],
    words: Sequence[Word],
    first: int,
    last: int,
    end: int,
    marks: list[tuple[int, int, int, str]],
) -> None:
    """Place elements among some words; ``end`` is where those go that find no place."""
    pairs = [element for element in elements if element.start < element.end]
    starts = [pair.start for pair in pairs]
    owners: list[int | None] = []
    for word in words[first:last]:
        index = bisect_right(starts, word.origin) - 1
        owners.append(index if index >= 0 and word.origin < pairs[index].end else None)
    for index, pair in enumerate(pairs):
        free = [place for place, owner in enumerate(owners) if owner is None]
        if index not in owners and free:  # nothing renders its words: the nearest word has to do
            middle = (pair.start + pair.end) / 2
            owners[min(free, key=lambda place: abs(words[first + place].origin - middle))] = index
    for index, pair in enumerate(pairs):
        start, stop = _best_run(owners, index)
        if start < stop:
            inside = words[first + start : first + stop]
            marks.append((inside[0].start, _OPEN, inside[0].start, pair.opening))
            _place(pair.children, words, first + start, first + stop, inside[-1].end, marks)
            marks.append((inside[-1].end, _CLOSE, inside[-1].end, pair.closing))
    found = {index for index in owners if index is not None}
    for point in [pair for index, pair in enumerate(pairs) if index not in found] + [
        element for element in elements if element.start == element.end
    ]:
        after = [word for word in words[first:last] if word.origin >= point.start]
        at = min(after, key=lambda word: word.origin).start if after else end
        marks.append((at, _POINT, at, point.markup()))


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
