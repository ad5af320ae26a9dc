"""Texts packed into rows of one width, by counting lengths.

All lengths of an epoch are known, so the best place for every length is found once for all texts that have it: longest
first, each into the fullest row that still has room (best fit). What that takes does not grow with the corpus.
"""

import numpy as np

from macaron.data.batching import Indices, Lengths, Rows

#: So many rows, each with texts of these lengths.
Recipe = tuple[int, tuple[int, ...]]


def pack_by_length(lengths: Lengths, width: int, most: int, random: np.random.Generator) -> Rows:
    """Fill rows of ``width`` positions with whole texts. Which of those of a length, and in what order the rows come,
    is random.

    :param most: texts in a row
    """
    if not len(lengths):
        return Rows(np.empty(0, np.int64), np.empty(0, np.int64), 0)
    if int(lengths.max()) > width:
        raise ValueError(f"a text is longer than a row of {width}")
    counts = np.bincount(lengths, minlength=width + 1)
    order = random.permutation(len(lengths))
    order = order[np.argsort(lengths[order], kind="stable")]
    next_of = np.cumsum(counts) - counts  # where the texts of each length begin in that order
    row = np.empty(len(lengths), np.int64)
    rows = 0
    for many, held in row_recipes(counts, width, most):
        for length in held:
            start = int(next_of[length])
            row[order[start : start + many]] = np.arange(rows, rows + many)
            next_of[length] += many
        rows += many
    row = random.permutation(rows)[row]
    by_row = np.argsort(row, kind="stable")
    return Rows(by_row, row[by_row], rows)


def row_recipes(counts: Indices, width: int, most: int) -> list[Recipe]:
    """Which lengths share a row.

    :param counts: how many texts there are of each length from 0 to ``width``
    :param most: texts in a row
    """
    done: list[Recipe] = []
    with_room: list[list[Recipe]] = [[] for _ in range(width + 1)]  # by the room that is left
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
    return [*done, *(recipe for each in with_room for recipe in each)]
