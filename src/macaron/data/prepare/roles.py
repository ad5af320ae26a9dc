"""The role of every pair or sentence: trained on, held out to validate on, or dropped as duplicate or overlap.

A pair is identified by two 64-bit hashes, of its source and its target, in a file. In memory there is one byte per pair
for its role, and temporarily the hashes of a part of the pairs. Sentences' roles are written to a file.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from macaron.data.settings import HELD_OUT, LEAST_EVERY, PairsSettings

Hashes = NDArray[np.uint64]
Roles = NDArray[np.uint8]

TRAIN: Final = 1
VALID: Final = 2
DUPLICATE: Final = 3
OVERLAP: Final = 4

BLOCK = 1 << 18
#: Pairs are compared in parts of about this many, at 40 bytes each; at most `MOST_PARTS`, since each reads the file.
PART = 1 << 21
MOST_PARTS = 16
_ODD = np.uint64(0x9E3779B97F4A7C15)


def choose_pairs(settings: PairsSettings, hashes: Path, *held: Path) -> Roles:
    """The role of every training pair, by files of hashes: of these pairs, and of those of valid and test."""
    whole_pair = settings.remove_overlap == "pair"
    roles = np.full(hashes.stat().st_size // 16, TRAIN, np.uint8)
    if settings.remove_duplicates:
        mark_duplicates(hashes, roles)
    if settings.remove_overlap != "none":
        for path in held:
            mark_overlap(hashes, roles, sorted_keys(path, whole_pair), whole_pair)
    if settings.holds_out:
        pairs = int((roles == TRAIN).sum())
        hold_out(roles, settings.valid_every or max(2, min(max(LEAST_EVERY, pairs // HELD_OUT), pairs)))
        if settings.remove_overlap != "none":
            mark_overlap(hashes, roles, sorted_keys(hashes, whole_pair, roles), whole_pair)
    return roles


def mark_duplicates(path: Path, roles: Roles) -> None:
    """Mark every pair that occurred before."""
    parts = max(1, min(MOST_PARTS, -(-len(roles) // PART)))
    for part in range(parts):
        indices, keys = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for start, block in _keys(path, whole_pair=True):
            # The high bits choose the part, so a pair and its copy are in the same one.
            mine = np.flatnonzero((block >> np.uint64(40)) % np.uint64(parts) == part)
            indices.append(mine + start)
            keys.append(block[mine])
        index, key = np.concatenate(indices), np.concatenate(keys)
        del indices, keys
        roles[np.delete(index, np.unique(key, return_index=True)[1])] = DUPLICATE  # all but the first of equal pairs


def mark_overlap(path: Path, roles: Roles, forbidden: Hashes, whole_pair: bool) -> None:
    """Mark training pairs whose source (or whole pair) is among the sorted keys of the forbidden ones."""
    for start, key in _keys(path, whole_pair) if len(forbidden) else ():
        index = np.minimum(np.searchsorted(forbidden, key), len(forbidden) - 1)
        block = roles[start : start + len(key)]
        block[(forbidden[index] == key) & (block == TRAIN)] = OVERLAP


def hold_out(roles: Roles, every: int) -> None:
    """Hold out every Nth training pair to validate on."""
    roles[np.flatnonzero(roles == TRAIN)[every - 1 :: every]] = VALID


def hold_out_documents(folder: Path, every: int, documents: int) -> int:
    """Write the roles of all sentences, and return the number of those held out to validate on: every Nth document."""
    held = 2 if documents >= 4 else 1  # of few documents: two, so that negative next sentences can be drawn
    few = [(1 + number) * documents // (1 + held) for number in range(held)]
    number, sentences = -1, 0
    with (folder / "starts").open("rb") as given, (folder / "roles").open("wb") as file:
        while content := given.read(BLOCK):
            numbers = number + np.cumsum(np.frombuffer(content, np.uint8), dtype=np.int64)
            valid = (numbers + 1) % every == 0 if documents >= 2 * every else np.isin(numbers, few)
            file.write(np.where(valid, VALID, TRAIN).astype(np.uint8).tobytes())
            number, sentences = int(numbers[-1]), sentences + int(valid.sum())
    return sentences


def sorted_keys(path: Path, whole_pair: bool, roles: Roles | None = None) -> Hashes:
    """The sorted keys of the pairs in a file of hashes; with roles, only of those held out to validate on."""
    found = [np.empty(0, np.uint64)]
    for start, key in _keys(path, whole_pair):
        found.append(key if roles is None else key[roles[start : start + len(key)] == VALID])
    return np.unique(np.concatenate(found))


def _keys(path: Path, whole_pair: bool) -> Iterator[tuple[int, Hashes]]:
    """Blocks of a file of hashes: the index of the first pair, and one hash per pair, of its source or both sides."""
    # Read, not mapped: pages of a mapped file count as memory of the process.
    with path.open("rb") as file:
        start = 0
        while content := file.read(16 * BLOCK):
            source, target = np.frombuffer(content, "<u8").reshape(-1, 2).astype(np.uint64, copy=False).T
            yield start, source + target * _ODD if whole_pair else source
            start += len(source)
