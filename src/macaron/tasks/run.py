"""A run is a folder: resolved recipe, environment, metrics, checkpoints, the model."""

import json
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from macaron.errors import Interrupted, MacaronError
from macaron.settings import read_toml
from macaron.tasks.recipe import Recipe, write_toml
from macaron.tasks.translation import TranslationTask
from macaron.train.checkpoint import checkpoints
from macaron.train.distributed import Processes, join
from macaron.train.loop import Stopped, Trainer

# What may differ when a run is resumed: how long it goes on, what it watches, on what machine.
FREE_KEYS = {
    ("train", key)
    for key in (
        *("max_updates", "max_epochs", "max_minutes", "patience", "log_every", "keep", "tensorboard"),
        *("device", "compile", "distributed"),
    )
} | {("decode", key) for key in ("beam", "length_penalty", "max_length", "compound_split", "lower")}


def run(recipe: Recipe, out: Path, resume: bool, started: float | None = None) -> None:
    """Train a recipe in a folder, alone or as one of the processes of torchrun."""
    wants_gpu = recipe.train.device != "cpu" and torch.cuda.is_available()
    processes = join("cuda" if wants_gpu else "cpu")
    try:
        _open(recipe, out, resume, processes)
        task = TranslationTask.from_recipe(recipe)
        if processes.first and task.left_out():
            print(f"{task.left_out():,} training pairs are too long and left out", file=sys.stderr)
        summary = Trainer(task, recipe.train, out, processes, started).fit(resume)
        if processes.first:
            (out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
    except Stopped as stop:
        raise Interrupted(str(stop)) from None
    finally:
        processes.leave()


def _open(recipe: Recipe, out: Path, resume: bool, processes: Processes) -> None:
    """Check what is in the folder, and write the recipe there."""
    stored = out / "recipe.toml"
    if out.exists() and any(out.iterdir()) and not resume:
        raise MacaronError(f"{out} is not empty: go on with --resume, or give another --out")
    if resume and stored.exists():
        changed = _differences(read_toml(stored), recipe.to_data())
        if changed and checkpoints(out / "checkpoints"):
            raise MacaronError(
                f"{out} was started with another recipe, so it cannot be resumed with this one: {'; '.join(changed)}. "
                "Use the old values, or start a new run with another --out."
            )
    processes.wait()  # nobody writes before all have looked
    if processes.first:
        out.mkdir(parents=True, exist_ok=True)
        stored.write_text(write_toml(recipe.to_data()))
        (out / "environment.json").write_text(json.dumps(_environment(processes), indent=1) + "\n")


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    found = []
    for section in sorted(set(old) | set(new)):
        before, after = old.get(section, {}), new.get(section, {})
        for key in sorted(set(before) | set(after)):
            if (section, key) not in FREE_KEYS and before.get(key) != after.get(key):
                found.append(f"{section}.{key} was {before.get(key)!r}, is {after.get(key)!r}")
    return found


def _environment(processes: Processes) -> dict[str, Any]:
    packages = {}
    for name in ("macaron-net", "torch", "transformers", "tokenizers", "safetensors", "numpy", "sacrebleu"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "gpu": gpu,
        "processes": processes.world,
        "packages": packages,
        "command": sys.argv[1:],
    }
