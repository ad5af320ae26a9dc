"""Classifiers on a device: the logits of many examples, and a predictor that takes text."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from macaron.data.glue_tasks import GlueTask
from macaron.device import choose_device
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.tasks.classification import ClassificationLoss, Numbers, Objective
from macaron.tasks.classification_data import Collator, Encoded, encode
from macaron.tasks.classification_model import load_classifier, model_folder
from macaron.text.tokenizer import MacaronTokenizer
from macaron.train import step
from macaron.train.failures import memory_explained

Precision = Literal["auto", "float32", "bfloat16"]
#: Longest example where neither the user nor the model says otherwise.
MAX_LENGTH = 256
#: Examples that are predicted at once.
PREDICTED = 128


class ClassifierOnDevice:
    """A classifier on a device, its tokenizer, and how examples become batches.

    :param folder: the model's
    :param precision: ``auto`` is bfloat16 on a GPU, float32 elsewhere
    :param max_length: tokens of an example; longer ones are cut
    """

    def __init__(
        self,
        folder: Path,
        loaded: tuple[EncoderForSequenceClassification, MacaronTokenizer],
        device: str,
        precision: Precision,
        max_length: int,
    ) -> None:
        model, self.tokenizer = loaded
        self.folder, self.max_length, self.device = folder, max_length, choose_device(device)
        self.on_gpu = self.device.type == "cuda"
        half = precision == "bfloat16" or (precision == "auto" and self.on_gpu)
        self.autocast = partial(step.precision, self.device, half)
        self.model = model.to(self.device)
        first = model.config.first_segment
        self.collator = Collator((first, 1 - first), self.device, self.on_gpu, max_length)

    def all_logits(self, module: ClassificationLoss, data: Encoded) -> Numbers:
        """The logits of all examples in their order, (N, logits)."""
        module.eval()
        found = np.zeros((len(data), module.objective.logits), dtype=np.float64)
        with torch.no_grad(), self.autocast():
            for rows, batch in self.collator.in_order(data, PREDICTED):
                found[rows] = module.logits(batch)[: len(rows)].double().cpu().numpy()
        return found

    def memory_explained(self, examples: str) -> Any:
        """A context in which running out of memory raises a message that says what to change."""
        return memory_explained(
            f"out of memory with {examples} of up to {self.max_length} tokens: take a smaller --batch-size or "
            "--max-length"
        )


@dataclass(frozen=True)
class Prediction:
    """The prediction for an example: a class with the probabilities of all classes, or a score."""

    label: str | None
    score: float
    probabilities: dict[str, float]


class Predictor(ClassifierOnDevice):
    """A fine-tuned model that takes texts.

    :param path: a model folder that ``macaron finetune`` or ``macaron glue`` wrote, or a converted classifier
    """

    def __init__(
        self, path: Path, device: str = "auto", precision: Precision = "auto", max_length: int | None = None
    ) -> None:
        folder = model_folder(path)
        loaded = load_classifier(folder)
        config = loaded[0].config
        takes = config.classification or {}
        super().__init__(folder, loaded, device, precision, int(max_length or takes.get("max_length", MAX_LENGTH)))
        #: Texts of an example; None where the model does not say.
        self.texts: int | None = takes.get("texts")
        #: Names of their columns in the training file.
        self.columns: list[str] = takes.get("columns", [])
        self.objective = stored_objective(config)
        self.module = ClassificationLoss(self.model, self.objective)

    def logits(self, texts: Sequence[Sequence[str]]) -> Numbers:
        """(N, logits) of one or two lists of texts."""
        if self.texts is not None and len(texts) != self.texts:
            raise MacaronError(f"{self.folder}: the model takes {self.texts} text(s) an example, not {len(texts)}")
        data = encode(self.tokenizer, texts, None, self.max_length, self.folder)
        with self.memory_explained("examples"):
            return self.all_logits(self.module, data)

    def predict(self, texts: Sequence[Sequence[str]]) -> list[Prediction]:
        """The predictions for all examples."""
        if not texts[0]:
            return []
        logits = self.logits(texts)
        values = self.objective.predictions(logits)
        labels = self.objective.labels
        if self.objective.kind == "score":
            return [Prediction(None, float(value), {}) for value in values]
        return [
            Prediction(labels[int(value)], float(row.max()), dict(zip(labels, map(float, row), strict=True)))
            for value, row in zip(values, probabilities(self.objective, logits), strict=True)
        ]

    def glue_values(self, task: GlueTask, texts: Sequence[Sequence[str]]) -> Numbers:
        """Class indices in the task's order, or scores."""
        values = self.objective.predictions(self.logits(texts))
        if task.regression:
            return values
        indices = np.array([task.labels.index(label) for label in self.objective.labels], dtype=np.float64)
        return indices[values.astype(np.int64)]


def probabilities(objective: Objective, logits: Numbers) -> NDArray[np.float64]:
    """(N, classes)."""
    if objective.kind == "one-logit":
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float64)


def stored_objective(config: EncoderConfig) -> Objective:
    """The objective in a classifier's configuration."""
    labels = config.label_names
    if config.num_labels > 1:
        return Objective("classes", labels)
    if config.problem_type == "multi_label_classification":
        # A converted classifier of two classes with one logit, whose names are unknown.
        return Objective("one-logit", ("0", "1"))
    return Objective("score", labels)
