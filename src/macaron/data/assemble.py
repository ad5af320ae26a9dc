"""Token matrices from a store: padded batches and packed rows, without a loop over sentences."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from macaron.data.batching import Indices, Rows
from macaron.data.store import TokenStore

Matrix = NDArray[np.int64]


def padded(store: TokenStore, indices: Indices, pad: int) -> Matrix:
    """Sequences side by side, (B, T), padded on the right."""
    lengths = store.lengths[indices].astype(np.int64)
    matrix = np.full((len(indices), int(lengths.max(initial=1))), pad, dtype=np.int64)
    rows = np.repeat(np.arange(len(indices)), lengths)
    columns = counting(lengths)
    matrix[rows, columns] = store.ids[_places(store, indices, lengths)]
    return matrix


@dataclass(frozen=True)
class PackedSide:
    """One side of packed rows, each (R, W): ids; the place inside its sentence, from 0; its number in the row, from 1.

    Where nothing lies, ids are padding and ``sentence`` is 0.
    """

    ids: Matrix
    place: Matrix
    sentence: Matrix


def packed(store: TokenStore, rows: Rows, start: int, stop: int, width: int, pad: int) -> PackedSide:
    """The rows from ``start`` to ``stop`` (those beyond the last are empty)."""
    first, last = np.searchsorted(rows.row, [start, stop])
    pairs, row = rows.pairs[first:last], rows.row[first:last] - start
    lengths = store.lengths[pairs].astype(np.int64)
    # Where each sentence begins in its row: what was laid down before it, less what was laid down before its row.
    before = np.cumsum(lengths) - lengths
    opens = np.flatnonzero(np.diff(row, prepend=-1))
    run = np.repeat(np.arange(len(opens)), np.diff(np.append(opens, len(row))))
    begins = before - before[opens][run] if len(opens) else before
    number = np.arange(len(row)) - opens[run] + 1 if len(opens) else before
    shape = (stop - start, width)
    ids, place, sentence = np.full(shape, pad, dtype=np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    at_row, inside = np.repeat(row, lengths), counting(lengths)
    at_column = np.repeat(begins, lengths) + inside
    ids[at_row, at_column] = store.ids[_places(store, pairs, lengths)]
    place[at_row, at_column] = inside
    sentence[at_row, at_column] = np.repeat(number, lengths)
    return PackedSide(ids, place, sentence)


def counting(lengths: Indices) -> Matrix:
    """0, 1, ..., n-1 for each length n, one after the other."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


def _places(store: TokenStore, indices: Indices, lengths: Indices) -> Matrix:
    """Where the ids of these sequences lie in the flat store."""
    return np.repeat(store.offsets[indices].astype(np.int64), lengths) + counting(lengths)
