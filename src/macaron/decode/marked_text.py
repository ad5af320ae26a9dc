"""A block of text with tags in it, whose translation has the tags around the words that they belonged to.

    ``Das <b>rote</b> Haus.``  ->  ``Das rote Haus.``  ->  ``The red house.``  ->  ``The <b>red</b> house.``

A block knows where in its document each character stands. Only sentences whose translation differs are replaced; all
else, tags and entities included, stays as it is, character for character. No tag is lost, and tags that were
balanced stay balanced.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from macaron.decode.pieces import Piece
from macaron.decode.place_tags import Alignment, Element, Span, Word, place_tags, word_spans
from macaron.decode.text_pieces import cut_at, places, text_pieces
from macaron.limits import MOST_TAGS
from macaron.text.pipeline import State


@dataclass(frozen=True)
class AlignedText:
    """The translation of a sentence, and its alignment if there is one."""

    text: str
    alignment: Alignment | None = None


class Tag(NamedTuple):
    """A tag, or other markup, between two characters of a block.

    :param at: characters of the block before it
    :param start: its place in the document; `end` likewise
    :param name: empty for markup that does not come in pairs
    """

    at: int
    start: int
    end: int
    name: str = ""
    closing: bool = False


class TextBlock:
    """A part of a document that is translated on its own: plain text, kept apart from the rest."""

    def __init__(self, document: str, start: int, end: int) -> None:
        self.document, self.start, self.end = document, start, end
        self.pieces: list[Piece] = []

    def split(self, lang: str, state: State) -> None:
        """Find the pieces."""
        self.pieces = text_pieces(self.document[self.start : self.end], lang, state)

    def marked(self, at: int, piece: Piece) -> bool:
        """Whether the translation of a piece, at a place of the block, needs an alignment for its tags."""
        return False

    def join(self, made: Sequence[tuple[Piece, AlignedText | None]], texts: Sequence[str]) -> str:
        """The translated block.

        :param made: the pieces that were chosen, with their translations
        :param texts: these as texts, with the space between them
        """
        return "".join(texts)


class MarkedBlock(TextBlock):
    """Text with tags. Its white space is normalised: the pieces are exactly the text.

    :param escape: makes text of a translation part of the document
    """

    def __init__(self, document: str, start: int, escape: Callable[[str], str]) -> None:
        super().__init__(document, start, start)
        self.escape = escape
        self.letters: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.tags: list[Tag] = []
        self.literals: list[Span] = []
        self.partners: list[int | None] = []
        self.places: list[int] = []

    # Building

    def add(self, text: str, start: int, end: int) -> None:
        """Append a space, or characters; one that is written as several, such as an entity, keeps them together."""
        if text.isspace():
            if not self.letters:
                return
            apart = self.tags and self.tags[-1].at == len(self.letters)
            if self.letters[-1] == " ":
                self.ends[-1] = self.ends[-1] if apart else end
                return
            text = " "
        same = len(text) == end - start
        self.letters += text
        self.starts += range(start, end) if same else [start] + [end] * (len(text) - 1)
        self.ends += range(start + 1, end + 1) if same else [end] * len(text)

    def add_tag(self, start: int, end: int, name: str = "", closing: bool = False) -> None:
        """Append a tag."""
        self.tags.append(Tag(len(self.letters), start, end, name, closing))

    def add_literal(self, text: str, start: int, end: int) -> None:
        """Append text that stays as it is, in markup that stays, too."""
        at = len(self.letters)
        self.letters += text
        self.starts += [start] + [end] * (len(text) - 1)
        self.ends += [end] * len(text)
        self.literals.append((at, len(self.letters)))

    def split(self, lang: str, state: State) -> None:
        """Find the pieces, the pairs of tags, and what has to come through unchanged."""
        self.partners, self.places = _partners(self.tags), [tag.at for tag in self.tags]
        at = first = 0
        for piece in text_pieces("".join(self.letters), lang, state):
            end = at + len(piece.text)
            while first < len(self.literals) and self.literals[first][1] <= at:
                first += 1
            after = bisect_left(self.literals, (end, 0), lo=first)
            inside = [(max(start, at), min(stop, end)) for start, stop in self.literals[first:after]]
            if inside and not piece.kept:
                spans = _merged([*inside, *_literals(piece, at)])
                self.pieces += cut_at(piece.text, [(start - at, stop - at) for start, stop in spans])
            else:
                self.pieces.append(piece)
            at = end
        self.pieces = [piece for piece in self.pieces if piece.text]

    # Translating

    def marked(self, at: int, piece: Piece) -> bool:
        """Whether the piece has tags inside."""
        first, last, _, _ = self._taken(at, at + len(piece.text))
        return first < last

    def join(self, made: Sequence[tuple[Piece, AlignedText | None]], texts: Sequence[str]) -> str:
        """The block, with the sentences replaced that are not what they were."""
        parts: list[str] = []
        cursor, at = self.start, 0
        for (piece, best), text in zip(made, texts, strict=True):
            if text != piece.text:
                first, last, start, end = self._taken(at, at + len(piece.text))
                parts.append(self.document[cursor:start])
                parts.append(self._with_tags(at, piece, text, best.alignment if best else None, range(first, last)))
                cursor = end
            at += len(piece.text)
        return "".join([*parts, self.document[cursor : self.end]])

    def _taken(self, at: int, end: int, around: bool = False) -> tuple[int, int, int, int]:
        """The tags that belong to characters of the block, and the part of the document that both fill.

        At the ends these are the tags whose partner is inside; those around all of it only if asked for.
        """
        before, first = bisect_left(self.places, at), bisect_right(self.places, at)
        last, after = bisect_left(self.places, end), bisect_right(self.places, end)
        start, stop = self.starts[at], self.ends[end - 1]
        for index in range(before, first):
            partner = self.partners[index]
            if partner is not None and partner > index and at < self.places[partner] < end + around:
                first, start = index, self.tags[index].start
                break
        for index in reversed(range(last, after)):
            partner = self.partners[index]
            if partner is not None and first <= partner < index and self.places[partner] < end:
                last, stop = index + 1, self.tags[index].end
                break
        return first, last, start, stop

    def _with_tags(self, at: int, piece: Piece, text: str, alignment: Alignment | None, tags: range) -> str:
        """A translation with its tags, escaped."""
        literals: list[tuple[int, int, str]] = []
        words: list[Word] = []
        left = set(tags)
        found: Counter[str] = Counter()
        for start, end in _literals(piece, at):
            first, last, begin, stop = self._taken(start, end, around=True)
            literal, markup = piece.text[start - at : end - at], self.document[begin:stop]
            where = places(literal, text)[found[literal] :]
            found[literal] += 1
            if markup != literal and where and text.startswith(literal, where[0]):
                literals.append((where[0], where[0] + len(literal), markup))
                words.append(Word(where[0], where[0] + len(literal), (start + end) / 2))
                left -= set(range(first, last))
        loose, elements = self._elements(sorted(left))
        if alignment is not None:
            links = [(*link.target, at + sum(link.source) / 2) for link in alignment.links]
        else:  # one element takes the whole sentence; several are distributed in order
            pairs = [element for element in elements if element.start < element.end]
            scale = len(piece.text) / max(len(text), 1)
            links = [(start, end, at + (start + end) / 2 * scale) for start, end in word_spans(text)]
            if len(pairs) == 1:
                links = [(start, end, pairs[0].start) for start, end, _ in links]
        taken = sorted(literals)
        for start, end, origin in links:
            index = bisect_left(taken, (end, 0, ""))
            if index == 0 or taken[index - 1][1] <= start:
                words.append(Word(start, end, origin))
        placed = place_tags(text, sorted(words), elements, literals, self.escape)
        front = any(not tag.closing for tag in loose)
        markup = "".join(self.document[tag.start : tag.end] for tag in loose)
        return markup + placed if front else placed + markup

    def _elements(self, tags: Sequence[int]) -> tuple[list[Tag], list[Element]]:
        """The tags whose partners are elsewhere, which go to an end of the sentence, and the others as elements."""
        if len(tags) > MOST_TAGS:
            return [self.tags[index]._replace(closing=False) for index in tags], []
        inside = set(tags)
        loose: list[Tag] = []
        levels: list[list[Element]] = [[]]
        for index in tags:
            tag, partner = self.tags[index], self.partners[index]
            markup = self.document[tag.start : tag.end]
            if not tag.name:
                levels[-1].append(Element(tag.at, tag.at, markup))
            elif partner not in inside or partner is None:
                loose.append(tag)
            elif tag.closing:
                levels.pop()
            else:
                other = self.tags[partner]
                element = Element(tag.at, other.at, markup, self.document[other.start : other.end])
                levels[-1].append(element)
                levels.append(element.children)
        return loose, levels[0]


def _partners(tags: Sequence[Tag]) -> list[int | None]:
    """For each tag the index of the one that it makes a pair with."""
    partners: list[int | None] = [None] * len(tags)
    opened: list[int] = []
    names: Counter[str] = Counter()
    for index, tag in enumerate(tags):
        if tag.name and not tag.closing:
            opened.append(index)
            names[tag.name] += 1
        elif tag.name and names[tag.name]:
            while True:  # tags that are still open inside have no partner
                other = opened.pop()
                names[tags[other].name] -= 1
                if tags[other].name == tag.name:
                    break
            partners[index], partners[other] = other, index
    return partners


def _literals(piece: Piece, at: int) -> list[Span]:
    """The places of a sentence's literals in its block."""
    ends = accumulate(len(part.text) for part in piece.parts)
    return [(at + end - len(part.text), at + end) for part, end in zip(piece.parts, ends, strict=True) if part.literal]


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
