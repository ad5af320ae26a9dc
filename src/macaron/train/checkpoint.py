"""Checkpoints: folders of safetensors and JSON, written atomically. Nothing is ever unpickled.

checkpoints/update-00001200/    complete state after an update: weights, the optimiser's moments, the run's state
checkpoints/best-00001000/      the best weights so far, by train.best_metric

Each has the model's configuration and tokenizer beside it, so that it can be used (see `macaron.models.load`).
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from macaron.errors import MacaronError
from macaron.files import atomic_folder, remove
from macaron.json_files import Count, Real, Record, conforming, read_json
from macaron.limits import Between
from macaron.models.load import CHECKPOINT_WEIGHTS
from macaron.models.load import checkpoints as checkpoints  # noqa: PLC0414 - handed on
from macaron.seal import check, seal
from macaron.train.failures import disk_full

FORMAT = 4
Weights = dict[str, Tensor]
_MOMENTS, _STATE = "optimiser.safetensors", "state.json"
_Parts = Annotated[int, Between(1, 4096)]


@dataclass
class RunState:
    """How far a run has come. With the weights and the optimiser's moments it is all that resuming needs.

    Random numbers need no state: every micro-batch seeds its own from the run's seed, the update and its index.
    """

    update: Count = 0
    epoch: Annotated[int, Between(1, 2**30)] = 1  # with the seed, itself below 2**31, it seeds NumPy: below 2**32
    batch: Count = 0  # finished micro-batches of this section of the epoch
    batches: Count = 0  # all micro-batches of this section
    section: Count = 0
    sections: Annotated[int, Between(1, 2**30)] = 1  # of an epoch
    seconds: Annotated[float, Between(0, 1e10)] = 0.0
    best_update: Count | None = None
    best_value: Real | None = None  # of train.best_metric
    validations_without_gain: Count = 0
    parts: _Parts = 1  # in which a micro-batch is computed, because memory did not suffice for all of it
    validation_parts: _Parts = 1  # likewise, in validations
    log_losses: list[Real] = field(default_factory=list)  # sums since the last logged line
    log_targets: Count = 0  # targets since the last logged line

    def finish(self, batches: int) -> bool:
        """Count finished micro-batches; whether the epoch ends with them."""
        self.batch += batches
        if self.batch < self.batches:
            return False
        self.section, self.batch, self.batches = (self.section + 1) % self.sections, 0, 0
        self.epoch += self.section == 0
        return self.section == 0


#: A `RunState` as it is stored: with all keys.
_Stored = TypedDict("_Stored", get_type_hints(RunState, include_extras=True))  # type: ignore[misc]


class _StateFile(TypedDict):
    """state.json."""

    format: int
    progress: _Stored
    identity: Record
    scheduled: bool


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint.

    :param identity: what the run trains on, see `Task.identity`
    :param scheduled: it was due at this update; otherwise it was written because the run stopped or ended here
    """

    weights: Weights
    moments: dict[str, Tensor]
    state: RunState
    identity: dict[str, Any]
    scheduled: bool = True


def save(folder: Path, checkpoint: Checkpoint, describe: Callable[[Path], None] = lambda _: None) -> None:
    """Write a checkpoint atomically.

    :param describe: writes the model's configuration and tokenizer into a folder
    """
    state = {
        "format": FORMAT,
        "progress": asdict(checkpoint.state),
        "identity": checkpoint.identity,
        "scheduled": checkpoint.scheduled,
    }
    with atomic_folder(folder) as partial:
        try:
            for name, tensors in ((CHECKPOINT_WEIGHTS, checkpoint.weights), (_MOMENTS, checkpoint.moments)):
                save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, partial / name)
            (partial / _STATE).write_text(json.dumps(state, indent=1) + "\n")
            describe(partial)
            seal(partial)
        except (OSError, SafetensorError) as error:
            raise disk_full(folder.parents[1], folder, error) from error


