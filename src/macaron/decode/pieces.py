"""Pieces of a text, and the cutting of sentences that are too long for a model."""

import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import NamedTuple

from macaron.decode.settings import Note
from macaron.errors import MacaronError
from macaron.text.sentence_splitter import SPACELESS

LongLines = OneOf["split", "refuse", "truncate"]
END = 1  # `</s>`, which every source ends with
#: Boundaries to cut a long sentence at, best first: sentences, clauses, words.
_BOUNDARIES = (
    re.compile(r"(?<=[.!?…])[\"'»”’)\]]*\s+|(?<=[。！？])"),
    re.compile(r"(?<=[,;:–—])\s+|(?<=[，、；：])"),
    re.compile(r"\s+"),
)


class Literal(NamedTuple):
    """A part of a sentence that its translation has unchanged: an address, an emoji, a long number, code.

    :param at: its place in the sentence as it was; ``text`` is what stood there
    :param start: where in the sentence that is translated something short stands for it, or nothing; ``end`` likewise
    """

    at: int
    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Piece:
    """A part of a text: a sentence to translate, its white space normalised, or text that is kept as it is.

    :param source: the sentence as it was, if it has literals
    :param parts: what it is cut into, if it is too long
    """

    text: str
    kept: bool = False
    literals: tuple[Literal, ...] = ()
    source: str = ""
    parts: tuple["Piece", ...] = ()

    @property
    def original(self) -> str:
        """The sentence as it was."""
        return self.source or self.text


class LineRefused(MacaronError):
    """A line is too long and was to be refused; nothing has been translated.

    :param index: its index among the given lines, so that those before it can still be translated
    """

    def __init__(self, message: str, index: int) -> None:
        super().__init__(message)
        self.index = index


@dataclass(frozen=True)
class FittedText:
    """The pieces of a text, the token ids of its sentences, each with its end, and what to note about the text."""

    pieces: list[Piece]
    sources: list[list[int]]
    notes: list[Note]


def parts_that_fit(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """Cut a sentence into parts that fit, each at the best kind of boundary, as near to the middle as possible.

    A word that does not fit is kept, untranslated: it is no word of a language. Scripts without spaces are cut
    anywhere.

    :param text: without white space at its ends
    """
    if fits(text) or len(text) < 2:
        return [Piece(text)]
    cut = _cut(text)
    if cut is None:
        return [Piece(text, kept=True)]
    left, right = text[:cut].rstrip(), text[cut:].lstrip()
    space = [Piece(" ", kept=True)] if len(left) + len(right) < len(text) else []
    return [*parts_that_fit(left, fits), *space, *parts_that_fit(right, fits)]


def longest_start(text: str, fits: Callable[[str], bool]) -> list[Piece]:
    """The longest beginning that fits, ending between words if possible, as the only part."""
    end = bisect_left(range(1, len(text) + 1), True, key=lambda end: not fits(text[:end]))
    words = text[:end] if end == len(text) or text[end].isspace() else text[:end].rpartition(" ")[0]
    return [Piece(words.rstrip() or text[:end])]


def _cut(text: str) -> int | None:
    for boundary in _BOUNDARIES:
        # The text has no white space at its ends: both sides of a cut inside are non-empty.
        inside = [match.end() for match in boundary.finditer(text) if match.end() < len(text)]
        if inside:
            return min(inside, key=lambda at: abs(at - len(text) / 2))
    return len(text) // 2 if SPACELESS.search(text) else None
