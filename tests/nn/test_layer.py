"""The layer against equations written out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.errors import MacaronError
from macaron.nn import Context, LayerSettings, SchemeLayer, SubLayer, build_layer
from macaron.ode import Branch, Scheme, Step, lift, names, scheme

D, H, INNER = 16, 4, 24


def settings(**changes) -> LayerSettings:
    shape = {"hidden_size": D, "num_attention_heads": H, "intermediate_size": INNER}
    return LayerSettings(**{**shape, "dropout": 0.0, **changes})


def layer_of(which: str | Scheme, **changes) -> SchemeLayer:
    torch.manual_seed(0)
    layer = build_layer(scheme(which), settings(**changes)).double().eval()
    for parameter in layer.parameters():  # norms and biases away from ones and zeros, or mistakes in them hide
        parameter.data += 0.1 * torch.randn_like(parameter)
    return layer


def sub(layer: SchemeLayer, name: str) -> SubLayer:
    module = layer.sublayers[name]
    assert isinstance(module, SubLayer)
    return module


def norm(layer: SchemeLayer, name: str, x: Tensor) -> Tensor:
    n = sub(layer, name).norm
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + 1e-5) * n.weight + n.bias


def ffn(layer: SchemeLayer, name: str, x: Tensor) -> Tensor:
    g = sub(layer, name).operator
    return F.relu(x @ g.fc1.weight.T + g.fc1.bias) @ g.fc2.weight.T + g.fc2.bias


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Head by head, (T, D) and (S, D), no fused anything."""
    heads = []
    for a, b, c in zip(q.chunk(H, -1), k.chunk(H, -1), v.chunk(H, -1), strict=True):
        logits = a @ b.T / math.sqrt(a.shape[-1])
        if mask is not None:
            logits = logits.masked_fill(~mask, -math.inf)
        heads.append(torch.softmax(logits, -1) @ c)
    return torch.cat(heads, -1)


def self_attention(layer: SchemeLayer, name: str, x: Tensor, mask: Tensor | None = None) -> Tensor:
    f = sub(layer, name).operator
    q, k, v = (x @ f.qkv.weight.T + f.qkv.bias).chunk(3, -1)
    return attention(q, k, v, mask) @ f.out.weight.T + f.out.bias


def cross_attention(layer: SchemeLayer, name: str, x: Tensor, memory: Tensor) -> Tensor:
    h = sub(layer, name).operator
    q = x @ h.q.weight.T + h.q.bias
    k, v = (memory @ h.kv.weight.T + h.kv.bias).chunk(2, -1)
    return attention(q, k, v) @ h.out.weight.T + h.out.bias


@pytest.fixture
def x() -> Tensor:
    torch.manual_seed(1)
    return torch.randn(1, 5, D, dtype=torch.float64)


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_lie_fg_is_the_transformer_layer_pre_norm(x: Tensor):
    layer = layer_of("lie-fg")
    y = x[0] + self_attention(layer, "F1", norm(layer, "F1", x[0]))
    y = y + ffn(layer, "G1", norm(layer, "G1", y))
    close(layer(x, Context())[0], y)


def test_lie_fg_is_the_transformer_layer_post_norm(x: Tensor):
    layer = layer_of("transformer", norm="post")
    y = norm(layer, "F1", x[0] + self_attention(layer, "F1", x[0]))
    y = norm(layer, "G1", y + ffn(layer, "G1", y))
    close(layer(x, Context())[0], y)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_strang_gfg_is_the_papers_three_equations(x: Tensor, placement: str):
    layer = layer_of("macaron", norm=placement)
    pre = placement == "pre"

    def step(name: str, y: Tensor, c: float) -> Tensor:
        f = self_attention if name[0] == "F" else ffn
        moved = y + c * f(layer, name, norm(layer, name, y) if pre else y)
        return moved if pre else norm(layer, name, moved)

    y = step("G2", step("F1", step("G1", x[0], 0.5), 1.0), 0.5)
    close(layer(x, Context())[0], y)


