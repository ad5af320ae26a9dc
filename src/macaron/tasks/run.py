"""A run is a folder: resolved recipe, environment, metrics, checkpoints, the model."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from macaron.errors import MacaronError, require
from macaron.files import check_unused, remove_leftovers, write_json, write_text, writing
from macaron.json_files import Record, read_json
from macaron.models.load import write_card
from macaron.recipe import Recipe, manifest, recipe_from
from macaron.settings import load_toml, located, write_toml
from macaron.tasks.auto import kept, resolve
from macaron.tasks.card import run_card
from macaron.tasks.language_model import LanguageModelTask
from macaron.tasks.pretraining import PretrainingTask
from macaron.tasks.start import fill, fill_embeddings, with_source
from macaron.tasks.translation import TranslationTask
from macaron.train import stopping
from macaron.train.checkpoint import checkpoints, run_state
from macaron.train.distributed import Processes, join
from macaron.train.failures import explained
from macaron.train.logs import environment, note_start
from macaron.train.loop import Trainer
from macaron.train.pace import Pace, fit, measure
from macaron.train.settings import LIMITS, TaskName

# Settings that may change on resume: the run's length, its log, the machine, how the model will be used. The data is
# compared by its tokens and weights, not by its path.
FREE_KEYS = {
    *(("train", key) for key in LIMITS),
    *(("train", key) for key in ("patience", "log_every", "keep", "tensorboard", "device", "compile", "distributed")),
    *(("decode", key) for key in ("beam", "length_penalty", "max_length", "compound_split", "lower")),
    ("data", "out"),
    ("data", "train"),
}


@located
def run(recipe: Recipe, out: Path, resume: bool, started: float | None = None) -> bool:
    """Train a recipe in a folder, alone or as one of the processes of torchrun.

    :param started: when the run began (``time.monotonic()``); default: now
    :returns: whether this process should write the report; no process if the run has ended before, with a report
    """
    with (
        join(recipe.train.wants_gpu(torch.cuda.is_available())) as processes,
        explained(recipe.train, out),
        writing(out) if processes.first else nullcontext(),
    ):
        if not resume:
            check_unused(out)
        stored = out / "recipe.toml"
        before = recipe_from(*load_toml(stored)) if resume and stored.is_file() else None
        recipe = with_source(recipe, before)
        if before is None:
            recipe = resolve(recipe, recipe.train.wants_gpu(torch.cuda.is_available()), _say(processes))
        else:  # what was chosen when the run began
            recipe = kept(recipe, before)
            if checkpoints(out / "checkpoints"):
                _check(recipe, before, out)
        if resume and _is_finished(recipe, out):
            if processes.first:
                print(f"{out} is finished: the model is in {out / 'model'}", file=sys.stderr)
            # The report is written last; the process may have been killed before.
            report, ended = out / "report.html", (out / "summary.json").stat().st_mtime_ns
            return processes.first and not (report.is_file() and report.stat().st_mtime_ns >= ended)
        _train(recipe, out, resume, before is None, processes, started)
        return processes.first


def finished(recipe: Recipe, out: Path) -> bool:
    """Whether a run has ended; a folder of another recipe is refused."""
    stored = out / "recipe.toml"
    if not stored.is_file():
        return False
    before = recipe_from(*load_toml(stored))
    recipe = kept(recipe, before)
    if checkpoints(out / "checkpoints"):
        _check(recipe, before, out)
    return _is_finished(recipe, out)


def pace_of(recipe: Recipe, seconds: float) -> Pace:
    """The pace of a recipe on this machine, from a trial of some seconds; nothing is written."""
    with join(recipe.train.wants_gpu(torch.cuda.is_available())) as processes:
        return measure(Trainer(_task(recipe, processes), recipe.train, Path(), processes), seconds)


def _say(processes: Processes) -> Callable[[str], None]:
    return (lambda text: print(text, file=sys.stderr, flush=True)) if processes.first else (lambda _: None)


def _train(recipe: Recipe, out: Path, resume: bool, fresh: bool, processes: Processes, started: float | None) -> None:
    """Train and write the run's files. The trainer is freed at the end of this function, before the process group."""
    task = _task(recipe, processes)
    if isinstance(task, TranslationTask):  # the corpora that the data hold, whatever the recipe names
        recipe = replace(recipe, weights={each.path: each.weight for each in task.corpora if each.path})
    if not (resume and checkpoints(out / "checkpoints")):
        if recipe.model.source is not None:
            _say(processes)(fill(task, recipe))
        elif recipe.train.embeddings == "counts":
            _say(processes)(fill_embeddings(task, recipe.train.seed))
    trainer = Trainer(task, recipe.train, out, processes, started)
    if fresh:
        fit(trainer, {key for section, key in recipe.given if section == "train"}, _say(processes))
        recipe = replace(recipe, train=trainer.settings)
    processes.wait()  # nothing is written before all have read the folder
    if processes.first:
        remove_leftovers(out)
        write_text(out / "recipe.toml", write_toml(recipe.to_data()))
        kept = checkpoints(out / "checkpoints")
        update = run_state(kept[-1]).update if kept else 0
        note_start(out / "environment.json", {"update": update, "processes": processes.world, **environment()})
    summary = trainer.fit(resume)
    if processes.first:
        write_card(out / "model", run_card(recipe, task.model, summary))
        write_json(out / "summary.json", summary)


