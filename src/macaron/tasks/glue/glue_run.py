"""A GLUE run as a folder: checked, run, stopped, resumed, its table and its submission."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import torch

from macaron.data.glue import (
    TASKS,
    as_predictions,
    expected_files,
    prediction_file,
    read_test,
    write_submission,
    wrong_sizes,
)
from macaron.device import choose_device
from macaron.errors import Interrupted, require, same_command
from macaron.files import remove, write_json, write_text
from macaron.json_files import Record, read_json
from macaron.models.load import find_folder
from macaron.processes import Progress
from macaron.seal import digest, weights_fingerprint
from macaron.settings import OTHERS
from macaron.tasks.classifier import Predictor
from macaron.tasks.glue.glue_results import GlueResults, averages, score_line, table
from macaron.tasks.glue.jobs import GlueWorker, Job, TaskFacts, inspect, run_jobs
from macaron.train.logs import environment
from macaron.train.stopping import StopSignals, time_left


class _Stamp(TypedDict):  # of predictions
    run: str
    weights: str
    texts: str
    sha256: NotRequired[str]


class _Run(TypedDict):  # run.json, as far as it is read
    identity: dict[str, Any]


def run_glue(
    model: Path, data: Path, out: Path, plan: list[Job], tuner: Record, device: str, workers: int | None
) -> str:
    """Run the unfinished part of a plan, then write the table and the submission; returns the table."""
    progress = Progress()
    folder = find_folder(model, "encoder", "language")
    tasks = list(dict.fromkeys(job.task for job in plan))
    facts = {name: inspect(data, TASKS[name]) for name in tasks}
    results = GlueResults(out)
    clip_norm = plan[0].settings.clip_norm
    identity = {"model": weights_fingerprint(folder), **tuner, "clip_norm": clip_norm}
    _check_same(out, results, identity, facts)
    glue_workers = [GlueWorker(folder, data, out, each, tuner) for each in devices(device, workers)]
    write_json(out / "run.json", {"identity": identity, "model": str(model), "data": str(data), **environment()})
    left = [job for job in plan if job.name not in results.records]
    progress.say(f"{len(plan)} runs: {', '.join(tasks)}; {len(plan) - len(left)} finished, {len(left)} to do")
    for name, fact in facts.items():
        for note in fact.notes:
            progress.say(f"{TASKS[name].title}: {note}")
    if left:
        started, signals, done = time.monotonic(), StopSignals(), 0
        updates = {job.name: job.settings.updates(facts[job.task].examples) for job in left}
        try:
            with (
                signals,
                progress.step("fine-tuning", "updates", sum(updates.values())) as advance,
                closing(run_jobs(left, glue_workers, results.best, signals.check, advance)) as runs,
            ):
                for number, (job, record) in enumerate(runs, start=1 + len(plan) - len(left)):
                    results.add({**record, **facts[job.task].known})
                    done += updates[job.name]
                    ahead = time_left(done / sum(updates.values()), time.monotonic() - started)
                    scores = score_line(record["scores"]) + (" (diverged)" if record["diverged"] else "")
                    progress.say(
                        f"[{number}/{len(plan)}] {job.name}: {scores}; {record['seconds']:.0f} s, {ahead} left"
                    )
        except KeyboardInterrupt:
            finished = (
                f"{len(results.records)} finished runs are kept in {results.path}, and only missing ones will be done"
            )
            raise Interrupted(f"stopped; {finished}. Continue with: {same_command('--resume')}") from None
    return _finish(glue_workers[0], results, plan, progress, str(model))


def _finish(worker: GlueWorker, results: GlueResults, plan: list[Job], progress: Progress, title: str) -> str:
    planned = {job.name for job in plan}
    best = {name: record for name in TASKS if (record := results.best(name)) is not None}
    for name, record in best.items():
        model = worker.run / "models" / name
        remedy = f"Remove the lines of {name} from {results.path} and continue with --resume."
        there = (model / "config.json").is_file()
        require(there, f"{model} is missing, the model of {record['run']}. {remedy}")
    remove(worker.run / "candidates")
    submission = _submit(worker, best, progress.say)
    summary = results.summary()
    text = table(summary, title)
    write_text(worker.run / "table.md", text)
    everything = {
        "model": title,
        "tasks": summary,
        "average": {name: asdict(each) for name, each in averages(summary).items()},
        "submission": submission,
        "not_planned_now": sorted(set(results.records) - planned),
        "runs": list(results.records.values()),
    }
    write_json(worker.run / "results.json", everything)
    if submission["placeholders"]:
        progress.say(f"submission.zip: placeholders, not predictions, in {', '.join(submission['placeholders'])}")
    for problem in submission["problems"]:
        progress.say(f"submission.zip: {problem}")
    return text


def _submit(worker: GlueWorker, best: dict[str, Record], say: Callable[[str], None]) -> dict[str, Any]:
    """Write the zip. Predictions that the same model made for the same texts before are reused."""
    folder = worker.run / "predictions" / "test"
    stamps = folder / "runs.json"
    known: dict[str, Any] = read_json(stamps, dict[str, _Stamp], "Remove it.") if stamps.is_file() else {}
    found: dict[str, str] = {}
    for name, record in best.items():
        task, model, predictor = TASKS[name], worker.run / "models" / name, None
        maker = {"run": record["run"], "weights": weights_fingerprint(model)}
        for wanted in task.submission:
            path = folder / wanted.name
            before = known.get(wanted.name, {}) if path.is_file() else {}
            examples = read_test(worker.data, task, wanted)
            # The test files of a resumed run may have been elsewhere.
            stamp = {**maker, **({} if examples is None else {"texts": examples.fingerprint()})}
            if {**before, **stamp} != before or before.get("sha256") != digest(path):
                if examples is None:
                    continue
                say(f"predicting {wanted.name}: {len(examples):,} examples")
                precision, longest = worker.settings["precision"], worker.settings["max_length"]
                predictor = predictor or Predictor(model, worker.device, precision, longest)
                answers = predictor.predict(examples.texts)
                rows = [each["score" if task.regression else "label"] for each in answers]
                write_text(path, prediction_file(as_predictions(task, rows) if task.regression else rows))
                known[wanted.name] = {**stamp, "sha256": digest(path)}
                write_json(stamps, known)
            found[wanted.name] = path.read_text("utf-8")
    path = worker.run / "submission.zip"
    filled = write_submission(path, found)
    return {
        "file": path.name,
        "files": {name: known[name]["run"] if name in found else "placeholder" for name in expected_files()},
        "placeholders": filled,
        "problems": wrong_sizes(found),
    }


def _check_same(out: Path, results: GlueResults, identity: dict[str, Any], facts: dict[str, TaskFacts]) -> None:
    """Refuse to mix runs of different models, options or data."""
    stored = out / "run.json"
    if not results.records:
        return
    before = read_json(stored, Annotated[_Run, OTHERS])["identity"] if stored.is_file() else identity
    changed = [
        f"{key} was {before.get(key)!r}, is {value!r}" for key, value in identity.items() if before.get(key) != value
    ]
    other = f"{out} holds runs of another kind: {'; '.join(changed)}"
    require(not changed, f"{other}. Use the old values, or another --out.")
    for record in results.records.values():
        fact = facts.get(record["task"])
        same = fact is None or record.get("data") == fact.known["data"]
        other = f"{out}: the run {record['run']} was trained or scored on other data than --data has now"
        require(same, f"{other}. Use the old data, or give another --out.")


def devices(name: str, workers: int | None) -> tuple[str, ...]:
    """A device for each process: all GPUs, some of them, or the CPU once for each worker."""
    chosen = choose_device(name)
    if chosen.type == "cuda" and chosen.index is None:
        gpus = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        return tuple(gpus[index % len(gpus)] for index in range(workers or len(gpus)))
    return (str(chosen),) * (workers or 1)
