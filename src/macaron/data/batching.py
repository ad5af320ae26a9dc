"""From lengths to batches: buckets of like lengths, or rows packed with several sentences.

Both are functions of the lengths, a seed and the epoch alone, so a run that is resumed, or goes on with another number
of processes, sees the same batches in the same order.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Lengths = NDArray[np.integer[Any]]


def bucket(source: Lengths, target: Lengths, max_tokens: int, seed: int, multiple: int = 8) -> list[Indices]:
    """Batches of pairs of like length, as the authors' code makes them.

    The size of a batch is its number of pairs times its longest side: padding counts. A full batch is cut to a multiple
    of ``multiple`` and the rest starts the next one.

    :param source: lengths with the end of sentence
    :param target: likewise
    :returns: for each batch the indices of its pairs; call once per run, the order is that of length
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
    """The order in which an epoch (from 1) goes through its batches."""
    order = np.arange(count)
    np.random.RandomState(seed + epoch).shuffle(order)
    return order


@dataclass(frozen=True)
class Rows:
    """Pairs packed into rows: pair ``pairs[i]`` lies in row ``row[i]`` behind the pairs that came before it."""

    pairs: Indices
    row: Indices
    count: int


def pack(source: Lengths, target: Lengths, width: int, seed: int, epoch: int, open_rows: int = 16) -> Rows:
    """Fill rows of ``width`` positions, on both sides, with whole pairs in random order (first fit).

    A few rows are kept open, so that a long pair that does not fit does not close a row that a short one would fill.
    """
    if len(source) and max(int(source.max()), int(target.max())) > width:
        raise ValueError(f"a pair is longer than a row of {width}")
    order = np.random.RandomState((seed + 1_000_003 * epoch) % 2**32).permutation(len(source))
    room_source, room_target, row_of = [width] * open_rows, [width] * open_rows, list(range(open_rows))
    rows = np.empty(len(order), dtype=np.int64)
    next_row = open_rows
    for place, (s, t) in enumerate(zip(source[order].tolist(), target[order].tolist(), strict=True)):
        for slot in range(open_rows):
            if room_source[slot] >= s and room_target[slot] >= t:
                break
        else:
            # None fits: the fullest row is closed and a new one opened in its place.
            slot = min(range(open_rows), key=lambda i: min(room_source[i], room_target[i]))
            room_source[slot], room_target[slot], row_of[slot] = width, width, next_row
            next_row += 1
        room_source[slot] -= s
        room_target[slot] -= t
        rows[place] = row_of[slot]
    # Rows in the order of their number, pairs inside a row in the order they came; empty rows drop out.
    by_row = np.argsort(rows, kind="stable")
    _, dense = np.unique(rows[by_row], return_inverse=True)
    return Rows(order[by_row], dense, int(dense[-1]) + 1 if len(dense) else 0)
