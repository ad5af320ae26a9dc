"""A block of text with tags in it, whose translation has the tags around the words that they belonged to.

    ``Das <b>rote</b> Haus.``  ->  ``Das rote Haus.``  ->  ``The red house.``  ->  ``The <b>red</b> house.``

A block knows where in its document each character stands. Only sentences whose translation differs are replaced; all
else, tags and entities included, stays as it is, character for character. No tag is lost, and tags that were
balanced stay balanced.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import NamedTuple

from macaron.decode.place_tags import Alignment, Element, Span, place_tags
from macaron.decode.text_pieces import Piece, restore, spaced_texts, text_pieces, with_literals
from macaron.limits import MOST_TAGS


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

    def split(self, lang: str) -> None:
        """Find the pieces."""
        self.pieces = text_pieces(self.document[self.start : self.end], lang)

    def marked(self, at: int, piece: Piece) -> bool:
        """Whether the translation of a piece, at a place of the block, needs an alignment."""
        return bool(piece.literals)

    def join(self, texts: Iterator[str], alignments: Iterator[Alignment | None], lang: str) -> str:
        """The translated block, given the translations of its sentences, which are taken from the iterators."""
        sentences = (piece for piece in self.pieces if not piece.kept)
        return "".join(spaced_texts(self.pieces, map(restore, sentences, texts, alignments), lang))


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
        #: For each tag the index of the one that it makes a pair with, or its own; and its place.
        self.partners: list[int] = []
        self.places: list[int] = []
        self.literals: list[Span] = []
        self._open: list[int] = []
        self._open_names: Counter[str] = Counter()

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
        index = len(self.tags)
        self.tags.append(Tag(len(self.letters), start, end, name, closing))
        self.places.append(len(self.letters))
        self.partners.append(index)
        if name and not closing:
            self._open.append(index)
            self._open_names[name] += 1
        while closing and self._open_names[name]:
            other = self._open.pop()  # tags that are still open inside have no partner
            self._open_names[self.tags[other].name] -= 1
            if self.tags[other].name == name:
                self.partners[index], self.partners[other] = other, index
                break

    def add_literal(self, text: str, start: int, end: int) -> None:
        """Append text that stays as it is, in markup that stays, too."""
        self.literals.append((len(self.letters), len(self.letters) + len(text)))
        self.add(text, start, end)

    def split(self, lang: str) -> None:
        """Find the pieces, and what has to come through unchanged."""
        at = 0
        for piece in text_pieces("".join(self.letters), lang):
            end = at + len(piece.original)
            inside = slice(bisect_right(self.literals, at, key=itemgetter(1)), bisect_left(self.literals, (end, 0)))
            spans = [(max(start - at, 0), min(stop, end) - at) for start, stop in self.literals[inside]]
            if spans and not piece.kept:
                spans += [(each.at, each.at + len(each.text.rstrip())) for each in piece.literals]
                self.pieces += with_literals(piece.original, _merged(spans))
            else:
                self.pieces.append(piece)
            at = end
        self.pieces = [piece for piece in self.pieces if piece.text]

    # Translating

    def marked(self, at: int, piece: Piece) -> bool:
        """Whether the piece has literals, or tags inside."""
        first, last, _, _ = self._taken(at, at + len(piece.original))
        return first < last or bool(piece.literals)

    def join(self, texts: Iterator[str], alignments: Iterator[Alignment | None], lang: str) -> str:
        """The block, with the sentences replaced that are not what they were."""
        parts: list[str] = []
        cursor, at = self.start, 0
        for piece, text in zip(self.pieces, spaced_texts(self.pieces, texts, lang), strict=True):
            alignment = None if piece.kept else next(alignments)
            if text != piece.text:
                first, last, start, end = self._taken(at, at + len(piece.original))
                loose, elements = self._elements(at, piece, range(first, last))
                placed = place_tags(piece.text, text, alignment, elements, self.escape)
                markup = "".join(self.document[tag.start : tag.end] for tag in loose)
                front = any(not tag.closing for tag in loose)
                parts += [self.document[cursor:start], markup + placed if front else placed + markup]
                cursor = end
            at += len(piece.original)
        return "".join([*parts, self.document[cursor : self.end]])

    def _taken(self, at: int, end: int, around: bool = False) -> tuple[int, int, int, int]:
        """The tags that belong to characters of the block, and the part of the document that both fill.

        At the ends these are the tags whose partner is inside; those around all of it only if asked for.
        """
        before, first = bisect_left(self.places, at), bisect_right(self.places, at)
        last, after = bisect_left(self.places, end), bisect_right(self.places, end)
        start, stop = self.starts[at], self.ends[end - 1]
        opening = [i for i in range(before, first) if at < self.places[self.partners[i]] < end + around]
        if opening:
            first, start = opening[0], self.tags[opening[0]].start
        closing = [i for i in range(last, after) if first <= self.partners[i] and self.places[self.partners[i]] < end]
        if closing:
            last, stop = closing[-1] + 1, self.tags[closing[-1]].end
        return first, last, start, stop

    def _elements(self, at: int, piece: Piece, tags: range) -> tuple[list[Tag], list[Element]]:
        """The tags whose partners are elsewhere, which go to an end of the sentence; the others, and the literals."""
        inside = set(tags)
        literals: list[tuple[int, Element]] = []  # with their ends in the sentence as it was
        for each in piece.literals:
            end = each.at + len(each.text)
            first, last, start, stop = self._taken(at + each.at, at + end, around=True)
            inside -= set(range(first, last))
            markup = self.document[start:stop].strip()
            literals.append((end, Element(each.start, each.end, markup, literal=True)))
        if len(inside) > MOST_TAGS:
            loose = [self.tags[index]._replace(closing=False) for index in sorted(inside)]
            return loose, [element for _, element in literals]
        loose = []
        levels: list[list[Element]] = [[]]
        shift = -at  # from places in the block to those in the sentence that is translated
        for index in sorted(inside):
            tag, partner = self.tags[index], self.partners[index]
            while literals and at + literals[0][0] <= tag.at:
                end, element = literals.pop(0)
                levels[-1].append(element)
                shift = element.end - end - at
            markup = self.document[tag.start : tag.end]
            if not tag.name:
                levels[-1].append(Element(tag.at + shift, tag.at + shift, markup))
            elif partner == index or partner not in inside:
                loose.append(tag)
            elif tag.closing:
                levels.pop()
                levels[-1][-1].end = tag.at + shift
            else:
                other = self.tags[partner]
                element = Element(tag.at + shift, tag.at + shift, markup, self.document[other.start : other.end])
                levels[-1].append(element)
                levels.append(element.children)
        levels[-1] += [element for _, element in literals]
        return loose, levels[0]


def _merged(spans: list[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
