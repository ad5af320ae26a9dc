"""Batches cover every pair exactly once, within their limits, and are functions of seed and epoch alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.data.batching import bucket, epoch_order, pack

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=120)


def sides(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(40, 400), st.integers(0, 5))
def test_buckets(pairs: list[tuple[int, int]], max_tokens: int, seed: int):
    source, target = sides(pairs)
    batches = bucket(source, target, max_tokens, seed)
    assert sorted(index for batch in batches for index in batch.tolist()) == list(range(len(pairs)))
    for batch in batches:
        assert len(batch) * max(source[batch].max(), target[batch].max()) <= max_tokens
    again = bucket(source, target, max_tokens, seed)
    assert [batch.tolist() for batch in batches] == [batch.tolist() for batch in again]
    for epoch in (1, 2):
        assert sorted(epoch_order(len(batches), seed, epoch).tolist()) == list(range(len(batches)))


def test_epochs_differ():
    assert epoch_order(100, 1, 1).tolist() != epoch_order(100, 1, 2).tolist()
    lengths = np.random.RandomState(0).randint(1, 30, 500)
    first, second = (pack(lengths, lengths, 64, 1, epoch) for epoch in (1, 2))
    assert first.pairs.tolist() != second.pairs.tolist()


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(40, 100), st.integers(0, 5), st.integers(0, 5))
def test_packed_rows(pairs: list[tuple[int, int]], width: int, seed: int, epoch: int):
    source, target = sides(pairs)
    rows = pack(source, target, width, seed, epoch)
    assert sorted(rows.pairs.tolist()) == list(range(len(pairs)))
    assert (np.diff(rows.row) >= 0).all()
    for side in (source, target):
        used = np.bincount(rows.row, weights=side[rows.pairs], minlength=rows.count)
        assert len(used) == rows.count
        assert (used <= width).all()
    if pairs:
        assert np.bincount(rows.row).min() >= 1  # no empty row
    again = pack(source, target, width, seed, epoch)
    assert (rows.pairs.tolist(), rows.row.tolist()) == (again.pairs.tolist(), again.row.tolist())


def test_a_pair_that_no_row_can_hold():
    with pytest.raises(ValueError, match="longer than a row"):
        pack(np.array([3, 9]), np.array([3, 4]), 8, 0, 0)


@pytest.mark.parametrize("width", [128, 192])
def test_rows_are_well_filled(width: int):
    """Lengths as in IWSLT14: log-normal, about 23 subwords on average, the sides alike but not equal."""
    generator = np.random.RandomState(7)
    source = np.clip(np.exp(generator.normal(2.95, 0.62, 20_000)), 2, width).astype(np.int32)
    target = np.clip(source * np.exp(generator.normal(0.0, 0.2, 20_000)), 2, width).astype(np.int32)
    rows = pack(source, target, width, 1, 1)
    for side in (source, target):
        assert side.sum() / (rows.count * width) >= 0.85
