"""The pairs of an epoch, and batches: buckets of pairs of similar length, or packed rows; their token matrices.

A corpus of weight 2 is seen twice in an epoch; of one with weight 0.5 every epoch sees another half. An epoch of a
large split is planned in sections, each of blocks from all over the split: memory does not grow with it.

All is a function of the lengths, the weights, a seed and the epoch alone, so a run that is resumed sees the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macaron.data.store import TokenStore
from macaron.errors import MacaronError

Indices = NDArray[np.int64]
Lengths = NDArray[np.integer[Any]]
Matrix = NDArray[np.int64]
#: A number of rows, and the lengths of the texts in each.
RowLayout = tuple[int, tuple[int, ...]]
#: Sequences of a section, and blocks of each, roughly.
SECTION, BLOCKS = 1 << 21, 64


@dataclass(frozen=True)
class CorpusPart:
    """Consecutive pairs of a split that come from one corpus; ``path`` is the prefix of its files."""

    path: str
    pairs: int
    tag: str | None = None
    weight: float = 1.0

    def __str__(self) -> str:
        marks = f", weight {self.weight:g}" if self.weight != 1 else ""
        return f"{self.path}: {self.pairs:,} pairs{marks}{f', tag {self.tag}' if self.tag else ''}"


def reweighted(corpora: Sequence[CorpusPart], weights: dict[str, float], folder: object) -> tuple[CorpusPart, ...]:
    """Corpora with the weights of a recipe, by path. Corpora that it does not name keep theirs."""
    paths = [corpus.path for corpus in corpora]
    for path, weight in weights.items():
        if weight != 1 and path not in paths:
            raise MacaronError(
                f"data.train: {path} has weight {weight:g}, but {folder} holds no such corpus (it holds "
                f"{', '.join(paths) or 'one whose name was not recorded'}). Run 'macaron prepare' with this recipe."
            )
    return tuple(replace(each, weight=weights.get(each.path, each.weight)) for each in corpora)


class Mixture:
    """The pairs that each epoch sees, of those that are kept (in ascending order).

    They are drawn without replacement from one random order of a corpus after the other.
    """

    def __init__(self, kept: Indices, corpora: Sequence[CorpusPart], seed: int) -> None:
        self.seed = seed
        ends = np.searchsorted(kept, np.cumsum([corpus.pairs for corpus in corpora]))
        self.parts = np.split(kept, ends[:-1])
        self.weights = [corpus.weight for corpus in corpora]
        #: Every epoch sees the same pairs.
        self.constant = all(weight.is_integer() for weight in self.weights)
        if sum(int(weight * len(part)) for weight, part in zip(self.weights, self.parts, strict=True)) < 1:
            raise MacaronError("data.train: with these weights an epoch sees no pair: raise them")

    def epoch(self, number: int) -> Indices:
        """The pairs of an epoch (from 1) in ascending order, each as often as it is seen."""
        drawn = []
        for corpus, (part, weight) in enumerate(zip(self.parts, self.weights, strict=True)):
            size = len(part)
            position, stop = round((number - 1) * weight * size), round(number * weight * size)
            times = np.zeros(size, np.int64)
            while position < stop:  # through the random orders that this epoch touches
                order, begin = divmod(position, size)
                end = min(size, begin + stop - position)
                random = np.random.default_rng([self.seed, corpus, order])
                times[random.permutation(size)[begin:end]] += 1
                position += end - begin
            drawn.append(np.repeat(part, times))
        return np.concatenate(drawn)


def bucket(source: Lengths, target: Lengths, max_tokens: int, seed: int, multiple: int = 8) -> list[Indices]:
    """Batches of pairs of similar length, as in the authors' code, in the order of length.

    The size of a batch is its number of pairs times its longest side: padding counts. A full batch is cut to a multiple
    of ``multiple`` and the rest starts the next one. Lengths are with the end of sentence.
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
    lengths = store.lengths_of(indices)
    matrix = np.full((len(indices), int(lengths.max(initial=1))), pad, dtype=np.int64)
    rows = np.repeat(np.arange(len(indices)), lengths)
    columns = counting(lengths)
    matrix[rows, columns] = store.take(indices)
    return matrix


def counting(lengths: Lengths) -> Matrix:
    """0, 1, ..., n-1 for each length n, concatenated."""
    ends = np.cumsum(lengths)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)


@dataclass(frozen=True)
class Rows:
    """Pairs packed into rows: pair ``pairs[i]`` is in row ``row[i]``, after the earlier pairs of that row."""

    pairs: Indices
    row: Indices
    count: int


