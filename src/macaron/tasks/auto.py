"""``model.preset = "auto"``: a model and its training settings by the size of the data, the device and the time.

What is given in the recipe or on the command line is kept. docs/choices.md has the measurements behind the table.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from macaron.data.manifest import read_manifest
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.processes import available_cores
from macaron.recipe import AUTO, DEFAULT_PRESETS, ModelSettings, Recipe
from macaron.train.settings import PretrainSettings, TrainSettings

#: Minutes that are assumed where epochs are the limit.
UNKNOWN_MINUTES = 60.0
#: Cores that training a small model can use.
MOST_CORES = 8
#: [train] for all choices of a kind of device.
_COSINE: dict[str, Any] = {"schedule": "cosine", "warmup": 400}
_CPU: dict[str, Any] = {**_COSINE, "weight_decay": 0.01, "clip_norm": 1.0, "embeddings": "counts"}
_GPU: dict[str, Any] = {**_COSINE, "ema": 0.999}
_ENCODER: dict[str, Any] = {
    **{"schedule": "linear", "warmup": 300, "warmup_rate": 0.0, "weight_decay": 0.01, "clip_norm": 1.0},
    **{"epsilon": 1e-6, "row_tokens": 128},
}
# Short texts and many masks: a small model begins to use the context of a word after fewer updates.
_CPU_ENCODER: dict[str, Any] = {**_ENCODER, "row_tokens": 32, "embeddings": "counts"}
_CPU_TEXTS: dict[str, Any] = {"nsp": False, "mask_ratio": 0.3}


@dataclass(frozen=True)
class Size:
    """A row of the table.

    :param minutes: it is chosen up to this time: core-minutes on a CPU, minutes on a GPU
    :param speed: target tokens in a minute that it trains on, by core or GPU, roughly
    """

    minutes: float
    speed: float
    preset: str
    model: dict[str, Any]
    train: dict[str, Any]
    pretrain: dict[str, Any] = field(default_factory=dict)


def _translation(hidden: int, layers: int) -> dict[str, Any]:
    return {**_width(hidden), "encoder_layers": layers, "decoder_layers": layers}


def _encoder(hidden: int, layers: int) -> dict[str, Any]:
    return {**_width(hidden), "num_hidden_layers": layers}


def _width(hidden: int) -> dict[str, Any]:
    return {"hidden_size": hidden, "intermediate_size": 4 * hidden, "num_attention_heads": max(hidden // 64, 4)}


def _rate(batch: int, rate: float) -> dict[str, Any]:
    return {"batch_tokens": batch, "learning_rate": rate}


_INF = float("inf")
#: By kind of data and device, in the order of the time.
TABLE: dict[tuple[str, str], tuple[Size, ...]] = {
    ("pairs", "cpu"): (
        Size(20, 250_000, "macaron-tiny", _translation(128, 2), {**_CPU, **_rate(1_024, 0.004)}),
        Size(120, 80_000, "macaron-tiny", _translation(256, 2), {**_CPU, **_rate(1_024, 0.003)}),
        Size(1_000, 90_000, "macaron-tiny", _translation(256, 3), {**_CPU, **_rate(2_048, 0.003)}),
        Size(_INF, 60_000, "macaron-tiny", _translation(256, 6), {**_CPU, **_rate(4_096, 0.002)}),
    ),
    ("pairs", "gpu"): (
        Size(2, 40_000_000, "macaron-tiny", _translation(256, 4), {**_GPU, **_rate(16_384, 0.003)}),
        Size(_INF, 30_000_000, "macaron-small", {}, {**_GPU, **_rate(16_384, 0.002)}),
    ),
    ("text", "cpu"): (
        Size(15, 250_000, "macaron-bert-tiny", _encoder(128, 2), {**_CPU_ENCODER, **_rate(1_024, 0.003)}, _CPU_TEXTS),
        Size(
            1_000, 140_000, "macaron-bert-tiny", _encoder(256, 2), {**_CPU_ENCODER, **_rate(2_048, 0.002)}, _CPU_TEXTS
        ),
        Size(_INF, 200_000, "macaron-bert-tiny", _encoder(256, 4), {**_ENCODER, **_rate(4_096, 0.002)}),
    ),
    ("text", "gpu"): (Size(_INF, 36_000_000, "macaron-bert-base", {}, {**_ENCODER, **_rate(32_768, 0.001)}),),
}
#: Dropout by the number of epochs.
DROPOUT = ((6.0, 0.0), (20.0, 0.1), (_INF, 0.3))


def resolve(recipe: Recipe, on_gpu: bool, say: Callable[[str], None] = lambda _: None) -> Recipe:
    """The recipe with a preset of the table and settings for it, if its preset is ``auto``."""
    if recipe.model.preset != AUTO:
        return recipe
    if recipe.task == "language-model":
        preset = DEFAULT_PRESETS[recipe.task]
        raise MacaronError(f"model.preset = 'auto' is not for language models: name one, such as {preset!r}")
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
    if on_gpu and recipe.kind == "pairs":
        mean = tokens / max(int(split["pairs"]), 1)
        train["row_tokens"] = 128 if mean < 16 else 256
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
