"""The queue of the engine: sentences of all requests, which take turns, and batches of sentences of like length.

Whose turn it is gives its longest sentence; then every request of the same kind offers the one that is nearest in
length, round after round, as long as the padded batch is within its budget. Who has given something goes to the end
of the line. So a request waits for at most one batch for each of those before it, however long their texts are.
"""

import asyncio
import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Requests that are asked for a batch, from the front of the line: who waits there is not passed by many.
_ASKED = 128


class BatchKind(NamedTuple):
    """What sentences have in common that may share a batch; the options of the task are JSON."""

    model: str
    task: str
    options: str


@dataclass(eq=False)
class Sentence:
    """A sentence, or the whole input of a task that is not translation. Its length is in characters."""

    content: Any
    length: int
    answer: "asyncio.Future[Any]"


@dataclass(eq=False)
class Work:
    """What a request wants.

    :param waiting: its sentences, by length
    :param turn: characters that it has translated at a turn, about, as long as it stands in the line
    """

    kind: BatchKind
    waiting: list[Sentence]
    length: int = field(init=False)
    turn: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.waiting = sorted(self.waiting, key=lambda each: each.length)
        self.length = sum(each.length for each in self.waiting)

    def nearest(self, length: int) -> int:
        """The index of the sentence that is nearest to a length. There is one."""
        place = bisect_left(self.waiting, length, key=lambda each: each.length)
        around = [i for i in (place - 1, place) if 0 <= i < len(self.waiting)]
        return min(around, key=lambda i: abs(self.waiting[i].length - length))


class TurnQueue:
    """See the module."""

    def __init__(self) -> None:
        self._line: dict[Work, None] = {}  # in the order of their turns
        #: Characters by kind of one turn of each request: what is before a request of one sentence.
        self.turns: dict[BatchKind, float] = {}

    def __len__(self) -> int:
        return len(self._line)

    @property
    def sentences(self) -> int:
        """How many wait."""
        return sum(len(work.waiting) for work in self._line)

    def add(self, work: Work) -> None:
        """Put a request at the end of the line."""
        if work.waiting:
            self._line[work] = None
            work.turn = work.length / len(work.waiting)
            self.turns[work.kind] = self.turns.get(work.kind, 0) + work.turn

    def discard(self, work: Work) -> None:
        """Take a request out, with what it has waiting."""
        if work in self._line:
            del self._line[work]
            self.turns[work.kind] -= work.turn
            if not self._line:
                self.turns.clear()  # rounding, too

    def ahead_of(self, work: Work) -> Mapping[BatchKind, float]:
        """What is translated before a new request is done, in characters by kind, itself not counted.

        Requests take turns: as long as it has sentences waiting, each of the others gets about as many translated.
        """
        if len(work.waiting) <= 1:
            return self.turns
        found: dict[BatchKind, float] = {}
        for other in self._line:
            shared = min(len(work.waiting), len(other.waiting))
            found[other.kind] = found.get(other.kind, 0) + shared * other.turn
        return found

    def take(self, budget: float, most: float = math.inf) -> tuple[BatchKind, list[Sentence]]:
        """The next batch, and its kind. The queue is not empty.

        :param budget: characters of a batch, padding included; one sentence may have more
        :param most: sentences of a batch
        """
        first = next(iter(self._line))
        sharing = [work for work in self._line if work.kind == first.kind][:_ASKED]
        batch = [first.waiting.pop()]
        size = longest = batch[0].length
        served = {first: size}  # characters
        while True:
            before = len(batch)
            offers = [(work.nearest(size), work) for work in sharing if work.waiting]
            for index, work in sorted(offers, key=lambda each: abs(each[1].waiting[each[0]].length - size)):
                padded = max(longest, work.waiting[index].length)
                if padded * (len(batch) + 1) <= budget and len(batch) < most:
                    longest = padded
                    batch.append(work.waiting.pop(index))
                    served[work] = served.get(work, 0) + batch[-1].length
            if len(batch) == before:
                break
        for work, given in served.items():
            self.discard(work)
            work.length -= given
            self.add(work)
        return first.kind, batch
