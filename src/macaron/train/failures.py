"""What a user can do when a run fails: too little memory, a full disk, a loss that is not finite."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from macaron.errors import MacaronError, ProcessLost
from macaron.train.settings import TrainSettings

_MEMORY_WORDS = ("can't allocate memory", "not enough memory", "cannot allocate memory", "bad_alloc", "bad allocation")


@contextmanager
def explained(settings: TrainSettings, run: Path) -> Iterator[None]:
    """A context in which too little memory or disk becomes a message that says what to change."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise _out_of_memory(settings) from error
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise _out_of_memory(settings) from error
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise disk_full(run, error) from error
        raise
    except RuntimeError as error:
        if any(words in str(error).lower() for words in _MEMORY_WORDS):
            raise _out_of_memory(settings) from error
        if isinstance(error, torch.distributed.DistError) or "gloo/" in str(error):  # gloo raises no class of its own
            raise ProcessLost(
                "another process of this run has ended. See what it said, and go on from the last checkpoint with "
                "--resume."
            ) from error
        raise


def disk_full(what: Path, error: Exception) -> MacaronError:
    """Something could not be written."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return MacaronError(
        f"{what} could not be written ({reason}). Checkpoints written before are untouched: free some space and go "
        "on with --resume."
    )


def _out_of_memory(settings: TrainSettings) -> MacaronError:
    half = max(1, settings.batch_tokens // 2)
    return MacaronError(
        f"out of memory with train.batch_tokens = {settings.batch_tokens}. About the same global batch in less "
        f"memory: --set train.batch_tokens={half} --set train.accumulate={2 * settings.accumulate} (a new run: these "
        "decide what it learns). If the model itself is too large: a smaller model.preset, or several GPUs with "
        "train.distributed = 'fsdp'."
    )


def not_finite(what: str, where: str, weights: list[str], kept: list[Path]) -> MacaronError:
    """A loss that is not finite.

    :param weights: names of those that are not finite either
    :param kept: the checkpoints that there are
    """
    affected = f"weights that are not finite: {len(weights)}, first {weights[0]}" if weights else "all weights finite"
    left = f"The last good checkpoint is {kept[-1]}." if kept else "No checkpoint had been written yet."
    return MacaronError(
        f"{what} is not finite at or before {where}; {affected}. {left} Try a lower train.learning_rate, a longer "
        "train.warmup or train.clip_norm=1."
    )
