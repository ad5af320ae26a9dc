"""Settings and results of a search. No torch here: recipes are checked without it."""

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from macaron.errors import MacaronError
from macaron.limits import LONGEST_TEXT, MOST_BEAMS

Stop = Literal["early", "late", "late-reference"]
#: What a user should know about a translation.
Note = Literal["repetition", "length", "long sentence", "long word"]


@dataclass(frozen=True)
class Sampling:
    """Draw tokens instead of searching for the best.

    A sentence has random numbers of its own, made from the seed and its index in the input: its samples depend neither
    on the batch nor on the device.

    :param temperature: below 1 sharper than the model, above 1 flatter
    :param top_k: draw among this many best tokens; 0: all
    :param top_p: draw among the best tokens that together have this probability
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0 < self.temperature < math.inf, "above 0 (greedy search is beam 1)")
        _check("top_k", self.top_k, 0 <= self.top_k < 2**31, "0 (all tokens) or more")
        _check("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1")
        _check("seed", self.seed, 0 <= self.seed < 2**63, "0 or more, and below 2^63")


@dataclass(frozen=True)
class SearchSettings:
    """How to search; the defaults are those of the authors' code.

    :param beam: hypotheses kept; 1 is greedy search; with ``sampling`` the number of samples of a sentence
    :param length_penalty: a hypothesis scores log-probability / length^penalty, its end counted in the length;
        0: no division
    :param max_length: the longest translation in tokens, its end not counted
    :param max_ratio: tokens added to that limit for each token of the source, its end counted
    :param longest: no translation is longer than this, however long its source; None: no such limit
    :param min_length: tokens before the end
    :param stop: when a sentence is finished. ``early``: as soon as ``beam`` hypotheses are; ``late``: when no open one
        could still be among the ``beam`` best; ``late-reference``: as ``late`` in the authors' code, which loses the
        first hypothesis after the first ``beam``
    """

    beam: int = 5
    length_penalty: float = 1.0
    max_length: int = 200
    max_ratio: float = 0.0
    longest: int | None = None
    min_length: int = 1
    stop: Stop = "early"
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        _check("beam", self.beam, 1 <= self.beam <= MOST_BEAMS, f"from 1 to {MOST_BEAMS:,}")
        _check("length_penalty", self.length_penalty, abs(self.length_penalty) <= 1000, "a finite number up to 1,000")
        _check("max_length", self.max_length, 1 <= self.max_length <= LONGEST_TEXT, f"from 1 to {LONGEST_TEXT:,}")
        _check("max_ratio", self.max_ratio, 0 <= self.max_ratio < math.inf, "0 or more")
        _check("min_length", self.min_length, self.min_length >= 0, "0 or more")
        if self.stop not in get_args(Stop):
            raise MacaronError(f"stop must be one of {', '.join(get_args(Stop))}, not {self.stop!r}")
        if self.min_length > self.max_length:
            raise MacaronError(f"min_length ({self.min_length}) is above max_length ({self.max_length})")


@dataclass(frozen=True)
class Hypothesis:
    """One translation: its score is log-probability / length^penalty, its tokens are ids with the end.

    :param token_scores: log-probabilities
    :param notes: what was cut or kept, see `macaron.decode.degenerate`
    """

    text: str
    score: float
    tokens: tuple[int, ...] = field(default=(), repr=False)
    token_scores: tuple[float, ...] = field(default=(), repr=False)
    notes: tuple[Note, ...] = field(default=(), repr=False)


def _check(name: str, value: float, good: bool, wanted: str) -> None:
    if not good:
        raise MacaronError(f"{name} must be {wanted}, not {value}")
