"""What the training loop trains: a model, its loss and its data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from macaron.data.prepared import PreparedData, PreparedText
from macaron.models import EncoderForPreTraining, LanguageModel, TranslationModel
from macaron.models.load import save_model, write_config
from macaron.nn.fused import ROWS
from macaron.nn.stack import Stack
from macaron.text.fingerprint import of_ids
from macaron.text.tokenizer import MacaronTokenizer
from macaron.train.distributed import Processes
from macaron.train.settings import TrainSettings
from macaron.train.step import tensors_of


@dataclass(frozen=True)
class MicroBatch:
    """A planned micro-batch: the number of targets its loss is summed over, and what makes it on a device."""

    targets: int
    collate: Callable[[torch.device], Any]


class Task(ABC):
    """Translation, pre-training or a language model.

    model           the model that is saved, and ``tokenizer`` with it
    module          what is trained: called with a batch it returns the sums of the losses, the one to minimise first
    loss_names      names of these sums; ``valid_names``: if validation measures only some of them
    layers          of the model: small graphs for the compiler, one for all layers of a stack
    stacks          of the model, all of its layers; ``offsets``: whether batches have those of texts in their rows
    compiled_parts  modules worth compiling, the layers among them
    sections        of an epoch: parts of a large corpus that are planned one after the other
    """

    data: PreparedData | PreparedText
    model: TranslationModel | EncoderForPreTraining | LanguageModel
    tokenizer: MacaronTokenizer
    module: nn.Module
    loss_names: tuple[str, ...]
    valid_names: tuple[str, ...] = ()
    stacks: Sequence[Stack] = ()
    offsets: bool = False
    layers: list[nn.Module]
    compiled_parts: list[nn.Module]
    sections: int = 1

    def __init__(self) -> None:
        #: Rows and width of the batch that is computed, for messages.
        self.present = (1, 0)
        self._planner = ThreadPoolExecutor(1, "plan")
        self._plans: dict[int, Future[Sequence[MicroBatch]]] = {}

    def identity(self) -> dict[str, Any]:
        """What is trained on, as JSON-able values: a run can be resumed only with the same data."""
        sections = {"sections": self.sections} if self.sections > 1 else {}
        return {"tokenizer": of_ids(self.data.tokenizer_fingerprint), "training data": self.data.digest, **sections}

    def fuse(self, settings: TrainSettings, fixed_shapes: bool, half: bool, sharded: bool) -> str:
        """Compute packed rows by fused kernels; if that is impossible, say why."""
        width = settings.row_tokens
        # Smaller GPUs lack the shared memory that our attention's backward pass needs; that of long rows is PyTorch's.
        least = (9, 0) if width in ROWS else (8, 0)
        obstacles = {
            "train.compile = on": settings.compile == "on",
            "padded batches": not fixed_shapes,
            "float32": not half,
            "FSDP": sharded,
            "this task": not self.stacks,
            "an older GPU": torch.cuda.is_available() and torch.cuda.get_device_capability() < least,
        }
        found = [name for name, there in obstacles.items() if there]
        lacks = ", ".join(found or filter(None, (stack.uncovered(width, self.offsets) for stack in self.stacks)))
        if self.stacks:
            module: Any = self.module
            module.fused = module.criterion.losses.fused = not lacks
        return lacks

    def at(self, batch: Any, share: float) -> Any:
        """A batch as it is trained on when this share of the schedule is done."""
        return batch

    @abstractmethod
    def plan_section(self, number: int) -> Sequence[MicroBatch]:
        """All micro-batches of a section; always the same for a number. Runs in a thread.

        :param number: counts all sections of all epochs, from 1
        """

    def plan(self, number: int) -> Sequence[MicroBatch]:
        """The plan of a section. The next one is planned in the background: a GPU would have to wait for it."""
        self._plans = {
            each: self._plans.get(each) or self._planner.submit(self.plan_section, each)
            for each in (number, number + 1)
        }
        return self._plans[number].result()

    def parts(self, batch: Any, count: int) -> list[tuple[Any, bool]]:
        """Cut a batch into parts, and say which count: with too few rows the first part is repeated in vain.

        So all processes compute equally many parts: sharded models communicate in each.
        """
        sizes = [tensor.shape for tensor in tensors_of(batch).values()]
        rows = sizes[0][0]
        self.present = rows, max(size[1] for size in sizes if len(size) == 2)
        if count == 1:
            return [(batch, True)]
        ends = [rows * i // min(count, rows) for i in range(min(count, rows) + 1)]
        found = [(self.cut(batch, *each), True) for each in pairwise(ends)]
        return found + [(found[0][0], False)] * (count - len(found))

    def cut(self, batch: Any, start: int, stop: int) -> Any:
        """Some rows of a batch."""
        return replace(batch, **{name: tensor[start:stop] for name, tensor in tensors_of(batch).items()})

    @abstractmethod
    def validate(self, device: torch.device, processes: Processes, parts: int) -> Tensor:
        """Of this process's share of the validation data: sums of the losses, number of targets, counts for `score`.

        All processes must call the module equally often (see `Processes.turns`); nothing else may communicate.

        :param parts: in which each batch is computed
        """

    @abstractmethod
    def score(self, device: torch.device, parts: int, counts: Sequence[float]) -> dict[str, Any]:
        """Other measures of quality (BLEU) under names that say which they are; may be empty.

        With BLEU come ``bleu_definition`` and ``bleu_sentences``, the number of sentences.

        :param parts: in which a batch of the usual size is translated
        :param counts: what `validate` has counted, summed over all processes
        """

    def save(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Write the model folder: weights (named as in ``module``), configuration, tokenizer."""
        plain = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
        save_model(folder, self.model, plain, self.tokenizer)

    def describe(self, folder: Path) -> None:
        """Write what a checkpoint needs to be used: configuration and tokenizer."""
        self.tokenizer.save_pretrained(folder)
        write_config(folder, self.model, torch.float32)


def same_text(queries: Tensor, keys: Tensor) -> Tensor:
    """Which positions of packed rows belong to one text, (B, 1, T, S), from text numbers (B, T) and (B, S)."""
    return (queries.unsqueeze(-1) == keys.unsqueeze(-2)).unsqueeze(1)
