"""Checkpoints: folders of safetensors and JSON, written aside and renamed. Nothing is ever unpickled.

checkpoints/update-00001200/    complete state after an update: weights, the optimiser's moments, where the run stands
checkpoints/best-00001000/      the weights that had the lowest validation loss so far
"""

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from macaron.errors import MacaronError
from macaron.train.failures import disk_full

FORMAT = 1
_NAME = re.compile(r"update-(\d{8,})")
_WEIGHTS, _MOMENTS, _STATE = "weights.safetensors", "optimiser.safetensors", "state.json"


@dataclass
class Progress:
    """Where a run stands; with the weights and the optimiser's moments it is all there is to resume from.

    Random numbers need no state: every micro-batch seeds its own from the run's seed, the update and its place.
    """

    update: int = 0
    epoch: int = 1
    batch: int = 0  # micro-batches of this epoch that are done ...
    batches: int = 0  # ... of so many
    seconds: float = 0.0
    best_update: int | None = None
    best_loss: float | None = None
    validations_without_gain: int = 0
    log_losses: list[float] = field(default_factory=list)  # sums since the last line of the log ...
    log_targets: int = 0  # ... over so many targets


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds.

    :param identity: what the run trains on; it goes on with the same only
    :param scheduled: whether it was due at this update, or written because the run was stopped or over here
    """

    weights: dict[str, Tensor]
    moments: dict[str, Tensor]
    progress: Progress
    identity: dict[str, Any]
    scheduled: bool = True


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint so that it is there entirely or not at all."""
    aside = folder.with_name(f".{folder.name}.writing")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir()
        save_file(_contiguous(checkpoint.weights), aside / _WEIGHTS)
        save_file(_contiguous(checkpoint.moments), aside / _MOMENTS)
        state = {
            "format": FORMAT,
            "progress": asdict(checkpoint.progress),
            "identity": checkpoint.identity,
            "scheduled": checkpoint.scheduled,
        }
        (aside / _STATE).write_text(json.dumps(state, indent=1) + "\n")
        for path in (*aside.iterdir(), aside):
            _sync(path)
        if folder.exists():  # written before a crash, and now again
            remove(folder)
        aside.rename(folder)
        _sync(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise disk_full(folder, error) from error


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint."""
    state = _read_state(folder)
    try:
        return Checkpoint(
            weights=load_file(folder / _WEIGHTS),
            moments=load_file(folder / _MOMENTS),
            progress=Progress(**state["progress"]),
            identity=dict(state["identity"]),
            scheduled=bool(state["scheduled"]),
        )
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise _broken(folder, error) from error


def progress_of(folder: Path) -> Progress:
    """Where the run stood at a checkpoint, without reading its tensors."""
    try:
        return Progress(**_read_state(folder)["progress"])
    except (KeyError, TypeError) as error:
        raise _broken(folder, error) from error


def weights_of(folder: Path) -> dict[str, Tensor]:
    """The weights alone."""
    _read_state(folder)
    try:
        weights: dict[str, Tensor] = load_file(folder / _WEIGHTS)
        return weights
    except (OSError, SafetensorError) as error:
        raise _broken(folder, error) from error


def checkpoints(folder: Path) -> list[Path]:
    """All checkpoints in a folder, oldest first. What a crash left half written has another name."""
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=lambda path: int(path.name.removeprefix("update-")))


def scheduled(folder: Path) -> bool:
    """Whether a checkpoint was due at its update."""
    return bool(_read_state(folder).get("scheduled"))


def checkpoint_path(folder: Path, update: int) -> Path:
    """Where the checkpoint of an update lives."""
    return folder / f"update-{update:08d}"


def best_path(folder: Path, update: int) -> Path:
    """Where the best weights live, if they are those of this update."""
    return folder / f"best-{update:08d}"


def prune(folder: Path, keep: int, best_update: int | None) -> None:
    """Remove what is no longer needed: all but the newest and the last ``keep`` scheduled ones, and the best weights.

    A checkpoint that was not scheduled goes as soon as there is a newer one, so that a run that was stopped and one
    that was not keep the same checkpoints (and average the same).
    """
    older = checkpoints(folder)[:-1]
    due = [path for path in older if scheduled(path)]
    room = keep - 1
    wanted = due[-room:] if room > 0 else []
    best = None if best_update is None else best_path(folder, best_update)
    for path in (*older, *folder.glob("best-*")):
        if path not in wanted and path != best:
            remove(path)


def to_average(folder: Path, count: int) -> list[Path]:
    """The last ``count`` checkpoints: the newest, and before it those that were scheduled."""
    found = checkpoints(folder)
    return [*(path for path in found[:-1] if scheduled(path)), *found[-1:]][-count:] if count else []


def clear_leftovers(folder: Path) -> None:
    """Remove what a crash left half written or half removed."""
    for path in folder.glob(".*") if folder.is_dir() else ():
        if path.name.endswith((".writing", ".removed")):
            shutil.rmtree(path, ignore_errors=True)


def remove(folder: Path) -> None:
    """Remove a checkpoint; it never looks like one while it is half gone."""
    aside = folder.with_name(f".{folder.name}.removed")
    shutil.rmtree(aside, ignore_errors=True)
    folder.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)


def average(folders: list[Path]) -> dict[str, Tensor]:
    """The mean of several checkpoints' weights, summed in float64."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for folder in folders:
        for name, tensor in weights_of(folder).items():
            kinds[name] = tensor.dtype
            total[name] = tensor.double() + total[name] if name in total else tensor.double()
    return {name: (tensor / len(folders)).to(kinds[name]) for name, tensor in total.items()}


def _read_state(folder: Path) -> dict[str, Any]:
    try:
        state = json.loads((folder / _STATE).read_text())
    except (OSError, ValueError) as error:
        raise _broken(folder, error) from error
    if not isinstance(state, dict) or "format" not in state:
        raise _broken(folder, f"{_STATE} is not one of ours")
    if state["format"] != FORMAT:
        raise MacaronError(
            f"{folder}: a checkpoint of format {state['format']!r}, this version of Macaron reads {FORMAT}. Go on with "
            "the version that wrote it, or start a new run with another --out."
        )
    return state


def _broken(folder: Path, reason: object) -> MacaronError:
    return MacaronError(
        f"{folder}: not a whole checkpoint ({reason}). Remove this folder to resume from the one before it."
    )


def _contiguous(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _sync(path: Path) -> None:
    """Make sure that what was written survives a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_same(folder: Path, found: Checkpoint, shapes: dict[str, tuple[int, ...]], identity: dict[str, Any]) -> None:
    """Refuse a checkpoint of another model or of other data.

    :param shapes: of the weights that are wanted, by name
    :param identity: what is trained on now, see `Task.identity`
    """
    theirs = {name: tuple(tensor.shape) for name, tensor in found.weights.items()}
    if theirs != shapes:
        odd = sorted(name for name in {*shapes, *theirs} if shapes.get(name) != theirs.get(name))[0]
        raise MacaronError(f"{folder}: another model's: {odd!r} differs. Start a new run with another --out.")
    for key in sorted({*identity, *found.identity}):
        if identity.get(key) != found.identity.get(key):
            raise MacaronError(
                f"{folder}: the run trained on something else: {key} was {found.identity.get(key)!r}, is "
                f"{identity.get(key)!r}. Bring it back, or start a new run with another --out."
            )
