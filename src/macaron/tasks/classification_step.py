"""A training step for batches of a few shapes: on a GPU each shape is recorded once as a CUDA graph."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from macaron.tasks.classification import Batch
from macaron.train.step import WARM_UP, Step

_FIELDS = ("tokens", "segments", "real", "targets", "weights")


class ShapedStep(Step):
    """Forward and backward of a batch, recorded for each shape that comes often enough.

    Parameters and gradients stay where they are, so that all runs of a process replay the same graphs: a run begins by
    copying the pre-trained weights into the parameters. Must be called on one stream that is not the default one.
    """

    def __init__(self, module: nn.Module, autocast: Any) -> None:
        super().__init__(module, autocast)
        self.calls: dict[tuple[int, ...], int] = {}
        self.graphs: dict[tuple[int, ...], _Graph] = {}
        self.pool: Any = None
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def __call__(self, batch: Batch, weight: float) -> Tensor:
        """The sum of the losses, in a tensor that the next call overwrites."""
        shape = tuple(batch.tokens.shape)
        calls = self.calls[shape] = self.calls.get(shape, 0) + 1
        if calls <= WARM_UP:
            return self.run(batch, weight)
        if shape not in self.graphs:
            self.graphs[shape] = _Graph(self, batch, self.pool)
            # One after the other they may use the same memory.
            self.pool = self.graphs[shape].graph.pool()
        return self.graphs[shape].replay(batch, weight)


class _Graph:
    def __init__(self, step: Step, batch: Batch, pool: Any) -> None:
        self.batch = replace(batch, **{name: getattr(batch, name).clone() for name in _FIELDS})
        self.weight = torch.zeros((), device=batch.tokens.device)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=pool, stream=torch.cuda.current_stream()):
            self.losses = step.run(self.batch, self.weight)

    def replay(self, batch: Batch, weight: float) -> Tensor:
        for name in _FIELDS:
            getattr(self.batch, name).copy_(getattr(batch, name))
        self.weight.fill_(weight)
        self.graph.replay()
        return self.losses
