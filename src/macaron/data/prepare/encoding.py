"""From cleaned text to subwords and ids: what workers do with the parts that cleaning has written."""

from collections import Counter
from collections.abc import Mapping, Sequence
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
from macaron.data.settings import PairsSettings, TextSettings
from macaron.data.store import id_dtype
from macaron.processes import Workers
from macaron.text.extension import extended, repeated_words
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import EOS

#: The trainer of `tokenizers` needs about 120 bytes for every byte of a distinct word, so a big corpus is sampled:
#: these limits mean 1 GB, and about a minute. A corpus of IWSLT14's size (160,000 pairs) is far below both.
MAX_TYPE_BYTES = 8_000_000
MAX_WORDS = 50_000_000
#: Words whose ids a worker remembers, at about 200 bytes each.
MAX_KNOWN = 300_000


@dataclass(frozen=True)
class CleanedPart:
    """The position of one chunk in the files of cleaned text.

    :param files: prepared lines, one file per column
    :param offsets: first byte in each file
    :param corpus: index of the split's corpus that the chunk is from, and its tag
    :param roles: file with one byte per row (see `macaron.data.prepare.roles`)
    :param starts: file with one byte per row, 1 if a document starts with it; None for pairs
    """

    files: tuple[Path, ...]
    offsets: tuple[int, ...]
    first: int
    rows: int
    corpus: tuple[int, str | None]
    roles: Path
    starts: Path | None = None

    def lines(self, column: int, chosen: NDArray[np.bool_]) -> list[str]:
        """The lines of a column that are chosen."""
        with self.files[column].open("rb") as file:
            file.seek(self.offsets[column])
            return [line[:-1].decode() for line in compress(islice(file, self.rows), chosen.tolist())]

    def bytes_of(self, path: Path) -> Roles:
        """The bytes of these rows in a file with one byte per row."""
        return np.fromfile(path, np.uint8, self.rows, offset=self.first)


@dataclass
class CleanedSplit:
    """The cleaned rows of a split in the work folder: one file per column, and files with data for each row.

    :param roles: one byte per row; written in step 2, for train
    :param counts: what was read and kept
    :param sources: the same for each input, as the manifest has it
    """

    columns: tuple[Path, ...]
    texts: tuple[Path, ...]
    hashes: Path
    starts: Path
    roles: Path
    parts: list[CleanedPart] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    sources: list[dict[str, Any]] = field(default_factory=list)
    in_document: bool = False  # the last document may continue in the next chunk

    def add(self, cleaned: CleanedChunk, offsets: tuple[int, ...], is_text: bool, tag: str | None = None) -> bytes:
        """Note a chunk that is written at these offsets, after the others; return its document starts."""
        starts = bytearray(cleaned.starts)
        if starts:
            starts[0] |= not self.in_document
        self.in_document = not cleaned.closed and (bool(starts) or self.in_document)
        rows = cleaned.counts["rows"]
        if rows or not is_text:
            starts_file = self.starts if is_text else None
            number = len(self.sources)  # of the corpus: those before it are complete
            first, corpus = self.counts["rows"], (number, tag)
            self.parts.append(CleanedPart(self.columns, offsets, first, rows, corpus, self.roles, starts_file))
        self.counts.update(cleaned.counts, documents=sum(starts))
        self.dropped.update(cleaned.dropped)
        return bytes(starts)


def count_words(workers: Workers, parts: Sequence[CleanedPart]) -> tuple[Counter[str], int]:
    """Count the words that are trained on, up to the limits, part by part in a shuffled order; and the rows.

    Below the limits everything is counted; otherwise a sample that is the same in every run.
    """
    order = list(range(len(parts)))
    Random(len(parts)).shuffle(order)
    counts: Counter[str] = Counter()
    rows = words = size = 0
    results = workers.map(count_part, (parts[index] for index in order))
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
    chosen = part.bytes_of(part.roles) == TRAIN
    counts: Counter[str] = Counter()
    for column in range(len(part.files)):
        counts.update(chain.from_iterable(map(str.split, part.lines(column, chosen))))
    return counts, int(chosen.sum())


def learn_subwords(
    words: Mapping[str, int], size: int, settings: PairsSettings | TextSettings, given: MacaronTokenizer | None
) -> MacaronTokenizer:
    """A tokenizer of this size for counted words, or the given one with more subwords."""
    if given is not None:
        return extended(given, words, settings.extend_vocab or 0, settings.vocab_multiple, settings.tags)
    source_lang, target_lang = settings.languages
    return MacaronTokenizer.train(
        repeated_words(words, settings.pipeline == "raw"),
        size,
        pipeline=settings.pipeline,
        kind=settings.vocabulary,
        source_lang=source_lang,
        target_lang=target_lang,
        lower=settings.lower,
        normalize=settings.normalize,
        prepared=True,
        pad_to_multiple=settings.vocab_multiple,
        tags=settings.tags,
    )


#: Ids of several lines, flat, and the length of each line.
FlatIds = tuple[NDArray[Any], NDArray[np.int64]]
#: Encoded rows by column, and the indices of those with which documents start (None for pairs).
EncodedRows = tuple[list[FlatIds], NDArray[np.int64] | None]


def encode_part(part: CleanedPart, tokenizer: Path, fingerprint: str) -> dict[int, EncodedRows]:
    """Encode a part; the rows by role (training, or held out to validate on).

    :param tokenizer: its folder
    :param fingerprint: of the tokenizer; it tells two versions of the folder apart
    """
    encoder = word_encoder(tokenizer, fingerprint)
    tag = part.corpus[1]
    roles = part.bytes_of(part.roles)
    starts = None if part.starts is None else part.bytes_of(part.starts)
    encoded: dict[int, EncodedRows] = {}
    for role in (TRAIN, VALID):
        chosen = roles == role
        if chosen.any():
            columns = [
                encoder.encode(part.lines(column, chosen), None if column else tag) for column in range(len(part.files))
            ]
            encoded[role] = columns, None if starts is None else np.flatnonzero(starts[chosen])
    return encoded


class WordEncoder:
    """Encodes prepared lines word by word, and remembers the words: text repeats itself.

    A subword never crosses a space, so the ids of a line are the concatenated ids of its words. This is ten times as
    fast as the tokenizer, with the same result (lines with runs of spaces are given to the tokenizer). Lines to
    translate end with ``</s>``.
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
        """The ids of all lines, flat; and their lengths.

        :param tag: put it in front of every line that is not empty
        """
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
