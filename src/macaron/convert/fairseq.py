"""Converts checkpoints of the authors' code (two forks of fairseq 0.6) to model folders."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor

from macaron.convert.fairseq_checkpoint import FairseqCheckpoint, read_checkpoint
from macaron.errors import MacaronError, naming, require
from macaron.files import check_unused
from macaron.models.configuration import EncoderConfig, GenerationSettings, TranslationConfig, default_labels
from macaron.models.encoder import EncoderForPreTraining, EncoderForSequenceClassification
from macaron.models.load import save_model
from macaron.models.network import Network
from macaron.models.translation import TranslationModel
from macaron.settings import load_toml
from macaron.text.pipeline import LANGUAGE
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import SPECIALS, TokenizerKind, read_dictionary

CheckpointKind = Literal["translation", "bert", "classifier"]
Names = dict[str, tuple[str, ...]]  # fairseq's -> ours; several of ours split the rows, in order

_NETWORKS: dict[CheckpointKind, Any] = {
    "translation": TranslationModel,
    "bert": EncoderForPreTraining,
    "classifier": EncoderForSequenceClassification,
}
_LONGEST = 200  # tokens of a translation without its end, as in the authors' code
_DATA = load_toml(Path(__file__).with_name("fairseq.toml"))[0]
_TABLES, _PROBLEMS = _DATA["tables"], _DATA["problems"]


def convert_fairseq(
    checkpoint: str | Path, dictionary: str | Path, out: str | Path, *, force: bool = False, **settings: Any
) -> list[str]:
    """Convert a checkpoint and its dictionary to a model folder that the Auto classes of transformers read.

    :param settings: of the tokenizer, see `MacaronTokenizer.from_fairseq_dict`; languages: by default the checkpoint's
    :returns: a description in lines
    """
    out = Path(out)
    read = read_checkpoint(checkpoint)
    with naming(checkpoint):
        # The norms of the decoders of the oldest checkpoints have numbers.
        old, names = re.compile(r"(?<=^decoder\.layers\.)(\d+)\.layer_norms\.([012])\."), _DATA["old_norms"]
        new = {old.sub(lambda found: f"{found[1]}.{names[int(found[2])]}.", each): each for each in read.tensors}
        read.tensors = {name: read.tensors[before] for name, before in new.items()}
        kind = _checkpoint_kind(read)
        model = build_model(read, kind)
        for side in ("source_lang", "target_lang"):
            settings[side] = given = settings.get(side) or read.args.get(side)
            known = not given or LANGUAGE.fullmatch(str(given)) is not None
            require(known, f"args.{side} is not a language code (expected e.g. 'de'), but {given!r}")
    tokenizer = _tokenizer(read, dictionary, kind, settings)
    check_replaceable(out, force)
    config = replace(model.config, tokenizer_fingerprint=tokenizer.fingerprint())
    save_model(out, model, model.state_dict(), tokenizer, config)
    title = f"{kind} ({config.problem_type}, {config.num_labels} outputs)" if kind == "classifier" else kind
    return description(title, model, out)


def check_replaceable(path: Path, force: bool) -> None:
    """Refuse an output path that is taken. With ``force`` an existing model folder may be replaced."""
    if not force:
        check_unused(path, "choose another path, or replace it with --force")
    elif path.is_dir() and any(path.iterdir()) and not (path / "config.json").is_file():
        raise MacaronError(f"{path}: not a model folder (it has no config.json), so --force does not replace it")


def build_model(checkpoint: FairseqCheckpoint, kind: CheckpointKind) -> Network:
    """The model of a checkpoint, in evaluation mode."""
    config: Any = _translation_config(checkpoint) if kind == "translation" else _encoder_config(checkpoint, kind)
    with torch.device("meta"):
        model: Network = _NETWORKS[kind](config)
    if isinstance(model, TranslationModel):
        # As the authors' search: no padding, at least one token, the same limit (ours counts start and end).
        model.generation_config = GenerationSettings(
            max_length=_LONGEST + 2, min_new_tokens=1, suppress_tokens=[config.pad_token_id]
        )
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    model.load_state_dict(_renamed(checkpoint, weight_names(config, kind), shapes), strict=True, assign=True)
    model.train(False)
    return model


def _tokenizer(
    checkpoint: FairseqCheckpoint, dictionary: str | Path, kind: CheckpointKind, settings: dict[str, Any]
) -> MacaronTokenizer:
    tokenizer_kind: TokenizerKind = "translation" if kind == "translation" else "encoder"
    size, rows = len(read_dictionary(dictionary, tokenizer_kind)), len(checkpoint.tensors[_TABLES[0]])
    entries = f"{size} entries (with {len(SPECIALS[tokenizer_kind])} special tokens)"
    other = f"{dictionary} has {entries}, but the embedding in {checkpoint.path} has {rows} rows"
    remedy = "Give that of the model, including the 'madeupword' lines that pad it to a multiple of 8."
    require(size == rows, f"{other}. {remedy}")
    return MacaronTokenizer.from_fairseq_dict(dictionary, kind=tokenizer_kind, **settings)


def description(title: str, model: Network, out: Path) -> list[str]:
    """A converted model in lines."""
    config: Any = model.config
    both = hasattr(config, "decoder_layers")
    layers = f"{config.encoder_layers}+{config.decoder_layers}" if both else config.num_hidden_layers
    inner = "+".join(map(str, config.inner_sizes or [config.intermediate_size]))
    return [
        f"{title}: {config.scheme}, {config.norm}-norm, {layers} layers, hidden {config.hidden_size}, "
        f"{config.num_attention_heads} heads, inner {inner}",
        f"{model.num_parameters():,} parameters, vocabulary {config.vocab_size:,}",
        f"written to {out}",
    ]


def _checkpoint_kind(checkpoint: FairseqCheckpoint) -> CheckpointKind:
    names = list(checkpoint.tensors)
    for kind, start in _DATA["prefixes"].items():
        if any(name.startswith(start) for name in names):
            return cast(CheckpointKind, kind)
    shown = ", ".join(map(repr, names[:3]))
    raise MacaronError(
        f"not a translation model, BERT or classifier of the authors' code: it has weights such as {shown}"
    )


def _translation_config(checkpoint: FairseqCheckpoint) -> TranslationConfig:
    longest = min(checkpoint.whole_number(f"max_{side}_positions", 1024) for side in ("source", "target"))
    return TranslationConfig(
        **_shared_fields(checkpoint, ("encoder", "decoder")),
        encoder_layers=_layer_count(checkpoint, "encoder"),
        decoder_layers=_layer_count(checkpoint, "decoder"),
        activation="relu",
        initializer="xavier",
        max_position_embeddings=longest,
    )


def _encoder_config(checkpoint: FairseqCheckpoint, kind: CheckpointKind) -> EncoderConfig:
    args = checkpoint.args
    activation = args.get("act_fn", "gelu")
    require(activation in ("relu", "gelu"), f"args.act_fn is {activation!r}; Macaron has relu and gelu")
    affine = any(".layer_norms." in name for name in checkpoint.tensors)
    checkpoint.agree("no_normalize_affine", not affine)
    fields = _shared_fields(checkpoint, ("encoder",))
    labels: dict[str, Any] = {}
    if kind == "bert":
        checkpoint.matrix("embed_out")  # always present, although it is tied
    elif kind == "classifier":
        count = checkpoint.matrix("classifier.weight").shape[0]
        checkpoint.agree("n_classes", count)
        given = f"args.criterion is {(criterion := str(args.get('criterion')))!r}"
        require(criterion in _PROBLEMS, f"{given}; a classifier's is one of {', '.join(_PROBLEMS)}")
        labels = {"id2label": default_labels(count), "problem_type": _PROBLEMS[criterion]}
        fits = count == 1 or labels["problem_type"] == "single_label_classification"
        require(fits, f"{given}, which has one output, but the classifier has {count}")
    return EncoderConfig(
        **fields,
        **labels,
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


def _shared_fields(checkpoint: FairseqCheckpoint, stacks: tuple[str, ...]) -> dict[str, Any]:
    for name in _DATA["unsupported"]:
        given = checkpoint.args.get(name)
        require(not given, f"args.{name} is {given!r}, which Macaron's models do not support")
    table = checkpoint.matrix(_TABLES[0])
    vocabulary, hidden = table.shape
    for name in _TABLES[1:]:
        shared = name not in checkpoint.tensors or torch.equal(table.float(), checkpoint.weight(name).float())
        trained = f"{name!r} differs from {_TABLES[0]!r}: the model was trained without shared embeddings"
        needed = "Macaron has one table for source, target and output (fairseq's --share-all-embeddings)"
        require(shared, f"{trained}, but {needed}")
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
        both = f"the encoder have widths {widths['encoder']}, those of the {stack} {widths[stack]}"
        equal = widths[stack] == widths["encoder"]
        require(equal, f"the feed-forward networks of {both}; in Macaron they must be equal")
    divides = hidden % heads == 0
    require(divides, f"args.encoder_attention_heads ({heads}) does not divide the hidden size ({hidden})")
    checkpoint.agree("macaron", macaron)
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
    first = next(number for number in range(len(found) + 1) if number not in found)
    require(first == len(found), f"no weights for '{stack}.layers.{first}', though there are later layers")
    return len(found)


def _norm(checkpoint: FairseqCheckpoint, stacks: tuple[str, ...]) -> str:
    pre = {
        bool(checkpoint.args.get(f"{stack}_normalize_before", f"{stack}.layer_norm.weight" in checkpoint.tensors))
        for stack in stacks
    }
    both = "args.encoder_normalize_before and args.decoder_normalize_before"
    require(len(pre) == 1, f"{both} differ; in Macaron encoder and decoder have the same norm placement")
    if pre == {False}:
        return "post"
    for stack in stacks:
        version = checkpoint.tensors.get(f"{stack}.version")
        if version is None or version.numel() != 1 or version.is_complex() or not float(version) >= 2:
            oldest = f"'{stack}.version' is missing or below 2: a pre-norm model of the oldest kind"
            lacks = "without a norm after the last layer. Macaron's pre-norm models have that norm"
            raise MacaronError(f"{oldest}, {lacks}, so it cannot be converted")
    return "pre"


def weight_names(config: TranslationConfig | EncoderConfig, kind: CheckpointKind) -> Names:
    """fairseq's name of every weight of a model, and ours."""
    if isinstance(config, TranslationConfig):
        prefix, layers = "", {"encoder": config.encoder_layers, "decoder": config.decoder_layers}
        names: Names = {}
    else:
        prefix, layers = "model.", {"encoder": config.num_hidden_layers}
        names = {"encoder.embed_segment.weight": ("model.embedding.segments.weight",)}
    modules = {theirs: (ours,) for theirs, ours in _DATA["heads"][kind].items()}
    for stack, count in layers.items():
        for theirs, ours in _DATA[config.scheme][stack].items():
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
    return {_TABLES[0]: (f"{prefix}embedding.tokens.weight",), **names, **parameters}


def _renamed(checkpoint: FairseqCheckpoint, names: Names, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    # An unknown weight is a part of the model that would be lost.
    left = set(checkpoint.tensors) - set(names) - set(_DATA["not_weights"]) - set(_TABLES)
    if left:
        unknown = f"{min(left)!r} ({len(left)} such) is not part of the model that 'args' describes"
        raise MacaronError(f"{unknown}; only the authors' architectures can be converted")
    result: dict[str, Tensor] = {}
    for theirs, ours in names.items():
        tensor = checkpoint.weight(theirs)
        rows = [shapes[name][0] for name in ours]
        expected = (sum(rows), *shapes[ours[0]][1:])
        shape = tuple(tensor.shape)
        require(shape == expected, f"{theirs!r} has shape {shape}; 'args' and the other weights require {expected}")
        for name, part in zip(ours, torch.split(tensor, rows), strict=True):
            result[name] = part.to(torch.float32, copy=True).contiguous()
    return result
