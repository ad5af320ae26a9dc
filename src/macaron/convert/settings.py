"""What a fairseq checkpoint holds, and its configuration: taken from its settings, checked on its weights."""

import re
from typing import Any, Literal

import torch
from torch import Tensor

from macaron.convert.checkpoint import Checkpoint
from macaron.convert.names import TABLES
from macaron.models.configuration import EncoderConfig, TranslationConfig, default_labels

Kind = Literal["translation", "bert", "classifier"]

#: The authors' criteria for fine-tuning, as transformers calls them.
_PROBLEMS = {
    "cross_entropy_classify": "single_label_classification",
    "cross_entropy_classify_binary": "multi_label_classification",  # one yes/no logit
    "mean_squared_error": "regression",
}
#: Settings of fairseq that change the model in ways the authors' models never had.
_UNKNOWN_TO_US = (
    "encoder_learned_pos",
    "decoder_learned_pos",
    "no_token_positional_embeddings",
    "adaptive_softmax_cutoff",
)


def kind_of(checkpoint: Checkpoint) -> Kind:
    """Recognise the model by the weights it has."""
    names = list(checkpoint.tensors)
    kinds: dict[str, Kind] = {"decoder.layers.": "translation", "mid_layer.": "bert", "classifier.": "classifier"}
    if any(name.startswith("encoder.layers.") for name in names):
        for start, kind in kinds.items():
            if any(name.startswith(start) for name in names):
                return kind
    raise checkpoint.error(
        "not a translation model, BERT or classifier of the authors' code: it has weights such as "
        f"{', '.join(map(repr, names[:3]))}"
    )


class Settings:
    """fairseq's ``args`` with types, and complaints that name file and setting."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint

    def value(self, name: str, default: Any = None) -> Any:
        """A setting as it is."""
        return self.checkpoint.args.get(name, default)

    def whole(self, name: str, default: int | None = None) -> int:
        """A positive whole number."""
        value = self.value(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise self.checkpoint.error(f"args.{name} should be a positive whole number, not {value!r}")
        return value

    def rate(self, name: str) -> float:
        """A dropout rate; 0 where the setting is missing."""
        value = self.value(name, 0.0)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise self.checkpoint.error(f"args.{name} should be a dropout rate in [0, 1), not {value!r}")
        return float(value)

    def agree(self, name: str, found: int) -> None:
        """Refuse a setting that contradicts the weights; one that is missing says nothing."""
        if name in self.checkpoint.args and self.whole(name) != found:
            raise self.checkpoint.error(f"args.{name} is {self.value(name)}, but the weights say {found}")


def layer_count(checkpoint: Checkpoint, stack: str) -> int:
    """How many layers the weights of a stack have."""
    found = {int(match[1]) for name in checkpoint.tensors if (match := re.match(rf"{stack}\.layers\.(\d+)\.", name))}
    for number in range(len(found)):
        if number not in found:
            raise checkpoint.error(f"no weights for '{stack}.layers.{number}', though there are later layers")
    return len(found)


def is_macaron(checkpoint: Checkpoint) -> bool:
    """Whether the layers have a first half-step."""
    return any(".macaron_fc1." in name for name in checkpoint.tensors)


def embedding(checkpoint: Checkpoint) -> Tensor:
    """The one embedding table; a model with several is refused."""
    first = checkpoint.matrix(TABLES[0])
    for name in TABLES[1:]:
        if name in checkpoint.tensors and not torch.equal(first.float(), checkpoint.weight(name).float()):
            raise checkpoint.error(
                f"{name!r} differs from {TABLES[0]!r}: the model was trained without shared embeddings, but "
                "Macaron has one table for source, target and output (fairseq's --share-all-embeddings)"
            )
    return first


def inner_sizes(checkpoint: Checkpoint, stack: str) -> list[int]:
    """Inner widths of the feed-forward networks of a stack's first layer, in order of application."""
    names = ("macaron_fc1", "fc1") if is_macaron(checkpoint) else ("fc1",)
    return [checkpoint.matrix(f"{stack}.layers.0.{name}.weight").shape[0] for name in names]


def _norm(settings: Settings, stacks: tuple[str, ...]) -> str:
    checkpoint = settings.checkpoint
    placed = {
        stack: bool(settings.value(f"{stack}_normalize_before", f"{stack}.layer_norm.weight" in checkpoint.tensors))
        for stack in stacks
    }
    if len(set(placed.values())) > 1:
        raise checkpoint.error(
            "args.encoder_normalize_before and args.decoder_normalize_before differ; Macaron's encoder and "
            "decoder place their norms alike"
        )
    if not placed["encoder"]:
        return "post"
    for stack in stacks:
        version = checkpoint.tensors.get(f"{stack}.version")
        if version is None or version.numel() != 1 or version.is_complex() or not float(version) >= 2:
            raise checkpoint.error(
                f"'{stack}.version' is missing or below 2: a pre-norm model of the oldest kind, without a norm "
                "after the last layer. Macaron's pre-norm models have one, so it cannot be converted"
            )
    return "pre"


