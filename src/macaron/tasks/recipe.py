"""A recipe: one TOML file with everything an experiment needs."""

import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

from macaron.data.prepared import MANIFEST, DataKind, data_kind
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.presets import preset as named_preset
from macaron.models.presets import preset_names
from macaron.settings import build, nearest, override, read_toml, to_data
from macaron.train.settings import TrainSettings

T = TypeVar("T")
#: The preset of a recipe that names none.
DEFAULT_PRESETS: dict[DataKind, str] = {"pairs": "macaron-small", "text": "macaron-bert-base"}
#: What is trained on each kind of data, for messages.
PURPOSES: dict[DataKind, str] = {"pairs": "translation", "text": "pre-training"}


@dataclass(frozen=True)
class ModelSettings:
    """The ``[model]`` section: a preset, and fields of its configuration that differ.

    ``preset`` names a row of ``macaron models``; every other key is a field of the configuration, such as ``scheme``,
    ``dropout``, ``encoder_layers``.
    """

    preset: str
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DecodeSettings:
    """The ``[decode]`` section: how the model is to be used.

    Beam, length penalty and longest translation travel with the model (generation_config.json); compound_split and
    lower define its tokenised BLEU, in validations and for macaron evaluate.
    """

    beam: int = 5
    length_penalty: float = 1.0
    max_length: int = 200
    compound_split: bool = False
    lower: bool = False

    def __post_init__(self) -> None:
        if self.beam < 1 or self.max_length < 1:
            raise MacaronError("decode.beam and decode.max_length must be at least 1")


