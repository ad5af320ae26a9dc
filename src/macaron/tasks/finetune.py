"""Fine-tuning: one pre-trained encoder, many runs in one process that share its memory and its recorded steps."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macaron.data.batching import Indices
from macaron.device import own_stream
from macaron.evaluate.glue_metrics import score, task_score
from macaron.models.load import save_model
from macaron.nn.linear import Linear
from macaron.tasks.classification import ClassificationLoss, FineTuning, Numbers, Objective
from macaron.tasks.classifier import MAX_LENGTH, Encoded, EncoderOnDevice, Precision
from macaron.train.optimiser import Optimiser, copy_weights, learning_rate
from macaron.train.step import RecordedStep, TrainStep

#: Batches that are made together.
_POOL = 64


@dataclass
class TuningOutcome:
    """The result of a run: the scores after each epoch, and the predictions of the model that is left.

    :param kept: the epoch that the model is from; 0: the last one
    :param diverged: the loss was not finite, so the run ended early
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    predictions: dict[str, Numbers] = field(default_factory=dict)
    updates: int = 0
    seconds: float = 0.0
    kept: int = 0
    diverged: bool = False

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """By development set and metric, in per cent, after the epoch that was kept."""
        return self.epochs[self.kept - 1]["scores"]

    @property
    def score(self) -> float:
        """All scores as one number."""
        return task_score(self.scores)


