"""From cleaned text to subwords and ids: what workers do with the chunks that cleaning has written."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, compress
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from macaron.data.duplicates import TRAIN, VALID
from macaron.processes import Workers
from macaron.text.vocabulary import EOS

#: The trainer of `tokenizers` holds about 120 bytes for every byte of a distinct word, so that a big corpus is
#: sampled: these limits mean 1 GB, and about a minute. A corpus of IWSLT14's size (160,000 pairs) is far below both.
MAX_TYPE_BYTES = 8_000_000
MAX_WORDS = 50_000_000
#: Words whose ids a worker remembers, at some 200 bytes each.
MAX_KNOWN = 300_000


@dataclass(frozen=True)
class Piece:
    """Where one chunk lies in the two files of cleaned text, and what becomes of its lines.

    :param starts: first byte in the source and the target file
    :param sizes: number of bytes in each
    :param roles: one byte a pair, see `macaron.data.duplicates`
    """

    files: tuple[Path, Path]
    starts: tuple[int, int]
    sizes: tuple[int, int]
    roles: bytes

    def lines(self, side: int, role: int) -> list[str]:
        """The lines of a side that have a role."""
        with self.files[side].open("rb") as file:
            file.seek(self.starts[side])
            text = file.read(self.sizes[side]).decode()
        lines = text.split("\n")
        lines.pop()  # what follows the last line end
        return list(compress(lines, [value == role for value in self.roles]))


@dataclass(frozen=True)
class WordCounts:
    """What the subword vocabulary is learned from: how often each word occurs in so many lines (pairs of them)."""

    counts: Mapping[str, int]
    lines: int


AnyPiece = TypeVar("AnyPiece")


def count_words(
    workers: Workers, pieces: Sequence[AnyPiece], count: Callable[[AnyPiece], tuple[Counter[str], int]]
) -> WordCounts:
    """Count the words that are trained on, up to the limits, chunk by chunk in a shuffled order.

    Without limits in the way everything is counted; otherwise a sample that is the same in every run.

    :param count: counts the words and the lines of one piece
    """
    order = list(range(len(pieces)))
    Random(len(pieces)).shuffle(order)
    counts: dict[str, int] = {}
    lines = words = size = 0
    results = workers.map(count, (pieces[index] for index in order))
    for found, more in results:
        for word, times in found.items():
            if word in counts:
                counts[word] += times
            else:
                counts[word] = times
                size += len(word.encode())
        words += found.total()
        lines += more
        if size > MAX_TYPE_BYTES or words > MAX_WORDS:
            break
    results.close()
    return WordCounts(counts, lines)


def count_pairs(piece: Piece) -> tuple[Counter[str], int]:
    """Count the words of both sides, and the pairs."""
    counts: Counter[str] = Counter()
    for side in (0, 1):
        counts.update(chain.from_iterable(map(str.split, piece.lines(side, TRAIN))))
    return counts, piece.roles.count(TRAIN)


def repeated_words(counts: Mapping[str, int], raw: bool) -> Iterator[str]:
    """Lines in which every word occurs as often as it was counted: `tokenizers` takes no counts, only text."""
    line: list[str] = []
    length = 0
    for word, times in counts.items():
        step = max(1, 4096 // (len(word) + 1))  # lines of about 4 kB
        for done in range(0, times, step):
            repeat = min(step, times - done)
            line.extend([word] * repeat)
            length += repeat * (len(word) + 1)
            if length >= 4096:
                yield _line(line, raw)
                line, length = [], 0
    if line:
        yield _line(line, raw)


def _line(words: list[str], raw: bool) -> str:
    # In raw text a word has its space in front.
    return " " + " ".join(words) if raw else " ".join(words)


@dataclass(frozen=True)
class EncodeTask:
    """A chunk, and the tokenizer to encode it with; the fingerprint keeps an older file's from being used.

    :param raw: the lines are of the ``raw`` pipeline
    """

    piece: Piece
    tokenizer_file: Path
    fingerprint: str
    dtype: str
    raw: bool


Side = tuple[NDArray[Any], NDArray[np.int64]]


def encode_piece(task: EncodeTask) -> dict[int, tuple[Side, Side]]:
    """The ids and lengths of both sides, by role (training, or held out to validate on)."""
    encoder = word_encoder(task.tokenizer_file, task.fingerprint, task.dtype, task.raw)
    return {
        role: (encoder.encode(task.piece.lines(0, role)), encoder.encode(task.piece.lines(1, role)))
        for role in (TRAIN, VALID)
        if role in task.piece.roles
    }


class WordEncoder:
    """Encodes prepared lines word by word, and remembers the words: text repeats itself.

    A subword never crosses a space, so that the ids of a line are those of its words, one after the other. Ten times
    faster than the tokenizer itself, and the same (but for runs of spaces, which it is given whole).

    :param end: put ``</s>`` at the end of every line
    """

    def __init__(self, backend: Any, dtype: str, raw: bool, end: bool = True) -> None:
        self.backend, self.dtype, self.raw = backend, np.dtype(dtype), raw
        self._known: dict[str, bytes] = {}
        self._end = np.array([EOS], self.dtype).tobytes() if end else b""

    def encode(self, lines: Sequence[str]) -> Side:
        """The ids of all lines, flat; and their lengths."""
        # In raw text every word has its space in front, and the line begins with one. Moses' words have none.
        words = [line[1:].split(" ") if self.raw else line.split(" ") for line in lines]
        self._learn(set(chain.from_iterable(words)))
        known = self._known
        rows = [b"".join([known[word] for word in line]) + self._end if line != [""] else self._end for line in words]
        if self.raw:
            for index, line in enumerate(lines):
                if "  " in line:
                    rows[index] = self._ids([line])[0] + self._end
        lengths = np.fromiter(map(len, rows), np.int64, len(rows)) // self.dtype.itemsize
        return np.frombuffer(b"".join(rows), self.dtype), lengths

    def _learn(self, words: set[str]) -> None:
        if len(self._known) + len(words) > MAX_KNOWN:
            self._known.clear()
        new = [word for word in words if word not in self._known]
        space = " " if self.raw else ""
        self._known.update(zip(new, self._ids([space + word for word in new]), strict=True))

    def _ids(self, texts: list[str]) -> list[bytes]:
        encodings = self.backend.encode_batch_fast(texts, add_special_tokens=False)
        return [np.array(encoding.ids, self.dtype).tobytes() for encoding in encodings]


@lru_cache(maxsize=1)
def word_encoder(path: Path, fingerprint: str, dtype: str, raw: bool, end: bool = True) -> WordEncoder:
    """The encoder of a tokenizer's file, kept from one task to the next; the fingerprint tells files apart."""
    # The subword model alone, without transformers: a worker needs no more, and starts in a tenth of a second.
    from tokenizers import Tokenizer

    backend = Tokenizer.from_file(str(path))
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = True  # "</s>" in a text is text
    return WordEncoder(backend, dtype, raw, end)
