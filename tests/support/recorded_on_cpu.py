"""Recorded steps on a CPU: a replay computes again what was recorded. So processes can share what GPUs do."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from macaron.train import loop, step
from macaron.train.distributed import Processes
from macaron.train.optimiser import Optimiser


class _Recording:
    lacking = False

    def __init__(self, function: Callable[[], Any], pool: Any = None, release_memory: bool = False) -> None:
        if _Recording.lacking:
            _Recording.lacking = False
            raise torch.OutOfMemoryError("the memory of this device is not enough for a recording")
        self.replay, self.graph = function, SimpleNamespace(pool=lambda: None)


class _Step(step.RecordedStep):
    """The trainer makes it without its processes, as it does a plain step."""

    def __init__(self, module: Any, autocast: Any) -> None:
        super().__init__(module, autocast, _Step.processes_of_the_run)

    processes_of_the_run: Processes

    def __call__(self, batch: Any, weight: Any, summed: bool = False) -> Any:
        if summed:
            print("summed during the backward pass", file=sys.stderr)
        return super().__call__(batch, weight, summed).clone()


class _Optimiser(Optimiser):
    def __init__(self, module: Any, settings: Any, keep_gradients: bool) -> None:
        super().__init__(module, settings, keep_gradients=True)


def recorded_on_cpu(lacking: bool) -> None:
    """From now on all steps of training in this process are recorded.

    :param lacking: there is not enough memory for the first recording
    """
    original, _Recording.lacking = loop.distribute, lacking

    def distribute(module: Any, parts: Any, how: Any, processes: Processes, device: Any) -> None:
        _Step.processes_of_the_run = processes
        original(module, parts, how, processes, device)

    changes = {"TrainStep": _Step, "Optimiser": _Optimiser, "distribute": distribute}
    for name, value in changes.items():
        setattr(loop, name, value)
    step.Recording = _Recording  # type: ignore[assignment, misc]
