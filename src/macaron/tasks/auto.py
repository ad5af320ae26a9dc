"""``model.preset = "auto"``: a model and its training settings by the size of the data, the device and the time.

What is given in the recipe or on the command line is kept. docs/choices.md has the measurements behind the table.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from macaron.data.prepared import read_manifest
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.processes import available_cores
from macaron.recipe import AUTO, DEFAULT_PRESETS, ModelSettings, Recipe
from macaron.settings import load_toml
from macaron.train.settings import PretrainSettings, TrainSettings

#: Minutes that are assumed where epochs are the limit.
UNKNOWN_MINUTES = 60.0
#: Cores that training a small model can use.
MOST_CORES = 8


@dataclass(frozen=True)
class Size:
    """A model, and the settings for it: see auto.toml."""

    minutes: float
    speed: float
    preset: str
    train: dict[str, Any]
    model: dict[str, Any] = field(default_factory=dict)
    pretrain: dict[str, Any] = field(default_factory=dict)


#: By kind of data and device, in the order of the time.
TABLE: dict[tuple[str, str], list[Size]] = {
    (kind, device): [Size(**{**size, "train": {**given["train"], **size["train"]}}) for size in given["sizes"]]
    for kind, devices in load_toml(Path(__file__).with_suffix(".toml"))[0].items()
    for device, given in devices.items()
}
#: Dropout by the number of epochs.
DROPOUT = ((6.0, 0.0), (20.0, 0.1), (math.inf, 0.3))


def resolve(recipe: Recipe, on_gpu: bool, say: Callable[[str], None] = lambda _: None) -> Recipe:
    """The recipe with a preset of the table and settings for it, if its preset is ``auto``."""
    if recipe.model.preset != AUTO:
        return recipe
    if recipe.task == "language-model":
        preset = DEFAULT_PRESETS[recipe.task]
        raise MacaronError(f"model.preset = 'auto' is not for language models: name one, such as {preset!r}")
    from macaron.device import multiplies_bfloat16  # which imports torch

    minutes, updates = recipe.train.max_minutes, recipe.train.max_updates
    cores = min(available_cores(), MOST_CORES)

    def amount(row: Size) -> float:
        """The time that is given, or that the updates take, in the unit of the table."""
        if minutes is None and updates is not None:
            return updates * float(row.train["batch_tokens"]) / row.speed
        return (minutes or UNKNOWN_MINUTES) * (1 if on_gpu else cores)

    size = next(row for row in TABLE[recipe.kind, "gpu" if on_gpu else "cpu"] if amount(row) <= row.minutes)
    where = "a GPU" if on_gpu else f"{cores} core{'s' if cores > 1 else ''}"
    given = f"{minutes or UNKNOWN_MINUTES:g} minutes" if minutes or updates is None else f"{updates:,} updates"
    time = f"{given} on {where}"
    manifest = read_manifest(recipe.data, recipe.kind)
    split = manifest["splits"]["train"]
    tokens = int(split["target_tokens" if recipe.kind == "pairs" else "tokens"])
    epochs = amount(size) * size.speed / max(tokens, 1)
    model = {**size.model, **_dropout(recipe, epochs), "vocab_size": manifest["vocab_size"]}
    reasons = dict.fromkeys(("preset", *size.model), f"{time}: a model of this size learns most")
    reasons["vocab_size"] = f"the subwords of {recipe.data}"
    reasons |= {key: f"about {epochs:.1f} epochs of {tokens:,} tokens" for key in model if "dropout" in key}
    train = dict(size.train)
    if not on_gpu and multiplies_bfloat16():
        train["precision"] = "bfloat16"
        reasons["precision"] = "this processor multiplies it faster than float32"
    if on_gpu and recipe.kind == "pairs":
        mean = tokens / max(int(split["pairs"]), 1)
        train["row_tokens"] = 128 if mean < 32 else 256  # the fused kernels take 128
        reasons["row_tokens"] = f"sentences of {mean:.0f} tokens on average"
    chosen: dict[str, dict[str, Any]] = {
        section: {key: value for key, value in values.items() if (section, key) not in recipe.given}
        for section, values in (("model", model), ("train", train), ("pretrain", size.pretrain))
    }
    lines: dict[str, list[str]] = {}
    for section, values in chosen.items():
        for key, value in ({"preset": size.preset, **values} if section == "model" else values).items():
            lines.setdefault(reasons.get(key, f"for this model, {time}"), []).append(f"{section}.{key} = {value}")
    for reason, choices in lines.items():
        say(f"{', '.join(choices)}: {reason}")
    settings = ModelSettings(size.preset, {**chosen["model"], **recipe.model.changes})
    pretrain = replace(recipe.pretrain, **chosen["pretrain"])
    return replace(recipe, model=settings, train=replace(recipe.train, **chosen["train"]), pretrain=pretrain)


def _dropout(recipe: Recipe, epochs: float) -> dict[str, Any]:
    """All kinds of dropout of a model: none for a text encoder, which sees each text a few times, with other masks."""
    config = EncoderConfig if recipe.kind == "text" else TranslationConfig
    rate = 0.0 if recipe.kind == "text" else next(value for limit, value in DROPOUT if epochs <= limit)
    kinds = [field.name for field in fields(config) if field.name.endswith("dropout")]
    return {name: rate if name == "dropout" else min(rate, 0.1) for name in kinds}


def kept(recipe: Recipe, stored: Recipe) -> Recipe:
    """A recipe for resuming: what was chosen or fitted when the run began is taken from its stored recipe."""
    train = recipe.train
    if recipe.model.preset == AUTO:
        model = ModelSettings(stored.model.preset, {**stored.model.changes, **recipe.model.changes})
        texts = _not_given(recipe, "pretrain", stored.pretrain, {each.name for each in fields(PretrainSettings)})
        recipe = replace(recipe, model=model, pretrain=replace(recipe.pretrain, **texts))
        chosen = {each.name for each in fields(TrainSettings)}
    elif train.max_minutes is not None and train.max_updates is None and train.max_epochs is None:
        chosen = {"max_updates", "warmup", "validate_every", "checkpoint_every", "log_every"}
    else:
        return recipe
    changes = _not_given(recipe, "train", stored.train, chosen)
    if stored.train.max_updates is not None and train.max_updates is None:
        changes["warmup"] = stored.train.warmup
    return replace(recipe, train=replace(train, **changes))


def _not_given(recipe: Recipe, section: str, stored: Any, keys: set[str]) -> dict[str, Any]:
    """The stored values of those keys that the recipe does not give."""
    return {key: getattr(stored, key) for key in keys if (section, key) not in recipe.given}
