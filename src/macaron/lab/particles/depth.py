"""Measures of the particles over depth: the sizes and angles of their moves, their similarity and spread."""

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.lab.particles.fields import commutators, truncation_error
from macaron.lab.particles.trace import END, Trace


def depth(traced: Trace) -> dict[str, Any]:
    """All measures over depth, as plain data."""
    states = [frame.state.double() for frame in traced.frames]
    moves = [after - before for before, after in pairwise(states)]
    sizes = []
    for frame, before, move in zip(traced.frames[1:], states, moves, strict=False):
        if frame.operator != END:
            length, size = move.norm(dim=-1), before.norm(dim=-1)
            sizes.append(
                {
                    "layer": frame.layer,
                    "operator": frame.operator,
                    "size": float(length.mean()),
                    "relative": float((length / size.clamp(min=1e-30)).mean()),
                }
            )
    angles = [None, None, *(mean_angle(before, after) for before, after in pairwise(moves))]
    return {
        "moves": sizes,
        "angles": angles[: len(states)],
        "similarity": [mean_cosine(state) for state in states],
        "spread": [participation(state) for state in states],
        "commutator": [
            {"layer": layer.number, **each} for layer in traced.layers for each in commutators(layer, traced.context)
        ],
        "truncation": [
            {"layer": layer.number, "relative": truncation_error(layer, traced.context)} for layer in traced.layers
        ],
    }


def mean_angle(before: Tensor, after: Tensor) -> float | None:
    """The mean angle in degrees between two moves (T, D), over the particles that moved both times."""
    lengths = before.norm(dim=-1) * after.norm(dim=-1)
    moving = lengths > 0
    if not bool(moving.any()):
        return None
    cosines = ((before * after).sum(-1)[moving] / lengths[moving]).clamp(-1, 1)
    return float(torch.rad2deg(cosines.acos()).mean())


def cosines(state: Tensor) -> Tensor:
    """The cosines of all pairs of particles (T, D): (T, T)."""
    unit = F.normalize(state, dim=-1, eps=1e-30)
    return unit @ unit.T


def mean_cosine(state: Tensor) -> float | None:
    """The mean cosine of two different particles; None for a single particle."""
    count = len(state)
    if count < 2:
        return None
    return float(cosines(state).fill_diagonal_(0).sum() / (count * (count - 1)))


def participation(state: Tensor) -> float:
    """The participation ratio (Σ λ)² / Σ λ² of the covariance: the effective number of dimensions."""
    squares = torch.linalg.svdvals(state - state.mean(0)) ** 2
    ratio = squares.sum() ** 2 / (squares**2).sum()
    return float(ratio.nan_to_num(0.0, posinf=0.0))  # all particles at one point, or out of range
