"""What the loop knows of a task."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from macaron.train.distributed import Processes


@dataclass(frozen=True)
class Piece:
    """A micro-batch before it is made: ``targets`` is what its loss is summed over, ``data`` is the task's own."""

    targets: int
    data: Any


class Task(Protocol):
    """Something to train: translation, pre-training, classification."""

    @property
    def model(self) -> nn.Module:
        """What is saved."""

    @property
    def module(self) -> nn.Module:
        """What is trained: called with a batch it gives the sums of the losses, the one to minimise first."""

    @property
    def loss_names(self) -> tuple[str, ...]:
        """Names of the sums that ``module`` returns; the first is the objective."""

    def identity(self) -> dict[str, Any]:
        """What is trained on, as JSON-able values: a run goes on with the same only."""

    def plan(self, epoch: int) -> Sequence[Piece]:
        """All micro-batches of an epoch (from 1), the same whenever asked."""

    def batch(self, piece: Piece, device: torch.device) -> Any:
        """Make a micro-batch on a device."""

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

        With BLEU come ``bleu_definition`` and ``bleu_sentences``, of how many sentences it is.
        """

    def save(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Write the model folder with these weights (named as in ``module``)."""
