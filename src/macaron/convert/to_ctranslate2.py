"""Writes a translation model as a model of CTranslate2, for the networks that CTranslate2 knows: Transformers."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from macaron.decode.forced import load_folder
from macaron.decode.search import end_token
from macaron.errors import MacaronError, command_line, require
from macaron.files import atomic_folder, check_unused
from macaron.models.translation import TranslationModel
from macaron.nn.budget import LayerSettings
from macaron.nn.embedding import FIRST_POSITION
from macaron.seal import seal
from macaron.text.vocabulary import UNK

_ACTIVATIONS = {
    **{"relu": "RELU", "gelu": "GELU", "gelu_new": "GELUTanh", "silu": "SWISH"},
    **{"glu": "Sigmoid", "swiglu": "SWISH", "geglu": "GELU"},
}
#: Settings of which CTranslate2 knows some values only; attentions that see positions go without others.
_KNOWN: dict[str, Sequence[Any]] = {
    "integrator": ["euler"],
    "layer_integrator": ["euler"],
    "velocity": ["none"],
    "activation": [*_ACTIVATIONS],
    "attention": ["softmax", "relative", "rotary"],
    "cross_attention": ["softmax"],
}


def export_ctranslate2(path: str | Path, out: str | Path, quantization: str | None = None) -> list[str]:
    """Write the translation model at a path (a model folder, or a run's).

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
        write_ctranslate2(model, names, partial, quantization)
        tokenizer.save_pretrained(partial)
        seal(partial)
    return [f"written to {out} with the tokenizer; matrices in {quantization or 'float32'}"]


def uncovered(model: TranslationModel) -> str:
    """What CTranslate2 lacks for a network, in words; empty if it knows it."""
    config, found = model.config, list[str]()
    encoder = config, config.encoder_scheme_value(), model.encoder, "FG"
    decoder = config.decoder_layer_settings(), config.decoder_scheme_value(), model.decoder, "FHG"
    for settings, scheme, stack, order in (encoder, decoder):
        for step in stack.steps:
            walks = [[(move.operator, move.coefficient) for move in moves] for _, moves in step.walk]
            if walks != [[(operator, 1.0) for operator in order]]:
                ends = stack.prologue, stack.epilogue
                found.append("a prologue or epilogue" if step in ends else f"the scheme {scheme.name!r}")
        values = {name: getattr(settings, name) for name in (*_KNOWN, "positions_at")}
        found += [f"{name} = {values[name]!r}" for name, known in _KNOWN.items() if values[name] not in known]
        usual = {"softmax": "input", "relative": "none", "rotary": "none"}.get(str(values["attention"]))
        if usual not in (None, values["positions_at"]):
            found.append(f"positions_at = {values['positions_at']!r} with attention = {values['attention']!r}")
    return ", ".join(dict.fromkeys(found))


def write_ctranslate2(
    model: TranslationModel, words: Sequence[str], folder: Path, quantization: str | None = None
) -> None:
    """Write the files of CTranslate2 for a network that it knows; ``words`` are the tokens."""
    from ctranslate2.specs import transformer_spec

    config, embedding = model.config, model.embedding
    encoder, decoder = _settings(config, model), _settings(config.decoder_layer_settings(), model)
    spec = transformer_spec.TransformerSpec(
        transformer_spec.TransformerEncoderSpec(len(model.encoder.steps), **encoder),
        transformer_spec.TransformerDecoderSpec(len(model.decoder.steps), **decoder),
    )
    table = embedding.tokens.weight.detach().numpy()
    positions = torch.arange(FIRST_POSITION, FIRST_POSITION + config.max_position_embeddings)
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = spec.decoder.projection.weight = table
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        side.scale_embeddings = config.scale_embedding
        if embedding.positioned:
            side.position_encodings.encodings = embedding.of_positions(positions).detach().numpy()
        for name, norm in (("layernorm_embedding", embedding.norm), ("layer_norm", stack.norm)):
            if norm is not None:
                _norm(getattr(side, name), norm)
        for part, layer in zip(side.layer, stack.steps, strict=True):
            _attention(part.self_attention, layer.sublayers["F1"])
            if side is spec.decoder:
                _attention(part.attention, layer.sublayers["H1"])
            _feed_forward(part.ffn, layer.sublayers["G1"])
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


def _settings(settings: LayerSettings, model: TranslationModel) -> dict[str, Any]:
    """The settings of a stack by CTranslate2's names."""
    from ctranslate2.specs import Activation

    attention = settings.interaction("F")
    rotary = {"rotary_dim": 0, "rotary_interleave": False, "rotary_base": attention.theta}
    return {
        "num_heads": settings.num_attention_heads,
        "head_dim": settings.head_size,
        "pre_norm": settings.norm == "pre",
        "rms_norm": settings.norm_type == "rms",
        "activation": getattr(Activation, _ACTIVATIONS[str(settings.activation_of(0))]),
        "ffn_glu": settings.gated(0),
        "layernorm_embedding": model.embedding.norm is not None,
        "relative_position": attention.positions == "relative",
        **(rotary if attention.positions == "rotary" else {}),
    }


def _norm(spec: Any, norm: Any) -> None:
    size = norm.normalized_shape
    spec.gamma = np.ones(size, np.float32) if norm.weight is None else norm.weight.detach().numpy()
    if hasattr(spec, "beta"):
        spec.beta = np.zeros(size, np.float32) if norm.bias is None else norm.bias.detach().numpy()


def _attention(spec: Any, part: Any) -> None:
    """Norm, projections and vectors of distances of a sub-layer F or H."""
    _norm(spec.layer_norm, part.norm)
    for linear, name in zip(spec.linear, (*part.operator.projections, "out"), strict=True):
        layer = getattr(part.operator, name)
        linear.weight, linear.bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    if (relative := part.operator.relative) is not None:
        spec.relative_position_keys = relative.keys.weight.detach().numpy()
        spec.relative_position_values = relative.values.weight.detach().numpy()


def _feed_forward(spec: Any, part: Any) -> None:
    """Norm and matrices of a sub-layer G; gates are the first half of the inner rows."""
    _norm(spec.layer_norm, part.norm)
    first, second = part.operator.fc1, part.operator.fc2
    for start, name in enumerate(("linear_0", "linear_0_noact") if hasattr(spec, "linear_0_noact") else ("linear_0",)):
        rows, linear = slice(start * second.in_features, (start + 1) * second.in_features), getattr(spec, name)
        linear.weight, linear.bias = first.weight[rows].detach().numpy(), first.bias[rows].detach().numpy()
    spec.linear_1.weight, spec.linear_1.bias = second.weight.detach().numpy(), second.bias.detach().numpy()
