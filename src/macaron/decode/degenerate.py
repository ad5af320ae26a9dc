"""Degenerate translations: repetition that the source does not have is cut, and what was cut is reported."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from operator import eq

from macaron.decode.search import limit
from macaron.decode.settings import Hypothesis, Note, SearchSettings

#: Limits of a translation in tokens, its end not counted: a constant, and a number for each token of the source.
SPARE_TOKENS, TOKENS_PER_TOKEN = 25, 3.0
#: The minimum repetitions of a loop, the minimum tokens of all of them, and the maximum length of one.
_REPEATS, _SPAN, _PERIOD = 5, 12, 24
#: Line numbers that a report names.
_NAMED = 10
_MESSAGES: dict[Note, str] = {
    "repetition": "the translation repeated itself and was cut",
    "length": "the translation reached its longest length and was cut",
    "long sentence": "a sentence was too long for the model and was translated in parts",
    "long word": "a word was too long for the model and was kept as it is",
}


@lru_cache(maxsize=16)
def bounded(settings: SearchSettings) -> SearchSettings:
    """Settings whose limit depends on the source: no translation is many times longer than it."""
    longest = settings.max_length
    return replace(settings, max_length=min(SPARE_TOKENS, longest), max_ratio=TOKENS_PER_TOKEN, longest=longest)


def without_repetition(found: Hypothesis, source: Sequence[int], settings: SearchSettings) -> Hypothesis:
    """Cut loops that are not in the source (ids, with the end); note what this or the limit has cut. The text stays."""
    tokens, scores = list(found.tokens[:-1]), list(found.token_scores[:-1])
    notes: tuple[Note, ...] = ("length",) if len(tokens) >= limit(settings, len(source)) else ()
    # In the source they are counted only if there are any, which is rare.
    in_source = 0 if _loop(tokens, _REPEATS) is None else max((loop[2] for loop in loops(source)), default=1)
    while in_source and (loop := _loop(tokens, max(_REPEATS, 2 * in_source + 1))) is not None:
        start, period, repeats = loop
        first, last = start + in_source * period, start + repeats * period
        if len(tokens) - last < period:  # the rest is the beginning of one more repetition
            last = len(tokens)
        del tokens[first:last], scores[first:last]
        notes = ("repetition",)
    if not notes:
        return found
    scores.append(found.token_scores[-1])
    score = sum(scores) / len(scores) ** settings.length_penalty
    return replace(found, score=score, tokens=(*tokens, found.tokens[-1]), token_scores=tuple(scores), notes=notes)


def _loop(tokens: Sequence[int], repeats: int) -> tuple[int, int, int] | None:
    """The shortest loop with at least this many repetitions that is long enough to be one."""
    if len(tokens) < _SPAN or max(Counter(tokens).values()) < repeats:  # nearly all sentences
        return None
    return next((loop for loop in loops(tokens) if loop[2] >= repeats and loop[1] * loop[2] >= _SPAN), None)


def loops(tokens: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Parts of the sequence that repeat: their start, their period in tokens, and how often they occur in a row."""
    for period in range(1, min(_PERIOD, len(tokens) // 2) + 1):
        start = 0
        for equal, group in groupby(map(eq, tokens, tokens[period:])):
            run = sum(1 for _ in group)
            if equal and run >= period:
                yield start, period, run // period + 1
            start += run


class NotedLines:
    """Lines with something to report, by kind; the first of each kind are named."""

    def __init__(self) -> None:
        self.numbers: dict[Note, list[int]] = {}

    def add(self, number: int, notes: Iterable[Note]) -> None:
        """Count a line by its number."""
        for note in notes:
            self.numbers.setdefault(note, []).append(number)

    def messages(self, what: str = "line") -> Iterator[str]:
        """A sentence for each kind."""
        for note, numbers in self.numbers.items():
            named = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
            yield f"{len(numbers):,} {what}{'' if len(numbers) == 1 else 's'} ({named}): {_MESSAGES[note]}"
