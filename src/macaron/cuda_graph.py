"""Recording work on a GPU as a CUDA graph and replaying it: the one recorder, for training steps and for decoding.

A step of a small model is hundreds or thousands of kernels of a few microseconds; Python is slower than that at
launching them, a graph launches them all at once. Shapes and addresses must not change between replays.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class Recording(Generic[T]):
    """A CUDA graph of what a function launches; nothing is computed until `replay`.

    Recording is not possible on the default stream: on that one a side stream is used.
    `torch.cuda.graph` is not used: it always gives cached memory back to the driver, which is slow for many recordings.

    :param function: called once, while recording
    :param pool: the memory pool of an earlier recording that is never replayed at the same time
    :param release_memory: first give cached memory back to the driver, for large recordings
    """

    def __init__(self, function: Callable[[], T], pool: Any = None, release_memory: bool = False) -> None:
        if release_memory:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self.graph = torch.cuda.CUDAGraph()
        present = torch.cuda.current_stream()
        default = present == torch.cuda.default_stream()
        stream = _side_stream() if default else present
        stream.wait_stream(present)
        with torch.cuda.stream(stream):
            self.graph.capture_begin(*(() if pool is None else (pool,)))
            try:
                self.result = function()
            finally:
                self.graph.capture_end()
        present.wait_stream(stream)

    @property
    def pool(self) -> Any:
        """The memory pool, for further recordings."""
        return self.graph.pool()

    def replay(self) -> T:
        """Do it again; the result is in the tensors that the function returned while recording."""
        self.graph.replay()
        return self.result


def own_stream(device: torch.device) -> AbstractContextManager[Any]:
    """A context in which a GPU works on a stream of its own, where graphs can be recorded."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device))  # type: ignore[no-untyped-call]


@cache
def _side_stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
