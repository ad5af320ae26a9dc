"""The fused loss against torch's own functions."""

import pytest
import torch
from torch import nn

from macaron.nn.loss import SmoothedCrossEntropy


@pytest.mark.parametrize("chunk", [1, 5, 64])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients(chunk: int, smoothing: float):
    torch.manual_seed(0)
    states = torch.randn(3, 7, 8, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 8, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 11, (3, 7))
    targets[0, 4:] = 1
    sums = SmoothedCrossEntropy(smoothing, 1, chunk)(states, weight, targets)
    (sums[0] / 5).backward()
    ours = states.grad, weight.grad
    states.grad = weight.grad = None
    logits = (states @ weight.T).reshape(-1, 11)
    flat = targets.reshape(-1)
    loss = nn.functional.cross_entropy(logits, flat, ignore_index=1, reduction="sum", label_smoothing=smoothing)
    nll = nn.functional.cross_entropy(logits, flat, ignore_index=1, reduction="sum")
    (loss / 5).backward()
    torch.testing.assert_close(sums[0], loss)
    torch.testing.assert_close(sums[1], nll)
    for mine, theirs in zip(ours, (states.grad, weight.grad), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_under_autocast_gradients_come_back_in_the_parameters_type():
    torch.manual_seed(0)
    states = torch.randn(6, 16, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(9, 16, requires_grad=True)
    targets = torch.randint(2, 9, (6,))
    with torch.autocast("cpu", torch.bfloat16):
        sums = SmoothedCrossEntropy(0.1, 1, 4)(states, weight, targets)
    sums[0].backward()
    assert states.grad is not None
    assert weight.grad is not None
    assert (states.grad.dtype, weight.grad.dtype) == (torch.bfloat16, torch.float32)
    reference = nn.functional.cross_entropy(states.float() @ weight.T, targets, reduction="sum", label_smoothing=0.1)
    assert sums[0].item() == pytest.approx(reference.item(), rel=2e-2)


def test_nothing_is_computed_for_gradients_that_nobody_wants():
    states, weight = torch.randn(4, 8), torch.randn(5, 8)
    with torch.no_grad():
        sums = SmoothedCrossEntropy(0.1, 1)(states, weight, torch.tensor([2, 3, 4, 1]))
    assert not sums.requires_grad
