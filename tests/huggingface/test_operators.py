"""Operators against transformers' own; networks with every operator in transformers' classes."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForSeq2SeqLM, LlamaConfig, Qwen3Config, Wav2Vec2BertConfig
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaAttention, LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention

import macaron  # noqa: F401  (registers the Auto classes)
from macaron.decode import SearchSettings, translate_ids
from macaron.huggingface import HFTranslationModel
from macaron.models import TranslationModel
from macaron.nn import Context, FeedForward, LayerSettings, SubLayer
from operators import OPERATORS, tiny

D, H, K = 32, 4, 8


def sub(operator: str = "F", width: int = K, **changes: Any) -> Any:
    torch.manual_seed(0)
    settings = LayerSettings(hidden_size=D, num_attention_heads=H, intermediate_size=48, dropout=0.0, **changes)
    return SubLayer(operator, width, 0, settings).eval()


def same(ours: nn.Module, theirs: nn.Module, pairs: dict[str, list[str]], run: Any, reference: Any) -> None:
    """Equal outputs and gradients, with our parameters filled from those of the reference, stacked."""
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        for name, others in pairs.items():
            ours.get_parameter(name).copy_(torch.cat([theirs.get_parameter(each) for each in others]))
    x, direction = torch.randn(2, 5, D), torch.randn(2, 5, D)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    outputs = run(inputs[0]), reference(inputs[1])
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)
    for output in outputs:
        (output * direction).sum().backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=1e-5, atol=1e-5)
    for name, others in pairs.items():
        expected = torch.cat([theirs.get_parameter(each).grad for each in others])
        torch.testing.assert_close(ours.get_parameter(name).grad, expected, rtol=1e-4, atol=1e-5)


def linear(ours: str, *theirs: str) -> dict[str, list[str]]:
    return {f"{ours}.{part}": [f"{each}.{part}" for each in theirs] for part in ("weight", "bias")}


@pytest.mark.parametrize(("name", "gate"), [("swiglu", "silu"), ("glu", "sigmoid"), ("geglu", "gelu")])
def test_gated_feed_forward_networks(name: str, gate: str):
    ours = FeedForward(D, 20, name, 0.0, "xavier")
    theirs = LlamaMLP(LlamaConfig(hidden_size=D, intermediate_size=20, mlp_bias=True, hidden_act=gate))
    pairs = linear("fc1", "gate_proj", "up_proj") | linear("fc2", "down_proj")
    same(ours, theirs, pairs, lambda x: ours(x, Context(), 0), theirs)


@pytest.mark.parametrize("name", ["relu", "gelu", "relu2", "silu"])
def test_activations(name: str):
    ours = FeedForward(D, 20, name, 0.0, "xavier")
    theirs = nn.Sequential(nn.Linear(D, 20), ACT2FN[name], nn.Linear(20, D))
    same(ours, theirs, linear("fc1", "0") | linear("fc2", "2"), lambda x: ours(x, Context(), 0), theirs)


def test_rms_norm():
    ours, theirs = sub(norm_type="rms", layer_norm_eps=1e-6).norm, LlamaRMSNorm(D, 1e-6)
    same(ours, theirs, {"weight": ["weight"]}, ours, theirs)


ATTENTION = linear("operator.qkv", "q_proj", "k_proj", "v_proj") | linear("operator.out", "o_proj")


def causal(x: Tensor) -> Tensor:
    return torch.full((x.shape[1],) * 2, -math.inf).triu(1)[None, None]


@pytest.mark.parametrize("theta", [10000.0, 100.0])
def test_rotary_positions(theta: float):
    shape = {"hidden_size": D, "num_attention_heads": H, "num_key_value_heads": H, "attention_bias": True}
    rope = {"rope_type": "default", "rope_theta": theta}
    config = LlamaConfig(**shape, rope_parameters=rope, attn_implementation="eager")
    theirs, turn = LlamaAttention(config, 0).eval(), LlamaRotaryEmbedding(config)
    ours = sub(attention={"positions": "rotary", "theta": theta})

    def reference(x: Tensor) -> Tensor:
        return theirs(x, turn(x, torch.arange(x.shape[1])[None]), causal(x))[0]

    same(ours, theirs, ATTENTION, lambda x: ours.operator(x, Context(causal=True), 0), reference)


def test_normalised_queries_and_keys():
    shape = {"hidden_size": D, "num_attention_heads": H, "num_key_value_heads": H, "attention_bias": True}
    config = Qwen3Config(**shape, head_dim=K, rms_norm_eps=1e-6, attn_implementation="eager")
    theirs = Qwen3Attention(config, 0).eval()
    turn = LlamaRotaryEmbedding(LlamaConfig(**shape))  # that of Qwen3 with Llama's base
    ours = sub(attention={"positions": "rotary", "qk_norm": True})
    norms = {f"operator.{name}.weight": [f"{name}.weight"] for name in ("q_norm", "k_norm")}

    def reference(x: Tensor) -> Tensor:
        return theirs(x, turn(x, torch.arange(x.shape[1])[None]), causal(x))[0]

    same(ours, theirs, ATTENTION | norms, lambda x: ours.operator(x, Context(causal=True), 0), reference)


def test_relative_keys():
    config = Wav2Vec2BertConfig(
        hidden_size=D,
        num_attention_heads=H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=2,
        right_max_position_embeddings=2,
        attn_implementation="eager",
    )
    theirs = Wav2Vec2BertSelfAttention(config).eval()
    ours = sub(attention={"positions": "relative", "clip": 2})
    nn.init.zeros_(ours.operator.relative.values.weight)
    pairs = linear("operator.qkv", "linear_q", "linear_k", "linear_v") | linear("operator.out", "linear_out")
    pairs["operator.relative.keys.weight"] = ["distance_embedding.weight"]
    same(ours, theirs, pairs, lambda x: ours.operator(x, Context(), 0), lambda x: theirs(x)[0])


@pytest.mark.parametrize("changes", OPERATORS.values(), ids=OPERATORS)
def test_gradients_are_the_same_with_checkpoints(changes: dict[str, Any]):
    """transformers' gradient checkpointing walks every layer twice."""
    plain = HFTranslationModel(tiny({**changes, "dropout": 0.0}).config).train()
    inputs = {"input_ids": torch.tensor([[7, 9, 11, 4, 2]]), "labels": torch.tensor([[5, 6, 7, 2]])}
    found = []
    for checkpoints in (False, True):
        plain.zero_grad()
        if checkpoints:
            plain.gradient_checkpointing_enable()
        torch.manual_seed(0)
        plain(**inputs).loss.backward()
        found.append([parameter.grad.clone() for parameter in plain.parameters()])
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("changes", OPERATORS.values(), ids=OPERATORS)
def test_saved_and_loaded_by_the_auto_class(changes: dict[str, Any], tmp_path: Path):
    model = tiny(changes, scale=2.0)
    model.save_pretrained(tmp_path)
    source, target = torch.tensor([[7, 9, 11, 4, 2], [12, 5, 2, 1, 1]]), torch.tensor([[2, 5, 6, 7], [2, 8, 9, 4]])
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    with torch.inference_mode():
        expected = model(source, target)
        assert torch.equal(TranslationModel.from_pretrained(tmp_path)(source, target), expected)
        torch.testing.assert_close(theirs(input_ids=source, decoder_input_ids=target).logits, expected)
        written = theirs.generate(source, num_beams=1, do_sample=False, max_new_tokens=8, min_new_tokens=8)
    theirs.save_pretrained(tmp_path / "again")
    assert TranslationModel.from_pretrained(tmp_path / "again").config == model.config
    rows = [[token for token in row if token != model.pad] for row in source.tolist()]
    best = translate_ids(model, rows, SearchSettings(beam=1, max_length=8, min_length=8))
    assert [list(each.tokens[:7]) for (each,) in best] == written[:, 1:8].tolist()
