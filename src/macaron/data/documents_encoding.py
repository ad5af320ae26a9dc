"""From the sentences of documents to subwords and ids: what workers do with the chunks that cleaning has written."""

from collections import Counter
from dataclasses import dataclass
from itertools import chain, compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macaron.data.documents import TextSplit
from macaron.data.encoding import word_encoder

#: Numbers of sentences, in the file beside the text.
COUNT = np.dtype("<u4")


@dataclass(frozen=True)
class HoldOut:
    """Which documents are held out to validate on: every so manieth. Of few documents two, so that there is another one
    to take a wrong next sentence from; of two or three only one.
    """

    every: int
    documents: int

    def valid(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Whether the documents of these numbers are held out."""
        if self.documents >= 2 * self.every:
            return (numbers + 1) % self.every == 0
        held = 2 if self.documents >= 4 else 1
        return np.isin(numbers, [(1 + place) * self.documents // (1 + held) for place in range(held)])


@dataclass(frozen=True)
class TextPiece:
    """Where one chunk lies in the file of sentences, and where in the file with their numbers.

    :param start: first byte, of ``size``
    :param first: first entry among the counts, of ``parts``: the number of sentences of each document, or part of one
    :param document: number of the first document; the others follow it
    """

    text: Path
    counts: Path
    start: int
    size: int
    first: int
    parts: int
    document: int

    def numbers(self) -> NDArray[np.int64]:
        """The number of every document that has a part here."""
        return np.arange(self.document, self.document + self.parts)

    def sizes(self) -> NDArray[np.int64]:
        """The number of sentences of each part."""
        offset = self.first * COUNT.itemsize
        return np.fromfile(self.counts, COUNT, self.parts, offset=offset).astype(np.int64)

    def sentences(self, wanted: NDArray[np.bool_]) -> list[str]:
        """The sentences of the parts that are wanted."""
        with self.text.open("rb") as file:
            file.seek(self.start)
            lines = file.read(self.size).decode().split("\n")
        lines.pop()  # what follows the last line end
        return list(compress(lines, np.repeat(wanted, self.sizes()).tolist()))


def count_text(task: tuple[TextPiece, HoldOut]) -> tuple[Counter[str], int]:
    """Count the words that are trained on, and their sentences."""
    piece, hold_out = task
    sentences = piece.sentences(~hold_out.valid(piece.numbers()))
    return Counter(chain.from_iterable(map(str.split, sentences))), len(sentences)


@dataclass(frozen=True)
class EncodeText:
    """A chunk, and the tokenizer to encode it with (see `macaron.data.encoding.EncodeTask`)."""

    piece: TextPiece
    hold_out: HoldOut
    tokenizer_file: Path
    fingerprint: str
    dtype: str
    raw: bool


@dataclass(frozen=True)
class EncodedText:
    """The sentences of a chunk that go to one split, flat, and the documents that they belong to."""

    ids: NDArray[Any]
    lengths: NDArray[np.int64]
    numbers: NDArray[np.int64]
    sizes: NDArray[np.int64]


def encode_text(task: EncodeText) -> dict[TextSplit, EncodedText]:
    """Encode the sentences of a chunk, without special tokens."""
    encoder = word_encoder(task.tokenizer_file, task.fingerprint, task.dtype, task.raw, False)
    numbers, sizes = task.piece.numbers(), task.piece.sizes()
    valid = task.hold_out.valid(numbers)
    encoded: dict[TextSplit, EncodedText] = {}
    wanted: tuple[tuple[TextSplit, NDArray[np.bool_]], ...] = (("train", ~valid), ("valid", valid))
    for split, mine in wanted:
        if mine.any():
            ids, lengths = encoder.encode(task.piece.sentences(mine))
            encoded[split] = EncodedText(ids, lengths, numbers[mine], sizes[mine])
    return encoded
