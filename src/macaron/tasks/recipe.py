"""A recipe: one TOML file with everything an experiment needs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from macaron.errors import MacaronError
from macaron.settings import build, override, read_toml, to_data
from macaron.train.settings import TrainSettings


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
    """The ``[decode]`` section: how the model is to be used; it travels in generation_config.json."""

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
    """A recipe from plain data."""
    unknown = [name for name in data if name not in SECTIONS]
    if unknown:
        from macaron.settings import nearest

        raise MacaronError(f"{where}: unknown section {unknown[0]!r}{nearest(unknown[0], SECTIONS)}")
    out = data.get("data", {}).get("out")
    if not isinstance(out, str):
        raise MacaronError(f"{where}: missing key 'data.out', the folder that macaron prepare writes")
    model = dict(data.get("model", {}))
    preset = model.pop("preset", "macaron-small")
    return Recipe(
        data=Path(out),
        model=ModelSettings(preset, model),
        train=build(TrainSettings, data.get("train", {}), where),
        decode=build(DecodeSettings, data.get("decode", {}), where),
    )


def write_toml(data: dict[str, Any]) -> str:
    """Plain data of sections, numbers, strings and lists as TOML."""
    lines: list[str] = []

    def section(values: dict[str, Any], prefix: str) -> None:
        if prefix:
            lines.append(f"[{prefix}]")
        lines.extend(f"{key} = {_toml(value)}" for key, value in values.items() if not _is_section(value))
        lines.append("")
        for key, value in values.items():
            if _is_section(value):
                section(value, f"{prefix}.{key}" if prefix else key)

    section(data, "")
    return "\n".join(lines).strip() + "\n"


def _is_section(value: Any) -> bool:
    # A scheme given as data is a table inside a list of tables: inline is the form that always works.
    return isinstance(value, dict) and not any(isinstance(item, dict | list) for item in value.values())


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{key} = {_toml(item)}' for key, item in value.items())} }}"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{text}"'
