"""A device with little memory: batches above a size raise torch's own error for it, as CUDA's allocator does."""

from typing import Any, Literal

import torch
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from macaron.nn.stack import Stack

Where = Literal["forward", "backward", "validation"]


def small_device(positions: int, where: Where = "forward") -> RemovableHandle:
    """From now on no network of this process can compute more than this many positions at once.

    :param where: in the forward or backward pass of training, or in validations
    :returns: its ``remove`` restores the memory
    """

    def refuse(*_: Any) -> None:
        raise torch.OutOfMemoryError(f"the memory of this device is enough for {positions} positions")

    def check(module: Any, _: Any, states: Any) -> None:
        if not isinstance(module, Stack) or states.shape[:-1].numel() <= positions:
            return
        if module.training and where == "backward":
            states.register_hook(refuse)
        elif module.training == (where == "forward"):
            refuse()

    return register_module_forward_hook(check)
