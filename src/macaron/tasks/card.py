"""Model cards: what stands in README.md of a model folder that training writes, for readers and for hubs of models.

The metadata above the text is YAML, with a value in JSON in each line. The licence is left to whoever publishes.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from macaron import __version__
from macaron.models.catalogue import language_name
from macaron.models.configuration import TextConfig
from macaron.models.presets import AnyConfig
from macaron.models.summary import summarise
from macaron.recipe import Recipe, manifest
from macaron.settings import write_toml

#: Of each kind of model: what it is, its task on a hub, the Auto class of transformers, how it is used here.
_KINDS = {
    "translation": (
        "Translation",
        "translation",
        "Seq2SeqLM",
        "`macaron.Translator(FOLDER).translate(text)` translates.",
    ),
    "encoder": ("A text encoder", "fill-mask", "MaskedLM", "`macaron.Embedder(FOLDER).embed(texts)` makes vectors."),
    "language": ("A language model", "text-generation", "CausalLM", "`macaron generate FOLDER` writes text."),
}
_CLASSIFIER = (
    "A text classifier",
    "text-classification",
    "SequenceClassification",
    "`macaron predict FOLDER` classifies.",
)
#: Hubs' names of metrics, where they are others than ours.
_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
_CARD = """---
{metadata}
---

# {title}

{network}. All settings are in config.json.

## Data

{data}

## Training

{training}

## Scores

{scores}

## Use

```python
import macaron  # pip install macaron-net; it registers the classes with transformers
from transformers import {auto}, AutoTokenizer

FOLDER = "."  # or the name of a repository
tokenizer, model = AutoTokenizer.from_pretrained(FOLDER), {auto}.from_pretrained(FOLDER)
```

{call}

## Limits

Inputs have at most {longest:,} tokens. Text unlike the training data gives worse results. What the data lack or get
wrong, the model does, too; it was not examined for bias. The licence depends on the data, and is for the publisher to
state.
"""

Scores = Sequence[tuple[str, float, str]]  # metric, value, definition


def run_card(recipe: Recipe, config: AnyConfig, summary: Mapping[str, Any]) -> str:
    """The card of a run's final model; ``summary`` is that of the run, with all that it has measured."""
    data, chosen, source = manifest(recipe), summary["final_model"], recipe.model.source
    languages = [data[key] for key in ("source_lang", "target_lang", "lang") if key in data]
    names = [Path(each["path"]).name for each in data.get("settings", {}).get("train", [])]
    used = [
        f"{'Trained' if split == 'train' else 'Validated'} on {_counted(sizes)}."
        for split, sizes in data["splits"].items()
        if split != "test"
    ]
    sentences = f"of the first {recipe.train.scored_sentences:,} sentences of the validation data, at most"
    measured: list[tuple[str, Any, str]] = [
        (recipe.train.best_metric, summary.get("candidate_scores"), f"{summary.get('score_definition')}, {sentences}"),
        ("loss", summary["candidates"], "of the validation data, per token, as in training"),
        ("nll", summary.get("candidate_nll"), "of the validation data, per token, without label smoothing"),
    ]
    settings = {name: values for name, values in recipe.to_data().items() if name != "data"}
    settings["model"] = {key: value for key, value in settings["model"].items() if not key.startswith("from")}
    training = (
        f"{summary['update']:,} updates in {summary['seconds'] / 60:,.1f} minutes with Macaron {__version__}"
        f"{f', from the weights of `{Path(source).name}`' if source else ''}. Of several candidates (last, best and "
        f"averaged weights) these are: {chosen}. The settings:\n\n```toml\n{write_toml(settings).strip()}\n```"
    )
    scores = [(metric, values[chosen], definition) for metric, values, definition in measured if values]
    return _card(config, _KINDS[config.kind], languages, names, used, training, scores)


def classifier_card(config: TextConfig, data: Sequence[str], source: Path) -> str:
    """The card of a classifier that was fine-tuned from a folder; its configuration has the scores."""
    takes: Any = config.classification or {}
    scores = [
        (_METRICS.get(metric, metric), value, f"per cent, of the examples `{name}` on which the epoch was chosen, too")
        for name, found in takes.get("dev", {}).items()
        for metric, value in found.items()
    ]
    origin = source.resolve().parent.name if source.name == "model" else source.resolve().name
    training = f"Fine-tuned from `{origin}` with Macaron {__version__}."
    return _card(config, _CLASSIFIER, [], data, [f"Labels: {', '.join(config.label_names)}."], training, scores)


def _counted(sizes: Mapping[str, Any]) -> str:
    return ", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in sizes.items() if isinstance(value, int))


def _card(
    config: Any,
    kind: Sequence[str],
    languages: Sequence[str],
    data: Sequence[str],
    used: Sequence[str],
    training: str,
    scores: Scores,
) -> str:
    what, task, auto, call = kind
    named = " from {} to {}" if len(languages) > 1 else " for {}" if languages else ""
    title = (what + named).format(*map(language_name, languages))
    network, scheme = summarise("", config), config.encoder_scheme_value().name
    found = {
        "task": {"type": task},
        "dataset": {
            "type": data[0] if data else "unnamed",
            "name": ", ".join(data) or "unnamed",
            "split": "validation",
        },
        "metrics": [{"type": metric, "value": value, "name": definition} for metric, value, definition in scores],
    }
    metadata = {
        "language": languages,
        "library_name": "macaron",
        "pipeline_tag": task,
        "tags": ["macaron", task, scheme],
        "datasets": data,
        "metrics": [metric for metric, _, _ in scores],
        "model-index": [{"name": title, "results": [found]}] if scores else None,
    }
    lines = [f"{metric} | {value:.4g} | " + definition.replace("|", "\\|") for metric, value, definition in scores]
    table = ["metric | value | definition", "---|---|---", *lines, "", "The run itself measured these."]
    return _CARD.format(
        metadata="\n".join(
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in metadata.items() if value
        ),
        title=title,
        network=f"{network['layers']} layers of the splitting scheme `{scheme}`, {config.norm}-norm, hidden size "
        f"{config.hidden_size:,}, {config.num_attention_heads} heads, {config.vocab_size:,} subwords; "
        f"{network['parameters']:,} parameters",
        data=" ".join([*used, f"Corpora: {', '.join(f'`{name}`' for name in data) or 'not named'}."]),
        training=training,
        scores="\n".join(table) if scores else "None were measured.",
        auto=f"AutoModelFor{auto}",
        call=call,
        longest=config.longest_input,
    )
