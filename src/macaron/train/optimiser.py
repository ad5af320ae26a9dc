"""Adam with decoupled decay, with Muon beside it if asked, the learning rate, and a running mean of the weights."""

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from macaron.errors import MacaronError
from macaron.nn.linear import Gated
from macaron.train.settings import TrainSettings


def learning_rate(settings: TrainSettings, update: int, share: float = 0.0) -> float:
    """The rate after ``update`` updates, which the next update uses (so the first runs at the warm-up's start).

    :param share: the share of the schedule that is done, for schedules that end with the run
    """
    peak, warmup = settings.learning_rate, settings.warmup
    if update < warmup:
        return settings.warmup_rate + update * (peak - settings.warmup_rate) / warmup
    if settings.schedule == "constant":
        return peak
    if settings.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / update) if warmup else peak * (update + 1) ** -0.5
    floor, share = settings.final_rate, min(max(share, 0.0), 1.0)
    left = 1 - share if settings.schedule == "linear" else (1 + math.cos(math.pi * share)) / 2
    return peak * (floor + (1 - floor) * left)


class Optimiser:
    """AdamW over all parameters of a module (the authors decay biases and norms too), with clipping and an EMA.

    With ``train.optimiser = "muon"`` the matrices inside the layers are Muon's (`Muon`).

    :param keep_gradients: set gradients to zero in place instead of freeing them: a CUDA graph needs their addresses
    """

    def __init__(self, module: nn.Module, settings: TrainSettings, keep_gradients: bool = False) -> None:
        self.settings, self.keep_gradients = settings, keep_gradients
        self.named = dict(module.named_parameters())  # tied parameters appear once
        self.trained = {name: parameter for name, parameter in self.named.items() if parameter.requires_grad}
        parts = matrices(module) if settings.optimiser == "muon" else {}
        self.muon = Muon(parts, settings.weight_decay)
        self.adam = torch.optim.AdamW(
            [{"params": [each for each in self.trained.values() if each not in parts]}],  # there may be none
            lr=settings.learning_rate,
            betas=(settings.betas[0], settings.betas[1]),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.muon.state = self.adam.state
        self.mean: dict[str, Tensor] = {}
        if settings.ema:
            self.mean = {name: parameter.detach().clone() for name, parameter in self.named.items()}

    @property
    def size(self) -> str:
        """The number of parameters, in words."""
        total, trained = (sum(p.numel() for p in each.values()) for each in (self.named, self.trained))
        return f"{total:,} parameters" + (f" ({trained:,} of them trained)" if trained < total else "")

    def step(self, rate: float, update: int) -> Tensor | None:
        """One update at this rate; returns the norm of the gradient if it is clipped."""
        norm: Tensor | None = None
        if self.settings.clip_norm:
            norm = torch.nn.utils.clip_grad_norm_(self.trained.values(), self.settings.clip_norm)
        # The authors' Adam adds epsilon to the second moment before its bias is corrected, torch's after it.
        epsilon = self.settings.epsilon / (1 - self.settings.betas[1] ** (update + 1)) ** 0.5
        for group in (*self.adam.param_groups, *self.muon.param_groups):
            group["lr"], group["eps"] = rate, epsilon
        self.adam.step()
        self.muon.step()
        self.drop_gradients()
        if self.mean:
            # A short memory at first: the mean forgets the random initial weights soon.
            decay = min(self.settings.ema, (1 + update) / (10 + update))
            with torch.no_grad():
                torch._foreach_lerp_(
                    [local(mean) for mean in self.mean.values()],
                    [local(parameter) for parameter in self.named.values()],
                    1 - decay,
                )
        return norm

    def drop_gradients(self) -> None:
        """Free all gradients, or set them to zero."""
        for each in (self.adam, self.muon):
            each.zero_grad(set_to_none=not self.keep_gradients)

    def reset(self) -> None:
        """Forget all updates; the mean starts again from the present weights."""
        self.adam.state.clear()
        for name, value in self.mean.items():
            local(value).copy_(local(self.named[name].detach()))

    def tensors(self) -> dict[str, Tensor]:
        """Moments and mean by name, on the CPU, gathered from all processes if sharded."""
        found: dict[str, Tensor] = {}
        for name, parameter in self.named.items():
            for moment, value in self.adam.state.get(parameter, {}).items():
                found[f"{name}|{moment}"] = whole(torch.as_tensor(value))
        for name, value in self.mean.items():
            found[f"{name}|mean"] = whole(value)
        return found

    def load(self, tensors: dict[str, Tensor], folder: object = "the checkpoint") -> None:
        """Restore what ``tensors`` returned."""
        adam, muon = ["exp_avg", "exp_avg_sq", "step"], ["momentum_buffer"]
        step_on = None if self.adam.defaults["fused"] else "cpu"
        for name, parameter in self.named.items():
            own = muon if parameter in self.muon.parts else adam
            moments = own if name in self.trained else []
            for kind in (*moments, *(["mean"] if self.mean else [])):
                found = tensors.get(f"{name}|{kind}")
                if found is None:
                    raise MacaronError(f"{folder}: there is no {kind} of {name!r}: it belongs to another recipe")
                expected = torch.zeros(()) if kind == "step" else parameter
                least = 0.0 if kind in ("exp_avg_sq", "step") else -math.inf
                same = (found.dtype, found.shape) == (expected.dtype, expected.shape)
                if not same or not bool(found.isfinite().all()) or float(found.min()) < least:
                    raise MacaronError(f"{folder}: {kind} of {name!r} is damaged: another shape, or impossible values")
                if kind == "mean":
                    self.mean[name] = laid_out_like(parameter, found)
                elif kind == "step":
                    self.adam.state[parameter][kind] = found.to(step_on or parameter.device)
                else:
                    self.adam.state[parameter][kind] = laid_out_like(parameter, found)


#: Muon's momentum, steps of Newton and Schulz, their coefficients, and the root mean square of an update at rate 1.
MOMENTUM, STEPS, COEFFICIENTS, RMS = 0.95, 5, (3.4445, -4.7750, 2.0315), 0.2


class Muon(torch.optim.Optimizer):
    """Momentum of matrices whose singular values are brought near one, as ``torch.optim.Muon`` with "match_rms_adamw".

    An update is as large as one of AdamW, so one learning rate and decay serve both. All matrices of one shape are
    multiplied together: on a GPU, calls for each would take longer than the products. Sharded ones are gathered by all.

    :param parts: as from `matrices`
    """

    def __init__(self, parts: dict[Tensor, int], weight_decay: float) -> None:
        super().__init__([{"params": list(parts)}], {"lr": 0.0, "weight_decay": weight_decay})
        self.parts = parts

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """One update of the matrices that have a gradient, which is overwritten."""
        (group,) = self.param_groups
        stacks: dict[tuple[int, int], list[Tensor]] = {}
        for each, count in self.parts.items():
            if each.grad is not None:
                stacks.setdefault((len(each) // count, each.shape[1]), []).append(each)
                if not self.state[each]:
                    self.state[each]["momentum_buffer"] = torch.zeros_like(each)
        for shape, weights in stacks.items():
            gradients = [each.grad for each in weights if each.grad is not None]
            updates = [local(each) for each in gradients]
            momenta = [local(self.state[each]["momentum_buffer"]) for each in weights]
            torch._foreach_lerp_(momenta, updates, 1 - MOMENTUM)
            torch._foreach_lerp_(updates, momenta, MOMENTUM)  # Nesterov's
            rows = torch.cat([each.full_tensor() if isinstance(each, DTensor) else each for each in gradients])
            turned = orthogonalised(rows.bfloat16().view(-1, *shape)).float().reshape_as(rows)
            changes = zip(weights, torch.split(turned, [len(each) for each in weights]), strict=True)
            own = [local(laid_out_like(*each)) if isinstance(each[0], DTensor) else each[1] for each in changes]
            moved = [local(each) for each in weights]
            torch._foreach_mul_(moved, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(moved, own, alpha=-RMS * math.sqrt(max(shape)) * group["lr"])


def matrices(module: nn.Module) -> dict[Tensor, int]:
    """The weights of linear maps inside the layers, and of how many matrices, one above the other, each is made."""
    found: dict[Tensor, int] = {}
    for place, operator in module.named_modules():
        gated = any(isinstance(value, Gated) for value in vars(operator).values())
        parts = {"qkv": 3, "kv": 2, **({"fc1": 2, "values": 2} if gated else {})}
        for name, each in operator.named_children() if ".sublayers." in place else ():
            if isinstance(each, nn.Linear) and each.weight.requires_grad:
                found[each.weight] = parts.get(name, 1)
    return found


def orthogonalised(stacked: Tensor) -> Tensor:
    """Matrices (N, R, C) of which the singular values are brought near one, by Newton and Schulz's iteration."""
    x = stacked.mT if stacked.shape[1] > stacked.shape[2] else stacked
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    a, b, c = COEFFICIENTS
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if stacked.shape[1] > stacked.shape[2] else x


#: Names of parts that are spread over a network, as patterns.
PARTS = {
    "attention": ("*.sublayers.F*.operator.*", "*.sublayers.H*.operator.*"),
    "ffn": ("*.sublayers.G*.operator.*",),
    "norm": ("*norm.*",),
}


def freeze(module: nn.Module, patterns: Sequence[str]) -> nn.Module:
    """Keep the weights of some parts of a module as they are: their parameters need no gradient.

    :param patterns: names of parameters or modules, patterns of names, or keys of `PARTS`
    """
    plain = {name.removeprefix("model.").removeprefix("model."): each for name, each in module.named_parameters()}
    for pattern in patterns:
        name = pattern.removeprefix("model.")  # as a pre-trained encoder's weights are called in its file
        chosen = PARTS.get(name, (name, f"{name}.*"))
        found = [weight for name, weight in plain.items() if any(fnmatchcase(name, each) for each in chosen)]
        if not found:
            parts = sorted({*PARTS, *(name.partition(".")[0] for name in plain)})
            raise MacaronError(
                f"train.freeze: {pattern!r} matches no weight of the model. There are the parts {', '.join(parts)}; "
                f"names and patterns, such as {next(iter(plain))!r} and '*.layers.0.*', will do, too"
            )
        for weight in found:
            weight.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in plain.values()):
        raise MacaronError(f"train.freeze = {list(patterns)} leaves nothing to train: leave something out")
    return module


def whole(tensor: Tensor) -> Tensor:
    """A tensor gathered from all processes if it is sharded, on the CPU."""
    if isinstance(tensor, DTensor):
        tensor = tensor.full_tensor()
    return tensor.detach().cpu().clone()


def local(tensor: Tensor) -> Tensor:
    """This process's part of a tensor; all of it if it is not sharded."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def laid_out_like(like: Tensor, value: Tensor) -> Tensor:
    """A copy of a whole tensor with the device, dtype and sharding of another."""
    value = value.to(device=like.device, dtype=like.dtype)
    if isinstance(like, DTensor):
        return distribute_tensor(value, like.device_mesh, like.placements, src_data_rank=None)  # all have the same
    return value.clone()


def copy_weights(source: dict[str, Tensor], target: Iterable[tuple[str, Tensor]]) -> None:
    """Fill parameters with weights of the same names."""
    with torch.no_grad():
        for name, parameter in target:
            parameter.copy_(laid_out_like(parameter, source[name]))
