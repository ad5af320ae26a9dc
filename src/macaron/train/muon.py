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
        gated = any(isinstance(value, Gated) for value in vars(operator).values())
        parts = {"qkv": 3, "kv": 2, **({"fc1": 2, "values": 2} if gated else {})}
        for name, each in operator.named_children() if ".sublayers." in place else ():
            if isinstance(each, nn.Linear) and each.weight.requires_grad:
                found[each.weight] = parts.get(name, 1)
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
            whole = update
            if isinstance(each, DTensor):
                mesh, placements, stride = each.device_mesh, each.placements, each.stride()
                whole = DTensor.from_local(update, mesh, placements, shape=each.shape, stride=stride).full_tensor()
            stacked = whole.view(self.parts[each], -1, each.shape[1])
            stacks.setdefault((stacked.shape[1], stacked.shape[2]), []).append((each, stacked))
        for shape, members in stacks.items():
            weights = [each for each, _ in members]
            turned = orthogonalised(torch.cat([stacked for _, stacked in members]).bfloat16()).float().contiguous()
            changes = [piece.flatten(0, 1) for piece in torch.split(turned, [len(stacked) for _, stacked in members])]
            for number, each in enumerate(weights):
                if isinstance(each, DTensor):
                    mesh, placements = each.device_mesh, each.placements
                    changes[number] = local(distribute_tensor(changes[number], mesh, placements, src_data_rank=None))
            own = [local(each) for each in weights]
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
