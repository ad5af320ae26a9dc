"""Curves over depth, on clouds whose numbers are known."""

import pytest
import torch

from macaron.lab.particles.depth import mean_angle, mean_cosine, participation


def test_angles():
    moves = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]])
    assert mean_angle(moves, moves) == pytest.approx(0, abs=1e-3)
    turned = torch.tensor([[0.0, 1.0], [0.0, -1.0], [5.0, 5.0]])
    assert mean_angle(moves, turned) == pytest.approx((90 + 180) / 2)  # the third did not move before
    assert mean_angle(torch.zeros(3, 2), moves) is None


def test_cosines():
    assert mean_cosine(torch.eye(4)) == pytest.approx(0)
    assert mean_cosine(torch.ones(4, 3) * torch.tensor([[1.0], [2], [3], [4]])) == pytest.approx(1)
    assert mean_cosine(torch.tensor([[1.0, 0], [-1, 0]])) == pytest.approx(-1)
    assert mean_cosine(torch.ones(1, 3)) is None


def test_effective_dimensions():
    line = torch.arange(5.0)[:, None] * torch.tensor([[1.0, 2, 3]]) + 7
    assert participation(line) == pytest.approx(1, rel=1e-4)
    corners = torch.cat([torch.eye(3), -torch.eye(3)])
    assert participation(corners) == pytest.approx(3)
    assert participation(torch.ones(4, 3)) == 0