def _shared_fields(checkpoint: Checkpoint, stacks: tuple[str, ...]) -> dict[str, Any]:
    """The fields that all three kinds have."""
    settings = Settings(checkpoint)
    for name in _UNKNOWN_TO_US:
        if settings.value(name):
            raise checkpoint.error(f"args.{name} is {settings.value(name)!r}; Macaron's models have no such thing")
    vocabulary, hidden = embedding(checkpoint).shape
    heads = settings.whole("encoder_attention_heads")
    for stack in stacks:
        settings.agree(f"{stack}_embed_dim", hidden)
        settings.agree(f"{stack}_attention_heads", heads)
        settings.agree(f"{stack}_layers", layer_count(checkpoint, stack))
    widths = inner_sizes(checkpoint, "encoder")
    for stack in stacks:
        settings.agree(f"{stack}_ffn_embed_dim", inner_sizes(checkpoint, stack)[-1])
        if inner_sizes(checkpoint, stack) != widths:
            raise checkpoint.error(
                f"the feed-forward networks of the encoder have widths {widths}, those of the {stack} "
                f"{inner_sizes(checkpoint, stack)}; Macaron's encoder and decoder have the same"
            )
    if hidden % heads:
        raise checkpoint.error(f"args.encoder_attention_heads ({heads}) does not divide the hidden size ({hidden})")
    macaron = is_macaron(checkpoint)
    if bool(settings.value("macaron", macaron)) != macaron:
        raise checkpoint.error(
            f"args.macaron is {settings.value('macaron')!r}, but the layers {'have' if macaron else 'lack'} "
            "'macaron_fc1'"
        )
    return {
        "vocab_size": vocabulary,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "intermediate_size": sum(widths),
        # The shares of a budget are another matter: the weights have the widths they have.
        "inner_sizes": widths if macaron else None,
        "scheme": "strang-gfg" if macaron else "lie-fg",
        "norm": _norm(settings, stacks),
        "dropout": settings.rate("dropout"),
        "attention_dropout": settings.rate("attention_dropout"),
        "activation_dropout": settings.rate("relu_dropout"),
    }


def translation_config(checkpoint: Checkpoint) -> TranslationConfig:
    """The configuration of a translation model."""
    settings = Settings(checkpoint)
    positions = [settings.whole(f"max_{side}_positions", 1024) for side in ("source", "target")]
    return TranslationConfig(
        **_shared_fields(checkpoint, ("encoder", "decoder")),
        encoder_layers=layer_count(checkpoint, "encoder"),
        decoder_layers=layer_count(checkpoint, "decoder"),
        activation="relu",
        initializer="xavier",
        max_position_embeddings=min(positions),
    )


def encoder_config(checkpoint: Checkpoint, kind: Kind) -> EncoderConfig:
    """The configuration of a pre-trained encoder or a classifier."""
    settings = Settings(checkpoint)
    activation = settings.value("act_fn", "gelu")
    if activation not in ("relu", "gelu"):
        raise checkpoint.error(f"args.act_fn is {activation!r}; Macaron knows relu and gelu")
    affine = any(".layer_norms." in name for name in checkpoint.tensors)
    if bool(settings.value("no_normalize_affine", not affine)) == affine:
        raise checkpoint.error(
            f"args.no_normalize_affine is {affine!r}, but the norms {'have' if affine else 'lack'} weights"
        )
    fields: dict[str, Any] = {
        **_shared_fields(checkpoint, ("encoder",)),
        # In the authors' code the first half-step is relu whatever the settings say.
        "activation": ["relu", activation] if is_macaron(checkpoint) else activation,
        "norm_affine": affine,
        "type_vocab_size": checkpoint.matrix("encoder.embed_segment.weight").shape[0],
        "max_position_embeddings": settings.whole("max_source_positions", settings.value("max_positions", 512)),
    }
    if kind == "classifier":
        fields |= _task(settings)
    else:
        checkpoint.matrix("embed_out")  # tied, yet always there
    return EncoderConfig(
        **fields,
        num_hidden_layers=layer_count(checkpoint, "encoder"),
        initializer="kaiming",
        first_segment=1,
        freeze_first_segment=True,
    )


def _task(settings: Settings) -> dict[str, Any]:
    """Number of labels, and what the classifier's outputs mean."""
    checkpoint = settings.checkpoint
    labels = checkpoint.matrix("classifier.weight").shape[0]
    settings.agree("n_classes", labels)
    criterion = str(settings.value("criterion"))
    if criterion not in _PROBLEMS:
        raise checkpoint.error(f"args.criterion is {criterion!r}; a classifier's is one of {', '.join(_PROBLEMS)}")
    problem = _PROBLEMS[criterion]
    if problem != "single_label_classification" and labels != 1:
        raise checkpoint.error(
            f"args.criterion is {criterion!r}, which has one output, but the classifier has {labels}"
        )
    return {"id2label": default_labels(labels), "problem_type": problem}
