"""Models that nobody recorded: made-up checkpoints in the authors' naming, against their equations written out.

The reference below knows nothing of Macaron's code: it takes the foreign state dict and plain tensor operations.
"""

import argparse
import math
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForPreTraining, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification

from macaron.convert import convert_fairseq

D, HEADS, INNER, V = 24, 3, 20, 30
State = dict[str, Tensor]

# The equations.


def positions(tokens: Tensor) -> Tensor:
    half, rows = D // 2, []
    for row in tokens.tolist():
        place, vectors = 1, []
        for token in row:
            if token == 1:
                vectors.append([0.0] * D)
                continue
            place += 1
            angles = [place * math.exp(-i * math.log(10000) / (half - 1)) for i in range(half)]
            vectors.append([*map(math.sin, angles), *map(math.cos, angles)])
        rows.append(vectors)
    return torch.tensor(rows, dtype=torch.float64)


def attention(state: State, name: str, x: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
    """``hidden`` (B, T, S): where not to look."""
    weights = state[f"{name}.in_proj_weight"].split(D)
    biases = state[f"{name}.in_proj_bias"].split(D)
    q, k, v = (F.linear(a, w, b) for a, w, b in zip((x, memory, memory), weights, biases, strict=True))
    size, mixed = D // HEADS, []
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        logits = q[..., part] * size**-0.5 @ k[..., part].transpose(1, 2)
        mixed.append(logits.masked_fill(hidden, -math.inf).softmax(-1) @ v[..., part])
    return F.linear(torch.cat(mixed, -1), state[f"{name}.out_proj.weight"], state[f"{name}.out_proj.bias"])


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])


def norm(state: State, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, (D,), state.get(f"{name}.weight"), state.get(f"{name}.bias"), 1e-5)


def layer(state: State, at: str, x: Tensor, hidden: Tensor, pre: bool, act: Any, memory: Any) -> Tensor:
    def sub(x: Tensor, norm_name: str, f: Callable[[Tensor], Tensor], c: float) -> Tensor:
        if pre:
            return x + c * f(norm(state, f"{at}.{norm_name}", x))
        return norm(state, f"{at}.{norm_name}", x + c * f(x))

    def network(prefix: str, act: Any) -> Callable[[Tensor], Tensor]:
        return lambda y: linear(state, f"{at}.{prefix}fc2", act(linear(state, f"{at}.{prefix}fc1", y)))

    names = ["layer_norms.2", "layer_norms.0", "", "layer_norms.1"]
    if memory:
        names = ["macaron_layer_norm", "self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
    half = 0.5 if f"{at}.macaron_fc1.weight" in state else 1.0
    if half == 0.5:
        x = sub(x, names[0], network("macaron_", F.relu), half)  # relu in every model
    x = sub(x, names[1], lambda y: attention(state, f"{at}.self_attn", y, y, hidden), 1.0)
    if memory:
        x = sub(x, names[2], lambda y: attention(state, f"{at}.encoder_attn", y, memory[0], memory[1]), 1.0)
    return sub(x, names[3], network("", act), half)


def stack(state: State, name: str, x: Tensor, hidden: Tensor, pre: bool, act: Any, memory: Any = None) -> Tensor:
    number = 0
    while f"{name}.layers.{number}.fc1.weight" in state:
        x = layer(state, f"{name}.layers.{number}", x, hidden, pre, act, memory)
        number += 1
    return norm(state, f"{name}.layer_norm", x) if pre else x


def encode(state: State, tokens: Tensor, pre: bool, act: Any, segments: Tensor | None = None) -> Tensor:
    x = math.sqrt(D) * state["encoder.embed_tokens.weight"][tokens] + positions(tokens)
    if segments is not None:
        x = x + state["encoder.embed_segment.weight"][segments]
    return stack(state, "encoder", x, (tokens == 1)[:, None, :], pre, act)


def translate(state: State, source: Tensor, previous: Tensor, pre: bool) -> Tensor:
    table, length = state["encoder.embed_tokens.weight"], previous.shape[1]
    memory = (encode(state, source, pre, F.relu), (source == 1)[:, None, :])
    later = torch.ones(length, length, dtype=torch.bool).triu(1)[None]
    x = math.sqrt(D) * table[previous] + positions(previous)
    return stack(state, "decoder", x, later, pre, F.relu, memory) @ table.T


# Made-up checkpoints.


def layer_weights(at: str, macaron: bool, affine: bool, decoder: bool) -> State:
    made: State = {}
    for name in ("self_attn", "encoder_attn") if decoder else ("self_attn",):
        made |= {f"{at}.{name}.in_proj_weight": torch.randn(3 * D, D), f"{at}.{name}.in_proj_bias": torch.randn(3 * D)}
        made |= {f"{at}.{name}.out_proj.weight": torch.randn(D, D), f"{at}.{name}.out_proj.bias": torch.randn(D)}
    for prefix in ("", "macaron_") if macaron else ("",):
        made |= {f"{at}.{prefix}fc1.weight": torch.randn(INNER, D), f"{at}.{prefix}fc1.bias": torch.randn(INNER)}
        made |= {f"{at}.{prefix}fc2.weight": torch.randn(D, INNER), f"{at}.{prefix}fc2.bias": torch.randn(D)}
    norms = [f"layer_norms.{index}" for index in range(2 + macaron)]
    if decoder:
        norms = ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]
        norms += ["macaron_layer_norm"] if macaron else []
    for name in norms if affine else ():
        made |= {f"{at}.{name}.weight": 1 + 0.3 * torch.randn(D), f"{at}.{name}.bias": torch.randn(D)}
    return {name: 0.3 * tensor if "norm" not in name else tensor for name, tensor in made.items()}


