"""Forward and backward of one micro-batch: eagerly, or as CUDA graphs that are recorded once and then replayed."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import sdpa_kernel

from macaron.device import ATTENTION_KERNELS, Recording, keep_freed_memory
from macaron.nn.fused_functions import compiling
from macaron.train.distributed import Processes

#: Eager steps of a kind before it is recorded: they compile the module, and let libraries choose their kernels.
WARM_UP = 3
Autocast = Callable[[], AbstractContextManager[Any]]
Kind = tuple[Any, ...]


class TrainStep:
    """Adds the gradients of a micro-batch to the gradients of the parameters.

    :param module: called with a batch it returns the sums of the losses, the one to minimise first
    :param autocast: makes the context in which the module is called
    """

    def __init__(self, module: nn.Module, autocast: Autocast) -> None:
        self.module, self.autocast = module, autocast
        if not any(parameter.is_cuda for parameter in module.parameters()):
            keep_freed_memory()

    def __call__(self, batch: Any, weight: float | Tensor, summed: bool = False) -> Tensor:
        """The sums of the losses; the first one's gradients are multiplied by ``weight``.

        :param summed: sum all gradients over all processes meanwhile, see `prepare`
        """
        with self.autocast():
            losses: Tensor = self.module(batch)
        torch.autograd.backward(losses[0] * weight)
        return losses.detach()

    def forget(self) -> None:
        """Free what is kept from one call to the next."""


class RecordedStep(TrainStep):
    """The same as CUDA graphs, one for each kind of batch that comes more than ``WARM_UP`` times.

    With several processes there is another graph for an update's last micro-batch, which sums the gradients over all
    processes during its backward pass. A replay needs no memory, so no process waits in vain for one that has failed.

    Dropout draws new numbers at every replay: the generator's seed is read then, not when the graph was recorded.
    Parameters and gradients must keep their addresses (see `Optimiser`). All calls must be made on one stream that is
    not the default one: autograd remembers the stream of a parameter's first gradient.
    """

    def __init__(self, module: nn.Module, autocast: Autocast, processes: Processes | None = None) -> None:
        super().__init__(module, autocast)
        self.processes = processes or Processes()
        self.calls: dict[Kind, int] = {}
        #: The recording of a kind, summing or not, and the tensors into which every batch and weight are copied.
        self.recorded: dict[tuple[Kind, bool], tuple[Recording[Tensor], list[Tensor], Tensor]] = {}
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def prepare(self, batch: Any) -> bool:
        """Whether a call with this batch can sum the gradients, and needs no more memory: it is recorded if due."""
        due = self.calls.get(kind_of(batch), 0) >= WARM_UP
        if due:
            self._record(batch, summed=True)
        return due

    def __call__(self, batch: Any, weight: float | Tensor, summed: bool = False) -> Tensor:
        """The sums of the losses, in a tensor that the next call overwrites."""
        if not self.calls and getattr(self.module, "fused", False):
            self._compile(batch)
        kind = kind_of(batch)
        self.calls[kind] = self.calls.get(kind, 0) + 1
        if self.calls[kind] <= WARM_UP:
            return self._run(batch, weight)
        self._record(batch, summed)
        recording, tensors, factor = self.recorded[kind, summed]
        torch._foreach_copy_(tensors, list(tensors_of(batch).values()))
        factor.fill_(weight)
        return recording.replay()

    def _compile(self, batch: Any) -> None:
        """Compile the fused kernels of training and validation at once: one after the other they take much longer."""
        device = next(iter(tensors_of(batch).values())).device
        try:
            with torch.random.fork_rng([device]), compiling():
                self._run(batch, 0.0)
                self.module.eval()
                with torch.no_grad(), self.autocast():
                    self.module(batch)
        finally:
            self.module.train()
            # What was added is undefined, and before the first step there is nothing else.
            torch._foreach_zero_([each.grad for each in self.module.parameters() if each.grad is not None])

    def _record(self, batch: Any, summed: bool) -> None:
        """Record the step for batches of this kind, if it is not recorded yet."""
        kind = kind_of(batch), summed
        if kind in self.recorded:
            return
        # Replayed one after the other, all graphs can use the same memory.
        pool = next((recording.graph.pool() for recording, _, _ in self.recorded.values()), None)
        own = {name: each.clone() for name, each in tensors_of(batch).items()}
        factor = torch.zeros((), device=next(iter(own.values())).device)
        recording = Recording(lambda: self._run(replace(batch, **own), factor, summed), pool, release_memory=True)
        self.recorded[kind] = recording, list(own.values()), factor

    def _run(self, batch: Any, weight: float | Tensor, summed: bool = False) -> Tensor:
        """The step itself; the new gradients are added to the old ones all at once, not one by one."""
        parameters = [each for each in self.module.parameters() if each.grad is not None]
        totals = [each.grad for each in parameters]
        for each in parameters:
            each.grad = None
        try:
            if summed:
                with self.processes.summing(parameters, totals):  # type: ignore[arg-type]
                    return super().__call__(batch, weight)
            losses = super().__call__(batch, weight)
            made = [each for each in parameters if each.grad is not None]
            old = [total for each, total in zip(parameters, totals, strict=True) if each.grad is not None]
            torch._foreach_add_(old, [each.grad for each in made])  # type: ignore[arg-type, misc]
        finally:
            for each, total in zip(parameters, totals, strict=True):
                each.grad = total
        return losses

    def forget(self) -> None:
        """Drop all graphs: their memory is theirs alone."""
        self.recorded.clear()
        self.calls.clear()


@contextmanager
def precision(device: torch.device, half: bool) -> Iterator[None]:
    """A context for forward passes: matrix products in bfloat16 if ``half``, otherwise without autocast."""
    # No cache: a CUDA graph would keep its casts in memory of its own.
    products = torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if half else nullcontext()
    with products, sdpa_kernel(ATTENTION_KERNELS):
        yield


def kind_of(batch: Any) -> Kind:
    """The shapes of the tensors of a batch, and its other values: what a recording cannot change."""
    values = (getattr(batch, field.name) for field in fields(batch))
    return tuple(each.shape if isinstance(each, Tensor) else each for each in values)


def tensors_of(batch: Any) -> dict[str, Tensor]:
    """The tensors of a batch by name."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
