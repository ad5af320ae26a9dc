"""What happens to the particles with depth: the sizes of their moves, how they turn, how they gather."""

import math
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from macaron.lab.particles.fields import commutators, truncation_error
from macaron.lab.particles.states import END, Walk


def depth(walk: Walk) -> dict[str, Any]:
    """All curves over depth, as plain data."""
    states = [frame.state.double() for frame in walk.frames]
    moves = [after - before for before, after in pairwise(states)]
    sizes = []
    for frame, before, move in zip(walk.frames[1:], states, moves, strict=False):
        if frame.operator != END:
            length, size = move.norm(dim=-1), before.norm(dim=-1)
            relative = float((length / size.clamp(min=1e-30)).mean())
            entry = {"layer": frame.layer, "operator": frame.operator}
            sizes.append({**entry, "size": float(length.mean()), "relative": relative})
    angles = [None, None, *(mean_angle(before, after) for before, after in pairwise(moves))]
    return {
        "moves": sizes,
        "angles": angles[: len(states)],
        "similarity": [mean_cosine(state) for state in states],
        "spread": [participation(state) for state in states],
        "commutator": [
            {"layer": passage.layer, **asdict(each)}
            for passage in walk.passages
            for each in commutators(passage, walk.context)
        ],
        "truncation": [
            {"layer": passage.layer, "relative": truncation_error(passage, walk.context)} for passage in walk.passages
        ],
    }


def mean_angle(before: Tensor, after: Tensor) -> float | None:
    """The mean over particles of the angle in degrees between two moves (T, D); of those that do move."""
    lengths = before.norm(dim=-1) * after.norm(dim=-1)
    moving = lengths > 0
    if not bool(moving.any()):
        return None
    cosines = ((before * after).sum(-1)[moving] / lengths[moving]).clamp(-1, 1)
    return float(torch.rad2deg(cosines.acos()).mean())


def cosines(state: Tensor) -> Tensor:
    """Of all pairs of particles (T, D): (T, T)."""
    unit = state / state.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return unit @ unit.T


def mean_cosine(state: Tensor) -> float | None:
    """The mean cosine of two different particles; 1 where all look the same way. None for a single one."""
    count = len(state)
    if count < 2:
        return None
    table = cosines(state)
    return float((table.sum() - table.diagonal().sum()) / (count * (count - 1)))


def participation(state: Tensor) -> float:
    """The effective number of dimensions in which the particles lie: (Σ λ)² / Σ λ² of their covariance."""
    squares = torch.linalg.svdvals(state - state.mean(0)) ** 2
    total = float(squares.sum())
    if total <= 0 or not math.isfinite(total):
        return 0.0
    return total**2 / float((squares**2).sum())


def moves_of(walk: Walk) -> list[Tensor]:
    """The length of every particle's move to each frame (T,); zero at the start."""
    states = [frame.state.double() for frame in walk.frames]
    return [torch.zeros(len(states[0])), *((after - before).norm(dim=-1) for before, after in pairwise(states))]
