"""Named models, see presets.toml. Each ``transformer-x`` and ``macaron-x`` are twins: equal size, other scheme."""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

from macaron.errors import MacaronError, nearest
from macaron.models.configuration import EncoderConfig, LanguageConfig, TranslationConfig
from macaron.settings import load_toml

AnyConfig = TranslationConfig | EncoderConfig | LanguageConfig
#: For each kind the configuration, and how the names of twins begin.
_KINDS: dict[str, tuple[type[AnyConfig], str, str]] = {
    "translation": (TranslationConfig, "transformer", "macaron"),
    "encoder": (EncoderConfig, "bert", "macaron-bert"),
    "language": (LanguageConfig, "gpt", "macaron-gpt"),
}


@cache
def _presets() -> dict[str, tuple[type[AnyConfig], dict[str, Any]]]:
    """For each preset its kind of configuration and the fields that it sets."""
    given = load_toml(Path(__file__).with_suffix(".toml"))[0]
    table: dict[str, tuple[type[AnyConfig], dict[str, Any]]] = {}
    for section, (kind, *families) in _KINDS.items():
        for size, settings in given[section].items():
            for family, scheme in zip(families, ("lie-fg", "strang-gfg"), strict=True):
                name = f"{family}-{size}"
                table[name] = kind, {"scheme": scheme, **settings, **given["own"].get(name, {})}
        for name, settings in given["systems"].items() if section == "translation" else ():
            table[name] = kind, {"scheme": "lie-fg", **given["translation"]["big"], **settings}
    return table


def preset_names() -> list[str]:
    """All presets, by kind and size."""
    return list(_presets())


def preset(name: str, **changes: Any) -> AnyConfig:
    """The configuration of a preset, with fields changed: ``preset("macaron-small", vocab_size=8000)``."""
    table = _presets()
    if name not in table:
        raise MacaronError(f"no preset {name!r}{nearest(name, table)}")
    kind, settings = table[name]
    known = [field.name for field in dataclasses.fields(kind)]
    unknown = [key for key in changes if key not in known]
    if unknown:
        raise MacaronError(f"no field {unknown[0]!r} in the configuration of {name!r}{nearest(unknown[0], known)}")
    # The inner sizes of a preset belong to its own size.
    own = {"inner_sizes": None} if "intermediate_size" in changes else {}
    return kind(**{**settings, **own, **changes})


def twin(name: str) -> str | None:
    """The Transformer that a Macaron preset is compared with."""
    if not name.startswith("macaron-"):
        return None
    own = name.removeprefix("macaron-")
    return own if own.startswith(("bert", "gpt")) else f"transformer-{own}"
