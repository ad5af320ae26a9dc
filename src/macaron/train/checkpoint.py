"""Checkpoints: a folder of safetensors and JSON, written aside and renamed. Nothing is ever unpickled."""

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from macaron.errors import MacaronError

FORMAT = 1


@dataclass
class Progress:
    """Where a run stands; with the weights and the optimiser's moments it is all there is to resume from.

    Random numbers need no state: every micro-batch seeds its own from the run's seed, the update and its place.
    """

    update: int = 0
    epoch: int = 1
    batch: int = 0  # micro-batches of this epoch that are done
    seconds: float = 0.0
    best_update: int | None = None
    best_loss: float | None = None
    validations_without_gain: int = 0


def save(
    folder: Path, weights: dict[str, Tensor], optimiser: dict[str, Tensor], progress: Progress, **extra: Any
) -> None:
    """Write a checkpoint so that it is there entirely or not at all."""
    from safetensors.torch import save_file

    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(f".{folder.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, aside / "weights.safetensors")
        save_file({name: tensor.contiguous() for name, tensor in optimiser.items()}, aside / "optimiser.safetensors")
        state = {"format": FORMAT, "progress": asdict(progress), **extra}
        (aside / "state.json").write_text(json.dumps(state, indent=1))
        for path in aside.iterdir():
            _sync(path)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise MacaronError(
            f"{folder}: the checkpoint could not be written ({error.strerror or error}); the last one is untouched. "
            "Free some space and go on with --resume."
        ) from error
    if folder.exists():
        # Written before and now again (a run that was resumed from an earlier one): the old one makes way last.
        old = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        folder.rename(old)
        aside.rename(folder)
        shutil.rmtree(old)
    else:
        aside.rename(folder)
    _sync(folder.parent)


def load(folder: Path) -> tuple[dict[str, Tensor], dict[str, Tensor], Progress, dict[str, Any]]:
    """Read a checkpoint: weights, optimiser's tensors, progress, and whatever else was saved."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        state = json.loads((folder / "state.json").read_text())
        weights = load_file(folder / "weights.safetensors")
        optimiser = load_file(folder / "optimiser.safetensors")
        if state.pop("format") != FORMAT:
            raise MacaronError(f"{folder}: a checkpoint of another version of Macaron")
        return weights, optimiser, Progress(**state.pop("progress")), state
    except (OSError, SafetensorError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise MacaronError(
            f"{folder}: not a whole checkpoint ({error}). Remove this folder to resume from the one before it."
        ) from error


def weights_of(folder: Path) -> dict[str, Tensor]:
    """The weights alone."""
    return load(folder)[0]


def checkpoints(folder: Path) -> list[Path]:
    """All whole checkpoints in a folder, oldest first. Folders left by a crash while writing begin with a dot."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if path.name.startswith("update-") and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("update-")))


def checkpoint_path(folder: Path, update: int) -> Path:
    """Where the checkpoint of an update lives."""
    return folder / f"update-{update:08d}"


def average(folders: list[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for folder in folders:
        for name, tensor in weights_of(folder).items():
            kinds[name] = tensor.dtype
            total[name] = tensor.double() + total[name] if name in total else tensor.double()
    return {name: (tensor / len(folders)).to(kinds[name]) for name, tensor in total.items()}


def _sync(path: Path) -> None:
    """Make sure that what was written survives a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
