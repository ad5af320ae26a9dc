"""Distributed training: this process among the others, and how the model is distributed.

Started by ``torchrun --standalone --nproc-per-node N -m macaron train ...``; so is ``translate --corpus``.
"""

import gc
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

_BUCKET = 1 << 23  # gradients that are summed at once


@dataclass(frozen=True)
class Processes:
    """This process among the others.

    :param grouped: whether there is a process group; torchrun can start a group of one
    """

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    grouped: bool = False

    @property
    def first(self) -> bool:
        """Whether this process writes files and logs."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.grouped:
            dist.all_reduce(values)
        return values

    def agree(self, stop: bool, seconds: float) -> tuple[bool, float]:
        """Whether any process was asked to stop (a signal may reach only one), and the first one's clock.

        The CPUs communicate here; no GPU is synchronised.
        """
        if not self.grouped:
            return stop, seconds
        values = torch.tensor([float(stop), seconds if self.first else 0.0], dtype=torch.float64)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return bool(values[0]), float(values[1])

    def most(self, value: float) -> float:
        """The largest of all processes' values; the CPUs communicate."""
        if not self.grouped:
            return value
        values = torch.tensor(value, dtype=torch.float64)
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return float(values)

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum gradients over all processes, in place, some megabytes at a time."""
        for bucket in _buckets([parameter.grad for parameter in parameters if parameter.grad is not None]):
            _unflatten(self.sum(_flattened(bucket)), bucket)

    @contextmanager
    def summing(self, parameters: Sequence[nn.Parameter], totals: Sequence[Tensor]) -> Iterator[None]:
        """A context for a backward pass: its gradients are added to these totals, which are summed over all processes.

        Each bucket is sent in the background as soon as its gradients are there, in an order that is the same in all
        processes. The backward pass reaches the last parameters first.
        """
        total_of = dict(zip(parameters, totals, strict=True))
        buckets = _buckets(list(parameters)[::-1])
        number_of = {each: number for number, bucket in enumerate(buckets) for each in bucket}
        missing = [len(bucket) for bucket in buckets]
        sent: list[tuple[Any, Tensor, list[Tensor]]] = []

        def send() -> None:
            made = [each for each in buckets[len(sent)] if each.grad is not None]
            if made:
                torch._foreach_add_([total_of[each] for each in made], [each.grad for each in made])
            own = [total_of[each] for each in buckets[len(sent)]]
            flat = _flattened(own)
            sent.append((dist.all_reduce(flat, async_op=True), flat, own))

        def note(parameter: Tensor) -> None:
            missing[number_of[parameter]] -= 1
            while len(sent) < len(buckets) and not missing[len(sent)]:
                send()

        hooks = [each.register_post_accumulate_grad_hook(note) for each in parameters]  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        while len(sent) < len(buckets):  # some parameters have had no gradient
            send()
        for work, flat, own in sent:
            work.wait()
            _unflatten(flat, own)

    def gather(self, content: bytes) -> list[bytes]:
        """What every process gives, by rank; the CPUs communicate."""
        if not self.grouped:
            return [content]
        sizes = torch.zeros(self.world, dtype=torch.long)
        sizes[self.rank] = len(content)
        most = int(self.sum(sizes).max())
        padded = torch.frombuffer(bytearray(content.ljust(most + 1)), dtype=torch.uint8)
        found = [torch.empty_like(padded) for _ in range(self.world)]
        dist.all_gather(found, padded)
        return [each.numpy().tobytes()[:size] for each, size in zip(found, sizes.tolist(), strict=True)]

    def wait(self) -> None:
        """Wait until all processes are here."""
        self.agree(False, 0.0)

    def turns(self, count: int) -> list[tuple[int, bool]]:
        """Divide ``count`` items among the processes: for each turn of this process the item, and whether it counts.

        All processes take the same number of turns, because sharded models communicate in each. A process that has no
        item left repeats the first one, which then does not count.
        """
        rounds = -(-count // self.world)
        mine = [turn * self.world + self.rank for turn in range(rounds)]
        return [(i, True) if i < count else (0, False) for i in mine]


def _buckets(tensors: list[Any]) -> list[list[Any]]:
    """The tensors in groups, each of about as many numbers as are summed at once."""
    ends = itertools.accumulate(each.numel() for each in tensors)
    numbered = zip((end // _BUCKET for end in ends), tensors, strict=True)
    return [[each for _, each in group] for _, group in itertools.groupby(numbered, key=itemgetter(0))]


def _flattened(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.flatten() for each in tensors])


def _unflatten(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    pieces = torch.split(flat, [each.numel() for each in tensors])
    torch._foreach_copy_(list(tensors), [piece.view_as(own) for piece, own in zip(pieces, tensors, strict=True)])


@contextmanager
def join(on_gpu: bool) -> Iterator[Processes]:
    """A context in which this process is one of torchrun's process group; without torchrun it is alone.

    Under torchrun even one process is a group. Inside another such context the group is used that exists. Objects that
    communicate must be gone at the end.
    """
    one = int(os.environ.get("WORLD_SIZE", "1")) == 1 and "TORCHELASTIC_RUN_ID" not in os.environ
    if "RANK" not in os.environ or one:
        yield Processes()
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    opens = not dist.is_initialized()
    if opens:
        if on_gpu:
            torch.cuda.set_device(local)
        # Processes that torchrun has started again must not find the addresses of the ended ones in its store.
        store, rank, world = next(rendezvous("env://"))
        store = PrefixStore(f"start {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), local, grouped=True)
    finally:
        if opens:
            gc.collect()
            dist.destroy_process_group()


def distribute(
    module: nn.Module, parts: list[nn.Module], how: Literal["ddp", "fsdp"], processes: Processes, device: torch.device
) -> None:
    """Prepare a module for distributed training, in place.

    With ``ddp`` the gradients are summed during the last backward pass only where memory cannot run out any more
    (`Processes.summing`), otherwise after it (`Processes.sum_gradients`): if memory runs out in one process, the others
    must not wait for it inside a collective.

    :param parts: the modules that FSDP gathers one at a time
    """
    if not processes.grouped:
        return
    if how == "fsdp":
        # Imported late: it imports sympy, and fine-tuned models are used without it.
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (processes.world,))
        for part in parts:
            fully_shard(part, mesh=mesh)
        fully_shard(module, mesh=mesh)  # in place: the module becomes an FSDPModule
    else:
        for parameter in module.parameters():
            dist.broadcast(parameter.detach(), 0)


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """A context in which the parts of a sharded module may be called directly.

    Afterwards everything is sharded again: gathered weights would not follow changes of the shards.
    """
    from torch.distributed.fsdp import FSDPModule

    if not isinstance(module, FSDPModule):
        yield
        return
    module.unshard()
    try:
        yield
    finally:
        module.reshard()
