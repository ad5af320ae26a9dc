"""Lines that are too long for a model: where to cut them."""

import re
from collections.abc import Callable, Iterator
from typing import Literal

LongLines = Literal["split", "refuse", "truncate"]

#: Where to cut, best first: after a sentence, after a clause, between words.
_PLACES = (
    re.compile(r"(?<=[.!?…])[\"'»”’)\]]*\s+|(?<=[。！？])"),
    re.compile(r"(?<=[,;:–—])\s+|(?<=[，、；：])"),
    re.compile(r"\s+"),
)


def pieces(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Cut a text into parts that fit, each cut at the best kind of place, as near to the middle as there is one.

    :param text: without white space at its ends
    :param fits: whether a text is short enough for the model
    """
    if fits(text) or len(text) < 2:
        return [text]
    cut = _cut(text)
    return [*pieces(text[:cut].strip(), fits), *pieces(text[cut:].strip(), fits)]


def longest_start(text: str, fits: Callable[[str], bool]) -> list[str]:
    """The longest beginning that fits, ending between words if it can, as the only part."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle]) else (low, middle - 1)
    if low == len(text):
        return [text]
    words = text[:low] if text[low : low + 1].isspace() else text[:low].rpartition(" ")[0]
    return [words.rstrip() or text[:low]]


def _cut(text: str) -> int:
    for place in _PLACES:
        nearest = min(_inner(place, text), key=lambda at: abs(at - len(text) / 2), default=None)
        if nearest is not None:
            return nearest
    return len(text) // 2


def _inner(place: re.Pattern[str], text: str) -> Iterator[int]:
    # The text has no white space at its ends: both sides of a cut inside hold something.
    return (match.end() for match in place.finditer(text) if match.end() < len(text))
