"""Operators against plain loops over their equations, gradients included."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from macaron.nn import Context, LayerSettings, SubLayer

D, H, K, T = 12, 3, 4, 7


def sub(operator: str = "F", width: int = K, **changes: Any) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": 24, "dropout": 0.0}
    made = SubLayer(operator, width, 0, LayerSettings(**{**shape, **changes})).double().eval()
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def agree(module: torch.nn.Module, run: Any, reference: Any) -> None:
    """Equal outputs for (B, T, D), equal gradients for the input and all parameters."""
    x, direction = torch.randn(2, T, D, dtype=torch.float64), torch.randn(2, T, D, dtype=torch.float64)
    found = []
    for function in (run, lambda at: torch.stack([reference(row) for row in at])):
        at = x.clone().requires_grad_()
        module.zero_grad()
        output = function(at)
        (output * direction).sum().backward()
        found.append([output.detach(), at.grad, *(parameter.grad for parameter in module.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("causal", [False, True])
def test_relative_positions_of_keys_and_values(causal: bool):
    module = sub(attention={"positions": "relative", "clip": 2}).operator
    tables = module.relative.keys.weight, module.relative.values.weight

    def reference(x: Tensor) -> Tensor:
        rows = (x @ module.qkv.weight.T + module.qkv.bias).view(T, 3, H, K)
        moved = []
        for i in range(T):
            heads = []
            seen = range(i + 1 if causal else T)
            for h in range(H):
                places = [max(-2, min(2, j - i)) + 2 for j in seen]
                logits = [rows[i, 0, h] @ (rows[j, 1, h] + tables[0][p]) for j, p in zip(seen, places, strict=True)]
                weights = (torch.stack(logits) / math.sqrt(K)).softmax(0)
                values = torch.stack([rows[j, 2, h] + tables[1][p] for j, p in zip(seen, places, strict=True)])
                heads.append(weights @ values)
            moved.append(torch.cat(heads))
        return torch.stack(moved) @ module.out.weight.T + module.out.bias

    agree(module, lambda x: module(x, Context(causal=causal), 0), reference)
