"""How large things may be: the limits of files and settings, each stated once. Nobody should ever meet one.

They are for damaged and hostile files, and checked before anything is allocated.
"""

import io
import math
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from macaron.errors import MacaronError

#: Bytes of a recipe, and of a JSON file unless its reader gives another limit.
LARGEST_TOML, LARGEST_JSON = 1 << 20, 16 << 20
#: Levels of sections and lists in each other, and items of a list in a recipe.
DEEPEST, MOST_ITEMS = 50, 1000
#: Whole numbers in a file. (transformers' model_max_length has 31 digits.)
_LARGEST_NUMBER = 10**40

#: What may be unpacked, times the size of the file. Text is seldom a tenth of its size when packed.
RATIO = 100
#: Bytes of a name in a path: what file systems allow.
LONGEST_NAME = 255
#: Hypotheses of a search, or samples of a sentence.
MOST_BEAMS = 1024
#: Tokens of a text, and characters of one in a table.
LONGEST_TEXT, LONGEST_VALUE = 100_000, 1_000_000
#: Tokens, padding included, and examples of a batch.
MOST_TOKENS, MOST_EXAMPLES = 10**8, 10**5
#: Processes or threads; seeds of one command.
MOST_PROCESSES, MOST_SEEDS = 1024, 1000
#: Bytes of a document to translate, and tags inside one of its sentences that are placed among the words.
LARGEST_DOCUMENT, MOST_TAGS = 64 << 20, 64
#: Entries of a vocabulary.
LARGEST_VOCABULARY = 1_000_000
#: Classes of a classifier.
MOST_LABELS = 100_000
#: Texts of a request to the server.
MOST_TEXTS = 1000
#: Sub-steps of a scheme.
MOST_STEPS = 1000
#: Sizes in the configuration of a model.
MODEL_SIZES: dict[str, int] = {
    "vocab_size": LARGEST_VOCABULARY,
    **tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")),
}


@dataclass(frozen=True)
class Between:
    """The range of a number: ``beam: Annotated[int, Between(1, 1000)]``. NaN is in none."""

    least: float
    most: float

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most

    def check(self, name: str, value: float) -> None:
        """Refuse a number outside, by this name."""
        if value not in self:
            limit = f"at most {self.most:,}" if value > self.most else f"at least {self.least:,}"
            raise MacaronError(f"{name} must be {limit}, not {value}")


class Bounded(io.RawIOBase):
    """A stream of which only so many bytes are read; then it raises a MacaronError."""

    # `block` is the least that is read at once: expat begins anew with every block of a long token.
    def __init__(self, file: IO[bytes], most: int, message: str, block: int = 1) -> None:
        self.file, self.left, self.message, self.block = file, most, message, block

    def readable(self) -> bool:
        """A stream to read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        content = self.file.read(size if size < 0 else max(size, self.block))
        self.left -= len(content)
        if self.left < 0:
            raise MacaronError(self.message)
        return content

    def readinto(self, buffer: Any) -> int:
        """The next bytes, into a buffer."""
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def read_limited(path: Path, largest: int, encoding: str = "utf-8-sig") -> str:
    """The text of a UTF-8 file, without a byte order mark; ValueError if it is not UTF-8, or larger than some bytes."""
    with path.open("rb") as file:
        content = file.read(largest + 1)  # not the size that the system tells: a pipe has none
    if len(content) > largest:
        raise ValueError(f"the file is larger than the limit of {largest:,} bytes")
    return content.decode(encoding)


def check_limits(content: Any, finite: bool = False, items: float = math.inf) -> None:
    """Refuse what no file of ours holds: huge numbers, strings that are no text (ValueError), nesting (RecursionError).

    :param finite: refuse numbers that are not finite, too
    """
    level = [content]
    for _ in range(DEEPEST):
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below += each.values()
                below += each
            elif isinstance(each, list):
                below += each
                if len(each) > items:
                    raise ValueError(f"a list has more than {items:,} items")
            elif isinstance(each, str):
                each.encode()  # half a pair of surrogates is no text
                if "\0" in each:
                    raise ValueError("a string has the character NUL")
            elif isinstance(each, int) and not -_LARGEST_NUMBER < each < _LARGEST_NUMBER:
                raise ValueError("a number has more than 40 digits")
            elif finite and isinstance(each, float) and not math.isfinite(each):
                raise ValueError("a number is not finite")
        level = below
    if level:
        raise RecursionError


def why(error: ValueError | RecursionError) -> str:
    """What is wrong with a file that cannot be parsed."""
    if isinstance(error, RecursionError):
        return f"more than {DEEPEST} levels of nesting"
    if isinstance(error, UnicodeError):
        return f"not UTF-8 text: {error}"
    return str(error).partition("; use sys")[0]  # without Python's advice for a number of thousands of digits
