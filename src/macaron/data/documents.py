"""Writing the document offsets of a prepared folder (see `macaron.data.prepared`)."""

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from macaron.data.prepared import DataKind, PreparedText, TextSplit, data_kind
from macaron.data.store import OFFSET

__all__ = ["DataKind", "DocumentsWriter", "PreparedText", "TextSplit", "data_kind"]

TEXT_SPLITS: tuple[TextSplit, ...] = ("train", "valid")


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
