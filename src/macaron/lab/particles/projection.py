"""The 2-D shadow of particles: one projection for all frames, and two of them turned towards each other."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
View = Literal["raw", "normalised"]

#: Principal axes in which two models are turned towards each other. Two axes of nearly equal variance may come in the
#: other order in the other model, so there must be more than are shown; in many, anything can be made to look alike.
ALIGNED = 4


@dataclass(frozen=True, eq=False)
class Projection:
    """Coordinates on principal axes of all states of a part, the mean removed.

    :param coordinates: (frames, T, `ALIGNED`), the first two are shown
    :param shares: of the whole variance, on each axis
    """

    coordinates: Array
    shares: Array

    @property
    def shown(self) -> Array:
        """(frames, T, 2)."""
        return self.coordinates[..., :2]

    @property
    def variance(self) -> list[float]:
        """What the two axes show of the variance."""
        return [float(share) for share in self.shares[:2]]


def fit(states: Array) -> Projection:
    """Project all states (frames, T, D) on their principal axes.

    An axis points to where its largest loading is positive, so that the same states give the same picture.
    """
    frames, tokens, size = states.shape
    flat = states.reshape(-1, size) - states.reshape(-1, size).mean(0)
    _, values, axes = np.linalg.svd(flat, full_matrices=False)
    kept = axes[:ALIGNED]
    largest = kept[np.arange(len(kept)), np.abs(kept).argmax(1)]
    kept = kept * np.where(largest < 0, -1.0, 1.0)[:, None]
    coordinates = np.zeros((len(flat), ALIGNED))  # where there are fewer axes, the others are zero
    coordinates[:, : len(kept)] = flat @ kept.T
    return Projection(coordinates.reshape(frames, tokens, ALIGNED), _shares(coordinates, float((values**2).sum())))


def _shares(coordinates: Array, total: float) -> Array:
    sums: Array = (coordinates**2).sum(0)
    return sums / total if total > 0 else np.zeros(len(sums))


def align(first: Projection, second: Projection, first_ends: Sequence[int], second_ends: Sequence[int]) -> Projection:
    """Turn the second towards the first: orthogonal Procrustes on the frames where both stand at the same depth.

    Rotation and reflection only: distances stay what they were. The axes that are then shown are no longer those of the
    largest variance, and the shares are theirs.

    :param first_ends: indices of those frames in the first, as many as in the second
    """
    towards = first.coordinates[list(first_ends)].reshape(-1, ALIGNED)
    moved = second.coordinates[list(second_ends)].reshape(-1, ALIGNED)
    left, _, right = np.linalg.svd(moved.T @ towards)
    turned: Array = second.coordinates @ (left @ right)
    flat = second.coordinates.reshape(-1, ALIGNED)
    # The axes together hold what they held; each one's share is of the same whole.
    held = float(second.shares.sum())
    whole = float((flat**2).sum()) / held if held > 0 else 0.0
    return replace(second, coordinates=turned, shares=_shares(turned.reshape(-1, ALIGNED), whole))


def bounds(projections: Sequence[Projection]) -> list[float]:
    """xmin, xmax, ymin, ymax of all that is shown."""
    points = np.concatenate([each.shown.reshape(-1, 2) for each in projections])
    (left, bottom), (right, top) = points.min(0), points.max(0)
    return [float(edge) for edge in (left, right, bottom, top)]
