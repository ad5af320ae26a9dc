"""Checkpoints of the authors' code (two forks of fairseq 0.6) to model folders."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from macaron.convert.checkpoint import Checkpoint, read_checkpoint
from macaron.convert.names import TABLES, Names, head_names, stack_names, translate, upgrade
from macaron.convert.settings import Kind, encoder_config, kind_of, translation_config
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig, GenerationSettings, TranslationConfig
from macaron.models.encoder import EncoderForPreTraining, EncoderForSequenceClassification
from macaron.models.load import save_model
from macaron.models.network import Network
from macaron.models.translation import TranslationModel
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import SPECIALS, read_dictionary
from macaron.text.vocabulary import Kind as TokenizerKind

_TITLES = {
    "translation": "translation",
    "bert": "encoder with pre-training heads",
    "classifier": "classifier",
}
_LONGEST = 200  # tokens of a translation, without its end; the authors' limit


@dataclass(frozen=True)
class Conversion:
    """What was converted, for people to read."""

    kind: str
    scheme: str
    layers: str
    widths: str
    norm: str
    vocabulary: int
    parameters: int
    folder: Path
    notes: tuple[str, ...] = ()  # what a person should know, though nothing is wrong

    def lines(self) -> list[str]:
        """A short summary."""
        return [
            f"{self.kind}: {self.scheme}, {self.norm}-norm, {self.layers} layers, {self.widths}",
            f"{self.parameters:,} parameters, vocabulary {self.vocabulary:,}",
            f"written to {self.folder}",
        ]


def convert_fairseq(
    checkpoint: str | Path,
    dictionary: str | Path,
    out: str | Path,
    *,
    force: bool = False,
    **settings: Any,
) -> Conversion:
    """Turn a checkpoint and its dictionary into a model folder that the Auto classes of transformers read.

    :param force: replace an older model folder
    :param settings: of the tokenizer, see `MacaronTokenizer.from_fairseq_dict`: ``codes`` (BPE codes of subword-nmt;
        without them words are looked up as they stand, ``foo@@ bar``), ``pipeline`` (``spaces`` for text that is
        tokenised already, the default, or ``moses`` for plain text) and, for ``moses``, ``source_lang``,
        ``target_lang`` (by default those of the checkpoint), ``lower`` and ``normalize``
    """
    out = Path(out)
    check_free(out, force)
    read = read_checkpoint(checkpoint)
    read.tensors = upgrade(read.tensors)
    kind = kind_of(read)
    model = build_model(read, kind)
    for side in ("source_lang", "target_lang"):
        settings[side] = settings.get(side) or read.args.get(side)
    tokenizer = _tokenizer(read, dictionary, kind, settings)
    check_free(out, force)  # again: reading may have taken long
    config = replace(model.config, tokenizer_fingerprint=tokenizer.fingerprint())
    save_model(out, model, model.state_dict(), tokenizer, config)
    return _summary(kind, model, out, _notes(tokenizer))


def check_free(path: Path, force: bool) -> None:
    """Refuse a place that holds something else; with ``force`` an older model folder may be replaced."""
    if path.is_dir():
        if not any(path.iterdir()):
            return
        if not force:
            raise MacaronError(f"{path}: the folder is not empty; choose another, or replace it with --force")
        if not (path / "config.json").is_file():
            raise MacaronError(f"{path}: not a model folder (it has no config.json), so it is not replaced either")
    elif path.exists() or path.is_symlink():
        raise MacaronError(f"{path}: not a folder; choose another place")


def build_model(checkpoint: Checkpoint, kind: Kind) -> Network:
    """The model of a checkpoint, in evaluation mode."""
    model: TranslationModel | EncoderForPreTraining | EncoderForSequenceClassification
    config: TranslationConfig | EncoderConfig
    if kind == "translation":
        config = translation_config(checkpoint)
        with torch.device("meta"):
            model = TranslationModel(config)
        model.generation_config = _generation(config)
    else:
        config = encoder_config(checkpoint, kind)
        with torch.device("meta"):
            model = (EncoderForPreTraining if kind == "bert" else EncoderForSequenceClassification)(config)
    shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
    model.load_state_dict(translate(checkpoint, weight_names(config, kind), shapes), strict=True, assign=True)
    model.train(False)
    return model


def _generation(config: TranslationConfig) -> GenerationSettings:
    # As the authors' search: no padding inside, never empty, and as long at most (ours counts start and end).
    assert config.pad_token_id is not None
    return GenerationSettings(max_length=_LONGEST + 2, min_new_tokens=1, suppress_tokens=[config.pad_token_id])


def weight_names(config: TranslationConfig | EncoderConfig, kind: Kind) -> Names:
    """fairseq's name of every weight of a model, and ours."""
    shared: dict[str, Any] = {
        "macaron": config.scheme == "strang-gfg",
        "norm": config.norm,
        "affine": config.norm_affine,
    }
    if isinstance(config, TranslationConfig):
        return {
            TABLES[0]: ("embedding.tokens.weight",),
            **stack_names("encoder", config.encoder_layers, **shared),
            **stack_names("decoder", config.decoder_layers, cross=True, **shared),
        }
    return {
        TABLES[0]: ("model.embedding.tokens.weight",),
        "encoder.embed_segment.weight": ("model.embedding.segments.weight",),
        **stack_names("encoder", config.num_hidden_layers, prefix="model.", **shared),
        **head_names(kind),
    }