def load(folder: Path, *, weights: bool = True, moments: bool = True) -> Checkpoint:
    """Read a checkpoint, with or without its tensors; a damaged one raises a message with the remedy."""
    remedy = _remedy(folder)
    wanted = {_STATE: True, CHECKPOINT_WEIGHTS: weights, _MOMENTS: moments}
    check(folder, None if all(wanted.values()) else [name for name, read in wanted.items() if read], remedy)
    try:
        head: Record = read_json(folder / _STATE, Record, remedy)
        if head.get("format") != FORMAT:
            raise MacaronError(
                f"{folder}: a checkpoint of format {head.get('format')}, this version reads {FORMAT}. Resume "
                "with the version that wrote it, or start a new run with another --out."
            )
        found: _StateFile = conforming(_StateFile, head, folder / _STATE, remedy)
        state = RunState(**found["progress"])
        if state.batch > state.batches:
            raise ValueError("progress.batch is above progress.batches")
        if state.section >= state.sections:
            raise ValueError("progress.section must be below progress.sections")
        if folder.name.partition("-")[2] != f"{state.update:08d}":
            raise ValueError(f"progress.update is {state.update}")
        return Checkpoint(
            weights=load_file(folder / CHECKPOINT_WEIGHTS) if weights else {},
            moments=load_file(folder / _MOMENTS) if moments else {},
            state=state,
            identity=found["identity"],
            scheduled=found["scheduled"],
        )
    # safetensors raises nearly anything for a damaged file.
    except (OSError, SafetensorError, LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise MacaronError(f"{folder}: not a complete checkpoint ({error}). {remedy}") from error


def _remedy(folder: Path) -> str:
    """What can be done if a checkpoint is damaged."""
    found = checkpoints(folder.parent)
    others = [path.name for path in found if path != folder]
    if folder not in found or not others:
        return "Copy the folder again, or start a new run with another --out."
    return f"Remove {folder}: the run is then resumed from {others[-1]}."


def run_state(folder: Path) -> RunState:
    """The run's state at a checkpoint, without reading its tensors."""
    return load(folder, weights=False, moments=False).state


def best_path(folder: Path, update: int) -> Path:
    """The path of the best weights, if they are those of this update."""
    return folder / f"best-{update:08d}"


def forget_lost_best(folder: Path, state: RunState) -> str:
    """Forget the best weights if their folder is gone; returns what to say of it.

    A run that is resumed from an older checkpoint, because a later one was damaged, has lost what was best before.
    """
    if state.best_update is None or (lost := best_path(folder, state.best_update)).is_dir():
        return ""
    state.best_update = state.best_value = None
    return f"; {lost} is missing: the best weights will be chosen among those to come"


def lasting(folder: Path, count: int) -> list[Path]:
    """The last ``count`` checkpoints: the newest, and before it those that were scheduled.

    One that was not scheduled does not count as soon as there is a newer one, so that a run that was stopped and one
    that was not keep the same checkpoints and average the same.
    """
    found = checkpoints(folder)
    due = [path for path in found[:-1] if load(path, weights=False, moments=False).scheduled]
    return [*due, *found[-1:]][-count:] if count else []


def prune(folder: Path, keep: int, best_update: int | None) -> None:
    """Remove all checkpoints but the last ``keep`` (see `lasting`), and the best weights."""
    wanted = lasting(folder, keep)
    wanted += [] if best_update is None else [best_path(folder, best_update)]
    for path in (*checkpoints(folder), *checkpoints(folder, "best")):
        if path not in wanted:
            remove(path)


def candidates(folder: Path, state: RunState, last: Weights, mean: Weights, average: int) -> dict[str, Weights]:
    """All weights that may become the final model, by name."""
    found = {"last": last}
    if state.best_update is not None and state.best_update != state.update:
        found["best"] = load(best_path(folder, state.best_update), moments=False).weights
    kept = lasting(folder, average)
    if len(kept) > 1:
        found[f"average of {len(kept)}"] = average_of(kept)
    if mean:
        found["running mean"] = mean
    return found


def average_of(folders: list[Path]) -> Weights:
    """The mean of several checkpoints' weights, summed in float64."""
    total: Weights = {}
    for folder in folders:
        weights = load(folder, moments=False).weights
        for name, tensor in weights.items():
            total[name] = tensor.double() + total[name] if name in total else tensor.double()
    return {name: (total[name] / len(folders)).to(tensor.dtype) for name, tensor in weights.items()}


def require_same(
    folder: Path, found: Checkpoint, shapes: dict[str, tuple[int, ...]], identity: dict[str, Any], losses: int
) -> None:
    """Refuse a checkpoint of another model or of other data.

    :param losses: number of losses that are logged
    """
    if len(found.state.log_losses) != losses:
        raise MacaronError(f"{folder / _STATE}: progress.log_losses must have {losses} numbers. {_remedy(folder)}")
    theirs = {name: tuple(each.shape) for name, each in found.weights.items() if each.is_floating_point()}
    if theirs != shapes:
        odd = sorted(name for name in {*shapes, *theirs} if shapes.get(name) != theirs.get(name))[0]
        raise MacaronError(f"{folder}: another model's: {odd!r} differs. Start a new run with another --out.")
    for key in sorted({*identity, *found.identity}):
        if identity.get(key) != found.identity.get(key):
            raise MacaronError(
                f"{folder}: the run was trained on something else: {key} was {found.identity.get(key)!r}, is "
                f"{identity.get(key)!r}. Use the old data, or start a new run with another --out."
            )
