"""Devices: which one to use, in which precision, and CUDA graphs, work on a GPU that is recorded once and replayed.

A step of a small model, in training and in decoding, is hundreds or thousands of kernels of a few microseconds each.
Launching them one by one from Python takes longer than running them; a graph launches them all at once. Shapes and
addresses must not change between replays.
"""

import ctypes
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch.nn.attention import SDPBackend

from macaron.errors import MacaronError

T = TypeVar("T")
#: PyTorch's attention without that of cuDNN. Given a mask and rows of 64 + 128 n positions, its gradients can be NaN on
#: H100 and H200 (PyTorch's issue 196678); and it makes a plan for every new shape, which takes longer than a search.
ATTENTION_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_M_MMAP_MAX, _M_TRIM_THRESHOLD = -4, -1  # of malloc.h


def choose_device(name: str | torch.device) -> torch.device:
    """The device of that name; ``auto`` is the GPU if there is one."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise MacaronError(f"no device {name!r}: choose auto, cpu, cuda or cuda:0, cuda:1, ...") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MacaronError(f"device {name}: this machine has {torch.cuda.device_count()} usable GPUs; try --device cpu")
    return device


def choose_dtype(name: str | torch.dtype) -> torch.dtype:
    """The dtype of that name."""
    known = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    dtype = known.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in known.values():
        raise MacaronError(f"unknown dtype {name!r}: choose one of {', '.join(known)}")
    return dtype


def to_device(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of a CPU tensor on a device; a GPU copies it from pinned memory without waiting."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def to_host(tensors: Sequence[torch.Tensor]) -> Callable[[], list[torch.Tensor]]:
    """Begin to copy tensors to the host; the function waits until they are there, in any thread."""
    found = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
    if not tensors[0].is_cuda:
        return lambda: found
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()

    def wait() -> list[torch.Tensor]:
        event.synchronize()
        return found

    return wait


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, for training on a CPU.

    Otherwise large tensors are returned to the system at once, and the next ones are given empty pages, one by one:
    up to a third of an update. Only the GNU C library has the setting; without it nothing changes.
    """
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def keep_compiled() -> None:
    """Let PyTorch keep what it compiles in the user's cache, unless TORCHINDUCTOR_CACHE_DIR names another folder.

    A compiled layer has the attention that was chosen when it was compiled: so one of an older version is not found.
    """
    with suppress(OSError, RuntimeError):  # no home, or nothing may be written there: then for a shorter time
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "macaron" / "compiled-without-cudnn"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


@cache
def multiplies_bfloat16() -> bool:
    """Whether this CPU has instructions that multiply bfloat16 (AVX-512 or AMX), and oneDNN may use them."""
    restricted = os.environ.keys() & {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}
    tests = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return not restricted and any(test is not None and test() for test in tests)


class Recording(Generic[T]):
    """A CUDA graph of what a function launches; nothing is computed until `replay`.

    The default stream cannot record: there, a stream of the device's own is used (see `own_stream`).
    `torch.cuda.graph` always returns cached memory to the driver, which is slow for many recordings; so it is not used.

    :param pool: the memory pool of an earlier recording (``graph.pool()``) that is never replayed at the same time
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
        shared: dict[str, Any] = {} if pool is None else {"pool": pool}
        with torch.cuda.stream(stream):
            # Other threads may wait for copies meanwhile.
            self.graph.capture_begin(**shared, capture_error_mode="thread_local")
            try:
                self.result = function()
            except BaseException:
                with suppress(RuntimeError):  # the reason is the function's error
                    self.graph.capture_end()
                raise
            self.graph.capture_end()
        present.wait_stream(stream)

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
    present, stream, interval = torch.cuda.current_stream(device), _stream(device), sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # another thread must not hold up launches, each by the usual 5 ms
    stream.wait_stream(present)
    try:
        with torch.cuda.device(device), torch.cuda.stream(stream):
            yield
    finally:
        sys.setswitchinterval(interval)
    present.wait_stream(stream)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
