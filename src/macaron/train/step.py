"""Forward and backward of micro-batches: eagerly, or as CUDA graphs that are recorded once and then replayed.

Where the memory of a GPU does not suffice, micro-batches are computed in parts.
"""

import gc
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from macaron.device import Recording
from macaron.errors import MacaronError
from macaron.train.distributed import Processes
from macaron.train.task import MicroBatch, Task, tensors_of

T = TypeVar("T")

#: Eager steps of a shape before it is recorded: they compile the module, and let libraries choose their kernels.
WARM_UP = 3
#: Distance between the seeds of a micro-batch's parts, and the range of seeds.
_PART_SEED, _SEEDS = 0x9E3779B97F4A7C15, (1 << 64) - 1
#: What CUDA says when its own allocations fail.
_NO_MEMORY = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class TrainStep:
    """Adds the gradients of a micro-batch to the gradients of the parameters.

    :param module: called with a batch it returns the sums of the losses, the one to minimise first
    :param autocast: makes the context in which the module is called
    """

    def __init__(self, module: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self.module, self.autocast = module, autocast

    def __call__(self, batch: Any, weight: float) -> Tensor:
        """The sums of the losses; the first one's gradients are multiplied by ``weight``."""
        return self.run(batch, weight)

    def run(self, batch: Any, weight: float | Tensor) -> Tensor:
        """Run eagerly."""
        with self.autocast():
            losses: Tensor = self.module(batch)
        torch.autograd.backward(losses[0] * weight)
        return losses.detach()

    def forget(self) -> None:
        """Free what is kept from one call to the next."""


class RecordedStep(TrainStep):
    """The same as CUDA graphs, one for each shape of batch that comes more than ``WARM_UP`` times.

    Dropout draws new numbers at every replay: the generator's seed is read then, not when the graph was recorded.
    Parameters and gradients must keep their addresses (see `Optimiser`). All calls must be made on one stream that is
    not the default one: autograd remembers the stream of a parameter's first gradient.
    """

    def __init__(self, module: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__(module, autocast)
        self.calls: dict[tuple[torch.Size, ...], int] = {}
        #: The recording of a shape, and the tensors of its own into which every batch and weight are copied.
        self.recorded: dict[tuple[torch.Size, ...], tuple[Recording[Tensor], list[Tensor], Tensor]] = {}
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def __call__(self, batch: Any, weight: float) -> Tensor:
        """The sums of the losses, in a tensor that the next call overwrites."""
        given = tensors_of(batch)
        shape = tuple(each.shape for each in given.values())
        self.calls[shape] = self.calls.get(shape, 0) + 1
        if self.calls[shape] <= WARM_UP:
            return self.run(batch, weight)
        if shape not in self.recorded:
            # Replayed one after the other, all graphs can use the same memory.
            pool = next((recording.graph.pool() for recording, _, _ in self.recorded.values()), None)
            own = {name: each.clone() for name, each in given.items()}
            factor = torch.zeros((), device=next(iter(own.values())).device)
            recording = Recording(lambda: self.run(replace(batch, **own), factor), pool, release_memory=True)
            self.recorded[shape] = recording, list(own.values()), factor
        recording, tensors, factor = self.recorded[shape]
        torch._foreach_copy_(tensors, list(given.values()))
        factor.fill_(weight)
        return recording.replay()

    def forget(self) -> None:
        """Drop all graphs: their memory is theirs alone."""
        self.recorded.clear()
        self.calls.clear()


class Accumulation:
    """Adds the gradients of all micro-batches of an update, divided among the processes.

    :param step: for one micro-batch or a part of one
    """

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


def precision(device: torch.device, half: bool) -> AbstractContextManager[Any]:
    """A context for forward passes: matrix products in bfloat16 if ``half``, otherwise without autocast."""
    # No cache: a CUDA graph would keep its casts in memory of its own.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if half else nullcontext()
