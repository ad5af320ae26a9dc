"""Settings and results of a search. No torch here: recipes are checked without it."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from macaron.errors import MacaronError
from macaron.limits import LONGEST_TEXT, MOST_BEAMS, Between
from macaron.settings import check_fields

#: What a user should know about a translation.
Note = Literal["repetition", "length", "long sentence", "long word"]


@dataclass(frozen=True)
class Sampling:
    """Draw tokens instead of searching for the best.

    A sentence has random numbers of its own, made from the seed and its index in the input: its samples depend neither
    on the batch nor on the device.

    :param temperature: below 1 sharper than the model, above 1 flatter; greedy search is a beam of 1
    :param top_k: draw among this many best tokens; 0: all
    :param top_p: draw among the best tokens that together have this probability
    """

    temperature: Annotated[float, Between(1e-9, 1e9)] = 1.0
    top_k: Annotated[int, Between(0, 2**31 - 1)] = 0
    top_p: Annotated[float, Between(1e-12, 1)] = 1.0
    seed: Annotated[int, Between(0, 2**63 - 1)] = 0

    def __post_init__(self) -> None:
        check_fields(self)


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

    beam: Annotated[int, Between(1, MOST_BEAMS)] = 5
    length_penalty: Annotated[float, Between(-1000, 1000)] = 1.0
    max_length: Annotated[int, Between(1, LONGEST_TEXT)] = 200
    max_ratio: Annotated[float, Between(0, 1e9)] = 0.0
    longest: int | None = None
    min_length: Annotated[int, Between(0, LONGEST_TEXT)] = 1
    stop: Literal["early", "late", "late-reference"] = "early"
    sampling: Sampling | None = None

    def __post_init__(self) -> None:
        check_fields(self)
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
