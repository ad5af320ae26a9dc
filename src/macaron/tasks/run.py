"""A run is a folder: resolved recipe, environment, metrics, checkpoints, the model."""

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from macaron.data.prepared import data_kind
from macaron.errors import Interrupted, MacaronError
from macaron.recipe import DEFAULT_PRESETS, PURPOSES, Recipe, write_toml
from macaron.settings import read_toml
from macaron.tasks.pretraining import PretrainingTask
from macaron.tasks.translation import TranslationTask
from macaron.train import limits
from macaron.train.checkpoint import checkpoints, progress_of
from macaron.train.distributed import Processes, join
from macaron.train.failures import explained
from macaron.train.logs import note_start
from macaron.train.loop import Stopped, Trainer
from macaron.train.settings import LIMITS

# What may differ when a run is resumed: how long it goes on, what it watches, on what machine, how the model will be
# used. Whether the data are still the same is asked of the data, not of their place.
FREE_KEYS = {
    *(("train", key) for key in LIMITS),
    *(("train", key) for key in ("patience", "log_every", "keep", "tensorboard", "device", "compile", "distributed")),
    *(("decode", key) for key in ("beam", "length_penalty", "max_length", "compound_split", "lower")),
    ("pretrain", "attention"),
    ("data", "out"),
}


def run(recipe: Recipe, out: Path, resume: bool, started: float | None = None) -> bool:
    """Train a recipe in a folder, alone or as one of the processes of torchrun.

    :param started: when the run began (``time.monotonic()``), if that was before now
    :returns: whether this process is the one to write more about the run; none is if it was finished before
    """
    on_gpu = recipe.train.wants_gpu(torch.cuda.is_available())
    processes = join("cuda" if on_gpu else "cpu")
    try:
        with explained(recipe.train, out):
            return _run(recipe, out, resume, processes, started) and processes.first
    except Stopped as stop:
        raise Interrupted(str(stop)) from None
    finally:
        processes.leave()


def _run(recipe: Recipe, out: Path, resume: bool, processes: Processes, started: float | None) -> bool:
    """Whether there was anything to do."""
    _check(recipe, out, resume)
    if resume and _is_finished(recipe, out):
        if processes.first:
            print(f"{out} is finished: the model is in {out / 'model'}", file=sys.stderr)
        return False
    task = _task(recipe, processes)
    trainer = Trainer(task, recipe.train, out, processes, started)
    processes.wait()  # nobody writes before all have looked
    if processes.first:
        out.mkdir(parents=True, exist_ok=True)
        _write(out / "recipe.toml", write_toml(recipe.to_data()))
        kept = checkpoints(out / "checkpoints")
        note_start(
            out / "environment.json", {"update": progress_of(kept[-1]).update if kept else 0, **_environment(processes)}
        )
    summary = trainer.fit(resume)
    if processes.first:
        _write(out / "summary.json", json.dumps(summary, indent=1) + "\n")
    return True


def _task(recipe: Recipe, processes: Processes) -> TranslationTask | PretrainingTask:
    """What the data are for: pairs of sentences for translation, plain text for pre-training."""
    held = data_kind(recipe.data)
    if held != recipe.kind:
        what = "a text encoder" if recipe.kind == "text" else "for translation"
        raise MacaronError(
            f"{recipe.data} holds data for {PURPOSES[held]}, but model.preset {recipe.model.preset!r} is {what}. Give "
            f"other data, or take model.preset = {DEFAULT_PRESETS[held]!r}."
        )
    if held == "text":
        return PretrainingTask.from_recipe(recipe)
    task = TranslationTask.from_recipe(recipe)
    if processes.first and task.left_out():
        print(f"{task.left_out():,} training pairs are too long and left out", file=sys.stderr)
    return task


def _check(recipe: Recipe, out: Path, resume: bool) -> None:
    """Refuse a folder that holds something else."""
    if out.exists() and any(out.iterdir()) and not resume:
        raise MacaronError(f"{out} is not empty: go on with --resume, or give another --out")
    stored = out / "recipe.toml"
    if not resume or not stored.exists() or not checkpoints(out / "checkpoints"):
        return
    changed = _differences(read_toml(stored), recipe.to_data(), FREE_KEYS)
    if changed:
        raise MacaronError(
            f"{out} was started with another recipe, so it cannot be resumed with this one: {'; '.join(changed)}. "
            "Use the old values, or start a new run with another --out."
        )
    fixed = {("train", key) for key in recipe.train.fixed_limits}
    moved = _differences(read_toml(stored), recipe.to_data(), FREE_KEYS - fixed)
    if moved:
        raise MacaronError(
            f"{out} cannot be resumed with another end: {'; '.join(moved)}. Its learning rate falls towards the end "
            f"(train.schedule = {recipe.train.schedule!r}), so it would have been another from the start."
        )


def _is_finished(recipe: Recipe, out: Path) -> bool:
    """Whether a run has its model and these limits do not ask for more."""
    kept = checkpoints(out / "checkpoints")
    try:
        done = json.loads((out / "summary.json").read_text())["update"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    if not kept or not (out / "model" / "config.json").is_file():
        return False
    progress = progress_of(kept[-1])
    return bool(progress.update == done and limits.over(recipe.train, progress, progress.seconds))


def _differences(old: dict[str, Any], new: dict[str, Any], free: set[tuple[str, str]]) -> list[str]:
    found = []
    for section in sorted(set(old) | set(new)):
        before, after = old.get(section, {}), new.get(section, {})
        for key in sorted(set(before) | set(after)):
            if (section, key) not in free and before.get(key) != after.get(key):
                found.append(f"{section}.{key} was {before.get(key)!r}, is {after.get(key)!r}")
    return found


def _write(path: Path, text: str) -> None:
    """Write a file that is there entirely or as it was before."""
    aside = path.with_name(f".{path.name}.writing")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)


def _environment(processes: Processes) -> dict[str, Any]:
    packages = {}
    for name in ("macaron-net", "torch", "transformers", "tokenizers", "safetensors", "numpy", "sacrebleu"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "processes": processes.world,
        "packages": packages,
        "command": sys.argv[1:],
    }
