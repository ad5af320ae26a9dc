"""Encoder folders: a pre-trained one to fine-tune, a classifier to predict with; and writing classifiers."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.models.load import ENCODER_HEADS, find_folder, load_model, save_model
from macaron.tasks.classification import Objective
from macaron.text.load_tokenizer import model_tokenizer
from macaron.text.tokenizer import MacaronTokenizer

#: Where a classifier's config.json says what it takes: number of texts, their columns, longest example.
INPUT = "classification"


def model_folder(path: Path) -> Path:
    """The folder of an encoder: given itself, or a run's."""
    return find_folder(path, EncoderConfig.model_type)


def load_pretrained(
    path: Path, dropout: float | None = None
) -> tuple[EncoderForSequenceClassification, MacaronTokenizer]:
    """An encoder with a new head, and its tokenizer. Any of our encoders will do, another task's classifier too.

    :param dropout: everywhere; the model's own by default
    """
    folder = model_folder(path)
    changes: dict[str, Any] = {} if dropout is None else {"dropout": dropout, "attention_dropout": dropout}
    new_head = {"id2label": None, "problem_type": None, INPUT: None}
    model, _ = load_model(folder, EncoderForSequenceClassification, torch.float32, ENCODER_HEADS, **new_head, **changes)
    return model, model_tokenizer(folder, "encoder", model.config)


def load_classifier(path: Path) -> tuple[EncoderForSequenceClassification, MacaronTokenizer]:
    """A fine-tuned model and its tokenizer."""
    folder = model_folder(path)
    model, missing = load_model(folder, EncoderForSequenceClassification, torch.float32, ENCODER_HEADS)
    if missing:
        raise MacaronError(f"{folder}: not fine-tuned yet, it has no classifier. Make one with `macaron finetune`.")
    return model, model_tokenizer(folder, "encoder", model.config)


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
    state: dict[str, Tensor] = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    head = objective.plain_head(state["classifier.weight"], state["classifier.bias"])
    state["classifier.weight"], state["classifier.bias"] = (part.contiguous() for part in head)
    config = replace(
        model.config,
        id2label=dict(enumerate(objective.labels)),
        problem_type="regression" if objective.kind == "score" else "single_label_classification",
        classification=takes,
    )
    save_model(folder, model, state, tokenizer, config)


def weights_fingerprint(folder: Path) -> str:
    """A digest of the weights and the configuration of a folder."""
    digest = hashlib.sha256()
    for path in sorted([*folder.glob("*.safetensors"), folder / "config.json"]):
        with path.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()[:16]
