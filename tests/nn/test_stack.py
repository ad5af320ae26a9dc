"""Stacks: the cache, the ends, tying across depth, compilation."""

from typing import Any

import pytest
import torch
from torch import Tensor

from macaron.errors import MacaronError
from macaron.nn import Context, KeyValueCache, LayerSettings, Stack
from macaron.nn.embedding import Embedding, sinusoids, token_positions
from macaron.ode import Step, lift, scheme

D = 32
SHAPE = {"hidden_size": D, "num_attention_heads": 4, "head_size": 8, "intermediate_size": 128, "dropout": 0.0}
SCHEMES = [
    "lie-fg",
    "strang-gfg",
    "parallel",
    "sws",
    "strang-fgf",
    "best22-fgfg",
    "strang3-gfhfg",
]


#: Networks for the compiler, with several operators each.
OPERATORS = [
    (
        "strang-gfg",
        {
            "attention": {"positions": "rotary", "qk_norm": True},
            "activation": "swiglu",
            "norm_type": "rms",
            "velocity": {"beta": 0.5, "mu": 0.5, "learned": "channel"},
        },
    ),
    ("lie-fg", {"attention": "relative", "layer_integrator": "heun", "activation": "relu2"}),
    ("lie-fg", {"attention": "dynamic", "positions_at": "layers", "tying": "none"}),
    ("lie-fg", {"attention": "weighted"}),
]


def stack_of(name: str, layers: int = 2, ends: bool = False, **changes) -> Stack:
    torch.manual_seed(0)
    made = scheme(name)
    decoder = made if "H" in made.operators else lift(made)
    prologue = [Step("G", 0.5)] if ends else []
    epilogue = [Step("F", 1.0), Step("H", 1.0), Step("G", 0.5)] if ends else []
    return Stack(decoder, layers, LayerSettings(**{**SHAPE, **changes}), prologue, epilogue).double().eval()


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("integrator", ["euler", "heun", "rk4"])
@pytest.mark.parametrize("tying", ["none", "layer", "depth"])
def test_cached_equals_uncached(name: str, integrator: str, tying: str):
    stack = stack_of(name, integrator=integrator, tying=tying, ends=True)
    x, memory = torch.randn(2, 6, D, dtype=torch.float64), torch.randn(2, 4, D, dtype=torch.float64)
    real = torch.tensor([[True] * 4, [True, True, False, False]])[:, None, None, :]
    whole = stack(x, Context(causal=True, memory=memory, memory_mask=real))
    for cuts in ([1, 1, 1, 1, 1, 1], [3, 1, 2], [6]):
        cache, pieces = KeyValueCache(), []
        for piece in x.split(cuts, dim=1):
            pieces.append(stack(piece, Context(causal=True, memory=memory, memory_mask=real, cache=cache)))
        assert cache.length == 6
        torch.testing.assert_close(torch.cat(pieces, 1), whole, rtol=1e-10, atol=1e-10)


def test_the_cache_follows_the_survivors_of_a_beam():
    stack = stack_of("macaron")
    x, memory = torch.randn(3, 4, D, dtype=torch.float64), torch.randn(3, 4, D, dtype=torch.float64)
    cache = KeyValueCache()
    stack(x[:, :3], Context(causal=True, memory=memory, cache=cache))
    rows = torch.tensor([2, 0, 2])
    cache.select(rows)
    last = torch.randn(3, 1, D, dtype=torch.float64)
    step = stack(last, Context(causal=True, memory=memory[rows], cache=cache))
    whole = stack(torch.cat([x[rows, :3], last], 1), Context(causal=True, memory=memory[rows]))
    torch.testing.assert_close(step[:, 0], whole[:, -1], rtol=1e-10, atol=1e-10)


def test_batch_of_one_equals_batch_of_many():
    torch.manual_seed(0)
    stack = Stack(scheme("macaron"), 2, LayerSettings(**SHAPE)).double().eval()
    x = torch.randn(3, 5, D, dtype=torch.float64)
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]]).bool()
    together = stack(x, Context(mask=real[:, None, None, :]))
    for row, length in enumerate([5, 3, 1]):
        alone = stack(x[row : row + 1, :length], Context())
        torch.testing.assert_close(alone[0], together[row, :length], rtol=1e-10, atol=1e-10)


def test_tied_across_depth_there_is_one_field():
    stack = stack_of("macaron", layers=5, tying="depth", ends=True)
    assert len(stack.layers) == 1
    assert len(stack.steps) == 7
    names = {name.split(".")[2] for name, _ in stack.layers.named_parameters(prefix="layers")}
    assert names == {"sublayers"}
    # The ends borrow the same field: they have no parameters of their own.
    assert not [name for name, _ in stack.named_parameters() if "logue" in name]
    assert not [name for name in stack.state_dict() if "logue" in name]


