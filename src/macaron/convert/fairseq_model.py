"""The configuration of a fairseq checkpoint, checked against its weights; and the names of the weights."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from macaron.convert.fairseq_checkpoint import FairseqCheckpoint
from macaron.models.configuration import EncoderConfig, TranslationConfig, default_labels
from macaron.settings import load_toml

CheckpointKind = Literal["translation", "bert", "classifier"]

#: A weight's prefix that only this kind of model has.
_PREFIXES: dict[CheckpointKind, str] = {
    "translation": "decoder.layers.",
    "bert": "mid_layer.",
    "classifier": "classifier.",
}
#: All names of the one embedding table.
TABLES = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.embed_out", "embed_out")
#: The authors' criteria for fine-tuning, and transformers' problem types.
_PROBLEMS = {
    "cross_entropy_classify": "single_label_classification",
    "cross_entropy_classify_binary": "multi_label_classification",  # one yes/no logit
    "mean_squared_error": "regression",
}
#: Settings of fairseq that the authors' models never use.
_UNSUPPORTED = (
    "encoder_learned_pos",
    "decoder_learned_pos",
    "no_token_positional_embeddings",
    "adaptive_softmax_cutoff",
)


def checkpoint_kind(checkpoint: FairseqCheckpoint) -> CheckpointKind:
    """The kind of model, recognised by its weights."""
    names = list(checkpoint.tensors)
    for kind, start in _PREFIXES.items():
        if any(name.startswith(start) for name in names):
            return kind
    raise checkpoint.error(
        "not a translation model, BERT or classifier of the authors' code: it has weights such as "
        f"{', '.join(map(repr, names[:3]))}"
    )


def translation_config(checkpoint: FairseqCheckpoint) -> TranslationConfig:
    """The configuration of a translation model."""
    longest = min(checkpoint.whole_number(f"max_{side}_positions", 1024) for side in ("source", "target"))
    return TranslationConfig(
        **_shared_fields(checkpoint, ("encoder", "decoder")),
        encoder_layers=_layer_count(checkpoint, "encoder"),
        decoder_layers=_layer_count(checkpoint, "decoder"),
        activation="relu",
        initializer="xavier",
        max_position_embeddings=longest,
    )


def encoder_config(checkpoint: FairseqCheckpoint, kind: CheckpointKind) -> EncoderConfig:
    """The configuration of a pre-trained encoder or a classifier."""
    args = checkpoint.args
    activation = args.get("act_fn", "gelu")
    if activation not in ("relu", "gelu"):
        raise checkpoint.error(f"args.act_fn is {activation!r}; Macaron has relu and gelu")
    affine = any(".layer_norms." in name for name in checkpoint.tensors)
    if bool(args.get("no_normalize_affine", not affine)) == affine:
        raise checkpoint.error(
            f"args.no_normalize_affine is {affine!r}, but the norms {'have' if affine else 'lack'} weights"
        )
    fields = _shared_fields(checkpoint, ("encoder",))
    if kind == "bert":
        checkpoint.matrix("embed_out")  # always present, although it is tied
    return EncoderConfig(
        **fields,
        **(_classifier_fields(checkpoint) if kind == "classifier" else {}),
        # In the authors' code the first half-step is always relu.
        activation=("relu", activation) if fields["inner_sizes"] else activation,
        norm_affine=affine,
        type_vocab_size=checkpoint.matrix("encoder.embed_segment.weight").shape[0],
        max_position_embeddings=checkpoint.whole_number("max_source_positions", args.get("max_positions", 512)),
        num_hidden_layers=_layer_count(checkpoint, "encoder"),
        initializer="kaiming",
        first_segment=1,
        freeze_first_segment=True,
    )


def _classifier_fields(checkpoint: FairseqCheckpoint) -> dict[str, Any]:
    labels = checkpoint.matrix("classifier.weight").shape[0]
    checkpoint.agree("n_classes", labels)
    criterion = str(checkpoint.args.get("criterion"))
    if criterion not in _PROBLEMS:
        raise checkpoint.error(f"args.criterion is {criterion!r}; a classifier's is one of {', '.join(_PROBLEMS)}")
    problem = _PROBLEMS[criterion]
    if problem != "single_label_classification" and labels != 1:
        raise checkpoint.error(
            f"args.criterion is {criterion!r}, which has one output, but the classifier has {labels}"
        )
    return {"id2label": default_labels(labels), "problem_type": problem}


def _shared_fields(checkpoint: FairseqCheckpoint, stacks: tuple[str, ...]) -> dict[str, Any]:
    for name in _UNSUPPORTED:
        if checkpoint.args.get(name):
            raise checkpoint.error(f"args.{name} is {checkpoint.args[name]!r}, which Macaron's models do not support")
    vocabulary, hidden = _embedding_shape(checkpoint)
    heads = checkpoint.whole_number("encoder_attention_heads")
    macaron = any(".macaron_fc1." in name for name in checkpoint.tensors)
    networks = ("macaron_fc1", "fc1") if macaron else ("fc1",)
    widths: dict[str, list[int]] = {}  # of the feed-forward networks, in order of application
    for stack in stacks:
        checkpoint.agree(f"{stack}_embed_dim", hidden)
        checkpoint.agree(f"{stack}_attention_heads", heads)
        checkpoint.agree(f"{stack}_layers", _layer_count(checkpoint, stack))
        widths[stack] = [checkpoint.matrix(f"{stack}.layers.0.{name}.weight").shape[0] for name in networks]
        checkpoint.agree(f"{stack}_ffn_embed_dim", widths[stack][-1])
        if widths[stack] != widths["encoder"]:
            raise checkpoint.error(
                f"the feed-forward networks of the encoder have widths {widths['encoder']}, those of the {stack} "
                f"{widths[stack]}; in Macaron they must be equal"
            )
    if hidden % heads:
        raise checkpoint.error(f"args.encoder_attention_heads ({heads}) does not divide the hidden size ({hidden})")
    if bool(checkpoint.args.get("macaron", macaron)) != macaron:
        raise checkpoint.error(
            f"args.macaron is {checkpoint.args['macaron']!r}, but the layers {'have' if macaron else 'lack'} "
            "'macaron_fc1'"
        )
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": sum(widths["encoder"]),
        # The weights determine the widths, not the budget.
        "inner_sizes": widths["encoder"] if macaron else None,
        "scheme": "strang-gfg" if macaron else "lie-fg",
        "norm": _norm(checkpoint, stacks),
        "dropout": checkpoint.rate("dropout"),
        "attention_dropout": checkpoint.rate("attention_dropout"),
        "activation_dropout": checkpoint.rate("relu_dropout"),
    }


def _layer_count(checkpoint: FairseqCheckpoint, stack: str) -> int:
    found = {int(match[1]) for name in checkpoint.tensors if (match := re.match(rf"{stack}\.layers\.(\d+)\.", name))}
    if missing := set(range(len(found))) - found:
        raise checkpoint.error(f"no weights for '{stack}.layers.{min(missing)}', though there are later layers")
    return len(found)


def _embedding_shape(checkpoint: FairseqCheckpoint) -> torch.Size:
    """The shape of the one embedding table; a model with several is refused."""
    first = checkpoint.matrix(TABLES[0])
    for name in TABLES[1:]:
        if name in checkpoint.tensors and not torch.equal(first.float(), checkpoint.weight(name).float()):
            raise checkpoint.error(
                f"{name!r} differs from {TABLES[0]!r}: the model was trained without shared embeddings, but "
                "Macaron has one table for source, target and output (fairseq's --share-all-embeddings)"
            )
    return first.shape


def _norm(checkpoint: FairseqCheckpoint, stacks: tuple[str, ...]) -> str:
    pre = {
        bool(checkpoint.args.get(f"{stack}_normalize_before", f"{stack}.layer_norm.weight" in checkpoint.tensors))
        for stack in stacks
    }
    if len(pre) > 1:
        raise checkpoint.error(
            "args.encoder_normalize_before and args.decoder_normalize_before differ; in Macaron encoder and decoder "
            "have the same norm placement"
        )
    if pre == {False}:
        return "post"
    for stack in stacks:
        version = checkpoint.tensors.get(f"{stack}.version")
        if version is None or version.numel() != 1 or version.is_complex() or not float(version) >= 2:
            raise checkpoint.error(
                f"'{stack}.version' is missing or below 2: a pre-norm model of the oldest kind, without a norm after "
                "the last layer. Macaron's pre-norm models have that norm, so it cannot be converted"
            )
    return "pre"


Names = dict[str, tuple[str, ...]]  # fairseq's -> ours; several of ours split the rows, in order

_TABLE = load_toml(Path(__file__).with_name("families.toml"))[0]["fairseq"]
#: Not weights: version markers, uninitialised buffers, tables of sinusoids.
_NOT_WEIGHTS = tuple(
    f"{stack}.{name}"
    for stack in ("encoder", "decoder")
    for name in ("version", "embed_positions._float_tensor", "embed_positions.weights")
)
#: A decoder layer's norms; the oldest checkpoints have numbers instead.
_OLD_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")


def upgrade(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the decoder norms of the oldest checkpoints."""
    old = re.compile(r"^(decoder\.layers\.\d+)\.layer_norms\.([012])\.")
    return {old.sub(lambda found: f"{found[1]}.{_OLD_NORMS[int(found[2])]}.", name): t for name, t in tensors.items()}


