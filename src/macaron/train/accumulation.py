"""The gradients of an update: all its micro-batches, divided among the processes, in parts where memory is scarce."""

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from macaron.errors import MacaronError
from macaron.train.distributed import Processes
from macaron.train.step import TrainStep
from macaron.train.task import MicroBatch, Task

T = TypeVar("T")

#: Distance between the seeds of a micro-batch's parts, and the range of seeds.
_PART_SEED, _SEEDS = 0x9E3779B97F4A7C15, (1 << 64) - 1
#: What CUDA says when its own allocations fail.
_NO_MEMORY = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class Accumulation:
    """Adds the gradients of all micro-batches of an update, divided among the processes."""

    def __init__(self, task: Task, step: TrainStep, processes: Processes, device: torch.device, seed: int) -> None:
        self.task, self.step, self.processes, self.device, self.seed = task, step, processes, device, seed

    def __call__(self, group: Sequence[MicroBatch], update: int, parts: int) -> Tensor:
        """The sums of the losses of this process's share, in float64.

        :param update: its number, from 0
        :param parts: in which each micro-batch is computed: the same gradients but for rounding and dropout
        """
        module, targets = self.step.module, sum(planned.targets for planned in group)
        # FSDP averages gradients over the processes; otherwise they are summed.
        weight = (self.processes.world if isinstance(module, FSDPModule) else 1) / max(targets, 1)
        sums = torch.zeros(len(self.task.loss_names), dtype=torch.float64, device=self.device)
        turns = self.processes.turns(len(group))
        for turn, (i, counts) in enumerate(turns, start=1):
            batch = self.task.batch(group[i], self.device)
            for j, (part, real) in enumerate(self.task.parts(batch, parts), start=1):
                # Seeded by its index in the run, a part has the same dropout after a resume or in another process.
                torch.manual_seed((self.seed * 1_000_003 + update) * 4099 + i + (j - 1) * _PART_SEED & _SEEDS)
                if isinstance(module, FSDPModule):
                    module.set_requires_gradient_sync(turn == len(turns) and j == parts)
                elif not real:
                    continue
                losses = self.step(part, weight if counts and real else 0.0)
                if counts and real:
                    sums += losses
        return sums


def within_memory(
    attempt: Callable[[int], T],
    parts: int,
    task: Task,
    most: Callable[[float], float],
    free: Callable[[], object] = lambda: None,
) -> tuple[T, int]:
    """Call ``attempt(parts)``, again with twice as many parts whenever a GPU's memory has not sufficed.

    :param task: makes the parts
    :param most: the largest of the values of all processes that are here (`Processes.most`): they agree on the parts
    :param free: called before the next attempt
    :returns: what the last attempt returned, and its number of parts
    """
    if isinstance(task.module, FSDPModule):  # the other processes wait inside a layer
        return attempt(parts), parts
    while True:
        result, lacking = None, 0
        try:
            result = attempt(parts)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and not any(map(str(error).__contains__, _NO_MEMORY)):
                raise
            rows, width = task.present
            lacking = 1 + width if rows <= parts else 1
        # Not inside the clause above: an error keeps its frames, and these their tensors.
        lacking = int(most(lacking))
        if not lacking:
            return cast(T, result), parts
        result = None
        free()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if lacking > 1:
            raise MacaronError(
                f"out of memory with a single row of {lacking - 1} tokens. Leave long ones out (train.row_tokens, or "
                "train.max_length with train.batching = 'bucket'; validation data: prepare it without them), or take a "
                "smaller model.preset or train.precision = 'bfloat16'."
            )
        parts *= 2