def pack(source: Lengths, target: Lengths, width: int, seed: int, epoch: int, open_rows: int = 16) -> Rows:
    """Fill rows of ``width`` positions, on both sides, with whole pairs in random order (first fit).

    Several rows stay open: a long pair that does not fit must not close a row that a short one would fill.
    """
    if len(source) and max(int(source.max()), int(target.max())) > width:
        raise ValueError(f"a pair is longer than a row of {width}")
    order = np.random.RandomState((seed + 1_000_003 * epoch) % 2**32).permutation(len(source))
    room_source, room_target, row_of = [width] * open_rows, [width] * open_rows, list(range(open_rows))
    rows = np.empty(len(order), dtype=np.int64)
    next_row = open_rows
    for number, (s, t) in enumerate(zip(source[order].tolist(), target[order].tolist(), strict=True)):
        for slot in range(open_rows):
            if room_source[slot] >= s and room_target[slot] >= t:
                break
        else:
            # None fits: a new row replaces the fullest one.
            slot = min(range(open_rows), key=lambda i: min(room_source[i], room_target[i]))
            room_source[slot], room_target[slot], row_of[slot] = width, width, next_row
            next_row += 1
        room_source[slot] -= s
        room_target[slot] -= t
        rows[number] = row_of[slot]
    # Rows in the order of their number, pairs inside a row in the order of arrival; empty rows are left out.
    by_row = np.argsort(rows, kind="stable")
    _, dense = np.unique(rows[by_row], return_inverse=True)
    return Rows(order[by_row], dense, int(dense[-1]) + 1 if len(dense) else 0)


def pack_by_length(lengths: Lengths, width: int, most: int, random: np.random.Generator) -> Rows:
    """Fill rows of ``width`` positions with whole texts, at most ``most`` in each (best fit).

    The best row is found once for all texts of a length: longest first, each into the fullest row that still has room.
    The choice among texts of one length, and the order of the rows, are random.
    """
    if int(lengths.max(initial=0)) > width:
        raise ValueError(f"a text is longer than a row of {width}")
    counts = np.bincount(lengths, minlength=width + 1)
    order = random.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    next_of = np.cumsum(counts) - counts  # first text of each length in that order
    row = np.empty(len(lengths), np.int64)
    rows = 0
    for many, held in row_layouts(counts, width, most):
        for length in held:
            start = int(next_of[length])
            row[order[start : start + many]] = np.arange(rows, rows + many)
            next_of[length] += many
        rows += many
    row = random.permutation(rows)[row]
    by_row = np.argsort(row, kind="stable")
    return Rows(by_row, row[by_row], rows)


def row_layouts(counts: Indices, width: int, most: int) -> list[RowLayout]:
    """Which lengths share a row of at most ``most`` texts, for these numbers of texts of each length."""
    done: list[RowLayout] = []
    with_room: list[list[RowLayout]] = [[] for _ in range(width + 1)]  # by the room that is left
    for length in range(width, 0, -1):
        left = int(counts[length])
        while left:
            room = next((room for room in range(length, width + 1) if with_room[room]), None)
            if room is None:  # rows of this length alone
                each = min(width // length, left, most)
                many, held, room = left // each, (length,) * each, width - each * length
                left -= many * each
            else:
                there, held = with_room[room].pop()
                many = min(there, left)
                if there > many:
                    with_room[room].append((there - many, held))
                held, room = (*held, length), room - length
                left -= many
            (with_room[room] if len(held) < most else done).append((many, held))
    return [*done, *(layout for each in with_room for layout in each)]


def packed(store: TokenStore, rows: Rows, width: int, pad: int) -> Matrix:
    """One side of packed rows, (3, R, W): ids; the position in the sentence, from 0; the sentence's number, from 1.

    Unused positions have padding as id, and 0 as the number.
    """
    lengths = store.lengths_of(rows.pairs)
    # The offset of each sentence in its row: all tokens before it, less those before its row.
    before = np.cumsum(lengths) - lengths
    opening = np.searchsorted(rows.row, rows.row)  # the first pair of the same row
    begins, number = before - before[opening], np.arange(len(rows.row)) - opening + 1
    found = np.zeros((3, rows.count, width), np.int64)
    found[0] = pad
    at_row, inside = np.repeat(rows.row, lengths), counting(lengths)
    at_column = np.repeat(begins, lengths) + inside
    found[0, at_row, at_column] = store.take(rows.pairs)
    found[1, at_row, at_column] = inside
    found[2, at_row, at_column] = np.repeat(number, lengths)
    return found


def section_count(size: int) -> int:
    """The number of sections of a corpus of ``size`` sequences."""
    return max(1, -(-size // SECTION))


def section_blocks(size: int, section: int, sections: int, seed: int) -> list[tuple[int, int]]:
    """The blocks of a section as (start, stop), in ascending order. Each of ``size`` items is in one section."""
    if sections == 1:
        return [(0, size)]
    edges = np.linspace(0, size, min(size, BLOCKS * sections) + 1).astype(np.int64).tolist()
    order = np.random.default_rng([seed, sections]).permutation(len(edges) - 1)
    return [(edges[block], edges[block + 1]) for block in sorted(order[section::sections].tolist())]