@dataclass(frozen=True)
class PretrainSettings:
    """The ``[pretrain]`` section: what an encoder learns from plain text.

    (label_smoothing, max_length and bleu_sentences of [train] are for translation and mean nothing here.)

    Masked words (MLM)
        mlm: predict masked words; mask_ratio: the share of a text's words that is to be predicted, drawn anew in every
        epoch; mask_share, random_share: of these, what is masked and what is replaced by a random word; the rest stays;
        cls_target: ``<cls>`` is a word to predict as well, as in the authors' code
    Next sentence (NSP)
        nsp: say whether B really follows A; next_share: of the pairs, those where it does (fewer, where a document has
        but one sentence left). pairs: spans (BERT: as many sentences as fit) or sentences (the authors' code: two)
    Texts
        max_tokens: of a text, special tokens included (by default, and at most: train.row_tokens);
        short_share: of the pairs of spans that are shorter on purpose
    Machine
        attention: how texts in a row are kept apart: masked (by a mask), flash (a kernel that knows where they begin;
        on a GPU, in bfloat16), auto (masked)
    """

    mlm: bool = True
    mask_ratio: float = 0.15
    mask_share: float = 0.8
    random_share: float = 0.1
    cls_target: bool = False
    nsp: bool = True
    next_share: float = 0.5
    pairs: Literal["spans", "sentences"] = "spans"
    max_tokens: int | None = None
    short_share: float = 0.1
    attention: Literal["auto", "masked", "flash"] = "auto"

    def __post_init__(self) -> None:
        if not self.mlm and not self.nsp:
            raise MacaronError("pretrain.mlm and pretrain.nsp are both off: nothing is left to learn")
        if self.cls_target and not self.mlm:
            raise MacaronError("pretrain.cls_target is a word to predict: it needs pretrain.mlm = true")
        if not 0 < self.mask_ratio < 1:
            raise MacaronError(f"pretrain.mask_ratio must be above 0 and below 1, not {self.mask_ratio}")
        for name in ("mask_share", "random_share", "next_share", "short_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise MacaronError(f"pretrain.{name} must be from 0 to 1, not {getattr(self, name)}")
        if self.mask_share + self.random_share > 1 + 1e-9:
            raise MacaronError("pretrain.mask_share and pretrain.random_share are more than 1 together")

    @property
    def ratio(self) -> float:
        """The share of words that is predicted."""
        return self.mask_ratio if self.mlm else 0.0

    def longest(self, train: TrainSettings) -> int:
        """Tokens of the longest text."""
        return train.row_tokens if self.max_tokens is None else self.max_tokens

    def check(self, train: TrainSettings) -> None:
        """Refuse what does not go together with [train]."""
        if train.batching == "bucket":
            raise MacaronError("train.batching = bucket is for translation; pre-training packs its rows: leave it out")
        if not 8 <= self.longest(train) <= train.row_tokens:
            name = "train.row_tokens" if self.max_tokens is None else "pretrain.max_tokens"
            raise MacaronError(f"{name} must be at least 8, and pretrain.max_tokens at most train.row_tokens")


@dataclass(frozen=True)
class Recipe:
    """The sections that training reads. ``[data]`` is prepare's own; here only where it put its folder.

    ``kind`` is that of the data, and so of the task: translation has ``[decode]``, pre-training ``[pretrain]``.
    """

    data: Path
    model: ModelSettings
    train: TrainSettings
    decode: DecodeSettings
    pretrain: PretrainSettings
    kind: DataKind = "pairs"

    def to_data(self) -> dict[str, Any]:
        """The resolved recipe as plain data."""
        own = {"decode": to_data(self.decode)} if self.kind == "pairs" else {"pretrain": to_data(self.pretrain)}
        return {
            "data": {"out": str(self.data)},
            "model": {"preset": self.model.preset, **to_data(self.model.changes)},
            "train": to_data(self.train),
            **own,
        }


SECTIONS = ("data", "model", "train", "decode", "pretrain")
_OWN: dict[DataKind, str] = {"pairs": "decode", "text": "pretrain"}


def load_recipe(path: Path, assignments: list[str]) -> Recipe:
    """Read a recipe and apply ``--set`` assignments."""
    if not path.is_file():
        raise MacaronError(f"no recipe {path}")
    return recipe_from(override(read_toml(path), assignments), str(path))


def recipe_from(data: dict[str, Any], where: str) -> Recipe:
    """A recipe from plain data.

    :param where: the file, for messages
    """
    for name, section in data.items():
        if name not in SECTIONS:
            raise MacaronError(f"{where}: unknown section {name!r}{nearest(name, SECTIONS)}")
        if not isinstance(section, dict):
            raise MacaronError(f"{where}: [{name}] must be a section, not {section!r}")
    out = data.get("data", {}).get("out")
    if not isinstance(out, str):
        raise MacaronError(f"{where}: missing key 'data.out', the folder that macaron prepare writes")
    kind = _kind(data)
    for other, name in _OWN.items():
        if name in data and other != kind:
            raise MacaronError(f"{where}: [{name}] is for {PURPOSES[other]}; this recipe is for {PURPOSES[kind]}")
    model = dict(data.get("model", {}))
    preset = model.pop("preset", DEFAULT_PRESETS[kind])
    if preset not in preset_names():
        raise MacaronError(f"{where}: no preset {preset!r} for model.preset{nearest(str(preset), preset_names())}")
    known = type(named_preset(preset))().to_dict()
    unknown = [key for key in model if key not in known]
    if unknown:
        raise MacaronError(f"{where}: unknown key 'model.{unknown[0]}'{nearest(unknown[0], known)}")
    recipe = Recipe(
        data=Path(out),
        model=ModelSettings(preset, model),
        train=_section(TrainSettings, "train", data, where),
        decode=_section(DecodeSettings, "decode", data, where),
        pretrain=_section(PretrainSettings, "pretrain", data, where),
        kind=kind,
    )
    if kind == "text":
        try:
            recipe.pretrain.check(recipe.train)
        except MacaronError as error:
            raise MacaronError(f"{where}: {error}") from None
    return recipe


def _kind(data: dict[str, Any]) -> DataKind:
    """What a recipe trains on: it says so, or its model does, or its sections, or the data that are there."""
    told = data.get("data", {}).get("kind")
    if told in DEFAULT_PRESETS:
        return told
    preset = data.get("model", {}).get("preset")
    if preset in preset_names():
        return "text" if isinstance(named_preset(preset), EncoderConfig) else "pairs"
    for kind, name in _OWN.items():
        if name in data:
            return kind
    out = Path(data["data"]["out"])
    return data_kind(out) if (out / MANIFEST).is_file() else "pairs"


def configuration(recipe: Recipe, vocab_size: int) -> TranslationConfig | EncoderConfig:
    """The configuration of a recipe's model, for data with this vocabulary."""
    name = recipe.model.preset
    try:
        config = named_preset(name, **{"vocab_size": vocab_size, **recipe.model.changes})
    except MacaronError as error:
        raise MacaronError(f"[model]: {error}") from None
    if config.vocab_size < vocab_size:
        raise MacaronError(f"model.vocab_size {config.vocab_size} is less than the data's {vocab_size}: leave it out")
    return config


def _section(kind: type[T], name: str, data: dict[str, Any], where: str) -> T:
    values = data.get(name, {})
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = [key for key in values if key not in known]
    if unknown:
        raise MacaronError(f"{where}: unknown key '{name}.{unknown[0]}'{nearest(unknown[0], known)}")
    return build(kind, values, f"{where}: [{name}]")


def write_toml(sections: dict[str, dict[str, Any]]) -> str:
    """Sections of plain values as TOML; tables inside a section (a scheme as data) are written inline."""
    blocks = []
    for name, values in sections.items():
        lines = (f"{_key(key)} = {_toml(value)}" for key, value in values.items())
        blocks.append("\n".join([f"[{_key(name)}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(str(key))} = {_toml(item)}' for key, item in value.items())} }}"
    # JSON's strings are TOML's, but for one character that JSON leaves as it is.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