def make_state(layers: dict[str, int], macaron: bool, pre: bool, affine: bool = True) -> State:
    table = torch.randn(V, D) * D**-0.5
    state: State = OrderedDict()
    for name, count in layers.items():
        state[f"{name}.version"] = torch.tensor([2.0])
        state[f"{name}.embed_positions._float_tensor"] = torch.tensor([math.nan])  # uninitialised memory, so: anything
        state[f"{name}.embed_tokens.weight"] = table
        for layer in range(count):
            state.update(layer_weights(f"{name}.layers.{layer}", macaron, affine, name == "decoder"))
        if pre and affine:
            state[f"{name}.layer_norm.weight"] = 1 + 0.3 * torch.randn(D)
            state[f"{name}.layer_norm.bias"] = torch.randn(D)
    return state


def make_args(layers: dict[str, int], macaron: bool, pre: bool, **more: Any) -> argparse.Namespace:
    args: dict[str, Any] = {"dropout": 0.1, "attention_dropout": 0.0, "relu_dropout": 0.2, "lr": [0.1], **more}
    for name, count in layers.items():
        args |= {f"{name}_layers": count, f"{name}_embed_dim": D, f"{name}_attention_heads": HEADS}
        args |= {f"{name}_ffn_embed_dim": INNER, f"{name}_normalize_before": pre}
    return argparse.Namespace(**args, **({"macaron": "new"} if macaron else {}))


def convert(state: State, args: argparse.Namespace, folder: Path, legacy: bool = False) -> Path:
    specials = 4 if "decoder.version" in state else 6
    (folder / "dict.txt").write_text("".join(f"w{index} 1\n" for index in range(V - specials)))
    content = {"args": args, "model": state}
    torch.save(content, folder / "checkpoint.pt", _use_new_zipfile_serialization=not legacy)
    convert_fairseq(folder / "checkpoint.pt", folder / "dict.txt", folder / "model")
    return folder / "model"


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found.double() - expected).abs().max() / expected.abs().max() < 1e-5


def in_double(state: State) -> State:
    return {name: tensor.double() for name, tensor in state.items()}


SOURCE = torch.tensor([[4, 9, 7, 21, 8, 2], [1, 1, 29, 4, 4, 2]])
PREVIOUS = torch.tensor([[2, 5, 6, 7, 28], [2, 12, 13, 1, 1]])
PAIR = torch.tensor([[5, 9, 7, 2, 8, 2], [5, 29, 2, 6, 2, 1]])
SEGMENTS = torch.tensor([[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 1]])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("macaron", [True, False], ids=["macaron", "plain"])
@pytest.mark.parametrize("pre", [True, False], ids=["pre", "post"])
@pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "zip"])
def test_translation(macaron: bool, pre: bool, legacy: bool, tmp_path: Path):
    layers = {"encoder": 3, "decoder": 2}
    state = make_state(layers, macaron, pre)
    folder = convert(state, make_args(layers, macaron, pre), tmp_path, legacy)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    config = model.config
    assert (config.scheme, config.norm) == ("strang-gfg" if macaron else "lie-fg", "pre" if pre else "post")
    assert (config.encoder_layers, config.decoder_layers, config.activation_dropout) == (3, 2, 0.2)
    real = PREVIOUS != 1
    expected = translate(in_double(state), SOURCE, PREVIOUS, pre)[real]
    assert_close(model(input_ids=SOURCE, decoder_input_ids=PREVIOUS).logits[real], expected)


