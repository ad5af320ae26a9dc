"""From cleaned text to subwords and ids: what workers do with the parts that cleaning has written."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, compress, islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macaron.data.prepare.cleaning import CleanedChunk
from macaron.data.prepare.roles import TRAIN, VALID, Roles
from macaron.data.store import id_dtype
from macaron.processes import Workers
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import EOS

#: The trainer of `tokenizers` needs about 120 bytes for every byte of a distinct word, so a big corpus is sampled:
#: these limits mean 1 GB, and about a minute. A corpus of IWSLT14's size (160,000 pairs) is far below both.
MAX_TYPE_BYTES = 8_000_000
MAX_WORDS = 50_000_000
#: Characters of a word that subwords are learned from: the trainer's time grows with the square of its length.
MAX_LETTERS = 1000
#: Words whose ids a worker remembers, at about 200 bytes each.
MAX_KNOWN = 300_000


@dataclass(frozen=True)
class CleanedPart:
    """The position of one chunk in the files of a `CleanedSplit`: first byte in that of each column, first row.

    :param corpus: index of the split's corpus that the chunk is from, and its tag
    """

    folder: Path
    offsets: tuple[int, ...]
    first: int
    rows: int
    corpus: tuple[int, str | None]

    def lines(self, chosen: NDArray[np.bool_]) -> Iterator[list[str]]:
        """The lines of each column that are chosen."""
        for column, offset in enumerate(self.offsets):
            with (self.folder / str(column)).open("rb") as file:
                file.seek(offset)
                yield [line[:-1].decode() for line in compress(islice(file, self.rows), chosen.tolist())]

    def bytes_of(self, name: str) -> Roles:
        """The bytes of these rows in a file with one byte per row."""
        return np.fromfile(self.folder / name, np.uint8, self.rows, offset=self.first)


@dataclass
class CleanedSplit:
    """The cleaned rows of a split, in a folder.

    0, 1        prepared lines, one file per column
    hashes      of pairs: see `CleanedChunk`
    starts      of sentences: one byte for each, 1 if a document starts with it
    roles       one byte per row (see `macaron.data.prepare.roles`)
    text.de     the given lines of pairs that are scored, one file per column

    :param sources: counts for each input, as the manifest has it
    :param ended: 1 if the next sentence starts a document
    """

    folder: Path
    rows: int = 0
    parts: list[CleanedPart] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    sources: list[dict[str, Any]] = field(default_factory=list)
    ended: int = 1

    def add(self, cleaned: CleanedChunk, offsets: tuple[int, ...], tag: str | None = None) -> bytes:
        """Note a chunk that is written at these offsets, after the others; return its document starts."""
        starts = bytearray(cleaned.starts)
        if cleaned.rows or not starts:
            number = len(self.sources)  # of the corpus: those before it are complete
            self.parts.append(CleanedPart(self.folder, offsets, self.rows, cleaned.rows, (number, tag)))
        if starts:
            starts[0] |= self.ended
            self.ended = starts.pop()
            self.counts["documents"] += sum(starts)
        self.rows += cleaned.rows
        self.counts.update(cleaned.counts)
        self.dropped.update(cleaned.dropped)
        return bytes(starts)


def count_words(workers: Workers, parts: Sequence[CleanedPart]) -> tuple[Counter[str], int]:
    """Count the words that are trained on, and the rows: up to the limits, a sample that is the same in every run."""
    shuffled = list(parts)
    Random(len(parts)).shuffle(shuffled)
    counts: Counter[str] = Counter()
    rows = words = size = 0
    results = workers.map(count_part, shuffled)
    for found, more in results:
        size += sum(len(word.encode()) for word in found if word not in counts)
        counts.update(found)
        words += found.total()
        rows += more
        if size > MAX_TYPE_BYTES or words > MAX_WORDS:
            break
    results.close()
    return counts, rows


def count_part(part: CleanedPart) -> tuple[Counter[str], int]:
    """Count the words of all columns, and the rows, that are trained on."""
    chosen = part.bytes_of("roles") == TRAIN
    lines = chain.from_iterable(part.lines(chosen))
    counts = Counter(chain.from_iterable(map(str.split, lines)))
    for word in [word for word in counts if len(word) > MAX_LETTERS]:
        del counts[word]
    return counts, int(chosen.sum())


#: Ids of several lines, flat, and the length of each line.
FlatIds = tuple[NDArray[Any], NDArray[np.int64]]
#: Encoded rows by column, and the indices of those with which documents start (None for pairs).
EncodedRows = tuple[list[FlatIds], NDArray[np.int64] | None]


def encode_part(part: CleanedPart, tokenizer: Path, fingerprint: str) -> dict[int, EncodedRows]:
    """Encode a part; the rows by role (training, or held out to validate on)."""
    encoder = word_encoder(tokenizer, fingerprint)
    tags = (part.corpus[1], None)
    roles, starts = part.bytes_of("roles"), part.bytes_of("starts")
    encoded: dict[int, EncodedRows] = {}
    for role in (TRAIN, VALID):
        chosen = roles == role
        if chosen.any():
            columns = [encoder.encode(lines, tag) for lines, tag in zip(part.lines(chosen), tags, strict=False)]
            encoded[role] = columns, np.flatnonzero(starts[chosen]) if len(starts) else None
    return encoded


class WordEncoder:
    """Encodes prepared lines word by word, and remembers the words: text repeats itself.

    A subword never crosses a space, so the ids of a line are the concatenated ids of its words. This is ten times as
    fast as the tokenizer (which gets lines with runs of spaces). Lines to translate end with ``</s>``.
    """

    def __init__(self, tokenizer: MacaronTokenizer) -> None:
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_truncation()
        self.backend.no_padding()
        self.backend.encode_special_tokens = True  # "</s>" in a text is text
        self.raw, self.known_to_model = tokenizer.pipeline == "raw", tokenizer.known
        self.dtype = np.dtype(id_dtype(len(tokenizer)))
        self._known: dict[str, bytes] = {}
        self._end = np.array([EOS], self.dtype).tobytes() if tokenizer.kind == "translation" else b""

    def encode(self, lines: Sequence[str], tag: str | None = None) -> FlatIds:
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
        if tag is not None:
            front = np.array([self.backend.token_to_id(tag)], self.dtype).tobytes()
            rows = [front + row if row != self._end else row for row in rows]
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
        return [np.array(self.known_to_model(encoding.ids), self.dtype).tobytes() for encoding in encodings]


@lru_cache(maxsize=1)
def word_encoder(tokenizer: Path, fingerprint: str) -> WordEncoder:
    """The encoder of a tokenizer's folder, kept from one part to the next; the fingerprint tells folders apart."""
    return WordEncoder(MacaronTokenizer.from_pretrained(tokenizer))