def _tokenizer(
    checkpoint: Checkpoint, dictionary: str | Path, kind: Kind, settings: dict[str, Any]
) -> MacaronTokenizer:
    tokenizer_kind: TokenizerKind = "translation" if kind == "translation" else "encoder"
    size, rows = len(read_dictionary(dictionary, tokenizer_kind)), len(checkpoint.tensors[TABLES[0]])
    if size != rows:
        raise MacaronError(
            f"{dictionary} has {size} entries (with {len(SPECIALS[tokenizer_kind])} special tokens), but the "
            f"embedding in {checkpoint.path} has {rows} rows. Give the dict.txt that the model was trained "
            "with, complete with the 'madeupword' lines that pad it to a multiple of 8."
        )
    return MacaronTokenizer.from_fairseq_dict(dictionary, kind=tokenizer_kind, **settings)


def _notes(tokenizer: MacaronTokenizer) -> tuple[str, ...]:
    if tokenizer.pipeline != "moses":
        return ()
    from sacremoses.corpus import NonbreakingPrefixes

    known = sorted(set(NonbreakingPrefixes().available_langs.values()))
    unknown = dict.fromkeys(lang for lang in (tokenizer.source_lang, tokenizer.target_lang) if lang not in known)
    # No error: Moses itself goes on in this way, and corpora of such languages were made with it.
    return tuple(
        f"Moses has no rules for the language {lang!r} and treats it as English; it knows {', '.join(known)}"
        for lang in unknown
    )


def _summary(kind: Kind, model: Network, out: Path, notes: tuple[str, ...]) -> Conversion:
    config: Any = model.config
    title = _TITLES[kind]
    if kind == "translation":
        layers = f"{config.encoder_layers}+{config.decoder_layers}"
    else:
        layers = str(config.num_hidden_layers)
    if kind == "classifier":
        title += {
            "single_label_classification": f" of {config.num_labels} classes",
            "multi_label_classification": " by one yes/no output",
            "regression": ", regression",
        }[config.problem_type]
    inner = "+".join(map(str, config.inner_sizes or [config.intermediate_size]))
    return Conversion(
        kind=title,
        scheme=config.scheme,
        layers=layers,
        widths=f"hidden {config.hidden_size}, {config.num_attention_heads} heads, inner {inner}",
        norm=config.norm,
        vocabulary=config.vocab_size,
        parameters=model.num_parameters(),
        folder=out,
        notes=notes,
    )
