"""Adam with decoupled decay, with Muon beside it if asked, the learning rate, and a running mean of the weights."""

import math
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from macaron.errors import MacaronError
from macaron.train.distributed import local
from macaron.train.muon import Muon, matrices
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

    With ``train.optimiser = "muon"`` the matrices inside the layers are Muon's (`macaron.train.muon`).

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
        for group in self.adam.param_groups:
            group["lr"], group["eps"] = rate, epsilon
        self.muon.param_groups[0]["lr"] = rate
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
        step_on = None if self.adam.defaults["fused"] else "cpu"
        for name, parameter in self.named.items():
            moments: tuple[str, ...] = (
                ("momentum_buffer",) if parameter in self.muon.parts else ("exp_avg", "exp_avg_sq", "step")
            )
            moments = moments if name in self.trained else ()
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


def laid_out_like(like: Tensor, value: Tensor) -> Tensor:
    """A copy of a whole tensor with the device, dtype and sharding of another."""
    value = value.to(device=like.device, dtype=like.dtype)
    if isinstance(like, DTensor):
        return distribute_tensor(value, like.device_mesh, like.placements)
    return value.clone()


def copy_weights(source: dict[str, Tensor], target: Iterable[tuple[str, Tensor]]) -> None:
    """Fill parameters with weights of the same names."""
    with torch.no_grad():
        for name, parameter in target:
            parameter.copy_(laid_out_like(parameter, source[name]))
