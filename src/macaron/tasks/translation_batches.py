"""Batches of translation pairs on a device: padded, or packed rows."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from macaron.data.batching import Indices, bucket, padded
from macaron.data.prepared import PairStore
from macaron.data.row_packing import Rows, pack, packed
from macaron.device import to_device
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


def plan_padded(pairs: PairStore, kept: Indices, max_tokens: int, seed: int) -> list[MicroBatch]:
    """Micro-batches of pairs of similar length; their data is the indices of these pairs.

    :param kept: the pairs to take
    """
    source, target = pairs.source.lengths[kept], pairs.target.lengths[kept]
    return [MicroBatch(int(target[batch].sum()), kept[batch]) for batch in bucket(source, target, max_tokens, seed)]


def plan_packed(pairs: PairStore, kept: Indices, width: int, per_batch: int, seed: int, epoch: int) -> list[MicroBatch]:
    """Micro-batches of ``per_batch`` packed rows each; their data is these rows.

    :param kept: the pairs to take
    """
    source, target = pairs.source.lengths[kept], pairs.target.lengths[kept]
    rows = pack(source, target, width, seed, epoch)
    starts = np.arange(0, rows.count + per_batch, per_batch)
    cuts = np.searchsorted(rows.row, starts)
    planned = []
    for start, first, last in zip(starts, cuts[:-1], cuts[1:], strict=False):
        chosen = rows.pairs[first:last]
        own = Rows(kept[chosen], rows.row[first:last] - start, per_batch)
        planned.append(MicroBatch(int(target[chosen].sum()), own))
    return planned


def padded_batch(pairs: PairStore, indices: Indices, device: torch.device) -> TranslationBatch:
    """A batch of these pairs, padded."""
    source, target = (
        to_device(torch.from_numpy(padded(side, indices, PAD)), device) for side in (pairs.source, pairs.target)
    )
    return TranslationBatch(source, target, _previous(target))


def _previous(target: Tensor) -> Tensor:
    """Targets shifted right, with the end-of-sentence token as the start.

    In a packed row, the token before a sentence's first one is the end of the previous sentence: the same token.
    """
    shifted = torch.roll(target, 1, dims=1)
    shifted[:, 0] = EOS
    return shifted


def packed_batch(pairs: PairStore, rows: Rows, width: int, device: torch.device) -> TranslationBatch:
    """A batch of these rows; those beyond the last pair are empty."""
    source, target = (packed(side, rows, 0, rows.count, width, PAD) for side in (pairs.source, pairs.target))
    ids = np.stack([source.ids, target.ids])
    positions = np.stack([source.position, target.position]) + FIRST_POSITION
    numbers = np.concatenate([ids, positions, np.stack([source.sentence, target.sentence])]).astype(np.int32)
    given, wanted, *others = to_device(torch.from_numpy(numbers), device).unbind(0)
    wanted = wanted.long()
    return TranslationBatch(given.long(), wanted, _previous(wanted), *others)
