"""Operators against plain loops over their equations, gradients included."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from macaron.nn import Context, LayerSettings, Stack, SubLayer
from macaron.nn.embedding import sinusoids
from macaron.ode import scheme

D, H, K, T = 12, 3, 4, 7


def sub(operator: str = "F", width: int = K, branch: int = 0, **changes: Any) -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": 24, "dropout": 0.0}
    made = SubLayer(operator, width, 0, LayerSettings(**{**shape, **changes}), branch=branch).double().eval()
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


@pytest.mark.parametrize("kind", ["lightweight", "dynamic"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kernel", "glu"), [(3, True), (4, False), (9, True)])
def test_convolutions(kind: str, causal: bool, kernel: int, glu: bool):
    module = sub(attention={"kind": kind, "kernels": [kernel], "glu": glu}, causal=causal).operator

    def reference(x: Tensor) -> Tensor:
        inner = x @ module.values.weight.T + module.values.bias
        if glu:
            gate, inner = inner[:, : H * K], inner[:, H * K :]
            inner = inner / (1 + torch.exp(-gate))
        moved = []
        for i in range(T):
            heads = []
            for h in range(H):
                own = module.weights.weight
                scores = own[h] if kind == "lightweight" else (own @ inner[i]).view(H, kernel)[h]
                weights = scores.exp() / scores.exp().sum()
                first = i - (kernel - 1 if causal else (kernel - 1) // 2)
                seen = [(n, first + n) for n in range(kernel) if 0 <= first + n < T]
                heads.append(sum(weights[n] * inner[j, h * K : (h + 1) * K] for n, j in seen))
            moved.append(torch.cat(heads))
        return torch.stack(moved) @ module.out.weight.T + module.out.bias

    agree(module, lambda x: module(x, Context(causal=causal), 0), reference)


@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_weighted_branches(activation: str):
    module = sub(attention="weighted", activation=activation, branch=5).operator
    out = module.out

    def reference(x: Tensor) -> Tensor:
        rows = (x @ module.qkv.weight.T + module.qkv.bias).view(T, 3, H, K)
        alpha, kappa = (each.exp() / each.exp().sum() for each in (out.alpha, out.kappa))
        total = torch.zeros(T, D, dtype=x.dtype)
        for h in range(H):
            weights = (rows[:, 0, h] @ rows[:, 1, h].T / math.sqrt(K)).softmax(-1)
            head = weights @ rows[:, 2, h] @ out.heads[h]
            inner = kappa[h] * head @ out.fc1[h] + out.bias1[h]
            if activation == "relu":
                inner = inner.clamp(min=0)
            else:
                gate, value = inner.chunk(2, -1)
                inner = gate / (1 + torch.exp(-gate)) * value
            total = total + alpha[h] * (inner @ out.fc2[h] + out.bias2[h])
        return total

    agree(module, lambda x: module(x, Context(), 0), reference)


def test_weights_of_branches_stay_on_the_simplex():
    out = sub(attention="weighted", branch=5).operator.out
    optimiser = torch.optim.Adam(out.parameters(), lr=0.1)
    for _ in range(5):
        optimiser.zero_grad()
        out(torch.randn(2, T, H * K, dtype=torch.float64)).square().sum().backward()
        optimiser.step()
    for weights in (out.alpha.softmax(0), out.kappa.softmax(0)):
        assert bool((weights > 0).all())
        assert float(weights.detach().sum()) == pytest.approx(1)
        assert float(weights.detach().std()) > 0.01


@pytest.mark.parametrize("positions", [None, torch.tensor([[2, 3, 4, 2, 3, 4, 5]])])
def test_a_universal_transformer_is_told_position_and_step_at_every_step(positions: Tensor | None):
    stack = stack_of("lie-fg", positions_at="layers", tying="depth")
    (layer,) = stack.layers
    places = torch.arange(2, 2 + T) if positions is None else positions[0]

    def reference(x: Tensor) -> Tensor:
        for step in range(2):
            x = x + sinusoids(places, D, torch.float64) + stack.signals.steps.weight[step]
            x = layer(x[None], Context())[0]
        return stack.norm(x)

    agree(stack, lambda x: stack(x, Context(positions=positions)), reference)
