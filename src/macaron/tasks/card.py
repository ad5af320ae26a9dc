"""Model cards: what stands in README.md of a model folder that training writes, for readers and for hubs of models.

The text is that of card.md. The metadata above it are YAML, each with a value in JSON. The licence is left to whoever
publishes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macaron import __version__
from macaron.models.catalogue import language_name
from macaron.models.configuration import TextConfig
from macaron.models.network import Network
from macaron.recipe import Recipe, manifest
from macaron.settings import write_toml

#: Of each kind of model: what it is, its task on a hub, the end of the name of its Auto class.
_KINDS = {
    "translation": ("Translation", "translation", "Seq2SeqLM"),
    "encoder": ("A text encoder", "fill-mask", "MaskedLM"),
    "language": ("A language model", "text-generation", "CausalLM"),
    "classifier": ("A text classifier", "text-classification", "SequenceClassification"),
}
#: Hubs' names of metrics, where they are others than ours.
_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
Scores = Sequence[tuple[str, float, str]]  # metric, value, definition


def run_card(recipe: Recipe, model: Network, summary: Mapping[str, Any]) -> str:
    """The card of a run's final model; ``summary`` is that of the run, with all that it has measured."""
    data, chosen, source = manifest(recipe), summary["final_model"], recipe.model.source
    languages = [data[key] for key in ("source_lang", "target_lang", "lang") if key in data]
    names = [Path(each["path"]).name for each in data.get("settings", {}).get("train", [])]
    counts = {
        split: ", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in sizes.items() if isinstance(count, int)
        )
        for split, sizes in data["splits"].items()
    }
    used = f"Trained on {counts['train']}." + (f" Validated on {counts['valid']}." if "valid" in counts else "")
    sentences = f"of at most the first {recipe.train.scored_sentences:,} sentences of the validation data"
    measured: list[tuple[str, Any, str]] = [
        (recipe.train.best_metric, summary.get("candidate_scores"), f"{summary.get('score_definition')}, {sentences}"),
        ("loss", summary["candidates"], "of the validation data, per token, as in training"),
        ("nll", summary.get("candidate_nll"), "of the validation data, per token, without label smoothing"),
    ]
    settings = {name: values for name, values in recipe.to_data().items() if name != "data"}
    settings["model"] = {key: value for key, value in settings["model"].items() if not key.startswith("from")}
    start = "" if source is None else f", from the weights of {_name(Path(source))}"
    training = (
        f"{summary['update']:,} updates with Macaron {__version__}{start}. "  # no times: the same run, the same card
        f"Of the last, best and averaged weights, as far as there were such, these are: {chosen}. The settings:\n\n"
        f"```toml\n{write_toml(settings).strip()}\n```"
    )
    scores = [(metric, values[chosen], definition) for metric, values, definition in measured if values]
    return _card(model, model.config, model.config.kind, languages, names, used, training, scores)


def classifier_card(model: Network, config: TextConfig, data: Sequence[str], source: Path) -> str:
    """The card of a classifier that was fine-tuned from a folder; its configuration has the scores."""
    takes: Any = config.classification or {}
    scores = [
        (_METRICS.get(metric, metric), value, f"per cent, of the examples `{name}` on which the epoch was chosen, too")
        for name, found in takes.get("dev", {}).items()
        for metric, value in found.items()
    ]
    training = f"Fine-tuned from {_name(source)} with Macaron {__version__}."
    return _card(model, config, "classifier", [], data, f"Labels: {', '.join(config.label_names)}.", training, scores)


def _name(folder: Path) -> str:
    """The name of a model folder, or of its run; nothing else of its path."""
    return f"`{(folder.resolve().parent if folder.name == 'model' else folder.resolve()).name}`"


def _card(
    model: Network,
    config: Any,
    kind: str,
    languages: Sequence[str],
    data: Sequence[str],
    used: str,
    training: str,
    scores: Scores,
) -> str:
    what, task, auto = _KINDS[kind]
    named = " from {} to {}" if len(languages) > 1 else " for {}" if languages else ""
    title, scheme = (what + named).format(*map(language_name, languages)), config.encoder_scheme_value().name
    dataset = {"type": [*data, "unnamed"][0], "name": ", ".join(data) or "unnamed", "split": "validation"}
    metrics = [{"type": metric, "value": value, "name": definition} for metric, value, definition in scores]
    results = {"task": {"type": task}, "dataset": dataset, "metrics": metrics}
    metadata = {
        "language": languages,
        "library_name": "macaron",
        "pipeline_tag": task,
        "tags": ["macaron", task, scheme],
        "datasets": data,
        "metrics": [metric for metric, _, _ in scores],
        "model-index": [{"name": title, "results": [results]}] if scores else None,
    }
    lines = [f"{metric} | {value:.4g} | " + definition.replace("|", "\\|") for metric, value, definition in scores]
    table = ["metric | value | definition", "---|---|---", *lines, "", "The run itself measured these."]
    both = hasattr(config, "decoder_layers")
    return (
        Path(__file__)
        .with_suffix(".md")
        .read_text("utf-8")
        .format(
            metadata="\n".join(
                f"{key}: {json.dumps(each, ensure_ascii=False)}" for key, each in metadata.items() if each
            ),
            title=title,
            layers=f"{config.encoder_layers}+{config.decoder_layers}" if both else config.num_hidden_layers,
            scheme=scheme,
            norm=config.norm,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            vocabulary=config.vocab_size,
            parameters=model.num_parameters(),
            used=used,
            names=", ".join(f"`{name}`" for name in data) or "not named",
            training=training,
            scores="\n".join(table) if scores else "None were measured.",
            auto=auto,
            longest=config.longest_input,
        )
    )
