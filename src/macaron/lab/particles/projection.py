"""The projection of particles to two dimensions, the same for all frames, and the alignment of two projections."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
View = Literal["raw", "normalised"]
VIEWS: tuple[View, ...] = ("raw", "normalised")

#: Principal axes in which two models are aligned: more than the two that are shown, since axes of nearly equal variance
#: may be swapped in the other model; not many, since with many axes anything can be aligned.
ALIGNED = 4


@dataclass(frozen=True, eq=False)
class Projection:
    """Coordinates of all states of a part on their principal axes, centred.

    :param coordinates: (frames, T, `ALIGNED`), the first two are shown
    :param total: the sum of squares of the centred states, over all dimensions
    """

    coordinates: Array
    total: float

    @property
    def shown(self) -> Array:
        """(frames, T, 2)."""
        return self.coordinates[..., :2]

    @property
    def shares(self) -> Array:
        """The fraction of the total variance on each axis."""
        return (self.coordinates**2).sum((0, 1)) / (self.total or 1.0)


def fit(states: Array) -> Projection:
    """Project all states (frames, T, D) on their principal axes; signs are fixed: the same states, the same picture."""
    frames, tokens, size = states.shape
    flat = states.reshape(-1, size) - states.reshape(-1, size).mean(0)
    _, values, axes = np.linalg.svd(flat, full_matrices=False)
    kept = axes[:ALIGNED]
    largest = kept[np.arange(len(kept)), np.abs(kept).argmax(1)]
    kept = kept * np.where(largest < 0, -1.0, 1.0)[:, None]
    coordinates = np.zeros((len(flat), ALIGNED))  # missing axes are zero
    coordinates[:, : len(kept)] = flat @ kept.T
    return Projection(coordinates.reshape(frames, tokens, ALIGNED), float((values**2).sum()))


def align(first: Projection, second: Projection, first_ends: Sequence[int], second_ends: Sequence[int]) -> Projection:
    """Rotate the second towards the first: orthogonal Procrustes on the frames where both are at the same depth.

    Rotation and reflection preserve distances. The axes shown are then no longer those of the largest variance.

    :param first_ends: indices of those frames in the first, as many as in the second
    """
    towards = first.coordinates[list(first_ends)].reshape(-1, ALIGNED)
    moved = second.coordinates[list(second_ends)].reshape(-1, ALIGNED)
    left, _, right = np.linalg.svd(moved.T @ towards)
    return replace(second, coordinates=second.coordinates @ (left @ right))


def bounds(projections: Sequence[Projection]) -> list[float]:
    """xmin, xmax, ymin, ymax of all points that are shown."""
    points = np.concatenate([each.shown.reshape(-1, 2) for each in projections])
    (left, bottom), (right, top) = points.min(0), points.max(0)
    return [float(edge) for edge in (left, right, bottom, top)]
