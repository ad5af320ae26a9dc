"""Encoder folders: a pre-trained one to fine-tune, a classifier to predict with; and writing classifiers."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.models.auto.modeling_auto import AutoModelForSequenceClassification
from transformers.models.auto.tokenization_auto import AutoTokenizer
from transformers.utils import logging

from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.tasks.classification import Objective
from macaron.tasks.saving import save_model
from macaron.text.tokenizer import MacaronTokenizer, verify

#: Where a classifier's config.json says what it takes: number of texts, their columns, longest example.
INPUT = "classification"


def model_folder(path: Path) -> Path:
    """The model folder: given itself, or a run's."""
    if not (path / "config.json").is_file() and (path / "model" / "config.json").is_file():
        path /= "model"
    if not path.is_dir():
        raise MacaronError(f"{path}: no such folder. Give a model folder, such as RUN/model.")
    config = path / "config.json"
    if not config.is_file():
        raise MacaronError(f"{path}: no model folder, config.json is missing. Give a model folder, such as RUN/model.")
    try:
        content = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MacaronError(f"{config}: not valid JSON ({error}). Copy the folder again.") from None
    kind = content.get("model_type") if isinstance(content, dict) else None
    if kind != EncoderConfig.model_type:
        raise MacaronError(f"{path}: a model of type {kind!r}; needed is an encoder, {EncoderConfig.model_type!r}")
    return path


def load_pretrained(path: Path, dropout: float | None = None) -> tuple[EncoderForSequenceClassification, Any]:
    """An encoder with a new head, and its tokenizer. Any of our encoders will do, another task's classifier too.

    :param dropout: everywhere; the model's own by default
    """
    folder = model_folder(path)
    changes: dict[str, Any] = {} if dropout is None else {"dropout": dropout, "attention_dropout": dropout}
    model = _load(folder, head=False, num_labels=2, ignore_mismatched_sizes=True, **changes)
    tokenizer = load_tokenizer(folder)
    check_together(folder, model, tokenizer)
    return model, tokenizer


def load_classifier(path: Path) -> tuple[EncoderForSequenceClassification, MacaronTokenizer]:
    """A fine-tuned model and its tokenizer."""
    folder = model_folder(path)
    model = _load(folder, head=True)
    tokenizer = load_tokenizer(folder)
    check_together(folder, model, tokenizer)
    return model, tokenizer


def _load(folder: Path, head: bool, **options: Any) -> EncoderForSequenceClassification:
    try:
        with quiet():
            model, report = AutoModelForSequenceClassification.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    except MacaronError as error:
        raise MacaronError(f"{folder / 'config.json'}: {error}") from None
    except Exception as error:  # safetensors and transformers raise nearly anything for a damaged file
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MacaronError(f"{folder}: the weights cannot be read. Copy the folder again. ({reason[:200]})") from error
    missing = sorted(report.get("missing_keys", ()))
    if head and any(name.startswith("classifier.") for name in missing):
        raise MacaronError(f"{folder}: not fine-tuned yet, it has no classifier. Make one with `macaron finetune`.")
    missing = [name for name in missing if not name.startswith("classifier.")]
    if missing:
        raise MacaronError(f"{folder}: the weights lack {missing[0]!r}. They do not belong to this config.json.")
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise MacaronError(f"{folder}: the weights hold values that are no finite numbers, in {name!r}")
    return model


def load_tokenizer(folder: Path) -> MacaronTokenizer:
    """The tokenizer of an encoder folder."""
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise MacaronError(f"{folder}: the tokenizer cannot be read ({reason[:200]}). Copy its files again.") from error
    if not isinstance(tokenizer, MacaronTokenizer) or tokenizer.kind != "encoder":
        raise MacaronError(f"{folder}: the tokenizer is not one for encoders (see tokenizer_config.json)")
    return tokenizer


def check_together(folder: Path, model: Any, tokenizer: MacaronTokenizer) -> None:
    """Refuse a tokenizer that makes other tokens or other segments than the model was trained with."""
    try:
        verify(tokenizer, model.config)
    except MacaronError as error:
        raise MacaronError(f"{folder}: {error}") from None
    if tokenizer.segments[0] != model.config.first_segment:
        raise MacaronError(
            f"{folder}: the tokenizer gives the first sentence segment {tokenizer.segments[0]}, the model has "
            f"{model.config.first_segment} (first_segment in config.json): make them agree"
        )


def save_classifier(
    folder: Path,
    model: EncoderForSequenceClassification,
    tokenizer: MacaronTokenizer,
    objective: Objective,
    takes: dict[str, Any],
) -> None:
    """Write a classifier that needs nothing else: names of classes, scores on their own scale, what it takes.

    :param takes: kept in config.json; ``texts``, ``max_length`` and what else may be wanted
    """
    config = model.config
    state: dict[str, Tensor] = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    head = objective.plain_head(state["classifier.weight"], state["classifier.bias"])
    state["classifier.weight"], state["classifier.bias"] = (part.contiguous() for part in head)
    before = {name: getattr(config, name) for name in ("id2label", "label2id", "problem_type")}
    config.id2label = dict(enumerate(objective.labels))
    config.label2id = {label: index for index, label in enumerate(objective.labels)}
    config.problem_type = "regression" if objective.kind == "score" else "single_label_classification"
    setattr(config, INPUT, takes)
    try:
        save_model(folder, model, state, tokenizer)
    finally:
        for name, value in before.items():
            setattr(config, name, value)
        delattr(config, INPUT)


def weights_fingerprint(folder: Path) -> str:
    """A digest of the weights and the configuration of a folder."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]


@contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and reports of transformers': what is wrong we say ourselves."""
    level, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()
