"""The interface between the training loop and a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from macaron.train.distributed import Processes


@dataclass(frozen=True)
class MicroBatch:
    """A planned micro-batch: the number of targets its loss is summed over, and data of the task's own."""

    targets: int
    data: Any


class Task(Protocol):
    """Something to train: translation, pre-training, classification."""

    @property
    def model(self) -> nn.Module:
        """The model that is saved."""

    @property
    def module(self) -> nn.Module:
        """What is trained: called with a batch it returns the sums of the losses, the one to minimise first."""

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the sums that ``module`` returns; the first is the objective."""

    def identity(self, *, legacy: bool = False) -> dict[str, Any]:
        """What is trained on, as JSON-able values: a run is resumed with the same only.

        :param legacy: as checkpoints of format 1 hold it
        """

    def plan(self, epoch: int) -> Sequence[MicroBatch]:
        """All micro-batches of an epoch (from 1); always the same for an epoch."""

    def batch(self, planned: MicroBatch, device: torch.device) -> Any:
        """Collate a micro-batch on a device."""

    def compiled_parts(self) -> list[nn.Module]:
        """Modules worth compiling."""

    def sharded_parts(self) -> list[nn.Module]:
        """Modules that FSDP gathers one at a time; they share no weights with others."""

    def validate(self, device: torch.device, processes: Processes) -> tuple[Tensor, float]:
        """Sums of the losses over this process's share of the validation data, and its number of targets.

        All processes must call the module equally often (see `Processes.turns`).
        """

    def score(self, device: torch.device) -> dict[str, Any]:
        """Slower measures of quality (BLEU) under names that say which they are; may be empty.

        With BLEU come ``bleu_definition`` and ``bleu_sentences``, the number of sentences.
        """

    def save(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Write the model folder with these weights (named as in ``module``)."""