def weight_names(config: TranslationConfig | EncoderConfig, kind: CheckpointKind) -> Names:
    """fairseq's name of every weight of a model, and ours."""
    if isinstance(config, TranslationConfig):
        prefix, layers = "", {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
        names: Names = {}
    else:
        prefix, layers = "model.", {"encoder": config.num_hidden_layers}
        names = {"encoder.embed_segment.weight": ("model.embedding.segments.weight",)}
    modules = {theirs: (ours,) for theirs, ours in _TABLE["heads"][kind].items()}
    for stack, count in layers.items():
        for theirs, ours in _TABLE[config.scheme][stack].items():
            for layer in range(count) if config.norm_affine or not ours.endswith(".norm") else ():
                place = f"{prefix}{stack}.layers.{layer}.sublayers."
                modules[f"{stack}.layers.{layer}.{theirs}"] = tuple(place + part for part in ours.split())
        if config.norm_affine and config.norm == "pre":
            modules[f"{stack}.layer_norm."] = (f"{prefix}{stack}.norm",)
    parameters = {
        f"{theirs}{kind}": tuple(f"{part}.{kind}" for part in ours)
        for theirs, ours in modules.items()
        for kind in ("weight", "bias")
    }
    return {TABLES[0]: (f"{prefix}embedding.tokens.weight",), **names, **parameters}


def rename(checkpoint: FairseqCheckpoint, names: Names, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """The checkpoint's weights under our names, in float32.

    All weights must be present, in the right shape, and none may be left over: an unknown weight is a part of the
    model that would be lost.
    """
    left = set(checkpoint.tensors) - set(names) - set(_NOT_WEIGHTS) - set(TABLES)
    if left:
        raise checkpoint.error(
            f"{min(left)!r} ({len(left)} such) is not part of the model that 'args' describes; only the authors' "
            "architectures can be converted"
        )
    result: dict[str, Tensor] = {}
    for theirs, ours in names.items():
        tensor = checkpoint.weight(theirs)
        rows = [shapes[name][0] for name in ours]
        expected = (sum(rows), *shapes[ours[0]][1:])
        if tuple(tensor.shape) != expected:
            raise checkpoint.error(
                f"{theirs!r} has shape {tuple(tensor.shape)}; 'args' and the other weights require {expected}"
            )
        for name, part in zip(ours, torch.split(tensor, rows), strict=True):
            result[name] = part.to(torch.float32, copy=True).contiguous()
    return result
