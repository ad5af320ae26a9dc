"""Fine-tuning on a user's own TSV or CSV files: a run folder with the classifier, its curve and its scores."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from macaron.data.tabular import Table, class_indices, find_classes, numbers_of
from macaron.errors import Interrupted, MacaronError
from macaron.files import check_unused, remove_leftovers, write_json, write_text
from macaron.locks import LOCK
from macaron.processes import Progress
from macaron.tasks.classification import FineTuning, Objective, usual_rate
from macaron.tasks.finetune import FineTuner
from macaron.tasks.glue.glue_results import score_line
from macaron.train.stopping import StopSignals

#: The files of an unfinished run, which the next start may replace; its model where its settings are.
_UNFINISHED = {"settings.json", "metrics.jsonl", "report.html", LOCK}


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
    cut = data.truncated + held.truncated
    classes = f"{len(objective.labels)} classes: {', '.join(objective.labels)[:200]}"
    progress.say(
        f"{len(data):,} examples, {len(held):,} to score on; {f'a score, {label}' if regression else classes}"
        + (f"; {cut:,} are longer than {tuner.max_length} tokens and cut" if cut else "")
    )
    if choose_rate:
        rate, reason = usual_rate(tuner.model.config.hidden_size, settings.updates(len(data)))
        settings = replace(settings, learning_rate=rate)
        progress.say(f"learning rate {rate:g} ({reason}; --learning-rate sets another)")
    files = {name: table.name for name, table in tables.items()}
    described = {**files, "texts": list(texts), "label": label, **asdict(settings)}
    write_json(out / "settings.json", described)
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
    if outcome.diverged:
        raise MacaronError(
            f"the loss was not finite in epoch {len(outcome.epochs)}: try a lower --learning-rate or --clip-norm 1"
        )
    epoch = outcome.kept or len(outcome.epochs)
    progress.say(f"kept epoch {epoch} of {len(outcome.epochs)}, the best in dev {metrics[0]}")
    tuner.save(out / "model", objective, {"texts": len(texts), "columns": list(texts), "dev": outcome.scores})
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
    if not spread:
        raise MacaronError(f"{train.name}: all scores are {train.values[0]:g}: nothing to learn")
    return Objective("score", (label,), shift=fmean(train.values), scale=spread)