def test_lie_with_half_a_g_at_both_ends():
    """G/2 (F G)^(L-1) F G/2 has the sub-layers of L Macaron layers whose neighbouring halves of G are merged."""
    torch.manual_seed(0)
    ends = Stack(
        scheme("lie-fg"), 3, LayerSettings(**SHAPE), [Step("G", 0.5)], [Step("F", 1.0), Step("G", 0.5)]
    ).double()
    x = torch.randn(1, 4, D, dtype=torch.float64)
    fields = [(name[0], step.sublayers[name]) for step in ends.steps for name in step.sublayers]
    assert "".join(operator for operator, _ in fields) == "GFGFGFGFG"
    y = x
    for place, (operator, field) in enumerate(fields):
        half = operator == "G" and place in (0, len(fields) - 1)
        y = y + (0.5 if half else 1.0) * field.field(y, Context(), 0)
    assert ends.norm is not None
    torch.testing.assert_close(ends(x, Context()), ends.norm(y), rtol=1e-12, atol=1e-12)


def test_lie_with_ends_has_the_size_of_a_macaron_stack():
    """Half a G is half as wide: three Lie layers with their ends are as large as four Macaron layers."""
    settings = LayerSettings(num_attention_heads=8)
    with torch.device("meta"):
        ends = Stack(scheme("lie-fg"), 3, settings, [Step("G", 0.5)], [Step("F", 1.0), Step("G", 0.5)])
        macaron = Stack(scheme("macaron"), 4, settings)
    mine, theirs = (sum(p.numel() for p in s.parameters()) for s in (ends, macaron))
    assert abs(mine / theirs - 1) < 0.005


def test_hidden_states_are_those_between_the_steps():
    stack = stack_of("macaron", ends=True)
    states: list[Tensor] = []
    x, memory = torch.randn(1, 3, D, dtype=torch.float64), torch.randn(1, 2, D, dtype=torch.float64)
    stack(x, Context(causal=True, memory=memory), states)
    assert len(states) == 4
    torch.testing.assert_close(states[0], x)


def test_no_layers_is_refused():
    with pytest.raises(MacaronError, match="at least one layer"):
        Stack(scheme("macaron"), 0, LayerSettings(**SHAPE))


def test_sinusoids_are_sines_then_cosines_from_position_two():
    table = sinusoids(torch.arange(8), 6)
    frequencies = 10000.0 ** (-torch.arange(3) / 2)
    angles = torch.arange(8)[:, None] * frequencies
    expected = torch.cat([angles.sin(), angles.cos()], 1)
    expected[:2] = 0  # padding has no place
    torch.testing.assert_close(table, expected)


def test_left_and_right_padding_count_alike():
    left = torch.tensor([[0, 0, 1, 1, 1]]).bool()
    assert token_positions(left).tolist() == [[1, 1, 2, 3, 4]]
    assert token_positions(left.flip(1)).tolist() == [[2, 3, 4, 1, 1]]


def test_embedding_is_scaled_and_a_frozen_segment_stays_zero():
    torch.manual_seed(0)
    embedding = Embedding(11, D, 1, 0.0, num_segments=2, first_segment=1, freeze_first_segment=True)
    ids, segments = torch.tensor([[4, 5]]), torch.tensor([[1, 0]])
    x = embedding(ids, segments=segments)
    table, own = embedding.tokens.weight, embedding.segments
    assert own is not None
    assert (table[1] == 0).all()
    torch.testing.assert_close(x[0, 0], table[4] * D**0.5 + sinusoids(torch.tensor(2), D))
    torch.testing.assert_close(x[0, 1], table[5] * D**0.5 + sinusoids(torch.tensor(3), D) + own.weight[0])
    x.sum().backward()
    assert own.weight.grad is not None
    assert (own.weight.grad[1] == 0).all()
    assert (own.weight.grad[0] == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("strang-gfg", {}),
        ("sws", {"norm": "post"}),
        ("strang-fgf", {"integrator": "heun", "tying": "depth"}),
        *OPERATORS,
    ],
)
def test_eager_equals_compiled(name: str, changes: dict[str, Any]):
    torch.manual_seed(0)
    stack = Stack(scheme(name), 2, LayerSettings(**{**SHAPE, **changes}))
    x = torch.randn(2, 5, D, requires_grad=True)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]).bool()[:, None, None, :]

    def run(function):
        stack.zero_grad()
        y = function(x, Context(mask=mask))
        y.square().sum().backward()
        return y.detach(), [p.grad.clone() for p in stack.parameters() if p.grad is not None]

    eager, gradients = run(stack)
    compiled, compiled_gradients = run(torch.compile(stack, fullgraph=True))
    torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-5)
    assert len(gradients) == len(compiled_gradients) == len(list(stack.parameters()))
    for a, b in zip(compiled_gradients, gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)
