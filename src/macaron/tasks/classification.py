"""Classification and regression of one or two texts: the objective, its loss, the settings of a run."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from macaron.errors import MacaronError, require
from macaron.limits import MOST_EXAMPLES, Between
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.train.settings import TrainSettings

Numbers = NDArray[np.float64]
_BERT_RATE, _BERT_WIDTH = 5e-5, 768
#: The highest rate; updates up to which it does not depend on their number.
_HIGHEST_RATE, _SHORT_RUN = 1e-3, 1000


@dataclass(frozen=True)
class Objective:
    """What is predicted.

    classes     one logit for each, cross-entropy
    one-logit   two classes by one logit, binary cross-entropy: as the authors train CoLA, MRPC and QQP
    score       mean squared error on ``(score - shift) / scale``
    """

    kind: Literal["classes", "one-logit", "score"]
    labels: tuple[str, ...]
    shift: float = 0.0
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.kind == "one-logit" and len(self.labels) != 2:
            raise MacaronError(f"one logit distinguishes two classes, not {len(self.labels)}")
        if self.kind == "classes" and len(self.labels) < 2:
            raise MacaronError(f"need at least two classes; found only {', '.join(self.labels) or 'none'}")

    @property
    def logits(self) -> int:
        """Outputs of the model while it is trained."""
        return len(self.labels) if self.kind == "classes" else 1

    def targets(self, labels: Sequence[float]) -> NDArray[Any]:
        """The targets of class indices or scores, (N,)."""
        values = np.asarray(labels, dtype=np.float64)
        if self.kind == "classes":
            return values.astype(np.int64)
        return ((values - self.shift) / self.scale).astype(np.float32)

    def losses(self, logits: Tensor, targets: Tensor) -> Tensor:
        """The loss of each example, (B,); logits are (B, ``logits``)."""
        if self.kind == "classes":
            return F.cross_entropy(logits, targets, reduction="none")
        if self.kind == "one-logit":
            return F.binary_cross_entropy_with_logits(logits[:, 0], targets, reduction="none")
        return (logits[:, 0] - targets).square()

    def predictions(self, logits: Numbers) -> Numbers:
        """Class indices or scores, (N,). Logits that are not finite count as zero."""
        logits = np.nan_to_num(logits, posinf=0.0, neginf=0.0)
        if self.kind == "classes":
            return logits.argmax(axis=1).astype(np.float64)
        if self.kind == "one-logit":
            return (logits[:, 0] > 0).astype(np.float64)
        return logits[:, 0] * self.scale + self.shift

    def plain_head(self, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """The weights of an equivalent head with one logit per class, or with the score on its own scale.

        One logit z becomes the two logits 0 and z, whose softmax is its sigmoid.
        """
        if self.kind == "one-logit":
            return torch.cat([torch.zeros_like(weight), weight]), torch.cat([torch.zeros_like(bias), bias])
        if self.kind == "score":
            return weight * self.scale, bias * self.scale + self.shift
        return weight, bias


@dataclass(frozen=True)
class ClassificationBatch:
    """Tokens, segments and the mask of real tokens, all (B, T); targets (B,); weights (B,), 0 for filler rows."""

    tokens: Tensor
    segments: Tensor
    real: Tensor
    targets: Tensor
    weights: Tensor


class ClassificationLoss(nn.Module):
    """A classifier together with its objective."""

    def __init__(self, model: EncoderForSequenceClassification, objective: Objective) -> None:
        super().__init__()
        self.model, self.objective = model, objective

    def logits(self, batch: ClassificationBatch) -> Tensor:
        """(B, logits) in float32: scores and small margins suffer in bfloat16, and the head costs nothing."""
        state = self.model.features(batch.tokens, batch.real, batch.segments)
        with torch.autocast(state.device.type, enabled=False):
            return self.model.classifier(state.float())

    def forward(self, batch: ClassificationBatch) -> Tensor:
        """The sum of the losses of all examples, (1,)."""
        return (self.objective.losses(self.logits(batch), batch.targets) * batch.weights).sum().reshape(1)


@dataclass(frozen=True)
class FineTuning:
    """How to fine-tune.

    Batches are of examples. The rate rises over the first ``warmup`` of the updates and falls linearly to 0.

    :param symmetric: swap the two texts of an example with probability 1/2, anew at every epoch
    """

    batch_size: int = 32
    learning_rate: float = _BERT_RATE
    epochs: int = 3
    seed: int = 1
    weight_decay: float = 0.0
    warmup: float = 0.1
    clip_norm: float = 0.0
    symmetric: bool = False

    def __post_init__(self) -> None:
        Between(1, MOST_EXAMPLES).check("batch size", self.batch_size)
        Between(1, 10**9).check("epochs", self.epochs)
        require(self.learning_rate > 0, f"learning rate must be above 0, not {self.learning_rate}")
        self.train_settings(1)

    def updates(self, examples: int) -> int:
        """Updates of the whole run."""
        return self.epochs * -(-examples // self.batch_size)

    def train_settings(self, updates: int) -> TrainSettings:
        """The optimiser's and the schedule's settings: the authors' Adam."""
        return TrainSettings(
            max_updates=updates,
            learning_rate=self.learning_rate,
            betas=(0.9, 0.999),
            epsilon=1e-6,
            weight_decay=self.weight_decay,
            clip_norm=self.clip_norm,
            schedule="linear",
            warmup=round(self.warmup * updates),
            warmup_rate=min(1e-7, self.learning_rate),
            seed=self.seed,
        )


def usual_rate(hidden_size: int, updates: int) -> tuple[float, str]:
    """The learning rate for an encoder of this width and a run of this length, and why.

    BERT's rate times (768 / width)^2; from 1,000 updates on it falls with their root. See docs/finetuning.md.
    """
    rate = min(_BERT_RATE * (_BERT_WIDTH / hidden_size) ** 2, _HIGHEST_RATE)
    rate = float(f"{rate * min(1.0, math.sqrt(_SHORT_RUN / max(updates, 1))):.0e}")
    return rate, f"for hidden size {hidden_size} and {updates:,} updates; {_BERT_RATE:g} for BERT-base and few updates"
