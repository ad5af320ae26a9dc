"""Classifiers: loaded, on a device for the logits of many examples, and as a predictor that takes text."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from macaron.device import choose_device
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.models.load import ENCODER_HEADS, find_folder, load_model
from macaron.tasks.classification import ClassificationLoss, Numbers, Objective
from macaron.tasks.classification_data import Collator, Encoded, encode
from macaron.text.load_tokenizer import model_tokenizer
from macaron.train import step
from macaron.train.failures import memory_explained

Precision = Literal["auto", "float32", "bfloat16"]
#: Longest example where neither the user nor the model says otherwise.
MAX_LENGTH = 256
#: Examples that are predicted at once.
PREDICTED = 128


class ClassifierOnDevice:
    """A classifier on a device, its tokenizer, and how examples become batches.

    :param path: the model's folder, or a run's
    :param precision: ``auto`` is bfloat16 on a GPU, float32 elsewhere
    :param max_length: tokens of an example; longer ones are cut; default: the model's
    :param new_head: to fine-tune any of our encoders, another task's classifier too; the head is drawn anew
    :param dropout: everywhere; the model's own by default
    """

    module: ClassificationLoss

    def __init__(
        self,
        path: Path,
        device: str = "auto",
        precision: Precision = "auto",
        max_length: int | None = None,
        new_head: bool = False,
        dropout: float | None = None,
    ) -> None:
        self.folder = find_folder(path, EncoderConfig.model_type)
        changes: dict[str, Any] = {} if dropout is None else {"dropout": dropout, "attention_dropout": dropout}
        if new_head:
            changes |= {"id2label": None, "problem_type": None, "classification": None}
        network = EncoderForSequenceClassification
        model, missing = load_model(self.folder, network, torch.float32, ENCODER_HEADS, **changes)
        if missing and not new_head:
            raise MacaronError(
                f"{self.folder}: not fine-tuned yet, it has no classifier. Make one with `macaron finetune`."
            )
        self.tokenizer = model_tokenizer(self.folder, "encoder", model.config)
        #: What config.json says of the input: number of texts, their columns, longest example.
        self.takes: dict[str, Any] = model.config.classification or {}
        self.max_length = int(max_length or self.takes.get("max_length", MAX_LENGTH))
        self.device = choose_device(device)
        self.on_gpu = self.device.type == "cuda"
        half = precision == "bfloat16" or (precision == "auto" and self.on_gpu)
        self.autocast = partial(step.precision, self.device, half)
        self.model = model.to(self.device)
        first = model.config.first_segment
        self.collator = Collator((first, 1 - first), self.device, self.on_gpu, self.max_length)

    def all_logits(self, data: Encoded) -> Numbers:
        """The logits of all examples in their order, (N, logits)."""
        self.module.eval()
        found = np.zeros((len(data), self.module.objective.logits), dtype=np.float64)
        order = np.argsort(data.lengths, kind="stable")  # little padding
        with torch.no_grad(), self.autocast():
            for start in range(0, len(order), PREDICTED):
                rows = order[start : start + PREDICTED]
                batch = self.collator.make(data, rows, PREDICTED)
                found[rows] = self.module.logits(batch)[: len(rows)].double().cpu().numpy()
        return found

    def memory_explained(self, examples: str) -> Any:
        """A context in which running out of memory raises a message that says what to change."""
        return memory_explained(
            f"out of memory with {examples} of up to {self.max_length} tokens: take a smaller --batch-size or "
            "--max-length"
        )


class Predictor(ClassifierOnDevice):
    """A fine-tuned model that takes texts.

    :param path: a model folder that ``macaron finetune`` or ``macaron glue`` wrote, or a converted classifier
    """

    def __init__(
        self, path: Path, device: str = "auto", precision: Precision = "auto", max_length: int | None = None
    ) -> None:
        super().__init__(path, device, precision, max_length)
        #: Texts of an example; None where the model does not say.
        self.texts: int | None = self.takes.get("texts")
        #: Names of their columns in the training file.
        self.columns: list[str] = self.takes.get("columns", [])
        config = self.model.config
        if config.num_labels > 1:
            self.objective = Objective("classes", config.label_names)
        elif config.problem_type == "multi_label_classification":
            # A converted classifier of two classes with one logit, whose names are unknown.
            self.objective = Objective("one-logit", ("0", "1"))
        else:
            self.objective = Objective("score", config.label_names)
        self.module = ClassificationLoss(self.model, self.objective)

    def predict(self, texts: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        """The predictions for all examples: ``score``, or ``label``, its ``probability`` and all ``probabilities``.

        :param texts: one or two lists
        """
        if self.texts is not None and len(texts) != self.texts:
            raise MacaronError(f"{self.folder}: the model takes {self.texts} text(s) an example, not {len(texts)}")
        data = encode(self.tokenizer, texts, None, self.max_length)
        with self.memory_explained("examples"):
            logits = self.all_logits(data)
        values = self.objective.predictions(logits)
        labels = self.objective.labels
        if self.objective.kind == "score":
            return [{"score": float(value)} for value in values]
        if self.objective.kind == "one-logit":
            logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = shifted / shifted.sum(axis=1, keepdims=True)
        return [
            {
                "label": labels[int(value)],
                "probability": float(row.max()),
                "probabilities": dict(zip(labels, row.tolist(), strict=True)),
            }
            for value, row in zip(values, probabilities, strict=True)
        ]
