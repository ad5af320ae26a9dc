"""The trace through a stack against what the models themselves compute."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from macaron.huggingface import HFTranslationModel
from macaron.lab.particles.trace import Trace, trace
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.encoder import EncoderModel
from macaron.models.translation import TranslationModel
from macaron.nn import Context, Stack, SubLayer
from macaron.ode import scheme

SMALL = {"vocab_size": 40, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
SOURCE, TARGET = torch.tensor([[7, 9, 12, 30, 2]]), torch.tensor([[2, 11, 25, 8]])
VARIANTS: list[dict[str, Any]] = [
    {"scheme": "lie-fg"},
    {"scheme": "strang-gfg"},
    {"scheme": "strang-gfg", "norm": "post"},
    {"scheme": "strang-gfg", "integrator": "heun"},
    {"scheme": "lie-fg", "integrator": "rk4", "norm": "post"},
    {"scheme": "strang-gfg", "tying": "layer"},
    {"scheme": "lie-fg", "tying": "depth", "prologue": [["G", 0.5]], "epilogue": [["F", 1.0], ["G", 0.5]]},
    {"scheme": "ruth3-fg"},
    {"scheme": "strang2-gfgfg"},
    {"scheme": "parallel"},
    {"scheme": "parallel", "norm": "post"},
    {"scheme": "sws"},
]


def named(changes: dict[str, Any]) -> str:
    return "-".join(str(value) for value in changes.values() if isinstance(value, str))


def translation(**changes: Any) -> TranslationModel:
    torch.manual_seed(0)
    given: dict[str, Any] = {**SMALL, "encoder_layers": 2, "decoder_layers": 3, **changes}
    model = TranslationModel(TranslationConfig(**given)).eval()
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model


def traces(model: TranslationModel) -> tuple[Trace, Trace]:
    with torch.no_grad():
        memory = model.encode(SOURCE)
    encoder = trace(model.encoder, lambda: model.encode(SOURCE))
    return encoder, trace(model.decoder, lambda: model.decode(TARGET, memory))


@pytest.mark.parametrize("changes", VARIANTS, ids=named)
def test_the_last_frame_is_what_the_model_computes(changes: dict[str, Any]):
    model = translation(**changes)
    encoder, decoder = traces(model)
    hf = HFTranslationModel(model.config).eval()
    hf.load_state_dict(model.state_dict())
    with torch.no_grad():
        memory = model.encode(SOURCE)
        assert torch.equal(encoder.frames[-1].state, memory[0])
        assert torch.equal(decoder.frames[-1].state, model.decode(TARGET, memory)[0])
        own = hf(SOURCE, decoder_input_ids=TARGET, use_cache=False, output_hidden_states=True)
    # Every layer begins where the interface of transformers says so (with a mask, which may round in another way).
    for found, states in ((encoder, own.encoder_hidden_states), (decoder, own.decoder_hidden_states)):
        assert len(states) == len(found.stack.steps) + 1
        for index, state in zip([*found.layer_ends[: len(states) - 1], -1], states, strict=True):
            torch.testing.assert_close(found.frames[index].state, state[0], rtol=1e-5, atol=1e-5)
    operators = [frame.operator for frame in encoder.frames]
    assert operators[0] == "start"
    assert (operators[-1] == "end") == (changes.get("norm") != "post")


def test_an_encoder_of_masked_words():
    torch.manual_seed(0)
    model = EncoderModel(EncoderConfig(**SMALL, num_hidden_layers=3)).eval()
    found = trace(model.encoder, lambda: model(SOURCE))
    with torch.no_grad():
        assert torch.equal(found.frames[-1].state, model(SOURCE)[0])
    assert [frame.operator for frame in found.frames] == ["start", *"GFG" * 3, "end"]
    assert [frame.layer for frame in found.frames] == [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4]
    assert [frame.step for frame in found.frames] == [0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1]
    assert found.layer_ends == [0, 3, 6, 9, 10]
    assert found.frames[1].label == "Layer 1 of 3, convection (half step)"
    assert found.frames[2].label == "Layer 1 of 3, diffusion (full step)"


@pytest.mark.parametrize("name", ["lie-fg", "strang-gfg", "ruth3-fg", "sws", "strang2-gfgfg"])
def test_one_frame_for_each_sub_step_in_order(name: str):
    model = translation(scheme=name, encoder_layers=1)
    frames = traces(model)[0].frames[1:-1]
    made = scheme(name)
    steps = [(step.operator, branch.weight * step.coefficient) for branch in made.branches for step in branch.steps]
    assert [(frame.operator, pytest.approx(frame.coefficient)) for frame in frames] == steps


def test_ends_of_a_stack_are_layers_of_their_own():
    model = translation(scheme="lie-fg", prologue=[["G", 0.5]], epilogue=[["F", 1.0], ["G", 0.5]])
    found = traces(model)[0]
    assert [(frame.layer, frame.operator) for frame in found.frames] == [
        (0, "start"),
        (0, "G"),
        *((layer, op) for layer in (1, 2) for op in "FG"),
        (3, "F"),
        (3, "G"),
        (3, "end"),
    ]
    assert found.frames[1].label == "Before the first layer, convection (half step)"
    assert found.frames[-2].label == "After the last layer, convection (half step)"
    assert [layer.number for layer in found.layers] == [1, 2]
    assert found.layer_ends == [0, 1, 3, 5, 8]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_branches_move_from_the_same_state_and_their_moves_add_up(norm: str):
    model = translation(scheme="parallel", norm=norm)
    found = traces(model)[0]
    context = Context()
    for index, layer in enumerate(found.layers):
        module = layer.steps[0].layer
        before, by_f, by_g = found.frames[2 * index : 2 * index + 3]
        torch.testing.assert_close(before.state, layer.before[0], rtol=0, atol=1e-6)
        with torch.no_grad():
            for name, start, end in (("F1", before, by_f), ("G1", by_f, by_g)):
                alone = module.sublayers[name](layer.before, 1.0, module.tableau, context, 0)
                torch.testing.assert_close(end.state - start.state, (alone - layer.before)[0], rtol=1e-4, atol=1e-5)
            whole = module(layer.before, context)[0]
        moves = [after.state - start.state for start, after in pairwise((before, by_f, by_g))]
        torch.testing.assert_close(before.state + sum(moves), whole, rtol=1e-4, atol=1e-5)


def attention_by_hand(query: Tensor, key: Tensor, heads: int, causal: bool) -> Tensor:
    total = torch.zeros(len(query), len(key))
    for q, k in zip(query.chunk(heads, -1), key.chunk(heads, -1), strict=True):
        logits = q @ k.T / math.sqrt(q.shape[-1])
        if causal:
            logits = logits.masked_fill(~torch.ones_like(logits, dtype=torch.bool).tril(), -math.inf)
        total += torch.softmax(logits, -1)
    return total / heads


def sub(stack: Stack, layer: int, name: str) -> SubLayer:
    module = stack.layers[layer].sublayers[name]
    assert isinstance(module, SubLayer)
    return module


def test_attention_is_the_softmax_of_the_modules_own_projections():
    model = translation(scheme="lie-fg")
    encoder, decoder = traces(model)
    with torch.no_grad():
        for found, layer in ((encoder, 0), (encoder, 1), (decoder, 0), (decoder, 2)):
            causal = found is decoder
            index = next(i for i, f in enumerate(found.frames) if (f.layer, f.operator) == (layer + 1, "F"))
            field = sub(found.stack, layer, "F1")
            query, key, _ = field.operator.qkv(field.norm(found.frames[index - 1].state)).chunk(3, -1)
            weights = found.frames[index].attention
            assert weights is not None
            torch.testing.assert_close(weights, attention_by_hand(query, key, 4, causal), rtol=0, atol=1e-6)
            torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights)))
        index = next(i for i, f in enumerate(decoder.frames) if f.operator == "H")
        field = sub(decoder.stack, 0, "H1")
        query = field.operator.q(field.norm(decoder.frames[index - 1].state))
        key, _ = field.operator.kv(encoder.frames[-1].state).chunk(2, -1)
        weights = decoder.frames[index].attention
        assert weights is not None
        assert weights.shape == (4, 5)
        torch.testing.assert_close(weights, attention_by_hand(query, key, 4, False), rtol=0, atol=1e-6)
    assert all(f.attention is None for f in encoder.frames if f.operator not in ("F", "H"))


def test_attention_of_an_integrator_is_that_of_its_stages():
    """The midpoint rule moves by its second stage alone, which is half a step on."""
    found = traces(translation(scheme="lie-fg", integrator="midpoint"))[0]
    field = sub(found.stack, 0, "F1")
    with torch.no_grad():
        start = found.frames[0].state[None]
        half = start + 0.5 * field.field(start, Context(), 0)
        query, key, _ = field.operator.qkv(field.norm(half[0])).chunk(3, -1)
    weights = found.frames[1].attention
    assert weights is not None
    torch.testing.assert_close(weights, attention_by_hand(query, key, 4, False), rtol=0, atol=1e-6)


def test_nothing_is_left_behind_in_the_model():
    model = translation()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    traces(model)

    def fail() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        trace(model.encoder, fail)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