def test_the_macaron_decoder_layer(x: Tensor):
    layer = layer_of(lift(scheme("macaron")))
    memory = torch.randn(1, 7, D, dtype=torch.float64)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    y = x[0] + 0.5 * ffn(layer, "G1", norm(layer, "G1", x[0]))
    y = y + self_attention(layer, "F1", norm(layer, "F1", y), mask)
    y = y + cross_attention(layer, "H1", norm(layer, "H1", y), memory[0])
    y = y + 0.5 * ffn(layer, "G2", norm(layer, "G2", y))
    close(layer(x, Context(causal=True, memory=memory))[0], y)


def test_a_scheme_that_is_only_data(x: Tensor):
    data = {
        "name": "mine",
        "branches": [
            {"weight": 0.75, "steps": [["G", 0.2], ["F", 1.0], ["G", 0.8]]},
            {"weight": 0.25, "steps": [["F", 1.0], ["G", 1.0]]},
        ],
    }
    layer = layer_of(scheme(data))

    def step(name: str, y: Tensor, c: float) -> Tensor:
        f = self_attention if name[0] == "F" else ffn
        return y + c * f(layer, name, norm(layer, name, y))

    first = step("G2", step("F1", step("G1", x[0], 0.2), 1.0), 0.8)
    second = step("G3", step("F2", x[0], 1.0), 1.0)
    close(layer(x, Context())[0], 0.75 * first + 0.25 * second)


def test_parallel_adds_both_moves(x: Tensor):
    layer = layer_of("parallel")
    y = x[0] + self_attention(layer, "F1", norm(layer, "F1", x[0])) + ffn(layer, "G1", norm(layer, "G1", x[0]))
    close(layer(x, Context())[0], y)


@pytest.mark.parametrize("name", ["midpoint", "heun", "rk3", "rk4"])
def test_integrators_advance_each_sub_flow(x: Tensor, name: str):
    layer = layer_of("macaron", integrator=name)

    def slope(key: str, y: Tensor) -> Tensor:
        f = self_attention if key[0] == "F" else ffn
        return f(layer, key, norm(layer, key, y))

    def step(key: str, y: Tensor, h: float) -> Tensor:
        k1 = slope(key, y)
        if name == "midpoint":
            return y + h * slope(key, y + h / 2 * k1)
        if name == "heun":
            return y + h / 2 * (k1 + slope(key, y + h * k1))
        k2 = slope(key, y + h / 2 * k1)
        if name == "rk3":
            return y + h / 6 * (k1 + 4 * k2 + slope(key, y + h * (2 * k2 - k1)))
        k3 = slope(key, y + h / 2 * k2)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(key, y + h * k3))

    close(layer(x, Context())[0], step("G2", step("F1", step("G1", x[0], 0.5), 1.0), 0.5))


def test_a_small_tied_layer_converges_to_the_exact_flow_at_the_order_of_its_scheme(x: Tensor):
    """The network is the solver: halving the step (coefficients) of a tied layer shrinks its error as theory says."""
    fields = layer_of("lie-fg", tying="layer", activation="gelu").sublayers
    data = {"lie": [("F", 1.0), ("G", 1.0)], "strang": [("G", 0.5), ("F", 1.0), ("G", 0.5)]}

    def run(steps: list[tuple[str, float]], n: int) -> Tensor:
        branch = Branch(1.0, tuple(Step(operator, c / n) for operator, c in steps))
        layer = SchemeLayer((branch,), {"F": (4,), "G": (24,)}, settings(integrator="rk4"), fields)
        y = x
        for _ in range(n):
            y = layer(y, Context())
        return y

    exact = run(data["strang"], 512)
    for name, order in (("lie", 1), ("strang", 2)):
        coarse, fine = ((run(data[name], n) - exact).norm().item() for n in (16, 32))
        assert math.log2(coarse / fine) == pytest.approx(order, abs=0.15)


