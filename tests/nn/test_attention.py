"""Attention within packed sequences needs a GPU (tests/gpu/test_pretraining.py); here its operator on meta tensors."""

import torch

from macaron.nn import Context
from macaron.nn.attention import SelfAttention, SequenceOffsets


def test_shapes_and_gradients_without_a_gpu():
    """PyTorch has the operator, with a derivative, in the form that it is called here."""
    attention = SelfAttention(32, 4, 8, 0.1, "kaiming").to("meta", torch.bfloat16)
    x = torch.empty(3, 16, 32, device="meta", dtype=torch.bfloat16, requires_grad=True)
    offsets = torch.empty(10, device="meta", dtype=torch.int32)
    moved = attention(x, Context(sequences=SequenceOffsets(offsets, 16)), 0)
    assert moved.shape == x.shape
    moved.sum().backward()
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert all(parameter.grad is not None for parameter in attention.parameters())
