"""Validation: losses and scores of the present weights, the same for any number of processes, and which are better."""

import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import torch

from macaron.train.accumulation import within_memory
from macaron.train.checkpoint import RunState
from macaron.train.distributed import Processes, gathered
from macaron.train.settings import TrainSettings
from macaron.train.task import Task

#: The measured values that a metric may be; a task has one of them.
_VALUES = {"loss": ("valid_loss",), "bleu": ("valid_sacrebleu", "valid_tokenised_bleu"), "chrf": ("valid_chrf",)}
#: The metrics in messages.
TITLES = {"loss": "loss", "bleu": "BLEU", "chrf": "chrF"}


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
        count = len(task.loss_names)
        means = (value / max(found[count], 1) for value in found[:count])
        return {f"valid_{name}": mean for name, mean in zip(task.loss_names, means, strict=True)}, found[count + 1 :]

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

    def is_better(self, value: float, than: float | None) -> bool:
        """Whether a value of the metric is an improvement."""
        return than is None or (value < than if self.metric == "loss" else value > than)

    def compare(
        self, names: Iterable[str], use: Callable[[str], None], state: RunState
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Losses of several weights, and their scores if scores decide.

        :param use: fills the module with the weights of that name
        """
        losses, scores = {}, {}
        for name in names:
            use(name)
            values, counts = self.losses(state)
            losses[name] = values["valid_loss"]
            if self.metric != "loss" and math.isfinite(losses[name]):
                scores[name] = self.value(self.scores(state, counts))
        return losses, scores

    def best(self, values: dict[str, float]) -> str:
        """The name of the best of several values; the first of equals. NaN is the worst."""
        sign = 1 if self.metric == "loss" else -1
        return min(values, key=lambda name: sign * values[name] if math.isfinite(values[name]) else math.inf)
