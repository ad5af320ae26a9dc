"""Named models. Each ``transformer-x`` and ``macaron-x`` are twins: equal size, other scheme."""

import dataclasses
import difflib
from typing import Any

from macaron.errors import MacaronError, nearest
from macaron.models.configuration import EncoderConfig, LanguageConfig, TranslationConfig

AnyConfig = TranslationConfig | EncoderConfig | LanguageConfig

_TINY = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
_SMALL = {"hidden_size": 512, "num_attention_heads": 4, "dropout": 0.3}
_TRANSLATION: dict[str, dict[str, Any]] = {
    # For tests and the demo.
    "tiny": {**_TINY, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.1},
    # The paper's text: inner width 4 D, split in two for Macaron.
    "small": {**_SMALL, "intermediate_size": 2048},
    "base": {"hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048, "dropout": 0.1},
    "big": {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096, "dropout": 0.3},
    # The released IWSLT14 models have half that inner width.
    "small-released": {**_SMALL, "intermediate_size": 1024},
}
#: The other systems of the paper's tables, of the size "big" and with pre-norm layers, as all presets have.
_SYSTEMS: dict[str, dict[str, Any]] = {
    "weighted-transformer": {
        # The feed-forward networks are inside the branches: self-attention's, and in the decoder cross-attention's.
        "scheme": {"name": "weighted", "branches": [{"weight": 1.0, "steps": [["F", 1.0]]}]},
        "attention": "weighted",
        "cross_attention": "weighted",
        "decoder_settings": {"attention": "softmax"},
    },
    "relative": {"attention": "relative", "positions_at": "none"},
    "universal": {"tying": "depth", "positions_at": "layers"},
    # The inner width is stated: the published networks have it, whatever the size of their kernels.
    "dynamic-conv": {"attention": "dynamic", "encoder_layers": 7, "inner_sizes": [4096]},
}
#: The defaults of `EncoderConfig` are those of BERT-base.
_ENCODER: dict[str, dict[str, Any]] = {
    "tiny": {**_TINY, "num_hidden_layers": 2},
    "base": {},
    # The authors' encoders: norms without gain, a frozen first segment.
    "base-released": {"norm_affine": False, "first_segment": 1, "freeze_first_segment": True},
}

#: The defaults of `LanguageConfig` are those of the small GPT-2, but for its vocabulary.
_LANGUAGE: dict[str, dict[str, Any]] = {"tiny": {**_TINY, "num_hidden_layers": 2}, "small": {}}


def _presets() -> dict[str, tuple[type[AnyConfig], dict[str, Any]]]:
    """For each preset its kind of configuration and the fields that it sets."""
    table: dict[str, tuple[type[AnyConfig], dict[str, Any]]] = {}
    dropout = {"attention_dropout": 0.1, "activation_dropout": 0.1}
    for size, settings in _TRANSLATION.items():
        for family, scheme in (("transformer", "lie-fg"), ("macaron", "strang-gfg")):
            table[f"{family}-{size}"] = TranslationConfig, {"scheme": scheme, **dropout, **settings}
    for name, settings in _SYSTEMS.items():
        table[name] = TranslationConfig, {"scheme": "lie-fg", **dropout, **_TRANSLATION["big"], **settings}
    others: tuple[tuple[str, type[AnyConfig], dict[str, dict[str, Any]]], ...] = (
        ("bert", EncoderConfig, _ENCODER),
        ("gpt", LanguageConfig, _LANGUAGE),
    )
    for family, kind, sizes in others:
        for size, settings in sizes.items():
            for prefix, scheme in (("", "lie-fg"), ("macaron-", "strang-gfg")):
                table[f"{prefix}{family}-{size}"] = kind, {"scheme": scheme, **settings}
    # By oversight, the authors' Macaron encoder has relu in the first of the two feed-forward networks of a layer.
    table["macaron-bert-base-released"][1]["activation"] = ["relu", "gelu"]
    return table


def preset_names() -> list[str]:
    """All presets, by kind and size."""
    return list(_presets())


def preset(name: str, **changes: Any) -> AnyConfig:
    """The configuration of a preset, with fields changed: ``preset("macaron-small", vocab_size=8000)``."""
    table = _presets()
    if name not in table:
        close = difflib.get_close_matches(name, table, n=3, cutoff=0.3)
        raise MacaronError(f"no preset {name!r}; nearest: {', '.join(close) or ', '.join(table)}")
    kind, settings = table[name]
    known = [field.name for field in dataclasses.fields(kind)]
    unknown = [key for key in changes if key not in known]
    if unknown:
        raise MacaronError(f"no field {unknown[0]!r} in the configuration of {name!r}{nearest(unknown[0], known)}")
    if "intermediate_size" in changes:
        settings["inner_sizes"] = None  # those of the preset belong to its own size
    return kind(**{**settings, **changes})


def twin(name: str) -> str | None:
    """The Transformer that a Macaron preset is compared with."""
    if not name.startswith("macaron-"):
        return None
    own = name.removeprefix("macaron-")
    return own if own.startswith(("bert", "gpt")) else f"transformer-{own}"
