"""Where training starts: from a model (``macaron train --from``, or ``model.from`` in a recipe), or from word vectors.

Optimiser and schedule begin anew. The data must have the model's tokenizer, or an extension of it.
"""

import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from macaron.data.word_vectors import word_vectors
from macaron.errors import MacaronError, require
from macaron.models.load import ENCODER_HEADS, find_folder, load_config, load_model
from macaron.models.presets import AnyConfig, preset, preset_names
from macaron.models.summary import NETWORKS
from macaron.ode import scheme
from macaron.recipe import AUTO, CONFIGURATIONS, ModelSettings, Recipe
from macaron.seal import weights_fingerprint
from macaron.settings import to_data
from macaron.text.extension import extends, origins
from macaron.text.load_tokenizer import model_tokenizer
from macaron.train.task import Task

#: Fields that a recipe may change: the weights fit with any value.
FREE = ("dropout", "attention_dropout", "activation_dropout", "max_position_embeddings", "initializer")
#: Fields that the data and the recipe decide, and those of classifiers.
_NOT_TAKEN = (
    *("model_type", "tokenizer_fingerprint", "evaluation"),
    *("id2label", "label2id", "problem_type", "classification"),
)


def with_source(recipe: Recipe, before: Recipe | None) -> Recipe:
    """The recipe with the configuration of the model that it starts from, complete.

    When a run is resumed, its recipe ``before`` has it, and the model is not read again.
    """
    given = recipe.model
    if before is not None and before.model.source is not None:
        source, changes = given.source or before.model.source, {**before.model.changes, **given.changes}
        return replace(recipe, model=replace(before.model, source=source, changes=changes))
    if given.source is None:
        return recipe
    config_class: Any = CONFIGURATIONS[recipe.task]
    folder = find_folder(given.source, config_class.kind)
    config = load_config(folder, config_class)
    _refuse_another_shape(given, config, folder)
    weights = weights_fingerprint(folder)
    others = f"not the weights that the recipe names ({weights}, not model.from_weights = {given.weights!r})"
    remedy = "Give the model that it was made with, or leave model.from_weights out."
    require(given.weights in (None, weights), f"{folder}: {others}. {remedy}")
    taken = {name: value for name, value in config.to_dict().items() if name not in _NOT_TAKEN}
    taken |= {name: value for name, value in given.changes.items() if name in FREE}
    name, changes = _nearest_preset(taken, type(config))
    changes["vocab_size"] = config.vocab_size
    return replace(recipe, model=ModelSettings(name, changes, given.source, weights))


def _refuse_another_shape(given: ModelSettings, config: AnyConfig, folder: Path) -> None:
    wanted = {**({} if given.preset == AUTO else preset(given.preset).to_dict()), **given.changes}
    for key, value in wanted.items():
        fixed = key not in (*FREE, *_NOT_TAKEN) and (key != "vocab_size" or key in given.changes)
        if fixed and not _same(key, value, held := getattr(config, key)):
            where = f"model.{key} = {value!r}" if key in given.changes else f"model.preset = {given.preset!r}"
            has = f"{key} = {held!r}" if key in given.changes else f"{key} = {held!r}, not {value!r}"
            shape = f"{where} does not fit {folder}, which has {has}: a run that starts from a model has its shape"
            remedy = f"Leave {where.partition(' ')[0]} out; only {', '.join(FREE)} may be changed."
            raise MacaronError(f"{shape}. {remedy}")


def _same(key: str, one: Any, other: Any) -> bool:
    if key in ("scheme", "decoder_scheme") and one is not None and other is not None:
        return scheme(one) == scheme(other)
    return json.dumps(to_data(one)) == json.dumps(to_data(other))


def _nearest_preset(fields: dict[str, Any], kind: type[Any]) -> tuple[str, dict[str, Any]]:
    """The preset that differs in the fewest fields of the shape, and all in which it differs."""
    presets = {name: found.to_dict() for name in preset_names() if isinstance(found := preset(name), kind)}
    differ = {
        name: {key: value for key, value in fields.items() if not _same(key, value, shown[key])}
        for name, shown in presets.items()
    }
    return min(differ.items(), key=lambda item: len(item[1].keys() - FREE))


def fill(task: Task, recipe: Recipe) -> str:
    """Fill a new model with the weights of the one that the recipe starts from; returns a line about it.

    The vector of a new subword is the mean of those of the old subwords that it is made of; that of a tag, of all.
    """
    config_class: Any = CONFIGURATIONS[recipe.task]
    folder = find_folder(str(recipe.model.source), config_class.kind)
    if weights_fingerprint(folder) != recipe.model.weights:
        raise MacaronError(f"{folder}: the weights have changed since the run was started. Give another --out.")
    source, drawn = load_model(folder, NETWORKS[config_class], torch.float32, heads=ENCODER_HEADS)
    old, new = model_tokenizer(folder, task.tokenizer.kind, source.config), task.tokenizer
    if not extends(new, old):
        how = "--text ..." if recipe.kind == "text" else "--train ..."
        other = f"{recipe.data} was prepared with another tokenizer than that of {recipe.model.source}"
        command = f"macaron prepare {how} --tokenizer {recipe.model.source} (or data.tokenizer in the recipe)"
        remedy = f"Prepare the data with it: {command}, and --extend-vocab N for new subwords"
        raise MacaronError(f"{other}, so its words would mean others to the model. {remedy}")
    table = task.model.embedding.tokens.weight
    with torch.no_grad():
        rows = source.embedding.tokens.weight
        table[: len(rows)] = rows
        added = origins(old, new)
        for index, parts in added.items():
            table[index] = rows[parts].mean(0) if parts else rows.mean(0)
        for name, parameter in task.model.named_parameters():
            if parameter is not table:
                given = source.get_parameter(name)
                (parameter[: len(given)] if name.endswith("output_bias") else parameter).copy_(given)
    said = [f"starts from {recipe.model.source} ({recipe.model.weights})"]
    said += [f"{count:,} new subwords"] if (count := sum(map(bool, added.values()))) else []
    said += [f"drawn anew: {', '.join(drawn)}"] if drawn else []
    return "; ".join(said)


def fill_embeddings(task: Task, seed: int) -> str:
    """Let the embeddings of a new model begin as word vectors, as long as they were; returns a line about it.

    Tokens that do not occur in the training data keep what was drawn for them.
    """
    started = time.monotonic()
    table = task.model.embedding.tokens.weight
    vectors = word_vectors(task.data.stores("train"), table.shape[1], seed)
    with torch.no_grad():
        found = vectors.norm(dim=1) > 0
        size = vectors.shape[1]
        table[found, :size] = vectors[found].to(table) * table.std() * math.sqrt(size)
    seconds = time.monotonic() - started
    return f"embeddings begin as word vectors: {int(found.sum()):,} of {len(table):,} tokens counted in {seconds:.0f} s"
