"""Writes a translation model as a model of CTranslate2, for the networks that CTranslate2 knows: Transformers."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from macaron.decode.forced import load_folder
from macaron.decode.search import end_token
from macaron.errors import MacaronError, command_line, require
from macaron.files import atomic_folder, check_unused
from macaron.models.translation import TranslationModel
from macaron.nn.budget import LayerSettings
from macaron.nn.embedding import FIRST_POSITION
from macaron.nn.interaction import Interaction
from macaron.nn.layer import SchemeLayer
from macaron.nn.stack import Stack
from macaron.ode import integrator
from macaron.seal import seal
from macaron.text.vocabulary import UNK

#: How far the log-probabilities of tokens may be from ours.
TOLERANCE = 1e-3
_ACTIVATIONS = {
    **{"relu": "RELU", "gelu": "GELU", "gelu_new": "GELUTanh", "silu": "SWISH"},
    **{"glu": "Sigmoid", "swiglu": "SWISH", "geglu": "GELU"},
}


def export_ctranslate2(path: str | Path, out: str | Path, quantization: str | None = None) -> list[str]:
    """Write the translation model at a path (a model folder, or a run's), and compare it with ours in CTranslate2.

    :param quantization: of the matrices, as CTranslate2 names it
    :returns: what was written, in lines
    """
    out = Path(out)
    check_unused(out, "choose another --out")
    require(find_spec("ctranslate2") is not None, "ctranslate2 cannot be found: pip install 'macaron-net[export]'")
    model, tokenizer = load_folder(path, dtype=torch.float32)
    if lacks := uncovered(model):
        other = command_line("export", "onnx", str(path), "--out", str(out))
        raise MacaronError(
            f"{path}: CTranslate2 cannot hold this network: {lacks}. It knows the layers of the Transformer alone, "
            f"self-attention, then one feed-forward network. ONNX holds any network: {other}"
        )
    words = {index: word for word, index in tokenizer.get_vocab().items()}
    names = [words.get(index, f"<{index}>") for index in range(model.config.vocab_size)]
    with atomic_folder(out) as partial:
        write_ctranslate2(model, names, partial)
        error = difference(partial, model, names)
        if not error <= TOLERANCE:
            raise MacaronError(
                f"{path}: log-probabilities of CTranslate2 differ by {error:.1g} from ours; nothing is kept"
            )
        if quantization is not None:
            write_ctranslate2(model, names, partial, quantization)
        tokenizer.save_pretrained(partial)
        seal(partial)
    rounded = "" if quantization is None else f", before they were stored as {quantization}"
    found = f"log-probabilities of CTranslate2 differ by {error:.0e} from ours{rounded}"
    return [f"model.bin: {found}", f"written to {out} with the tokenizer"]


def uncovered(model: TranslationModel) -> str:
    """What CTranslate2 lacks for a network, in words; empty if it knows it."""
    config = model.config
    both = {
        "FG": (config.encoder_scheme_value(), config, model.encoder),
        "FHG": (config.decoder_scheme_value(), config.decoder_layer_settings(), model.decoder),
    }
    found: list[str] = []
    for order, (scheme, settings, stack) in both.items():
        attention, activation = settings.interaction("F"), settings.activation_of(0)
        ends = [each for each in (stack.prologue, stack.epilogue) if each is not None]
        layers, integrators = [each for each in stack.steps if each not in ends], ("integrator", "layer_integrator")
        lacks = {
            f"the scheme {scheme.name!r}": any(not _is_sequence(layer, order) for layer in layers),
            "a prologue or epilogue": any(not _is_sequence(layer, order) for layer in ends),
            "a velocity": stack.has_velocity,
            **{f"{name} = {(kind := getattr(settings, name))!r}": integrator(kind).stages > 1 for name in integrators},
            f"activation = {activation!r}": activation not in _ACTIVATIONS,
            f"attention = {settings.attention!r}": attention.kind != "softmax" or attention.qk_norm,
            f"cross_attention = {settings.cross_attention!r}": settings.interaction("H") != Interaction(),
            "positions_at = 'layers'": stack.signals is not None,
            "positions both in the states and in the attention": settings.positions_at == "input" and attention.ordered,
        }
        found += [name for name, lacking in lacks.items() if lacking and name not in found]
    return ", ".join(found)


def _is_sequence(layer: SchemeLayer, order: str) -> bool:
    """Whether a layer applies these operators in turn, once and in full."""
    walks = [[(move.operator, move.coefficient) for move in moves] for _, moves in layer.walk]
    return walks == [[(operator, 1.0) for operator in order]]


def write_ctranslate2(
    model: TranslationModel, words: Sequence[str], folder: Path, quantization: str | None = None
) -> None:
    """Write the files of CTranslate2 for a network that it knows; ``words`` are the tokens."""
    from ctranslate2.specs import transformer_spec

    config, decoder = model.config, model.config.decoder_layer_settings()
    embedding, table = model.embedding, model.embedding.tokens.weight.detach().numpy()
    normed = {"layernorm_embedding": embedding.norm is not None}
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(**_settings(config, model.encoder), **normed),
        transformer_spec.TransformerDecoderSpec(**_settings(decoder, model.decoder), **normed),
    )
    positions = torch.arange(FIRST_POSITION, FIRST_POSITION + config.max_position_embeddings)
    vectors = embedding.of_positions(positions).detach().numpy() * (1.0 if embedding.positioned else 0.0)
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        (side.embeddings[0] if side is spec.encoder else side.embeddings).weight = table
        side.scale_embeddings = config.scale_embedding
        if hasattr(side, "position_encodings"):
            side.position_encodings.encodings = vectors.astype(np.float32)
        if embedding.norm is not None:
            _norm(side.layernorm_embedding, embedding.norm)
        if stack.norm is not None:
            _norm(side.layer_norm, stack.norm)
        for part, layer in zip(side.layer, stack.steps, strict=True):
            _attention(part.self_attention, layer.sublayers["F1"])
            if side is spec.decoder:
                _attention(part.attention, layer.sublayers["H1"])
            _feed_forward(part.ffn, layer.sublayers["G1"])
    spec.decoder.projection.weight = table
    bias = embedding.output_bias
    spec.decoder.projection.bias = np.zeros(len(table), np.float32) if bias is None else bias.detach().numpy()
    spec.register_source_vocabulary(list(words))
    spec.register_target_vocabulary(list(words))
    end, start = end_token(model), config.decoder_start_token_id
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = words[0], words[end], words[UNK]
    spec.config.decoder_start_token = words[end if start is None else start]
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.validate()
    spec.optimize(quantization)
    spec.save(str(folder))


def _settings(settings: LayerSettings, stack: Stack) -> dict[str, Any]:
    """The settings of a stack by CTranslate2's names."""
    from ctranslate2.specs import Activation

    attention: Any = stack.steps[0].sublayers["F1"].operator
    rotary = attention.interaction.positions == "rotary"
    return {
        "num_layers": len(stack.steps),
        "num_heads": settings.num_attention_heads,
        "head_dim": None if attention.width == settings.hidden_size else attention.head_size,
        "pre_norm": settings.norm == "pre",
        "rms_norm": settings.norm_type == "rms",
        "activation": getattr(Activation, _ACTIVATIONS[str(settings.activation_of(0))]),
        "ffn_glu": settings.gated(0),
        "relative_position": attention.relative is not None,
        **({"rotary_dim": 0, "rotary_interleave": False, "rotary_base": attention.interaction.theta} if rotary else {}),
    }


def _linear(spec: Any, layer: nn.Linear, rows: slice = slice(None)) -> None:
    spec.weight = layer.weight.detach()[rows].numpy()
    spec.bias = layer.bias.detach()[rows].numpy()


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma = np.ones(norm.normalized_shape, np.float32) if norm.weight is None else norm.weight.detach().numpy()
    if hasattr(spec, "beta"):
        spec.beta = np.zeros_like(spec.gamma) if norm.bias is None else norm.bias.detach().numpy()


def _attention(spec: Any, part: Any) -> None:
    """Norm, projections and vectors of distances of a sub-layer F or H."""
    _norm(spec.layer_norm, part.norm)
    for linear, name in zip(spec.linear, (*part.operator.projections, "out"), strict=True):
        _linear(linear, getattr(part.operator, name))
    if (relative := part.operator.relative) is not None:
        spec.relative_position_keys = relative.keys.weight.detach().numpy()
        spec.relative_position_values = relative.values.weight.detach().numpy()


def _feed_forward(spec: Any, part: Any) -> None:
    """Norm and matrices of a sub-layer G; the gates are the first half of the inner rows."""
    _norm(spec.layer_norm, part.norm)
    gated, inner = hasattr(spec, "linear_0_noact"), part.operator.fc2.in_features
    _linear(spec.linear_0, part.operator.fc1, slice(inner))
    if gated:
        _linear(spec.linear_0_noact, part.operator.fc1, slice(inner, None))
    _linear(spec.linear_1, part.operator.fc2)


def difference(folder: Path, model: TranslationModel, words: Sequence[str]) -> float:
    """The largest difference of a log-probability in CTranslate2 from ours, over random pairs of different lengths."""
    import ctranslate2

    generator = torch.Generator().manual_seed(1)
    pairs = [torch.randint(UNK, len(words), (2, length), generator=generator) for length in (1, 4, 9)]
    named = [[[words[index] for index in side] for side in pair.tolist()] for pair in pairs]
    scorer = ctranslate2.Translator(str(folder), "cpu", compute_type="float32")
    scores = scorer.score_batch(*map(list, zip(*named, strict=True)))
    end, start, largest = end_token(model), model.config.decoder_start_token_id, 0.0
    for pair, found in zip(pairs, scores, strict=True):
        target = F.pad(F.pad(pair[1:], (1, 0), value=end if start is None else start), (0, 1), value=end)
        with torch.no_grad():
            want = model(pair[:1], target[:, :-1]).log_softmax(-1).gather(-1, target[:, 1:, None]).flatten()
        largest = max(largest, float((torch.tensor(found.log_probs) - want).abs().max()))
    return largest
