"""Muon for the matrices inside the layers (Jordan et al., 2024): momentum whose singular values are brought near one.

A matrix is the weight of a linear map inside a layer. Maps that the network keeps as one, such as those to queries,
keys and values or the halves of a gated network, are matrices of their own. Embeddings, tables, norms, biases, heads
and weighted branches are not matrices.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from macaron.nn.linear import Gated
from macaron.train.distributed import local

MOMENTUM, STEPS, COEFFICIENTS = 0.95, 5, (3.4445, -4.7750, 2.0315)
#: The root mean square of an update is that of AdamW (Liu et al., 2025): one learning rate and decay serve both.
RMS = 0.2


def matrices(module: nn.Module) -> dict[Tensor, int]:
    """The weights that Muon trains, and of how many matrices, one above the other, each is made."""
    found: dict[Tensor, int] = {}
    for place, operator in module.named_modules():
        for name, each in operator.named_children() if ".sublayers." in place else ():
            if isinstance(each, nn.Linear):
                gated = isinstance(
                    getattr(operator, {"fc1": "activation", "values": "gate"}.get(name, ""), None), Gated
                )
                found[each.weight] = 2 if gated else {"qkv": 3, "kv": 2}.get(name, 1)
    return found


class Muon(torch.optim.Optimizer):
    """As `torch.optim.Muon` with ``adjust_lr_fn="match_rms_adamw"``; all matrices of one shape are multiplied at once.

    On a GPU, calls for each matrix would take longer than the products. A sharded matrix is gathered by all processes.

    :param parts: as from `matrices`
    """

    def __init__(self, parts: Mapping[Tensor, int], weight_decay: float) -> None:
        super().__init__([{"params": list(parts)}], {"lr": 0.0, "weight_decay": weight_decay})
        self.parts = parts

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of the matrices that have a gradient."""
        (group,) = self.param_groups
        moved = [each for each in group["params"] if each.grad is not None]
        if not moved:
            return
        for each in moved:
            if not self.state[each]:
                self.state[each]["momentum_buffer"] = torch.zeros_like(each)
        gradients = [local(each.grad) for each in moved]
        momenta = [local(self.state[each]["momentum_buffer"]) for each in moved]
        torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
        updates = torch._foreach_lerp(gradients, momenta, MOMENTUM)  # Nesterov's
        stacks: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = {}
        for each, update in zip(moved, updates, strict=True):
            stacked = _gathered(update, each).bfloat16().view(self.parts[each], -1, each.shape[1])
            stacks.setdefault((stacked.shape[1], stacked.shape[2]), []).append((each, stacked))
        for shape, members in stacks.items():
            turned = orthogonalised(torch.cat([stacked for _, stacked in members])).float()
            weights, pieces = (
                [each for each, _ in members],
                torch.split(turned, [len(stacked) for _, stacked in members]),
            )
            own = [local(each) for each in weights]
            changes = [_own_part(piece.flatten(0, 1), each) for each, piece in zip(weights, pieces, strict=True)]
            torch._foreach_mul_(own, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(own, changes, alpha=-RMS * math.sqrt(max(shape)) * group["lr"])


def orthogonalised(stacked: Tensor) -> Tensor:
    """Matrices (N, R, C) of which the singular values are brought near one, by Newton and Schulz's iteration."""
    x = stacked.mT if stacked.shape[1] > stacked.shape[2] else stacked
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if stacked.shape[1] > stacked.shape[2] else x


def _gathered(part: Tensor, like: Tensor) -> Tensor:
    if not isinstance(like, DTensor):
        return part
    return DTensor.from_local(
        part, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    ).full_tensor()


def _own_part(whole: Tensor, like: Tensor) -> Tensor:
    if not isinstance(like, DTensor):
        return whole
    return local(distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None))
