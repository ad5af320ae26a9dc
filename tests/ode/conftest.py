"""Linear operators that do not commute, whose flows are matrix exponentials."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
from scipy.linalg import expm

from macaron.ode.flows import Field, Flow, Time, _draw
from macaron.ode.word_series import Array


@dataclass(frozen=True, eq=False)
class LinearSystem:
    """x' = A x for the matrix A of each operator; ``start`` is a vector."""

    matrices: Mapping[str, Array]
    start: Array

    @property
    def fields(self) -> dict[str, Field]:
        def field(matrix: Array) -> Field:
            return lambda t, x: (matrix @ x[..., np.newaxis])[..., 0]

        return {operator: field(matrix) for operator, matrix in self.matrices.items()}

    def flow(self, **sums: Array) -> Flow:
        """The exact flow of each operator, and of further matrices by name."""
        matrices = {**self.matrices, **sums}

        def flow(operator: str, t: Time, x: Array, h: Time) -> Array:
            # A step that broadcasts against vectors has a last axis of length 1; a matrix has one axis more.
            step = np.asarray(h)[..., np.newaxis] if np.ndim(h) else h
            return (expm(step * matrices[operator]) @ x[..., np.newaxis])[..., 0]

        return flow


@pytest.fixture(scope="session")
def linear_system() -> Callable[[int], LinearSystem]:
    """A linear system by seed: F and H mix particles and coordinates, G coordinates alone."""

    def make(seed: int, n: int = 3, d: int = 3) -> LinearSystem:
        draw = partial(_draw, seed)

        def mixing(name: str) -> Array:
            # X -> A X B. Without B, mixing particles would commute with anything position-wise.
            return np.kron(draw(f"{name}-particles", (n, n), n), draw(f"{name}-coordinates", (d, d), d))

        matrices = {"F": mixing("F"), "G": np.kron(np.eye(n), draw("G", (d, d), d)), "H": mixing("H")}
        return LinearSystem(matrices, draw("start", (n * d,), 1))

    return make