class FineTuner(EncoderOnDevice):
    """An encoder that is fine-tuned again and again, each time from its pre-trained weights and a head of zeros."""

    step: TrainStep
    _trained: tuple[str, int] | None = None  # kind and logits of the last run's objective

    def __init__(
        self,
        path: Path,
        device: str = "auto",
        precision: Precision = "auto",
        max_length: int = MAX_LENGTH,
        dropout: float | None = None,
    ) -> None:
        super().__init__(path, device, precision, max_length, new_head=True, dropout=dropout)
        kept = ((n, p) for n, p in self.model.named_parameters() if not n.startswith("classifier."))
        self.pretrained = {name: parameter.detach().clone() for name, parameter in kept}

    def fit(
        self,
        data: Encoded,
        dev: Mapping[str, Encoded],
        objective: Objective,
        settings: FineTuning,
        metrics: Sequence[str],
        check: Callable[[], None] = lambda: None,
        advance: Callable[[int], None] = lambda _: None,
        after_epoch: Callable[[dict[str, Any]], None] = lambda _: None,
        keep_best: bool = False,
    ) -> TuningOutcome:
        """One run. Its weights stay in the model until the next one.

        :param check: called before every update; may raise an exception, which ends the run
        :param advance: called with numbers of finished updates
        :param keep_best: end with the weights of the epoch that is best in the first metric, the later of two equals
        """
        started = time.monotonic()
        outcome, best = TuningOutcome(), -math.inf
        weights: dict[str, Tensor] = {}
        predictions: dict[str, Numbers] = {}
        with own_stream(self.device), self.memory_explained(f"{settings.batch_size} examples"):
            self._begin(objective)
            updates = settings.updates(len(data))
            train = settings.train_settings(updates)
            optimiser = Optimiser(self.module, train, keep_gradients=self.on_gpu)
            for epoch in range(1, settings.epochs + 1):
                self.module.train()
                order, swap = epoch_order(data.lengths, settings.batch_size, settings.seed, epoch)
                swapped = swap if settings.symmetric and len(data.texts) == 2 else None
                total = torch.zeros((), device=self.device)
                for start in range(0, len(data), settings.batch_size):
                    check()
                    rows = order[start : start + settings.batch_size]
                    done = (outcome.updates - train.warmup) / max(updates - train.warmup, 1)
                    rate = learning_rate(train, outcome.updates, done)
                    # Seeded by the update: dropout does not depend on earlier runs of this process.
                    torch.manual_seed((settings.seed * 1_000_003 + outcome.updates) * 4099)
                    batch = self.batch(data, rows, settings.batch_size, swapped)
                    total += self.step(batch, 1 / len(rows))[0]
                    optimiser.step(rate, outcome.updates)
                    outcome.updates += 1
                    advance(1)
                loss = float(total) / len(data)
                outcome.diverged = not math.isfinite(loss)
                scores = self._score(dev, metrics, outcome)
                record = {"epoch": epoch, "loss": loss if math.isfinite(loss) else None, "scores": scores}
                outcome.epochs.append(record)
                after_epoch(record)
                if outcome.diverged:
                    break
                found = float(np.mean([each[metrics[0]] for each in scores.values()]))
                if keep_best and found >= best:
                    best, outcome.kept = found, epoch
                    weights = {name: each.detach().clone() for name, each in self.model.named_parameters()}
                    predictions = dict(outcome.predictions)
            if 0 < outcome.kept < len(outcome.epochs):
                copy_weights(weights, self.model.named_parameters())
                outcome.predictions = predictions
        outcome.seconds = round(time.monotonic() - started, 2)
        return outcome

    def save(self, folder: Path, objective: Objective, takes: dict[str, Any]) -> None:
        """Write a classifier that needs nothing else: names of classes, scores on their own scale, what it takes.

        :param takes: kept in config.json with ``max_length``; ``texts`` and what else may be wanted
        """
        state = {name: tensor.detach().cpu() for name, tensor in self.model.state_dict().items()}
        head = objective.plain_head(state["classifier.weight"], state["classifier.bias"])
        state["classifier.weight"], state["classifier.bias"] = (part.contiguous() for part in head)
        config = replace(
            self.model.config,
            id2label=dict(enumerate(objective.labels)),
            problem_type="regression" if objective.kind == "score" else "single_label_classification",
            classification={"max_length": self.max_length, **takes},
        )
        save_model(folder, self.model, state, self.tokenizer, config)

    def _begin(self, objective: Objective) -> None:
        """Restore the pre-trained weights, zero the head and the gradients.

        All runs use the same parameters, so that they replay the same recorded steps.
        """
        if self._trained != (objective.kind, objective.logits):
            self._trained = (objective.kind, objective.logits)
            hidden = self.model.config.hidden_size
            self.model.classifier = Linear(hidden, objective.logits, std=0.0).to(self.device)
            self.module = ClassificationLoss(self.model, objective)
            self.step = (RecordedStep if self.on_gpu else TrainStep)(self.module, self.autocast)
        self.module.objective = objective
        copy_weights(self.pretrained, ((n, p) for n, p in self.model.named_parameters() if n in self.pretrained))
        self.model.classifier.reset_parameters()
        self.model.zero_grad(set_to_none=False)

    def _score(
        self, dev: Mapping[str, Encoded], metrics: Sequence[str], outcome: TuningOutcome
    ) -> dict[str, dict[str, float]]:
        for name, examples in dev.items():
            logits = self.all_logits(examples)
            outcome.diverged |= not bool(np.isfinite(logits).all())
            outcome.predictions[name] = self.module.objective.predictions(logits)
        return {name: score(metrics, outcome.predictions[name], each.labels) for name, each in dev.items()}


def epoch_order(lengths: Indices, size: int, seed: int, epoch: int) -> tuple[Indices, NDArray[np.bool_]]:
    """The order of an epoch's examples, and which of them are swapped: a function of the data, seed and epoch.

    Batches are made of examples of like length, among some thousand that are drawn: there is little padding.
    """
    draw, count = np.random.default_rng((seed, epoch)), len(lengths)
    order, swap = draw.permutation(count), draw.random(count) < 0.5
    pools = np.split(order, range(_POOL * size, count, _POOL * size))
    order = np.concatenate([pool[np.argsort(lengths[pool], kind="stable")] for pool in pools])
    whole = count // size * size
    batches = draw.permutation(order[:whole].reshape(-1, size))
    return np.append(batches, order[whole:]), swap
