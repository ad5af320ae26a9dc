"""Widths from a parameter budget: networks of different schemes have the same number of parameters.

A layer may apply an operator several times. Untied, each application has its own weights and a share of the width:
k feed-forward networks have 1/k of the inner width each, k attentions keep their heads and have 1/k of the head width.
Tied applications share one sub-layer of full width.

The remaining difference (norms, biases, rounding) is small: Macaron has 3 D parameters a layer more than the
Transformer. For schemes of many sub-steps it is not small; their feed-forward networks are made narrower instead.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from macaron.errors import MacaronError
from macaron.limits import MODEL_SIZES, Between
from macaron.ode import Scheme, integrator

TOLERANCE = 0.005  # twins agree within 0.5 %
ACTIVATION_NAMES = ("relu", "gelu", "gelu_new", "silu")
_CHOICES = {"norm": ("pre", "post"), "tying": ("none", "layer", "depth"), "initializer": ("xavier", "kaiming")}


@dataclass(frozen=True, kw_only=True)
class LayerSettings:
    """Everything about a layer that is not its scheme. Model configurations extend it.

    :param head_size: width of an attention head; by default hidden size / heads
    :param intermediate_size: inner width of the feed-forward networks of *one layer in total*
    :param inner_sizes: their exact inner widths, in order of application, instead of shares of that total: for
        converted networks, whose widths are given
    :param integrator: how a sub-step is integrated: euler, midpoint, heun, rk3, rk4
    :param tying: none; layer: applications of an operator within a layer share weights; depth: one field for all
    :param activation: relu, gelu, gelu_new, silu or a function, or one for each feed-forward network of a layer
    :param initializer: xavier or kaiming, both as in the authors' code
    """

    hidden_size: int = 512
    num_attention_heads: int = 4
    head_size: int | None = None
    intermediate_size: int = 2048
    inner_sizes: tuple[int, ...] | None = None
    integrator: str = "euler"
    tying: str = "none"
    norm: str = "pre"
    norm_affine: bool = True
    layer_norm_eps: float = 1e-5
    activation: str | Callable[[Any], Any] | Sequence[str] = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    initializer: str = "xavier"
    bias: bool = True

    def __post_init__(self) -> None:
        for name, most in MODEL_SIZES.items():
            value = getattr(self, name, None)
            if value is not None:
                Between(0 if name.endswith("_layers") else 1, most).check(name, value)
        for size in self.inner_sizes or ():
            Between(1, MODEL_SIZES["intermediate_size"]).check("inner_sizes", size)
        if self.hidden_size % self.num_attention_heads and self.head_size is None:
            raise MacaronError(
                f"hidden_size ({self.hidden_size}) is not a multiple of num_attention_heads "
                f"({self.num_attention_heads}): change one of them or give head_size"
            )
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise MacaronError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise MacaronError(f"{name} must be between 0 and 1, not {getattr(self, name)}")
        if not 0 < self.layer_norm_eps < math.inf:
            raise MacaronError(f"the epsilon of a norm must be positive, not {self.layer_norm_eps}")
        given = [self.activation] if isinstance(self.activation, str) or callable(self.activation) else self.activation
        for activation in given:
            if not callable(activation) and activation not in ACTIVATION_NAMES:
                raise MacaronError(f"no activation {activation!r}; choose one of {', '.join(ACTIVATION_NAMES)}")
        integrator(self.integrator)


def sublayer_parameters(settings: LayerSettings, operator: str, width: int) -> int:
    """Parameters of one sub-layer with its norm; ``width`` is the head width of F and H, the inner width of G."""
    hidden, bias = settings.hidden_size, int(settings.bias)
    norm = hidden * (1 + bias) if settings.norm_affine else 0
    if operator == "G":
        return norm + 2 * hidden * width + bias * (width + hidden)
    inner = settings.num_attention_heads * width
    return norm + 4 * hidden * inner + bias * (3 * inner + hidden)


def full_width(settings: LayerSettings, operator: str) -> int:
    """The undivided width of an operator: inner width for G, head width for F and H."""
    if operator == "G":
        return settings.intermediate_size
    return settings.head_size or settings.hidden_size // settings.num_attention_heads


def layer_widths(scheme: Scheme, settings: LayerSettings) -> dict[str, tuple[int, ...]]:
    """For each operator, the widths of its sub-layers, in order of application; a single one if they are tied."""
    widths: dict[str, tuple[int, ...]] = {}
    for operator in scheme.operators:
        count = 1 if settings.tying != "none" else scheme.applications(operator)
        widths[operator] = _share(full_width(settings, operator), count)
        if operator != "G" and count > 1:
            # All attentions have heads of equal width; the widths of G compensate for the rounding below.
            widths[operator] = (max(1, round(full_width(settings, operator) / count)),) * count
    if settings.inner_sizes is not None and "G" in widths:
        if len(settings.inner_sizes) != len(widths["G"]):
            raise MacaronError(
                f"scheme {scheme.name!r} has {len(widths['G'])} feed-forward networks in a layer, but inner_sizes "
                f"gives {len(settings.inner_sizes)} widths"
            )
        return {**widths, "G": settings.inner_sizes}
    twin = sum(sublayer_parameters(settings, operator, full_width(settings, operator)) for operator in scheme.operators)
    excess = layer_parameters(settings, widths) - twin
    if abs(excess) > TOLERANCE * twin and "G" in widths:
        per_unit = 2 * settings.hidden_size + int(settings.bias)
        total = sum(widths["G"]) - round(excess / per_unit)
        if total < len(widths["G"]):
            raise MacaronError(
                f"scheme {scheme.name!r} has too many sub-steps for a layer of {twin:,} parameters: their norms and "
                "biases alone use it up. Take a larger hidden size or tie the sub-steps (tying = 'layer')."
            )
        widths["G"] = _share(total, len(widths["G"]))
    return widths


def layer_parameters(settings: LayerSettings, widths: dict[str, tuple[int, ...]]) -> int:
    """Parameters of a layer with these sub-layers."""
    return sum(sublayer_parameters(settings, op, width) for op, each in widths.items() for width in each)


def _share(total: int, count: int) -> tuple[int, ...]:
    """Split a width into ``count`` parts that differ by at most one and sum to it (each at least 1)."""
    least, rest = divmod(total, count)
    return tuple(max(1, least + (index < rest)) for index in range(count))
