"""Operators against plain loops over their equations, gradients included."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from macaron.nn import Context, LayerSettings, Stack, SubLayer
from macaron.ode import scheme

D, H, K, T = 12, 3, 4, 7


def sub(operator: str = "F", width: int = K, **changes: Any) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": 24, "dropout": 0.0}
    made = SubLayer(operator, width, 0, LayerSettings(**{**shape, **changes})).double().eval()
    for parameter in made.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return made


def stack_of(name: str, shake: bool = True, **changes: Any) -> Stack:
    torch.manual_seed(0)
    shape = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": 24, "dropout": 0.0}
    made = Stack(scheme(name), 2, LayerSettings(**{**shape, **changes})).double().eval()
    for parameter in made.parameters() if shake else ():
        parameter.data += 0.2 * torch.randn_like(parameter)
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


@pytest.mark.parametrize("learned", ["no", "sublayer", "channel"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_kick_and_drift(learned: str, norm: str):
    form = {"beta": 0.7, "mu": 0.3, "nu": 0.9, "learned": learned}
    stack = stack_of("strang-gfg", velocity=form, norm=norm)

    def reference(x: Tensor) -> Tensor:
        v = torch.zeros_like(x)
        for layer in stack.layers:
            for name, c in (("G1", 0.5), ("F1", 1.0), ("G2", 0.5)):
                part = layer.sublayers[name]
                beta, mu, nu = part.velocity.beta, part.velocity.mu, part.velocity.nu
                at = x + mu * v
                moved = part.operator((part.norm(at) if norm == "pre" else at)[None], Context(), 0)[0]
                v = beta * v + c * moved
                x = x + nu * v if norm == "pre" else part.norm(x + nu * v)
        return x if stack.norm is None else stack.norm(x)

    agree(stack, lambda x: stack(x, Context()), reference)


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_no_velocity_is_the_plain_network_to_the_bit(norm: str):
    """As a learned velocity that starts from beta = mu = 0, too."""
    x = torch.randn(2, T, D, dtype=torch.float64)
    same = {"norm": norm, "inner_sizes": (12, 12)}
    plain = stack_of("strang-gfg", **same)
    assert list(stack_of("strang-gfg", **same, velocity={"nu": 1}).state_dict()) == list(plain.state_dict())
    for learned in ("sublayer", "channel"):
        other = stack_of("strang-gfg", shake=False, **same, velocity={"learned": learned, "nu": 1.0})
        other.load_state_dict(plain.state_dict(), strict=False)
        assert torch.equal(other(x, Context()), plain(x, Context()))


@pytest.mark.parametrize("scheme_name", ["lie-fg", "parallel"])
def test_whole_layers_are_integrated_without_their_residual_connection(scheme_name: str):
    stack = stack_of(scheme_name, layer_integrator="rk4")

    def reference(x: Tensor) -> Tensor:
        for layer in stack.layers:

            def move(at: Tensor, step: Any = layer) -> Tensor:
                return step.step(at[None], Context(), 0, 0, None)[0] - at

            first = move(x)
            second = move(x + first / 2)
            third = move(x + second / 2)
            x = x + (first + 2 * second + 2 * third + move(x + third)) / 6
        assert stack.norm is not None
        return stack.norm(x)

    agree(stack, lambda x: stack(x, Context()), reference)
