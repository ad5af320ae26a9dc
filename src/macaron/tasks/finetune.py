"""Fine-tuning: one pre-trained encoder, many runs in one process that share its memory and its recorded steps."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from macaron.evaluate.glue import score, task_score
from macaron.nn.linear import Linear
from macaron.tasks.classification import ClassificationLoss, FineTuning, Numbers, Objective
from macaron.tasks.classification_data import Batches, Encoded, encode, epoch_order
from macaron.tasks.classification_model import load_pretrained, model_folder, save_classifier
from macaron.tasks.classification_predict import MAX_LENGTH, Machine, Precision, all_logits, memory_explained
from macaron.tasks.classification_step import ShapedStep
from macaron.train.optimiser import Optimiser, copy_weights
from macaron.train.schedule import learning_rate
from macaron.train.step import Step

#: Kernels compiled for so many shapes at most; torch's own limit is lower.
_COMPILED_SHAPES = 64


class RunStopped(Exception):
    """Somebody asked to stop in the middle of a run."""


@dataclass(frozen=True)
class DevSet:
    """Examples to score on.

    :param labels: class indices or scores, as the metrics take them
    """

    data: Encoded
    labels: Sequence[float]


@dataclass
class Outcome:
    """What a run came to: the scores after each epoch, those of the last one, and its predictions.

    :param diverged: the loss was not finite, so the run ended early
    """

    epochs: list[dict[str, Any]] = field(default_factory=list)
    predictions: dict[str, Numbers] = field(default_factory=dict)
    updates: int = 0
    seconds: float = 0.0
    diverged: bool = False

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """By development set and metric, in per cent, after the last epoch."""
        return self.epochs[-1]["scores"]

    @property
    def score(self) -> float:
        """One number."""
        return task_score(self.scores)


class FineTuner:
    """An encoder that is fine-tuned again and again, each time from its pre-trained weights and a head of zeros.

    :param path: a pre-trained model folder
    :param compiled: compile the layers: faster by some in long runs, slow to start
    """

    def __init__(
        self,
        path: Path,
        device: str = "auto",
        precision: Precision = "auto",
        max_length: int = MAX_LENGTH,
        dropout: float | None = None,
        compiled: bool = False,
    ) -> None:
        self.folder, self.max_length, self.compiled = model_folder(path), max_length, compiled
        self.machine = Machine.choose(device, precision)
        model, self.tokenizer = load_pretrained(self.folder, dropout)
        self.model = model.to(self.machine.device)
        self.on_gpu = self.machine.device.type == "cuda"
        if compiled:
            torch._dynamo.config.recompile_limit = _COMPILED_SHAPES
            for layer in self.model.model.encoder.layers:
                layer.compile(dynamic=False if self.on_gpu else None)
        first = model.config.first_segment
        self.batches = Batches((first, 1 - first), self.machine.device, self.on_gpu, max_length)
        self.pretrained = {
            name: parameter.detach().clone()
            for name, parameter in model.named_parameters()
            if not name.startswith("classifier.")
        }
        self.stream: Any = torch.cuda.Stream(self.machine.device) if self.on_gpu else None  # type: ignore[no-untyped-call]
        self.module: ClassificationLoss | None = None
        self.step: Step | None = None

    def encode(self, texts: Sequence[Sequence[str]], objective: Objective, labels: Sequence[float]) -> Encoded:
        """Examples for this model."""
        return encode(self.tokenizer, texts, objective.targets(labels), self.max_length, self.folder)

    def fit(
        self,
        data: Encoded,
        dev: Mapping[str, DevSet],
        objective: Objective,
        settings: FineTuning,
        metrics: Sequence[str],
        stop: Callable[[], bool] = lambda: False,
        advance: Callable[[], None] = lambda: None,
        told: Callable[[dict[str, Any]], None] = lambda _: None,
    ) -> Outcome:
        """One run. The weights that it ends with stay in the model until the next one.

        :param stop: asked before every update
        :param advance: called after every update
        :param told: called after every epoch with its record
        """
        started = time.monotonic()
        outcome = Outcome()
        with self._on_stream(), memory_explained(f"{settings.batch_size} examples of up to {self.max_length} tokens"):
            module, step = self._begin(objective)
            updates = settings.updates(len(data))
            train = settings.train_settings(updates)
            optimiser = Optimiser(module, train, keep_gradients=isinstance(step, ShapedStep))
            for epoch in range(1, settings.epochs + 1):
                module.train()
                order, swap = epoch_order(len(data), settings.seed, epoch)
                total = torch.zeros((), device=self.machine.device)
                for start in range(0, len(data), settings.batch_size):
                    if stop():
                        raise RunStopped
                    rows = order[start : start + settings.batch_size]
                    done = (outcome.updates - train.warmup) / max(updates - train.warmup, 1)
                    rate = learning_rate(train, outcome.updates, done)
                    # Seeded by its place in the run: dropout does not depend on what ran before in this process.
                    torch.manual_seed((settings.seed * 1_000_003 + outcome.updates) * 4099)
                    swapped = swap if settings.symmetric and len(data.texts) == 2 else None
                    batch = self.batches.make(data, rows, settings.batch_size, swapped)
                    total += step(batch, 1 / len(rows))[0]
                    optimiser.step(rate, outcome.updates)
                    outcome.updates += 1
                    advance()
                loss = float(total) / len(data)
                outcome.diverged = not math.isfinite(loss)
                self._score(
                    module, dev, metrics, outcome, {"epoch": epoch, "loss": loss if math.isfinite(loss) else None}
                )
                told(outcome.epochs[-1])
                if outcome.diverged:
                    break
        outcome.seconds = round(time.monotonic() - started, 2)
        return outcome

    def save(self, folder: Path, objective: Objective, takes: dict[str, Any]) -> None:
        """Write the model as it is now as a classifier."""
        save_classifier(folder, self.model, self.tokenizer, objective, {"max_length": self.max_length, **takes})

    def _begin(self, objective: Objective) -> tuple[ClassificationLoss, Step]:
        """The pre-trained weights, a head of zeros, gradients of none."""
        kept = self.module
        if kept is None or (kept.objective.kind, kept.objective.logits) != (objective.kind, objective.logits):
            self.step = None  # gives the recorded graphs' memory back
            hidden = self.model.config.hidden_size
            self.model.classifier = Linear(hidden, objective.logits, std=0.0).to(self.machine.device)
            kept = self.module = ClassificationLoss(self.model, objective)
            self.step = (ShapedStep if self.on_gpu else Step)(kept, self.machine.autocast)
        kept.objective = objective
        copy_weights(self.pretrained, ((n, p) for n, p in self.model.named_parameters() if n in self.pretrained))
        with torch.no_grad():
            for parameter in self.model.classifier.parameters():
                parameter.zero_()
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.zero_()
        assert self.step is not None
        return kept, self.step

    def _score(
        self,
        module: ClassificationLoss,
        dev: Mapping[str, DevSet],
        metrics: Sequence[str],
        outcome: Outcome,
        record: dict[str, Any],
    ) -> None:
        # Layers that are compiled for training are not compiled once more for this.
        with torch.compiler.set_stance("force_eager") if self.compiled else nullcontext():
            for name, examples in dev.items():
                logits = all_logits(module, examples.data, self.batches, self.machine)
                outcome.diverged |= not bool(np.isfinite(logits).all())
                outcome.predictions[name] = module.objective.predictions(logits)
        scores = {name: score(metrics, outcome.predictions[name], each.labels) for name, each in dev.items()}
        outcome.epochs.append({**record, "scores": scores})

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Everything on one stream of our own: CUDA graphs cannot be recorded on the default one."""
        if self.stream is None:
            yield
            return
        self.stream.wait_stream(torch.cuda.current_stream(self.machine.device))
        with torch.cuda.device(self.machine.device), torch.cuda.stream(self.stream):
            yield
        torch.cuda.current_stream(self.machine.device).wait_stream(self.stream)
