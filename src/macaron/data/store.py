"""Memory-mapped token stores: a corpus as one flat file of ids and one of offsets.

    NAME.ids        the ids of all sequences, concatenated: uint16 if the vocabulary allows it, else int32
    NAME.offsets    the first id of each sequence, then the number of ids: uint64
    NAME.documents  of documents: the first sequence of each, then the number of sequences: uint64

All numbers are little-endian. Opening reads almost nothing. prepared.json has the sizes.
"""

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from macaron.errors import MacaronError
from macaron.files import atomic_file

OFFSET = np.dtype("<u8")
REMEDY = "Run 'macaron prepare' again."
#: Numbers that are checked at a time.
_BLOCK = 1 << 22


def id_dtype(vocab_size: int) -> str:
    """Name the smallest dtype that holds the ids of a vocabulary."""
    return "<u2" if vocab_size <= 1 << 16 else "<i4"


class TokenStore:
    """Read-only sequences of ids on disk. ``store[i]`` is a copy as int64, ready for torch.

    :param tokens: number of ids in all
    """

    def __init__(self, base: Path, vocab_size: int, sequences: int, tokens: int) -> None:
        self.base, self.vocab_size, self.tokens = base, vocab_size, tokens
        self._sequences = sequences
        #: All ids, flat (memory-mapped, of the stored dtype).
        self.ids: NDArray[Any] = map_file(_file(base, "ids"), np.dtype(id_dtype(vocab_size)), tokens)
        #: Sequence i is ``ids[offsets[i]:offsets[i + 1]]`` (memory-mapped).
        self.offsets: NDArray[np.uint64] = map_file(_file(base, "offsets"), OFFSET, sequences + 1)
        if int(self.offsets[0]) != 0 or int(self.offsets[-1]) != tokens:
            raise MacaronError(f"{_file(base, 'offsets')}: belongs to other ids. {REMEDY}")

    def __len__(self) -> int:
        return self._sequences

    def lengths(self, start: int = 0, stop: int | None = None) -> NDArray[np.int32]:
        """Lengths of the sequences from ``start`` to ``stop``, by default of all."""
        stop = self._sequences if stop is None else stop
        return np.diff(self.offsets[start : stop + 1]).astype(np.int32)

    def lengths_of(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Lengths of some sequences."""
        return (self.offsets[indices + 1] - self.offsets[indices]).astype(np.int64)

    def take(self, indices: NDArray[np.int64]) -> NDArray[Any]:
        """The ids of some sequences, concatenated."""
        lengths = self.lengths_of(indices)
        starts = self.offsets[indices].astype(np.int64) - np.cumsum(lengths) + lengths
        return self.ids[np.repeat(starts, lengths) + np.arange(lengths.sum())]

    def check(self) -> None:
        """Refuse ids beyond the vocabulary, empty and overlapping sequences: all is read once, 4 GB a second."""
        check_growth(_file(self.base, "offsets"), self.offsets, np.iinfo(np.int32).max)
        for start in range(0, self.tokens, _BLOCK):
            block = self.ids[start : start + _BLOCK]
            if int(block.max()) >= self.vocab_size or int(block.min()) < 0:
                raise MacaronError(f"{_file(self.base, 'ids')}: damaged, an id is beyond the vocabulary. {REMEDY}")

    def __getitem__(self, index: int) -> NDArray[np.int64]:
        index = range(self._sequences)[index]
        return self.ids[int(self.offsets[index]) : int(self.offsets[index + 1])].astype(np.int64)


class TokenList(TokenStore):
    """Sequences of ids in memory, concatenated in one array."""

    def __init__(self, ids: NDArray[Any], lengths: NDArray[Any]) -> None:
        self.ids, self.tokens, self._sequences = ids, len(ids), len(lengths)
        self.offsets = np.append(0, np.cumsum(lengths)).astype(np.uint64)

    def __add__(self, other: TokenStore) -> "TokenList":
        return TokenList(np.append(self.ids, other.ids), np.append(self.lengths(), other.lengths()))


class StoreWriter:
    """Append-only writer of a `TokenStore`; memory does not grow with the number of sequences.

    :param documents: the sequences are the sentences of documents
    """

    def __init__(self, base: Path, vocab_size: int, documents: bool = False) -> None:
        self.base = base
        self.vocab_size = vocab_size
        self.dtype = np.dtype(id_dtype(vocab_size))
        self.sequences = self.tokens = self.documents = 0
        self._open = ExitStack()
        self._files = {
            suffix: self._open.enter_context(atomic_file(_file(self.base, suffix)))
            for suffix in ("ids", "offsets", *(("documents",) if documents else ()))
        }
        self._files["offsets"].write(np.zeros(1, OFFSET).tobytes())

    def append(self, ids: NDArray[Any], lengths: NDArray[Any], starts: NDArray[np.int64] | None = None) -> None:
        """Append sequences that are concatenated in one array."""
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab_size:
            raise MacaronError(f"{self.base}: ids must be in [0, {self.vocab_size - 1}]")
        self._files["ids"].write(ids.astype(self.dtype).tobytes())
        self._files["offsets"].write((self.tokens + np.cumsum(lengths)).astype(OFFSET).tobytes())
        if starts is not None:
            self._files["documents"].write((self.sequences + starts).astype(OFFSET).tobytes())
            self.documents += len(starts)
        self.sequences += len(lengths)
        self.tokens += len(ids)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Complete the store. After an error there is none."""
        if kind is None and "documents" in self._files:
            self._files["documents"].write(np.array([self.sequences], OFFSET).tobytes())
        self._open.__exit__(kind, error, trace)


def _file(base: Path, suffix: str) -> Path:
    # Not with_suffix: "train.de" has one already.
    return base.with_name(f"{base.name}.{suffix}")


def check_growth(path: Path, offsets: NDArray[np.uint64], longest: int) -> None:
    """Refuse offsets that do not grow by at least 1 and at most ``longest``."""
    for start in range(0, len(offsets), _BLOCK):
        block = offsets[start : start + _BLOCK + 1]
        # Unsigned: a difference below 0 is a huge one. The last offset is known to be right, so nothing wraps unseen.
        steps = np.diff(block)
        if len(steps) and not 1 <= int(steps.min()) <= int(steps.max()) <= longest:
            raise MacaronError(f"{path}: damaged, its offsets do not grow as they should. {REMEDY}")


def map_file(path: Path, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    """Map a file of ``count`` numbers; a file of another size is refused."""
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise MacaronError(f"{path}: no such file: the token store is incomplete. {REMEDY}") from None
    if size != count * dtype.itemsize:
        kind = "truncated" if size < count * dtype.itemsize else "foreign or damaged"
        raise MacaronError(f"{path}: {kind}: {size:,} bytes instead of {count * dtype.itemsize:,}. {REMEDY}")
    if count == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r", shape=(count,))
