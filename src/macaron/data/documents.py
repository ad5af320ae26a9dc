"""A prepared folder of documents: what ``macaron prepare --text`` writes and pre-training reads.

prepared.json           ``"kind": "text"``, pipeline, counts, what was dropped, fingerprints
tokenizer/              the tokenizer, as transformers saves it
train.ids ...           token stores of train and valid, a sequence for every sentence (see `macaron.data.store`)
train.documents ...     where each document begins, in sentences, and where the last one ends: uint64, little-endian
"""

import os
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from macaron.data.prepared import MANIFEST, DataKind, data_kind, load_tokenizer, read_manifest
from macaron.data.store import OFFSET, REMEDY, TokenStore, map_file
from macaron.errors import MacaronError

if TYPE_CHECKING:
    from macaron.text.tokenizer import MacaronTokenizer

__all__ = ["DataKind", "DocumentsWriter", "PreparedText", "TextSplit", "data_kind"]

TextSplit = Literal["train", "valid"]
TEXT_SPLITS: tuple[TextSplit, ...] = get_args(TextSplit)


class PreparedText:
    """A prepared folder of documents, opened with `PreparedText.open`. Everything in it is opened when asked for.

    Document d of a split is its sentences ``documents[d]`` to ``documents[d + 1]``. Sentences hold no special tokens,
    and none is empty; neither is a document.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        #: The contents of prepared.json.
        self.manifest = manifest
        self.lang: str = manifest["lang"]
        self.pipeline: str = manifest["pipeline"]
        self.vocab_size: int = manifest["vocab_size"]
        self.tokenizer_fingerprint: str = manifest["tokenizer_fingerprint"]

    @classmethod
    def open(cls, folder: str | Path) -> "PreparedText":
        """Open a prepared folder; its files are checked against prepared.json when they are opened."""
        folder = Path(folder)
        return cls(folder, read_manifest(folder, "text"))

    @property
    def splits(self) -> tuple[TextSplit, ...]:
        """``train`` and ``valid``."""
        return tuple(split for split in TEXT_SPLITS if split in self.manifest["splits"])

    @cached_property
    def tokenizer(self) -> "MacaronTokenizer":
        """The tokenizer, verified by its fingerprint."""
        return load_tokenizer(self.folder, self.tokenizer_fingerprint)

    def sentences(self, split: TextSplit) -> TokenStore:
        """The sentences of a split, one after the other, in the order of the text."""
        expected = self._sizes(split)
        store = TokenStore(self.folder / split)
        there = (len(store), store.tokens, store.vocab_size)
        if there != (expected["sentences"], expected["tokens"], self.vocab_size):
            raise MacaronError(
                f"{store.base}: a foreign token store: {there[0]:,} sentences of {there[1]:,} tokens, where {MANIFEST} "
                f"has {expected['sentences']:,} of {expected['tokens']:,}. {REMEDY}"
            )
        return store

    def documents(self, split: TextSplit) -> NDArray[np.uint64]:
        """Where every document begins, in sentences, and where the last one ends (memory-mapped)."""
        expected = self._sizes(split)
        path = documents_file(self.folder, split)
        documents: NDArray[np.uint64] = map_file(path, OFFSET, expected["documents"] + 1)
        if int(documents[0]) != 0 or int(documents[-1]) != expected["sentences"]:
            raise MacaronError(f"{path}: belongs to other sentences. {REMEDY}")
        return documents

    def _sizes(self, split: str) -> dict[str, int]:
        if split not in self.splits:
            raise MacaronError(f"{self.folder}: no split {split!r}; there is {', '.join(self.splits)}")
        sizes: dict[str, int] = self.manifest["splits"][split]
        return sizes


class DocumentsWriter:
    """Writes where documents begin; a long one may come in several pieces. Use it in a ``with`` statement."""

    def __init__(self, path: Path) -> None:
        self.documents = self.sentences = 0
        self._last = -1
        self._file: BinaryIO = path.open("wb")

    def append(self, numbers: NDArray[np.int64], sentences: NDArray[np.int64]) -> None:
        """Add so many sentences to documents that go by their numbers in the corpus, in growing order."""
        if not len(numbers):
            return
        new = np.diff(numbers, prepend=self._last) > 0
        begins = self.sentences + np.cumsum(sentences) - sentences
        self._file.write(begins[new].astype(OFFSET).tobytes())
        self.documents += int(new.sum())
        self.sentences += int(sentences.sum())
        self._last = int(numbers[-1])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file as file:
            if kind is None:
                file.write(np.array([self.sentences], OFFSET).tobytes())
                file.flush()
                os.fsync(file.fileno())


def documents_file(folder: Path, split: TextSplit) -> Path:
    """The file with the documents of a split."""
    return folder / f"{split}.documents"
