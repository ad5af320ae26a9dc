"""Attention as training calls it. Needs a GPU."""

import pytest
import torch
import torch.nn.functional as F

from macaron.train.step import precision

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.parametrize("size", [64, 128, 192])
def test_gradients_are_finite_where_all_logits_are_low(size):
    """cuDNN's are not at 64 and 192 positions: the unused half of a tile of keys overflows (PyTorch's issue 196678)."""
    device = torch.device("cuda")
    torch.manual_seed(1)
    query, key, value = (0.1 * torch.randn(2, 2, size, 32, device=device) for _ in range(3))
    query[..., 0], key[..., 0] = 1.0, -120 * 32**0.5
    mask = torch.ones(size, size, dtype=torch.bool, device=device).tril()
    given = [each.to(torch.bfloat16).requires_grad_() for each in (query, key, value)]
    with precision(device, True):
        F.scaled_dot_product_attention(*given, attn_mask=mask).float().square().sum().backward()
    assert all(bool(each.grad.isfinite().all()) for each in given)
