"""Buckets: batches of pairs of similar length, and their padded token matrices.

They are a function of the lengths, a seed and the epoch alone, so a run that is resumed, or continued with another
number of processes, sees the same batches in the same order. The same holds for rows (`macaron.data.row_packing`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from macaron.data.store import TokenStore

Indices = NDArray[np.int64]
Lengths = NDArray[np.integer[Any]]
Matrix = NDArray[np.int64]


def bucket(source: Lengths, target: Lengths, max_tokens: int, seed: int, multiple: int = 8) -> list[Indices]:
    """Batches of pairs of similar length, as in the authors' code.

    The size of a batch is its number of pairs times its longest side: padding counts. A full batch is cut to a multiple
    of ``multiple`` and the rest starts the next one.

    :param source: lengths with the end of sentence
    :returns: for each batch the indices of its pairs, in the order of length; call it once per run
    """
    order = np.random.RandomState(seed).permutation(len(source))
    order = order[np.argsort(target[order], kind="stable")]
    order = order[np.argsort(source[order], kind="stable")]
    longest = np.maximum(source, target)
    batches: list[Indices] = []
    batch: list[int] = []
    widest = 0
    for index in order.tolist():
        width = max(widest, int(longest[index]))
        if batch and (len(batch) + 1) * width > max_tokens:
            keep = len(batch) // multiple * multiple or len(batch)
            batches.append(np.array(batch[:keep], dtype=np.int64))
            batch = batch[keep:]
            width = max([int(longest[i]) for i in batch] + [int(longest[index])])
        batch.append(index)
        widest = width
    if batch:
        batches.append(np.array(batch, dtype=np.int64))
    return batches


def epoch_order(count: int, seed: int, epoch: int) -> Indices:
    """The order of the batches in an epoch (from 1)."""
    return np.random.RandomState(seed + epoch).permutation(count)


def padded(store: TokenStore, indices: Indices, pad: int) -> Matrix:
    """Sequences as a matrix, (B, T), padded on the right."""
    lengths = store.lengths[indices].astype(np.int64)
    matrix = np.full((len(indices), int(lengths.max(initial=1))), pad, dtype=np.int64)
    rows = np.repeat(np.arange(len(indices)), lengths)
    columns = counting(lengths)
    matrix[rows, columns] = store.ids[flat_positions(store, indices, lengths)]
    return matrix


def counting(lengths: Lengths) -> Matrix:
    """0, 1, ..., n-1 for each length n, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def flat_positions(store: TokenStore, indices: Indices, lengths: Indices) -> Matrix:
    """The positions of these sequences' ids in the flat store."""
    return np.repeat(store.offsets[indices].astype(np.int64), lengths) + counting(lengths)
