"""Which device to use, and the number of CPU cores."""

import os
from typing import TYPE_CHECKING

from macaron.errors import MacaronError

if TYPE_CHECKING:
    import torch


def choose_device(name: "str | torch.device") -> "torch.device":
    """The device of that name; ``auto`` is the GPU if there is one."""
    import torch

    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise MacaronError(f"no device {name!r}: choose auto, cpu, cuda or cuda:0, cuda:1, ...") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise MacaronError(f"device {name}: this machine has {torch.cuda.device_count()} usable GPUs; try --device cpu")
    return device


def available_cores() -> int:
    """The CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def choose_dtype(name: "str | torch.dtype") -> "torch.dtype":
    """The number format of that name."""
    import torch

    known = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    dtype = known.get(name) if isinstance(name, str) else name
    if dtype is None or dtype not in known.values():
        raise MacaronError(f"no number format {name!r}: choose one of {', '.join(known)}")
    return dtype
