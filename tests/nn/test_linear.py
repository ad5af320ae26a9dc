"""Dropout: shares, expectation and gradients of what is kept; on a CPU the random numbers are ours."""

import pytest
import torch

from macaron.nn.linear import dropout


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.75])
def test_a_share_is_dropped_and_the_rest_scaled(rate: float):
    torch.manual_seed(1)
    x = torch.ones(1_000_001, requires_grad=True)
    y = dropout(x, rate, True)
    kept = y != 0
    assert float(kept.double().mean()) == pytest.approx(1 - rate, abs=5 * (rate * (1 - rate) / len(x)) ** 0.5 + 1e-5)
    assert torch.allclose(y[kept], torch.full_like(y[kept], 1 / (1 - rate)), rtol=1e-4)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(gradient, y.detach())


def test_neighbours_are_independent():
    """The four decisions of one random number, too."""
    torch.manual_seed(2)
    kept = (dropout(torch.ones(1_000_000), 0.5, True) > 0).double() * 2 - 1
    for distance in range(1, 9):
        assert abs(float((kept[:-distance] * kept[distance:]).mean())) < 0.005


def test_the_seed_decides():
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return dropout(torch.ones(3, 5, 7), 0.5, True)

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_nothing_or_everything(dtype: torch.dtype):
    x = torch.randn(4, 3, dtype=dtype)
    assert torch.equal(dropout(x, 0.0, True), x)
    assert torch.equal(dropout(x, 0.5, False), x)
    assert not dropout(x, 1.0, True).any()
    assert dropout(x, 0.5, True).dtype == dtype
