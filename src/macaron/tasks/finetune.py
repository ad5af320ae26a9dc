"""Fine-tuning: one pre-trained encoder, many runs in one process that share its memory and its recorded steps.

`finetune_csv` makes a run folder of a user's own TSV or CSV files: the classifier, its curve and its scores.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macaron.data.batching import Indices
from macaron.data.tabular import Table, class_indices, find_classes, numbers_of
from macaron.device import own_stream
from macaron.errors import Interrupted, require
from macaron.evaluate.glue_metrics import score, task_score
from macaron.files import LOCK, check_unused, remove_leftovers, write_json, write_text
from macaron.models.load import save_model, write_card
from macaron.nn.linear import Linear
from macaron.processes import Progress
from macaron.tasks.card import classifier_card
from macaron.tasks.classification import ClassificationLoss, FineTuning, Numbers, Objective, usual_rate
from macaron.tasks.classifier import MAX_LENGTH, Encoded, EncoderOnDevice, Precision
from macaron.tasks.glue.glue_results import score_line
from macaron.train.optimiser import Optimiser, copy_weights, learning_rate
from macaron.train.step import RecordedStep, TrainStep
from macaron.train.stopping import StopSignals

#: Batches that are made together.
_POOL = 64
#: The files of an unfinished run, which the next start may replace; its model where its settings are.
_UNFINISHED = {"settings.json", "metrics.jsonl", "report.html", LOCK}


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
                for name, examples in dev.items():
                    logits = self.all_logits(examples)
                    outcome.diverged |= not bool(np.isfinite(logits).all())
                    outcome.predictions[name] = objective.predictions(logits)
                scores = {name: score(metrics, outcome.predictions[name], each.labels) for name, each in dev.items()}
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

    def save(self, folder: Path, objective: Objective, takes: dict[str, Any], data: Sequence[str] = ()) -> None:
        """Write a classifier that needs nothing else: names of classes, scores on their own scale, what it takes.

        :param takes: kept in config.json with ``max_length``; ``texts`` and what else may be wanted
        :param data: what it was trained on, for the model card
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
        write_card(folder, classifier_card(self.model, config, data, self.folder))

    def _begin(self, objective: Objective) -> None:
        # Not a new model: all runs use the same parameters, so that they replay the same recorded steps.
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


def finetune_csv(
    load: Callable[[], FineTuner],
    tables: dict[str, Table],
    texts: Sequence[str],
    label: str,
    regression: bool,
    settings: FineTuning,
    out: Path,
    choose_rate: bool = False,
) -> str:
    """Fine-tune and write RUN/model, that of the best epoch; returns a line with the scores.

    :param choose_rate: take the learning rate that suits the model's size
    :param load: called after the first checks
    :param tables: the examples of ``train`` and ``dev``
    """
    remove_leftovers(out)
    found = {path.name for path in out.iterdir()} if out.exists() else set()
    if not found <= {*_UNFINISHED, *(["model"] if "settings.json" in found else [])}:
        check_unused(out, "give another --out")
    objective = make_objective(tables, label, regression)
    metrics: tuple[str, ...] = ("pearson", "spearman") if regression else ("accuracy",)
    positive = objective.labels[1] if len(objective.labels) == 2 else None
    if positive is not None:
        metrics += ("f1", "matthews")
    progress, signals, tuner = Progress(), StopSignals(), load()
    data, held = (tuner.encode(tables[name].texts, objective, tables[name].values) for name in ("train", "dev"))
    classes = f"{len(objective.labels)} classes: {', '.join(objective.labels)[:200]}"
    said = f"{len(data):,} examples, {len(held):,} to score on; {f'a score, {label}' if regression else classes}"
    if cut := data.truncated + held.truncated:
        said += f"; {cut:,} are longer than {tuner.max_length} tokens and cut"
    progress.say(said)
    if choose_rate:
        rate, reason = usual_rate(tuner.model.config.hidden_size, settings.updates(len(data)))
        settings = replace(settings, learning_rate=rate)
        progress.say(f"learning rate {rate:g} ({reason}; --learning-rate sets another)")
    files = {name: table.name for name, table in tables.items()}
    write_json(out / "settings.json", {**files, "texts": list(texts), "label": label, **asdict(settings)})
    history: list[str] = []

    def after_epoch(record: dict[str, Any]) -> None:
        history.append(json.dumps({**record, "time": round(time.time(), 3)}) + "\n")
        write_text(out / "metrics.jsonl", "".join(history))
        loss = "not finite" if record["loss"] is None else f"{record['loss']:.4f}"
        progress.say(f"epoch {record['epoch']}: loss {loss}, dev {score_line(record['scores'], positive)}")

    try:
        with signals, progress.step("fine-tuning", "updates", settings.updates(len(data))) as advance:
            outcome = tuner.fit(
                data, {"dev": held}, objective, settings, metrics, signals.check, advance, after_epoch, keep_best=True
            )
    except KeyboardInterrupt:
        raise Interrupted("stopped before the end; no model was written. The same command starts again.") from None
    last = len(outcome.epochs)
    lower = "try a lower --learning-rate or --clip-norm 1"
    require(not outcome.diverged, f"the loss was not finite in epoch {last}: {lower}")
    epoch = outcome.kept or last
    progress.say(f"kept epoch {epoch} of {last}, the best in dev {metrics[0]}")
    tuner.save(
        out / "model",
        objective,
        {"texts": len(texts), "columns": list(texts), "dev": outcome.scores},
        [Path(files["train"]).name],
    )
    result = {
        "scores": outcome.scores,
        "epoch": epoch,
        "epochs": outcome.epochs,
        "labels": list(objective.labels),
        "f1_of": positive,
        "updates": outcome.updates,
        "seconds": outcome.seconds,
    }
    write_json(out / "results.json", result)
    return f"{score_line(outcome.scores, positive)}; the model is in {out / 'model'}"


def make_objective(tables: dict[str, Table], label: str, regression: bool) -> Objective:
    """The objective of some tables, which get their values."""
    train = tables["train"]
    classes = () if regression else find_classes(train)
    for each in tables.values():
        each.values = numbers_of(each) if regression else class_indices(each, classes)
    if not regression:
        return Objective("classes", classes)
    # Scores are standardised: otherwise each scale would need a learning rate of its own.
    spread = pstdev(train.values)
    require(bool(spread), f"{train.name}: all scores are {train.values[0]:g}: nothing to learn")
    return Objective("score", (label,), shift=fmean(train.values), scale=spread)