@pytest.mark.parametrize("name", names())
def test_every_named_scheme_makes_a_layer(name: str):
    made = scheme(name)
    x = torch.randn(1, 5, 64, dtype=torch.float64)
    layer = layer_of(name, hidden_size=64, num_attention_heads=4, intermediate_size=256)
    context = Context(memory=x.flip(1) if "H" in made.operators else None)
    y = layer(x, context)
    assert y.shape == x.shape
    assert torch.isfinite(y).all()
    counts = {op: made.applications(op) for op in made.operators}
    for op, count in counts.items():
        assert [key for key in layer.sublayers if key[0] == op] == [f"{op}{i + 1}" for i in range(count)]


def test_gradients(x: Tensor):
    layer = layer_of("mclachlan2-gfgfg", integrator="heun", activation="gelu")
    inputs = x[:, :3].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda y: layer(y, Context()), (inputs,), atol=1e-6)
    weights = [p for p in layer.parameters() if p.numel() <= D]
    assert weights

    def by_weights(*values: Tensor) -> Tensor:
        changed = dict(zip([n for n, p in layer.named_parameters() if p.numel() <= D], values, strict=True))
        return torch.func.functional_call(layer, changed, (x[:, :2], Context()))

    assert torch.autograd.gradcheck(by_weights, tuple(weights), atol=1e-6)


def test_tied_applications_share_one_sub_layer():
    layer = layer_of("macaron", tying="layer")
    assert set(layer.sublayers) == {"G1", "F1"}
    assert sub(layer, "G1").operator.fc1.out_features == INNER


def test_dropout_acts_where_it_should(x: Tensor):
    """Dropping everything on the branch leaves the state; the norm of a post-norm layer still acts."""
    layer = layer_of("macaron", dropout=1.0).train()
    close(layer(x, Context()), x)
    layer = layer_of("macaron", activation_dropout=1.0).train()
    biases = sum(0.5 * sub(layer, name).operator.fc2.bias for name in ("G1", "G2"))
    moved = x + 0.5 * sub(layer, "G1").operator.fc2.bias
    attended = self_attention(layer, "F1", norm(layer, "F1", moved[0]))
    close(layer(x, Context())[0], x[0] + biases + attended)


def test_eager_kernel_equals_sdpa_and_gives_probabilities(x: Tensor):
    layer = layer_of("macaron")
    mask = torch.tensor([[[[True, True, True, False, False]]]])
    weights: list[tuple[str, Tensor]] = []
    close(layer(x, Context(mask=mask, kernel="eager")), layer(x, Context(mask=mask)))
    close(layer(x, Context(mask=mask, weights=weights)), layer(x, Context(mask=mask)))
    assert [op for op, _ in weights] == ["F"]
    close(weights[0][1].sum(-1), torch.ones(1, H, 5, dtype=torch.float64))
    assert (weights[0][1][..., 3:] == 0).all()


def test_a_row_without_any_key_is_moved_by_nothing_not_by_nan(x: Tensor):
    layer = layer_of("lie-fg")
    mask = torch.zeros(1, 1, 1, 5, dtype=torch.bool)
    for kernel in ("sdpa", "eager"):
        assert torch.isfinite(layer(x, Context(mask=mask, kernel=kernel))).all()


def test_mistakes_are_named():
    with pytest.raises(MacaronError, match="norm must be one of 'pre', 'post'"):
        settings(norm="sandwich")
    with pytest.raises(MacaronError, match="tying must be one of"):
        settings(tying="yes")
    with pytest.raises(MacaronError, match="operator 'C'"):
        build_layer(Scheme.sequence("conv", ("F", 1.0), ("C", 1.0), ("G", 1.0)), settings())
    with pytest.raises(MacaronError, match="1 activations are given"):
        build_layer(scheme("macaron"), settings(activation=["relu"]))
