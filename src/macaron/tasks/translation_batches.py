"""Batches of translation pairs on a device: padded, or packed rows."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from macaron.data.batching import Indices, Lengths, padded
from macaron.data.prepared import PairStore
from macaron.data.row_packing import Rows, packed
from macaron.nn.embedding import FIRST_POSITION
from macaron.text.vocabulary import EOS, PAD
from macaron.train.task import MicroBatch


@dataclass(frozen=True)
class TranslationBatch:
    """Source (B, S); target (B, T); the target shifted right, ``previous`` (B, T).

    Packed rows also have the position of each token in its sentence, and the number of the sentence in its row (0:
    padding).
    """

    source: Tensor
    target: Tensor
    previous: Tensor
    source_positions: Tensor | None = None
    target_positions: Tensor | None = None
    source_sentence: Tensor | None = None
    target_sentence: Tensor | None = None


def short_pairs(pairs: PairStore, limit: int) -> Indices:
    """The indices of the pairs with no side longer than ``limit``."""
    longest = np.maximum(pairs.source.lengths, pairs.target.lengths)
    return np.flatnonzero(longest <= limit)


def plan_rows(rows: Rows, lengths: Lengths, per_batch: int, epoch: int) -> list[MicroBatch]:
    """Micro-batches of ``per_batch`` rows each; their data is the epoch and the first row.

    :param lengths: of all targets
    """
    starts = range(0, rows.count, per_batch)
    of_batch = rows.row // per_batch
    targets = np.bincount(of_batch, weights=lengths[rows.pairs], minlength=len(starts))
    return [MicroBatch(int(targets[i]), (epoch, start)) for i, start in enumerate(starts)]


def padded_batch(pairs: PairStore, indices: Indices, device: torch.device) -> TranslationBatch:
    """A batch of these pairs, padded."""
    source = torch.from_numpy(padded(pairs.source, indices, PAD)).to(device, non_blocking=True)
    target = torch.from_numpy(padded(pairs.target, indices, PAD)).to(device, non_blocking=True)
    return TranslationBatch(source, target, _previous(target))


def _previous(target: Tensor) -> Tensor:
    """Targets shifted right, with the end-of-sentence token as the start.

    In a packed row, the token before a sentence's first one is the end of the previous sentence: the same token.
    """
    shifted = torch.roll(target, 1, dims=1)
    shifted[:, 0] = EOS
    return shifted


def packed_tensors(
    pairs: PairStore, rows: Rows, start: int, stop: int, width: int, device: torch.device
) -> list[Tensor]:
    """The rows from ``start`` to ``stop`` on a device, for `cut_batch`."""
    source = packed(pairs.source, rows, start, stop, width, PAD)
    target = packed(pairs.target, rows, start, stop, width, PAD)
    arrays = [source.ids, target.ids, source.position, target.position, source.sentence, target.sentence]
    small = torch.from_numpy(np.stack(arrays).astype(np.int32))
    if device.type == "cuda":
        small = small.pin_memory()
    return list(small.to(device, non_blocking=True).unbind(0))


def cut_batch(tensors: list[Tensor], start: int, count: int) -> TranslationBatch:
    """``count`` of the rows from ``start`` as a batch."""
    ids, target, position, target_position, sentence, target_sentence = (t[start : start + count] for t in tensors)
    target = target.long()
    return TranslationBatch(
        source=ids.long(),
        target=target,
        previous=_previous(target),
        source_positions=position + FIRST_POSITION,
        target_positions=target_position + FIRST_POSITION,
        source_sentence=sentence,
        target_sentence=target_sentence,
    )
