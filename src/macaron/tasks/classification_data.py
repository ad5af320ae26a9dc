"""Texts as tokens, and their batches: ``<cls> a </s>`` and ``<cls> a </s> b </s>``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from macaron.device import to_device
from macaron.processes import Workers
from macaron.tasks.classification import ClassificationBatch
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import CLS, EOS, PAD

Tokens = NDArray[np.int32]
Indices = NDArray[np.int64]

#: Lengths that batches are padded to where there should be few shapes.
LENGTHS = (32, 64, 128, 256, 512)
#: With more texts, a tokenizer written in Python runs in several processes.
MANY = 40_000
_CHUNK = 5_000


@dataclass(frozen=True)
class Encoded:
    """Examples as tokens, without special tokens.

    :param texts: one or two lists, each with one array per example
    :param targets: as the loss takes them, (N,); zeros where there are no labels
    :param truncated: number of examples that were cut
    :param labels: class indices or scores, as the metrics take them
    """

    texts: tuple[list[Tokens], ...]
    targets: NDArray[Any]
    truncated: int
    labels: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.texts[0])

    @cached_property
    def lengths(self) -> Indices:
        """Tokens of each example, including special tokens, (N,)."""
        counts = np.array([[len(text) + 1 for text in texts] for texts in self.texts], dtype=np.int64)
        return np.asarray(1 + counts.sum(axis=0))


def encode(
    tokenizer: MacaronTokenizer,
    texts: Sequence[Sequence[str]],
    targets: NDArray[Any] | None,
    max_length: int,
    labels: Sequence[float] = (),
) -> Encoded:
    """Tokenise examples; those longer than ``max_length`` are cut at the ends of their texts, the longer one first.

    :param texts: one or two lists
    """
    # Texts repeat (the premises of MNLI).
    unique = list(dict.fromkeys(text for column in texts for text in column))
    chunk = _CHUNK if tokenizer.pipeline == "moses" and len(unique) > MANY else max(len(unique), 1)
    chunks = (unique[start : start + chunk] for start in range(0, len(unique), chunk))
    with Workers() as workers:  # started only if there are several chunks
        parts = list(workers.map(partial(_tokens, tokenizer), chunks))
    tokens = dict(zip(unique, (each for part in parts for each in part), strict=True))
    columns = tuple([tokens[text] for text in column] for column in texts)
    room = max_length - 1 - len(columns)
    truncated = 0
    for i, each in enumerate(zip(*columns, strict=True)):
        if sum(map(len, each)) > room:
            truncated += 1
            # Of two texts the longer one is cut first, then both equally.
            second = min(len(each[1]), max(room // 2, room - len(each[0]))) if len(each) > 1 else 0
            for column, keep in zip(columns, (room - second, second), strict=False):
                column[i] = column[i][:keep]
    if targets is None:
        targets = np.zeros(len(columns[0]), dtype=np.float32)
    return Encoded(columns, targets, truncated, labels)


def _tokens(tokenizer: MacaronTokenizer, texts: list[str]) -> list[Tokens]:
    return [np.asarray(ids, dtype=np.int32) for ids in tokenizer.encode_lines(texts, add_special_tokens=False)]


@dataclass(frozen=True)
class Collator:
    """Makes batches.

    :param segments: segment ids of the first and of the second text; padding has the first
    :param fixed: few shapes: filler rows complete a batch, lengths are those of ``LENGTHS``
    """

    segments: tuple[int, int]
    device: torch.device
    fixed: bool
    max_length: int

    def make(
        self, data: Encoded, rows: Indices, size: int, swap: NDArray[np.bool_] | None = None
    ) -> ClassificationBatch:
        """The batch of some examples.

        :param size: number of rows if shapes are fixed
        :param swap: the examples whose second text comes first, (N,)
        """
        count, width = len(rows), int(data.lengths[rows].max())
        if self.fixed:
            count = max(size, count)
            width = min((length for length in (*LENGTHS, self.max_length) if length >= width), default=width)
        tokens = np.full((count, width), PAD, dtype=np.int64)
        segments = np.full((count, width), self.segments[0], dtype=np.int64)
        weights = (np.arange(count) < len(rows)).astype(np.float32)
        # A filler row repeats the first: a row without any real token would give NaN.
        filled = np.append(rows, np.full(count - len(rows), rows[0]))
        for i, index in enumerate(filled):
            texts = [column[index] for column in data.texts]
            if swap is not None and swap[index]:
                texts.reverse()
            tokens[i, 0], end = CLS, 1
            for segment, text in zip(self.segments, texts, strict=False):
                start, end = end, end + len(text) + 1
                tokens[i, start : end - 1] = text
                tokens[i, end - 1] = EOS
                segments[i, start:end] = segment
        arrays = (tokens, segments, tokens != PAD, data.targets[filled], weights)
        return ClassificationBatch(*(to_device(torch.from_numpy(array), self.device) for array in arrays))


def epoch_order(count: int, seed: int, epoch: int) -> tuple[Indices, NDArray[np.bool_]]:
    """The order of an epoch's examples, and which of them are swapped: a function of seed and epoch alone."""
    draw = np.random.default_rng((seed, epoch))
    return draw.permutation(count), draw.random(count) < 0.5
