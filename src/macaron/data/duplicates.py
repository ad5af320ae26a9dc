"""Which pairs stay: duplicates, overlap with valid and test, and which pairs are held out to validate on.

A pair is known by two 64-bit hashes, of its source and its target, which lie in a file (see
`macaron.data.cleaning`). In memory there is one byte a pair for its role, and for a moment the hashes of a part of
the pairs. Different lines with the same hash would be taken for equal: for 100 million lines, a chance of 3 in 10,000
that it happens once.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Roles = NDArray[np.uint8]

#: What becomes of a pair.
TRAIN: Final = 1
VALID: Final = 2
DUPLICATE: Final = 3
OVERLAP: Final = 4

BLOCK = 1 << 18
#: Pairs are compared in parts of about this many, at 40 bytes each; no more than `MOST_PARTS`, each reads the file.
PART = 1 << 21
MOST_PARTS = 16
_ODD = np.uint64(0x9E3779B97F4A7C15)


def all_train(path: Path) -> Roles:
    """The roles to begin with, for as many pairs as the file has hashes of."""
    return np.full(path.stat().st_size // 16, TRAIN, np.uint8)


def mark_duplicates(path: Path, roles: Roles) -> int:
    """Mark every pair that has come before, and return how many there are."""
    parts = max(1, min(MOST_PARTS, -(-len(roles) // PART)))
    marked = 0
    for part in range(parts):
        indices, keys = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for start, hashes in _blocks(path):
            block = pair_hashes(hashes)
            # The high bits choose the part: a pair and its copy come to lie in the same one.
            mine = np.flatnonzero((block >> np.uint64(40)) % np.uint64(parts) == part)
            indices.append(mine + start)
            keys.append(block[mine])
        index, key = np.concatenate(indices), np.concatenate(keys)
        del indices, keys
        order = np.argsort(key, kind="stable")  # stable: among equal ones the first stays first
        key = key[order]
        repeated = order[1:][key[1:] == key[:-1]]
        roles[index[repeated]] = DUPLICATE
        marked += len(repeated)
    return marked


def mark_overlap(path: Path, roles: Roles, forbidden: Hashes, whole_pair: bool) -> int:
    """Mark training pairs whose source (or whole pair) is among the sorted hashes of the forbidden ones."""
    if not len(forbidden):
        return 0
    marked = 0
    for start, hashes in _blocks(path):
        key = pair_hashes(hashes) if whole_pair else hashes[:, 0]
        place = np.minimum(np.searchsorted(forbidden, key), len(forbidden) - 1)
        block = roles[start : start + len(key)]
        hit = (forbidden[place] == key) & (block == TRAIN)
        block[hit] = OVERLAP
        marked += int(hit.sum())
    return marked


def hold_out(roles: Roles, every: int) -> None:
    """Give every so manieth training pair to the valid set, counting from 1."""
    counted = 0
    for start in range(0, len(roles), BLOCK):
        block = roles[start : start + BLOCK]
        training = np.flatnonzero(block == TRAIN)
        block[training[(counted + 1 + np.arange(len(training))) % every == 0]] = VALID
        counted += len(training)


def held_out_hashes(path: Path, roles: Roles, whole_pair: bool) -> Hashes:
    """The sorted hashes of the pairs that `hold_out` has taken."""
    found = [np.empty(0, np.uint64)]
    for start, hashes in _blocks(path):
        mine = hashes[roles[start : start + len(hashes)] == VALID]
        found.append(pair_hashes(mine) if whole_pair else mine[:, 0])
    return np.unique(np.concatenate(found))


def sorted_hashes(content: bytes, whole_pair: bool) -> Hashes:
    """The sorted hashes of a valid or test set, from the bytes that cleaning gave."""
    hashes = np.frombuffer(content, "<u8").reshape(-1, 2).astype(np.uint64)
    return np.unique(pair_hashes(hashes) if whole_pair else hashes[:, 0])


def pair_hashes(hashes: Hashes) -> Hashes:
    """One hash of both sides (n x 2 to n), modulo 2**64."""
    return hashes[:, 0] + hashes[:, 1] * _ODD


def _blocks(path: Path) -> Iterator[tuple[int, Hashes]]:
    # Read, not mapped: pages of a mapped file count as memory of the process.
    with path.open("rb") as file:
        start = 0
        while content := file.read(16 * BLOCK):
            hashes = np.frombuffer(content, "<u8").reshape(-1, 2).astype(np.uint64, copy=False)
            yield start, hashes
            start += len(hashes)
