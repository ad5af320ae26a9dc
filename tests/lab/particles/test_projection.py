"""The shadow: what it keeps, and that the same states give the same picture."""

import numpy as np
import pytest

from macaron.lab.particles.projection import ALIGNED, align, bounds, fit


def states(seed: int = 0, frames: int = 6, tokens: int = 7, size: int = 20) -> np.ndarray:
    random = np.random.default_rng(seed)
    scales = 2.0 ** -np.arange(size)
    return random.normal(size=(frames, tokens, size)) * scales + 3.0


def rotation(size: int, seed: int = 1) -> np.ndarray:
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(size, size)))[0]


def test_coordinates_and_shares_are_those_of_the_covariance():
    given = states()
    found = fit(given)
    flat = given.reshape(-1, 20) - given.reshape(-1, 20).mean(0)
    values = np.linalg.eigvalsh(flat.T @ flat)[::-1]
    assert found.shares[:2] == pytest.approx(values[:2] / values.sum())
    assert (found.shown.reshape(-1, 2) ** 2).sum(0) == pytest.approx(values[:2])
    assert found.shown.reshape(-1, 2).mean(0) == pytest.approx([0, 0], abs=1e-12)


def test_the_largest_loading_is_positive():
    """A cloud along -e0 with a tail: its first axis is e0, whatever the sign that the decomposition gives."""
    for sign in (1, -1):
        given = states() * sign
        first = fit(given).shown[..., 0].ravel()
        assert np.corrcoef(first, given[..., 0].ravel())[0, 1] > 0.99


def test_a_turned_copy_is_turned_back():
    given = states()
    first, second = fit(given), fit(given @ rotation(20))
    ends = [0, 2, 5]
    found = align(first, second, ends, ends)
    assert found.shown == pytest.approx(first.shown, abs=1e-9)
    assert found.shares[:2] == pytest.approx(first.shares[:2])


def test_turning_keeps_distances_and_the_whole():
    first, second = fit(states(0)), fit(states(5, frames=9))
    found = align(first, second, [0, 5], [0, 8])
    before, after = (each.coordinates.reshape(-1, ALIGNED) for each in (second, found))
    assert after @ after.T == pytest.approx(before @ before.T)
    assert found.shares.sum() == pytest.approx(second.shares.sum())
    at_ends = [first.coordinates[[0, 5]], found.coordinates[[0, 8]]]
    nearer = ((at_ends[0] - at_ends[1]) ** 2).sum()
    assert nearer <= ((at_ends[0] - second.coordinates[[0, 8]]) ** 2).sum()


def test_what_has_no_second_axis():
    still = fit(np.ones((3, 2, 5)))
    assert not still.shown.any()
    assert still.shares[:2].tolist() == [0, 0]
    line = fit(np.arange(6.0).reshape(3, 2, 1))
    assert line.shares[:2] == pytest.approx([1, 0])
    assert align(still, still, [0], [0]).shares[:2].tolist() == [0, 0]


def test_bounds_hold_all():
    both = [fit(states(0)), fit(4 * states(1))]
    left, right, bottom, top = bounds(both)
    points = np.concatenate([each.shown.reshape(-1, 2) for each in both])
    assert [left, bottom] == pytest.approx(points.min(0))
    assert [right, top] == pytest.approx(points.max(0))
