"""Converts checkpoints of the authors' code (two forks of fairseq 0.6) to model folders."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from macaron.convert.fairseq_checkpoint import FairseqCheckpoint, read_checkpoint
from macaron.convert.fairseq_model import (
    TABLES,
    CheckpointKind,
    checkpoint_kind,
    encoder_config,
    rename,
    translation_config,
    upgrade,
    weight_names,
)
from macaron.errors import MacaronError
from macaron.files import check_unused
from macaron.models.configuration import GenerationSettings
from macaron.models.encoder import EncoderForPreTraining, EncoderForSequenceClassification
from macaron.models.load import save_model
from macaron.models.network import Network
from macaron.models.translation import TranslationModel
from macaron.text.pipeline import LANGUAGE
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import SPECIALS, TokenizerKind, read_dictionary

_TITLES = {"translation": "translation", "bert": "encoder with pre-training heads", "classifier": "classifier"}
_NETWORKS: dict[CheckpointKind, Any] = {
    "translation": TranslationModel,
    "bert": EncoderForPreTraining,
    "classifier": EncoderForSequenceClassification,
}
_LONGEST = 200  # tokens of a translation without its end, as in the authors' code


@dataclass(frozen=True)
class Conversion:
    """A summary of a conversion: a description in lines, and warnings."""

    lines: tuple[str, ...]
    notes: tuple[str, ...]


def convert_fairseq(
    checkpoint: str | Path, dictionary: str | Path, out: str | Path, *, force: bool = False, **settings: Any
) -> Conversion:
    """Convert a checkpoint and its dictionary to a model folder that the Auto classes of transformers read.

    :param settings: of the tokenizer, see `MacaronTokenizer.from_fairseq_dict`: ``codes`` (BPE codes of subword-nmt;
        without them the text must consist of dictionary entries, ``foo@@ bar``), ``pipeline`` (``spaces`` for
        tokenised text, the default, or ``moses`` for plain text) and, for ``moses``, ``source_lang``, ``target_lang``
        (by default those of the checkpoint), ``lower`` and ``normalize``
    """
    out = Path(out)
    check_replaceable(out, force)
    read = read_checkpoint(checkpoint)
    read.tensors = upgrade(read.tensors)
    kind = checkpoint_kind(read)
    model = build_model(read, kind)
    for side in ("source_lang", "target_lang"):
        settings[side] = settings.get(side) or read.args.get(side)
        if settings[side] and not LANGUAGE.fullmatch(str(settings[side])):
            raise read.error(f"args.{side} is not a language code (expected e.g. 'de'), but {settings[side]!r}")
    tokenizer = _tokenizer(read, dictionary, kind, settings)
    check_replaceable(out, force)  # again: the conversion may have taken long
    config = replace(model.config, tokenizer_fingerprint=tokenizer.fingerprint())
    save_model(out, model, model.state_dict(), tokenizer, config)
    return Conversion(description(_title(kind, model.config), model, out), _notes(tokenizer))


def check_replaceable(path: Path, force: bool) -> None:
    """Refuse an output path that is taken. With ``force`` an existing model folder may be replaced."""
    if not force:
        check_unused(path, "choose another path, or replace it with --force")
    elif path.is_dir() and any(path.iterdir()) and not (path / "config.json").is_file():
        raise MacaronError(f"{path}: not a model folder (it has no config.json), so --force does not replace it")


def build_model(checkpoint: FairseqCheckpoint, kind: CheckpointKind) -> Network:
    """The model of a checkpoint, in evaluation mode."""
    config: Any = translation_config(checkpoint) if kind == "translation" else encoder_config(checkpoint, kind)
    with torch.device("meta"):
        model: Network = _NETWORKS[kind](config)
    if isinstance(model, TranslationModel):
        # As the authors' search: no padding, at least one token, the same limit (ours counts start and end).
        model.generation_config = GenerationSettings(
            max_length=_LONGEST + 2, min_new_tokens=1, suppress_tokens=[config.pad_token_id]
        )
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    model.load_state_dict(rename(checkpoint, weight_names(config, kind), shapes), strict=True, assign=True)
    model.train(False)
    return model


def _tokenizer(
    checkpoint: FairseqCheckpoint, dictionary: str | Path, kind: CheckpointKind, settings: dict[str, Any]
) -> MacaronTokenizer:
    tokenizer_kind: TokenizerKind = "translation" if kind == "translation" else "encoder"
    size, rows = len(read_dictionary(dictionary, tokenizer_kind)), len(checkpoint.tensors[TABLES[0]])
    if size != rows:
        raise MacaronError(
            f"{dictionary} has {size} entries (with {len(SPECIALS[tokenizer_kind])} special tokens), but the "
            f"embedding in {checkpoint.path} has {rows} rows. Give the dict.txt that the model was trained "
            "with, including the 'madeupword' lines that pad it to a multiple of 8."
        )
    return MacaronTokenizer.from_fairseq_dict(dictionary, kind=tokenizer_kind, **settings)


def _notes(tokenizer: MacaronTokenizer) -> tuple[str, ...]:
    if tokenizer.pipeline != "moses":
        return ()
    from sacremoses.corpus import NonbreakingPrefixes

    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    unknown = dict.fromkeys(lang for lang in (tokenizer.source_lang, tokenizer.target_lang) if lang not in known)
    # Not an error: Moses itself does so, and corpora of such languages were made with it.
    return tuple(
        f"Moses has no rules for the language {lang!r} and treats it as English; it knows {', '.join(known)}"
        for lang in unknown
    )


def _title(kind: CheckpointKind, config: Any) -> str:
    if kind != "classifier":
        return _TITLES[kind]
    outputs = {
        "single_label_classification": f" of {config.num_labels} classes",
        "multi_label_classification": " with one yes/no output",
        "regression": ", regression",
    }
    return _TITLES[kind] + outputs[config.problem_type]


def description(title: str, model: Network, out: Path) -> tuple[str, ...]:
    """A converted model in lines."""
    config: Any = model.config
    both = hasattr(config, "decoder_layers")
    layers = f"{config.encoder_layers}+{config.decoder_layers}" if both else config.num_hidden_layers
    inner = "+".join(map(str, config.inner_sizes or [config.intermediate_size]))
    return (
        f"{title}: {config.scheme}, {config.norm}-norm, {layers} layers, hidden {config.hidden_size}, "
        f"{config.num_attention_heads} heads, inner {inner}",
        f"{model.num_parameters():,} parameters, vocabulary {config.vocab_size:,}",
        f"written to {out}",
    )
