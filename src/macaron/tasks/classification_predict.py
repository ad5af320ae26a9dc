"""Logits of many examples, and a classifier that takes text."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from macaron.data.glue_tasks import GlueTask
from macaron.decode.folder import choose_device
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig
from macaron.tasks.classification import ClassificationLoss, Numbers, Objective
from macaron.tasks.classification_data import Batches, Encoded, encode
from macaron.tasks.classification_model import load_classifier, model_folder

Precision = Literal["auto", "float32", "bfloat16"]
#: Longest example where neither the user nor the model says otherwise.
MAX_LENGTH = 256
#: Examples that are predicted at once.
PREDICTED = 128


@dataclass(frozen=True)
class Machine:
    """Where it is computed, and in what numbers: bfloat16 on a GPU unless told otherwise."""

    device: torch.device
    half: bool

    @classmethod
    def choose(cls, device: str, precision: Precision) -> "Machine":
        """A machine by the names that commands take."""
        chosen = choose_device(device)
        return cls(chosen, precision == "bfloat16" or (precision == "auto" and chosen.type == "cuda"))

    def autocast(self) -> AbstractContextManager[Any]:
        """The context of a forward pass."""
        # No cache: what it keeps would be a CUDA graph's own memory.
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=False) if self.half else nullcontext()


def all_logits(module: ClassificationLoss, data: Encoded, batches: Batches, machine: Machine) -> Numbers:
    """The logits of all examples in their order, (N, logits)."""
    module.eval()
    found = np.zeros((len(data), module.objective.logits), dtype=np.float64)
    with torch.no_grad(), machine.autocast():
        for rows, batch in batches.in_order(data, PREDICTED):
            found[rows] = module.logits(batch)[: len(rows)].double().cpu().numpy()
    return found


@contextmanager
def memory_explained(size: str) -> Iterator[None]:
    """A context in which too little memory becomes a message that says what to change."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise MacaronError(f"out of memory with {size}: take a smaller --batch-size or --max-length") from error


@dataclass(frozen=True)
class Prediction:
    """What a model says of an example: a class with the probabilities of all, or a score."""

    label: str | None
    score: float
    probabilities: dict[str, float]


class Predictor:
    """A fine-tuned model that takes texts.

    :param path: a model folder that ``macaron finetune`` or ``macaron glue`` wrote, or a converted classifier
    """

    def __init__(
        self, path: Path, device: str = "auto", precision: Precision = "auto", max_length: int | None = None
    ) -> None:
        self.folder = model_folder(path)
        model, self.tokenizer = load_classifier(self.folder)
        self.machine = Machine.choose(device, precision)
        config = model.config
        takes = config.classification or {}
        #: Texts of an example; None where the model does not say.
        self.texts: int | None = takes.get("texts")
        #: Names of their columns in the training file.
        self.columns: list[str] = takes.get("columns", [])
        self.max_length = int(max_length or takes.get("max_length", MAX_LENGTH))
        self.objective = stored_objective(config)
        self.module = ClassificationLoss(model.to(self.machine.device), self.objective)
        first = config.first_segment
        on_gpu = self.machine.device.type == "cuda"
        self.batches = Batches((first, 1 - first), self.machine.device, on_gpu, self.max_length)

    def logits(self, texts: Sequence[Sequence[str]]) -> Numbers:
        """(N, logits) of one or two lists of texts."""
        if self.texts is not None and len(texts) != self.texts:
            raise MacaronError(f"{self.folder}: the model takes {self.texts} text(s) an example, not {len(texts)}")
        data = encode(self.tokenizer, texts, None, self.max_length, self.folder)
        with memory_explained(f"examples of {self.max_length} tokens"):
            return all_logits(self.module, data, self.batches, self.machine)

    def predict(self, texts: Sequence[Sequence[str]]) -> list[Prediction]:
        """What the model says of each example."""
        if not texts[0]:
            return []
        logits = self.logits(texts)
        values = self.objective.predictions(logits)
        labels = self.objective.labels
        if self.objective.kind == "score":
            return [Prediction(None, float(value), {}) for value in values]
        shares = probabilities(self.objective, logits)
        return [
            Prediction(labels[int(value)], float(row.max()), dict(zip(labels, map(float, row), strict=True)))
            for value, row in zip(values, shares, strict=True)
        ]

    def glue_values(self, task: GlueTask, texts: Sequence[Sequence[str]]) -> Numbers:
        """Class indices in the task's order, or scores."""
        values = self.objective.predictions(self.logits(texts))
        if task.regression:
            return values
        places = np.array([task.labels.index(label) for label in self.objective.labels], dtype=np.float64)
        return places[values.astype(np.int64)]


def probabilities(objective: Objective, logits: Numbers) -> NDArray[np.float64]:
    """(N, classes)."""
    if objective.kind == "one-logit":
        logits = np.concatenate([np.zeros_like(logits), logits], axis=1)
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True), dtype=np.float64)


def stored_objective(config: EncoderConfig) -> Objective:
    """What a classifier's configuration says that it predicts."""
    labels = config.label_names
    if config.num_labels > 1:
        return Objective("classes", labels)
    if config.problem_type == "multi_label_classification":
        # A converted classifier of two classes by one logit: nobody has told it their names.
        return Objective("one-logit", ("0", "1"))
    return Objective("score", labels)
