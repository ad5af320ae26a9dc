"""Passes over data: the gradients of an update, and validation. Both are the same for any number of processes.

Where memory is scarce, batches are computed in parts.
"""

import gc
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from macaron.errors import MacaronError
from macaron.train.checkpoint import RunState, Weights
from macaron.train.distributed import Processes, gathered
from macaron.train.optimiser import copy_weights
from macaron.train.settings import TrainSettings
from macaron.train.step import RecordedStep, TrainStep
from macaron.train.task import MicroBatch, Task

T = TypeVar("T")


class OthersLackError(Exception):
    """Another process lacks memory, as they have agreed before this one had finished; the value of their agreement."""


#: Distance between the seeds of a micro-batch's parts, and the range of seeds.
_PART_SEED, _SEEDS = 0x9E3779B97F4A7C15, (1 << 64) - 1
#: What CUDA says when its own allocations fail.
_NO_MEMORY = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
#: The measured values that a metric may be; a task has one of them.
_VALUES = {
    "loss": ("valid_loss",),
    "bleu": ("valid_sacrebleu", "valid_sacrebleu_lc", "valid_tokenised_bleu"),
    "chrf": ("valid_chrf",),
}
#: The metrics in messages.
TITLES = {"loss": "loss", "bleu": "BLEU", "chrf": "chrF"}


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
        result, lacking, agreed = None, 0.0, False
        try:
            result = attempt(parts)
        except OthersLackError as error:
            lacking, agreed = error.args[0], True
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and not any(map(str(error).__contains__, _NO_MEMORY)):
                raise
            rows, width = task.present
            lacking = 1 + width if rows <= parts else 1
        # Not inside the clause above: an error keeps its frames, and these their tensors.
        lacking = lacking if agreed else most(lacking)
        if not lacking:
            return cast(T, result), parts
        result = None
        free()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if lacking > 1:
            raise MacaronError(
                f"out of memory with a single row of {lacking - 1:.0f} tokens. Leave long ones out (train.row_tokens, "
                "or train.max_length with train.batching = 'bucket'; validation data: prepare it without them), or "
                "take a smaller model.preset or train.precision = 'bfloat16'."
            )
        parts *= 2


def accumulate(
    task: Task,
    step: TrainStep,
    group: Sequence[MicroBatch],
    processes: Processes,
    device: torch.device,
    seed: int,
    share: float,
    parts: int,
) -> tuple[Tensor, bool]:
    """Add the gradients of all micro-batches of an update that are this process's share.

    :param seed: of the update; ``share``: of the schedule, see `Task.at`
    :param parts: in which each micro-batch is computed: the same gradients but for rounding and dropout
    :returns: the sums of their losses, in float64; whether the gradients are summed over all processes already
    """
    module, targets = step.module, sum(planned.targets for planned in group)
    # FSDP averages gradients over the processes; otherwise they are summed.
    weight = (processes.world if isinstance(module, FSDPModule) else 1) / max(targets, 1)
    sums = torch.zeros(len(task.loss_names), dtype=torch.float64, device=device)
    turns, summed = processes.turns(len(group)), False
    for turn, (i, counts) in enumerate(turns, start=1):
        batch = task.at(group[i].collate(device), share)
        for j, (part, real) in enumerate(task.parts(batch, parts), start=1):
            # Seeded by its index in the run, a part has the same dropout after a resume or in another process.
            torch.manual_seed(seed + i + (j - 1) * _PART_SEED & _SEEDS)
            if isinstance(module, FSDPModule):
                module.set_requires_gradient_sync(turn == len(turns) and j == parts)
            elif not real:
                continue
            if processes.grouped and isinstance(step, RecordedStep) and turn == len(turns) and parts == 1:
                # Whoever has failed before waits in `within_memory` for the same agreement, with 1 or more.
                lacking = processes.most(0.0 if step.prepare(part) else 0.5)
                if lacking >= 1:
                    raise OthersLackError(lacking)
                summed = not lacking
            losses = step(part, weight if counts and real else 0.0, summed)
            if counts and real:
                sums += losses
    return sums, summed


class Validation:
    """Measures the weights of a task's module."""

    def __init__(
        self,
        task: Task,
        settings: TrainSettings,
        processes: Processes,
        device: torch.device,
        autocast: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        self.task, self.metric, self.processes, self.device = task, settings.best_metric, processes, device
        self.definition = ""  # of the scores that were compared
        self.autocast, self.everywhere = autocast, settings.distributed == "fsdp"

    def losses(self, state: RunState) -> tuple[dict[str, Any], list[float]]:
        """Mean losses over the validation data, and what was counted beside them, for `scores`."""
        task = self.task
        task.module.eval()
        with torch.no_grad(), self.autocast(), gathered(task.module):
            sums, state.validation_parts = within_memory(
                lambda parts: task.validate(self.device, self.processes, parts),
                state.validation_parts,
                task,
                self.processes.most,
            )
        found = self.processes.sum(sums).tolist()
        names = task.valid_names or task.loss_names
        count = len(names)
        means = (value / max(found[count], 1) for value in found[:count])
        return {f"valid_{name}": mean for name, mean in zip(names, means, strict=True)}, found[count + 1 :]

    def scores(self, state: RunState, counts: list[float]) -> dict[str, Any]:
        """BLEU and the like, of the first process and of those that must help it; empty in the others."""
        found: dict[str, Any] = {}
        parts = 1
        if self.processes.first or self.everywhere:
            with gathered(self.task.module):
                found, parts = within_memory(
                    lambda parts: self.task.score(self.device, parts, counts), state.validation_parts, self.task, float
                )
        state.validation_parts = int(self.processes.most(max(parts, state.validation_parts)))
        return found

    def value(self, values: dict[str, Any]) -> float:
        """The value of the metric that decides, the same in all processes."""
        return self.processes.most(next((values[name] for name in _VALUES[self.metric] if name in values), 0.0))

    def rank(self, value: float) -> float:
        """Where a value of the metric stands among others: the lower, the better; NaN is the worst."""
        return math.inf if not math.isfinite(value) else value if self.metric == "loss" else -value

    def compare(self, found: dict[str, Weights], state: RunState) -> list[dict[str, float]]:
        """Losses of several weights by name, scores if these decide, nll if it is measured; the module gets each."""
        losses, scores, likelihoods = (dict[str, float]() for _ in range(3))
        for name, weights in found.items():
            copy_weights(weights, self.task.module.named_parameters())
            values, counts = self.losses(state)
            losses[name] = values["valid_loss"]
            if "valid_nll" in values:
                likelihoods[name] = values["valid_nll"]
            if self.metric != "loss" and math.isfinite(losses[name]):
                measured = self.scores(state, counts)
                scores[name], self.definition = self.value(measured), measured.get(f"{self.metric}_definition", "")
        return [losses, scores, likelihoods]
