"""What translation and pre-training have in common: epochs planned ahead, identity, layers, saving."""

from abc import ABC, abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import Tensor, nn

from macaron.data.prepared import PreparedData, PreparedText
from macaron.models import EncoderForPreTraining, TranslationModel
from macaron.models.load import save_model
from macaron.text.tokenizer import MacaronTokenizer

EpochPlan = TypeVar("EpochPlan")


class CorpusTask(ABC, Generic[EpochPlan]):
    """A task on a prepared corpus; ``EpochPlan`` is what the micro-batches of an epoch are cut from."""

    data: PreparedData | PreparedText
    model: TranslationModel | EncoderForPreTraining

    def __init__(self) -> None:
        self._planner = ThreadPoolExecutor(1, "plan")
        self._plans: dict[int, Future[EpochPlan]] = {}

    def identity(self, *, legacy: bool = False) -> dict[str, Any]:
        """The tokens.

        :param legacy: as checkpoints of format 1 hold it
        """
        digest = self.data.legacy_lengths_digest() if legacy else self.data.digest()
        return {"tokenizer": self.data.tokenizer_fingerprint, "training data": digest}

    @property
    def tokenizer(self) -> MacaronTokenizer:
        """The tokenizer that is saved with the model."""
        return self.data.tokenizer

    @abstractmethod
    def plan_epoch(self, epoch: int) -> EpochPlan:
        """Plan an epoch; the same whenever it is called. Runs in a thread."""

    def epoch_plan(self, epoch: int) -> EpochPlan:
        """The plan of an epoch. The next one is planned in the background: a GPU would have to wait for it."""
        self._plans = {
            each: self._plans.get(each) or self._planner.submit(self.plan_epoch, each) for each in (epoch, epoch + 1)
        }
        return self._plans[epoch].result()

    @property
    @abstractmethod
    def layers(self) -> list[nn.Module]:
        """The layers of the model: small graphs for the compiler, one for all layers of a stack."""

    def sharded_parts(self) -> list[nn.Module]:
        """The layers. A layer that is applied at every depth is always needed, and not sharded on its own."""
        return [] if self.model.config.tying == "depth" else self.layers

    def save(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Write the model folder: weights, configuration, tokenizer."""
        plain = {name.removeprefix("model."): tensor for name, tensor in weights.items()}
        save_model(folder, self.model, plain, self.tokenizer)


def same_text(queries: Tensor, keys: Tensor) -> Tensor:
    """Which positions of packed rows belong to one text, (B, 1, T, S), from text numbers (B, T) and (B, S)."""
    return (queries.unsqueeze(-1) == keys.unsqueeze(-2)).unsqueeze(1)