def test_the_oldest_names_of_decoder_norms_and_half_precision(tmp_path: Path):
    layers = {"encoder": 1, "decoder": 2}
    state = make_state(layers, macaron=False, pre=False)
    state = OrderedDict((name, tensor.half()) for name, tensor in state.items())
    expected = translate(in_double(state), SOURCE, PREVIOUS, False)
    old = {"self_attn_layer_norm": "layer_norms.0", "encoder_attn_layer_norm": "layer_norms.1"}
    old["final_layer_norm"] = "layer_norms.2"
    for name in list(state):
        for new_name, old_name in old.items():
            if f".{new_name}." in name:
                state[name.replace(new_name, old_name)] = state.pop(name)
    folder = convert(state, make_args(layers, False, False), tmp_path)
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    assert model.dtype == torch.float32
    real = PREVIOUS != 1
    assert_close(model(input_ids=SOURCE, decoder_input_ids=PREVIOUS).logits[real], expected[real])


@pytest.mark.parametrize("macaron", [True, False], ids=["macaron", "plain"])
@pytest.mark.parametrize("affine", [True, False], ids=["affine", "no-affine"])
def test_bert(macaron: bool, affine: bool, tmp_path: Path):
    state = make_state({"encoder": 2}, macaron, True, affine)
    state["embed_out"] = state["encoder.embed_tokens.weight"]
    state["encoder.embed_segment.weight"] = torch.cat([torch.randn(1, D), torch.zeros(1, D)])
    state |= {"mid_layer.0.weight": torch.randn(D, D), "mid_layer.0.bias": torch.randn(D)}
    state |= {"mid_layer.2.weight": torch.randn(D), "mid_layer.2.bias": torch.randn(D)}
    state |= {"classifier.weight": torch.randn(1, D), "classifier.bias": torch.randn(1)}
    args = make_args({"encoder": 2}, macaron, True, act_fn="gelu", no_normalize_affine=not affine, max_positions=384)
    model = AutoModelForPreTraining.from_pretrained(convert(state, args, tmp_path)).eval()
    assert model.config.max_position_embeddings == 384
    exact = in_double(state)
    states = encode(exact, PAIR, True, F.gelu, SEGMENTS)
    words = norm(exact, "mid_layer.2", F.gelu(linear(exact, "mid_layer.0", states))) @ exact["embed_out"].T
    output = model(input_ids=PAIR, token_type_ids=SEGMENTS)
    assert_close(output.prediction_logits[PAIR != 1], words[PAIR != 1])
    assert_close(output.seq_relationship_logits, linear(exact, "classifier", states[:, 0]))


def mean_loss(criterion: str, logits: Tensor, labels: Tensor) -> Tensor:
    """The authors' three criteria, by their definitions."""
    if criterion == "mean_squared_error":
        return ((logits[:, 0] - labels) ** 2).mean()
    if criterion == "cross_entropy_classify_binary":
        yes = logits[:, 0].sigmoid()
        return -(labels * yes.log() + (1 - labels) * (1 - yes).log()).mean()
    return -logits.log_softmax(-1)[torch.arange(len(labels)), labels].mean()


@pytest.mark.parametrize("macaron", [True, False], ids=["macaron", "plain"])
@pytest.mark.parametrize(
    ("criterion", "classes", "problem", "labels"),
    [
        ("cross_entropy_classify", 2, "single_label_classification", torch.tensor([1, 0])),
        ("cross_entropy_classify_binary", 1, "multi_label_classification", torch.tensor([1, 0])),
        ("mean_squared_error", 1, "regression", torch.tensor([0.75, -1.0])),
    ],
)
def test_classifiers(macaron: bool, criterion: str, classes: int, problem: str, labels: Tensor, tmp_path: Path):
    state = make_state({"encoder": 2}, macaron, True, affine=False)
    state["encoder.embed_segment.weight"] = torch.cat([torch.randn(1, D), torch.zeros(1, D)])
    state |= {"classifier.weight": torch.randn(classes, D), "classifier.bias": torch.randn(classes)}
    args = make_args({"encoder": 2}, macaron, True, act_fn="gelu", criterion=criterion, n_classes=classes)
    model = AutoModelForSequenceClassification.from_pretrained(convert(state, args, tmp_path)).eval()
    assert (model.config.problem_type, model.config.num_labels) == (problem, classes)
    exact = in_double(state)
    expected = linear(exact, "classifier", encode(exact, PAIR, True, F.gelu, SEGMENTS)[:, 0])
    output = model(input_ids=PAIR, token_type_ids=SEGMENTS, labels=labels)
    assert_close(output.logits, expected)
    assert output.loss.item() == pytest.approx(mean_loss(criterion, expected, labels).item(), rel=1e-5)
