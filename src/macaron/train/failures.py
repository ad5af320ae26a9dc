"""What a user can do when a run fails: too little memory, a full disk, a lost process."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from macaron.errors import FULL, Interrupted, MacaronError, ProcessLost, resume_command
from macaron.train.settings import TrainSettings

_MEMORY_WORDS = ("can't allocate memory", "not enough memory", "cannot allocate memory", "bad_alloc", "bad allocation")


@contextmanager
def memory_explained(message: str) -> Iterator[None]:
    """A context in which running out of memory raises this message."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if (
            isinstance(error, MemoryError | torch.OutOfMemoryError)
            or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
            or (isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _MEMORY_WORDS))
        ):
            raise MacaronError(message) from error
        raise


@contextmanager
def loss_explained(remedy: str) -> Iterator[None]:
    """A context in which a lost process raises a message with this remedy."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.distributed.DistError) or "gloo/" in str(error):  # gloo has no exception class
            raise ProcessLost(f"another process of this run has ended. See its message, and {remedy}") from error
        raise


@contextmanager
def explained(settings: TrainSettings, run: Path) -> Iterator[None]:
    """A context in which too little memory or disk, or a lost process, becomes a message that says what to change."""
    half = max(1, settings.batch_tokens // 2)
    memory = (
        f"out of memory with train.batch_tokens = {settings.batch_tokens}. About the same global batch in less "
        f"memory: --set train.batch_tokens={half} --set train.accumulate={2 * settings.accumulate} (a new run: these "
        "settings change what it learns). If the model itself is too large: a smaller model.preset, or several GPUs "
        "with train.distributed = 'fsdp'."
    )
    try:
        with memory_explained(memory), loss_explained(f"continue from the last checkpoint with: {resume_command(run)}"):
            yield
    except OSError as error:
        if error.errno in FULL:
            raise disk_full(run, run, error) from error
        raise
    except MacaronError as error:
        full = isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL
        if full and (run / "recipe.toml").is_file() and resume_command(run) not in str(error):
            raise MacaronError(f"{error} Then continue with: {resume_command(run)}") from error
        raise
    except KeyboardInterrupt as stop:  # at once: before the first update, or by a second Ctrl-C
        if not (run / "recipe.toml").is_file():
            raise
        by = str(stop) or "stopped by Ctrl-C"
        raise Interrupted(f"{by}; continue from the last checkpoint with: {resume_command(run)}") from None


def not_finite(what: str, when: str, weights: dict[str, Tensor], kept: list[Path]) -> MacaronError:
    """The message for numbers that are not finite."""
    bad = [name for name, tensor in weights.items() if not tensor.isfinite().all()]
    affected = f"weights that are not finite: {len(bad)}, first {bad[0]}" if bad else "all weights finite"
    left = f"The last good checkpoint is {kept[-1]}." if kept else "No checkpoint had been written yet."
    return MacaronError(
        f"{what} is not finite at or before {when}; {affected}. {left} Try a lower train.learning_rate, a longer "
        "train.warmup or train.clip_norm=1."
    )


def disk_full(run: Path, what: Path, error: Exception) -> MacaronError:
    """The message for a failed write of a run."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return MacaronError(
        f"{what} could not be written ({reason}). Earlier checkpoints are untouched: free some space and continue "
        f"with: {resume_command(run)}"
    )
