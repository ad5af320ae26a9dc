"""Several processes: who am I, and what do the others say. Started by ``torchrun -m macaron train ...``."""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Processes:
    """This process among the others."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Whether this process writes files and speaks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes."""
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def any(self, flag: bool, device: torch.device) -> bool:
        """Whether any process says yes (a signal may reach only one of them)."""
        if self.world == 1:
            return flag
        value = torch.tensor([float(flag)], device=device)
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
        return bool(value.item())

    def agree(self, value: float, device: torch.device) -> float:
        """The first process's value (clocks differ)."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return float(shared.item())

    def wait(self) -> None:
        """Until all are here."""
        if self.world > 1:
            dist.barrier()

    def leave(self) -> None:
        """Give the group back."""
        if self.world > 1:
            dist.destroy_process_group()


def join(device: str) -> Processes:
    """Join the group that torchrun has started; alone if there is none."""
    if "RANK" not in os.environ or int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return Processes()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    if device == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    return Processes(dist.get_rank(), dist.get_world_size(), local)
