"""CUDA graphs: work on a GPU that is recorded once and replayed, for training steps and for decoding.

A step of a small model is hundreds or thousands of kernels of a few microseconds each. Launching them one by one from
Python takes longer than running them; a graph launches them all at once. Shapes and addresses must not change between
replays.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Generic, TypeVar

import torch

T = TypeVar("T")


class Recording(Generic[T]):
    """A CUDA graph of what a function launches; nothing is computed until `replay`.

    The default stream cannot record: there, a stream of the device's own is used (see `own_stream`).
    `torch.cuda.graph` always returns cached memory to the driver, which is slow for many recordings; so it is not used.

    :param function: called once, while recording
    :param pool: the memory pool of an earlier recording that is never replayed at the same time
    :param release_memory: return cached memory to the driver first, for large recordings
    """

    def __init__(self, function: Callable[[], T], pool: Any = None, release_memory: bool = False) -> None:
        if release_memory:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        self.graph = torch.cuda.CUDAGraph()
        present = torch.cuda.current_stream()
        stream = _stream(present.device) if present == torch.cuda.default_stream() else present
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
        """Run the graph; the result is in the tensors that the function returned while recording."""
        self.graph.replay()
        return self.result


@contextmanager
def own_stream(device: torch.device) -> Iterator[None]:
    """A context in which a GPU works on a stream of its own, always the same one, on which graphs can be recorded."""
    if device.type != "cuda":
        yield
        return
    present, stream = torch.cuda.current_stream(device), _stream(device)
    stream.wait_stream(present)
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield
    present.wait_stream(stream)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
