"""Forward and backward of one micro-batch: plainly, or recorded once as a CUDA graph and then replayed.

A step of a small model is some two thousand kernels of a few microseconds each, and Python is slower than that at
launching them. A graph launches them all at once. It needs shapes and addresses that never change: packed rows have
one shape, and the gradients stay where they are (see `Optimiser`).
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

#: Steps before the recording: they compile what is compiled, and let libraries choose their kernels.
WARM_UP = 3


class Step:
    """Adds the gradients of a micro-batch to those that are there.

    :param module: called with a batch it gives the sums of the losses, the one to minimise first
    :param autocast: makes the context in which the module is called
    """

    def __init__(self, module: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        self.module, self.autocast = module, autocast

    def __call__(self, batch: Any, weight: float) -> Tensor:
        """The sums of the losses; their gradients count ``weight`` times."""
        return self.run(batch, weight)

    def run(self, batch: Any, weight: float | Tensor) -> Tensor:
        """As it is written."""
        with self.autocast():
            losses: Tensor = self.module(batch)
        torch.autograd.backward(losses[0] * weight)
        return losses.detach()


class CapturedStep(Step):
    """The same as a CUDA graph. A batch of another shape than the recorded one is run as it is written.

    Dropout draws new numbers at every replay: the generator's seed is read then, not when the graph was recorded.

    Must be called on one and the same stream, which is not the default one: a graph cannot be recorded there, and
    autograd remembers the stream of a parameter's first gradient.
    """

    def __init__(self, module: nn.Module, autocast: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__(module, autocast)
        self.calls = 0
        self.graph: torch.cuda.CUDAGraph | None = None
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)

    def __call__(self, batch: Any, weight: float) -> Tensor:
        """The sums of the losses, in a tensor that the next call overwrites."""
        self.calls += 1
        if self.calls <= WARM_UP:
            return self.run(batch, weight)
        if self.graph is None:
            self._record(batch)
        new, held = _tensors(batch), _tensors(self.batch)
        if {name: each.shape for name, each in new.items()} != {name: each.shape for name, each in held.items()}:
            return self.run(batch, weight)
        torch._foreach_copy_(list(held.values()), [new[name] for name in held])
        self.weight.fill_(weight)
        assert self.graph is not None
        self.graph.replay()
        return self.losses

    def _record(self, batch: Any) -> None:
        """Record the step; nothing is computed yet."""
        self.batch = replace(batch, **{name: each.clone() for name, each in _tensors(batch).items()})
        self.weight = torch.zeros((), device=next(self.module.parameters()).device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=torch.cuda.current_stream()):
            self.losses = self.run(self.batch, self.weight)


def precision(device: torch.device, half: bool) -> AbstractContextManager[Any]:
    """A context for forward passes: matrix products in bfloat16, or everything as it is."""
    # No cache: what it keeps would be a graph's own memory.
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False) if half else nullcontext()


def own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which a GPU works on a stream of its own, where graphs can be recorded."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


def _tensors(batch: Any) -> dict[str, Tensor]:
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, Tensor)}
