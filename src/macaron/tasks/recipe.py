"""A recipe: one TOML file with everything an experiment needs."""

import json
import re
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from macaron.errors import MacaronError
from macaron.models.presets import preset as named_preset
from macaron.models.presets import preset_names
from macaron.settings import build, nearest, override, read_toml, to_data
from macaron.train.settings import TrainSettings

T = TypeVar("T")


@dataclass(frozen=True)
class ModelSettings:
    """The ``[model]`` section: a preset, and fields of its configuration that differ.

    ``preset`` names a row of ``macaron models``; every other key is a field of the configuration, such as ``scheme``,
    ``dropout``, ``encoder_layers``.
    """

    preset: str = "macaron-small"
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
class Recipe:
    """The sections that training reads. ``[data]`` is prepare's own; here only where it put its folder."""

    data: Path
    model: ModelSettings
    train: TrainSettings
    decode: DecodeSettings

    def to_data(self) -> dict[str, Any]:
        """The resolved recipe as plain data."""
        return {
            "data": {"out": str(self.data)},
            "model": {"preset": self.model.preset, **to_data(self.model.changes)},
            "train": to_data(self.train),
            "decode": to_data(self.decode),
        }


SECTIONS = ("data", "model", "train", "decode")


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
    model = dict(data.get("model", {}))
    preset = model.pop("preset", ModelSettings.preset)
    if preset not in preset_names():
        raise MacaronError(f"{where}: no preset {preset!r} for model.preset{nearest(str(preset), preset_names())}")
    known = type(named_preset(preset))().to_dict()
    unknown = [key for key in model if key not in known]
    if unknown:
        raise MacaronError(f"{where}: unknown key 'model.{unknown[0]}'{nearest(unknown[0], known)}")
    return Recipe(
        data=Path(out),
        model=ModelSettings(preset, model),
        train=_section(TrainSettings, "train", data, where),
        decode=_section(DecodeSettings, "decode", data, where),
    )


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