#: The class of each task.
_TASKS: dict[TaskName, Callable[[Recipe], TranslationTask | PretrainingTask | LanguageModelTask]] = {
    "translation": TranslationTask,
    "pre-training": PretrainingTask,
    "language-model": LanguageModelTask,
}


def _task(recipe: Recipe, processes: Processes) -> TranslationTask | PretrainingTask | LanguageModelTask:
    manifest(recipe)
    task = _TASKS[recipe.task](recipe)
    if not isinstance(task, TranslationTask):
        return task
    if processes.first and (left := len(task.train_pairs) - task.kept):
        print(f"{left:,} training pairs are too long and left out", file=sys.stderr)
    if processes.first and len(task.corpora) > 1:
        print("\n".join(f"corpus {corpus}" for corpus in task.corpora), file=sys.stderr)
    return task


def _check(recipe: Recipe, before: Recipe, out: Path) -> None:
    """Refuse to resume a run with another recipe than it had before."""
    old, new = _by_key(before.to_data()), _by_key(recipe.to_data())
    differences = {
        key: f"{'.'.join(key)} was {old.get(key)!r}, is {new.get(key)!r}"
        for key in sorted({*old, *new})
        if old.get(key) != new.get(key)
    }
    free = {key for key in FREE_KEYS if key[0] != "decode" or recipe.train.best_metric == "loss"}
    changed = [text for key, text in differences.items() if key not in free]
    other = f"{out} was started with another recipe, so it cannot be resumed with this one: {'; '.join(changed)}"
    remedy = "Use the old values, or start a new run with another --out."
    require(not changed, f"{other}. {remedy}")
    moved = [differences["train", key] for key in recipe.train.fixed_limits if ("train", key) in differences]
    schedule, begins = f"the learning rate (train.schedule = {recipe.train.schedule!r})", recipe.train.consistency_from
    length = f"{out} cannot be resumed with another length: {'; '.join(moved)}"
    require(not moved, f"{length}. It decides {'when train.consistency begins' if begins else schedule}. {remedy}")


def _is_finished(recipe: Recipe, out: Path) -> bool:
    """Whether a run has its model and has reached these limits."""
    kept = checkpoints(out / "checkpoints")
    try:
        done = read_json(out / "summary.json", Record).get("update")
    except (FileNotFoundError, MacaronError):
        return False
    if not kept or not (out / "model" / "config.json").is_file():
        return False
    state = run_state(kept[-1])
    return bool(state.update == done and stopping.over(recipe.train, state, state.seconds))


def _by_key(sections: dict[str, dict[str, Any]]) -> dict[tuple[str, str], Any]:
    return {(name, key): value for name, values in sections.items() for key, value in values.items()}
