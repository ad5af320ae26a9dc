"""A GLUE run as a folder: checked, done, stopped, resumed, written down."""

import json
import platform
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from macaron.data.glue_tasks import TASKS
from macaron.data.progress import Progress
from macaron.decode.folder import choose_device
from macaron.errors import Interrupted, MacaronError
from macaron.tasks.classification_model import model_folder, weights_fingerprint
from macaron.tasks.classification_predict import Precision
from macaron.tasks.finetune import RunStopped
from macaron.tasks.finetune_glue import Facts, Job, WorkerSettings, candidate, look_at, submit
from macaron.tasks.finetune_results import Record, Results, averages, score_line, table, write_text
from macaron.tasks.finetune_workers import run_jobs
from macaron.train.limits import duration
from macaron.train.signals import StopSignals


@dataclass(frozen=True)
class GlueOptions:
    """What all runs of a folder share."""

    max_length: int = 256
    dropout: float | None = None
    clip_norm: float = 0.0
    precision: Precision = "auto"
    compiled: bool = False


def run_glue(
    model: Path,
    data: Path,
    out: Path,
    plan: list[Job],
    options: GlueOptions,
    resume: bool,
    device: str = "auto",
    workers: int | None = None,
) -> str:
    """Do what of the plan is not finished, then the table and the submission; returns the table."""
    if out.exists() and any(out.iterdir()) and not resume:
        raise MacaronError(f"{out} is not empty: go on with --resume, or give another --out")
    progress = Progress()
    folder = model_folder(model)
    tasks = list(dict.fromkeys(job.task for job in plan))
    facts = {name: look_at(data, TASKS[name]) for name in tasks}
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out)
    identity = {"model": weights_fingerprint(folder), **asdict(options)}
    _check_same(out, results, identity, facts)
    settings = WorkerSettings(
        folder,
        data,
        out,
        devices(device, workers),
        options.precision,
        options.max_length,
        options.dropout,
        options.compiled,
    )
    write_text(out / "run.json", json.dumps({"identity": identity, **_environment(model, data)}, indent=1) + "\n")
    left = [job for job in plan if job.name not in results.records]
    progress.say(f"{len(plan)} runs: {', '.join(tasks)}; {len(plan) - len(left)} finished, {len(left)} to do")
    for name, fact in facts.items():
        if fact.skipped:
            progress.say(f"{TASKS[name].title}: {fact.skipped} torn or unlabelled lines are skipped")
        for missing in fact.missing:
            progress.say(f"{TASKS[name].title}: no {missing}: its part of the submission is a placeholder")
    _do(left, settings, results, facts, progress, len(plan))
    return _finish(settings, results, plan, progress, str(model))


def _do(
    left: list[Job],
    settings: WorkerSettings,
    results: Results,
    facts: dict[str, Facts],
    progress: Progress,
    total: int,
) -> None:
    started, signals = time.monotonic(), StopSignals()
    updates = {job.name: job.settings.updates(facts[job.task].examples) for job in left}
    done = 0

    def best(task: str) -> float | None:
        record = results.best(task)
        return None if record is None or record["diverged"] else float(record["score"])

    def finished(job: Job, record: Record) -> None:
        nonlocal done
        known = {"data": facts[job.task].fingerprint, "constant": facts[job.task].constant}
        results.add({**record, **known}, candidate(settings.run, job.name))
        done += updates[job.name]
        share = done / sum(updates.values())
        ahead = duration((time.monotonic() - started) * (1 - share) / share)
        number = len([name for name in results.records if name in updates]) + total - len(left)
        progress.say(f"[{number}/{total}] {job.name}: {score_line(record)}; {record['seconds']:.0f} s, {ahead} left")

    try:
        with signals, progress.step("fine-tuning", "updates", sum(updates.values())) as advance:
            if left:
                run_jobs(left, settings, best, finished, lambda: signals.received, advance)
    except (RunStopped, KeyboardInterrupt):
        raise Interrupted(
            f"stopped; {len(results.records)} finished runs are kept in {results.path}. Go on with the same command "
            "and --resume: only what is missing is done."
        ) from None


def _finish(settings: WorkerSettings, results: Results, plan: list[Job], progress: Progress, title: str) -> str:
    """The table, the submission and all numbers."""
    planned = {job.name for job in plan}
    best = {name: record for name in TASKS if (record := results.best(name)) is not None}
    for name, record in best.items():
        if not (settings.run / "models" / name / "config.json").is_file():
            raise MacaronError(
                f"{settings.run / 'models' / name} is missing, the model of {record['run']}. Remove the lines of "
                f"{name} from {results.path} and go on with --resume."
            )
    shutil.rmtree(settings.run / "candidates", ignore_errors=True)
    submission = submit(settings, best, progress.say)
    summary = results.summary()
    text = table(summary, title)
    write_text(settings.run / "table.md", text)
    everything = {
        "model": title,
        "tasks": summary,
        "average": {name: each.to_dict() for name, each in averages(summary).items()},
        "submission": submission,
        "not_planned_now": sorted(set(results.records) - planned),
        "runs": list(results.records.values()),
    }
    write_text(settings.run / "results.json", json.dumps(everything, indent=1) + "\n")
    if submission["placeholders"]:
        progress.say(f"submission.zip: placeholders, not predictions, in {', '.join(submission['placeholders'])}")
    for problem in submission["problems"]:
        progress.say(f"submission.zip: {problem}")
    return text


def _check_same(out: Path, results: Results, identity: dict[str, Any], facts: dict[str, Facts]) -> None:
    """Refuse to mix runs of different models, options or data."""
    stored = out / "run.json"
    if not results.records:
        return
    before = json.loads(stored.read_text(encoding="utf-8"))["identity"] if stored.is_file() else identity
    changed = [
        f"{key} was {before.get(key)!r}, is {value!r}" for key, value in identity.items() if before.get(key) != value
    ]
    if changed:
        raise MacaronError(
            f"{out} holds runs of another kind: {'; '.join(changed)}. Use the old values, or another --out."
        )
    for record in results.records.values():
        fact = facts.get(record["task"])
        if fact is not None and record.get("data") != fact.fingerprint:
            raise MacaronError(
                f"{out}: the run {record['run']} was trained or scored on other data than --data has now. Bring them "
                "back, or give another --out."
            )


def devices(name: str, workers: int | None) -> tuple[str, ...]:
    """A device for each process: all GPUs, or some, or the CPU as often as there are workers."""
    chosen = choose_device(name)
    if chosen.type == "cuda" and chosen.index is None:
        there = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        return tuple(there[index % len(there)] for index in range(workers or len(there)))
    return (str(chosen),) * (workers or 1)


def _environment(model: Path, data: Path) -> dict[str, Any]:
    return {
        "model": str(model),
        "data": str(data),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "command": sys.argv[1:],
    }
