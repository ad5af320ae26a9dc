"""Widths from a parameter budget: networks of different schemes have the same number of parameters.

A layer may apply an operator several times. Untied, each application has its own weights and a share of the width:
k feed-forward networks have 1/k of the inner width each, k attentions keep their heads and have 1/k of the head width.
Tied applications share one sub-layer of full width.

The remaining difference (norms, biases, rounding) is small: Macaron has 3 D parameters a layer more than the
Transformer. For schemes of many sub-steps it is not small; their feed-forward networks are made narrower instead.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from macaron.errors import MacaronError
from macaron.ode import Scheme, integrator

TOLERANCE = 0.005  # twins agree within 0.5 %
ACTIVATION_NAMES = ("relu", "gelu")
TYINGS = ("none", "layer", "depth")
NORMS = ("pre", "post")
INITS = ("xavier", "kaiming")


@dataclass(frozen=True)
class LayerShape:
    """The full widths that the sub-layers of a layer share, and the settings that its parameter count depends on.

    ``inner_sizes`` are the exact widths of a layer's feed-forward networks, in order of application, instead of equal
    shares: for converted networks, whose widths are given.
    """

    hidden_size: int
    num_heads: int
    head_size: int
    inner_size: int
    norm_affine: bool = True
    bias: bool = True
    inner_sizes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class LayerSettings:
    """Everything about a layer that is not its scheme."""

    shape: LayerShape
    norm: str = "pre"
    norm_eps: float = 1e-5
    activation: str | Callable[[Any], Any] | Sequence[str] = "relu"
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    integrator: str = "euler"
    tying: str = "none"
    init: str = "xavier"

    def __post_init__(self) -> None:
        for name, known in (("norm", NORMS), ("tying", TYINGS), ("init", INITS)):
            if getattr(self, name) not in known:
                raise MacaronError(f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}")
        for name in ("dropout", "attention_dropout", "activation_dropout"):
            if not 0 <= getattr(self, name) <= 1:
                raise MacaronError(f"{name} must be between 0 and 1, not {getattr(self, name)}")
        if self.norm_eps <= 0:
            raise MacaronError(f"the epsilon of a norm must be positive, not {self.norm_eps}")
        given = [self.activation] if isinstance(self.activation, str) or callable(self.activation) else self.activation
        for activation in given:
            if not callable(activation) and activation not in ACTIVATION_NAMES:
                raise MacaronError(f"no activation {activation!r}; choose one of {', '.join(ACTIVATION_NAMES)}")
        integrator(self.integrator)

    def activation_of(self, application: int) -> str | Callable[[Any], Any]:
        """The activation of the feed-forward network with this index in a layer."""
        if isinstance(self.activation, str) or callable(self.activation):
            return self.activation
        return self.activation[application]


def sublayer_parameters(shape: LayerShape, operator: str, width: int) -> int:
    """Parameters of one sub-layer with its norm; ``width`` is the head width of F and H, the inner width of G."""
    hidden, bias = shape.hidden_size, int(shape.bias)
    norm = hidden * (1 + bias) if shape.norm_affine else 0
    if operator == "G":
        return norm + 2 * hidden * width + bias * (width + hidden)
    inner = shape.num_heads * width
    return norm + 4 * hidden * inner + bias * (3 * inner + hidden)


def full_width(shape: LayerShape, operator: str) -> int:
    """The undivided width of an operator: inner width for G, head width for F and H."""
    return shape.inner_size if operator == "G" else shape.head_size


def layer_widths(scheme: Scheme, shape: LayerShape, tied: bool) -> dict[str, tuple[int, ...]]:
    """For each operator, the width of each of its sub-layers, in order of application.

    :returns: one width per operator if tied, otherwise as many as the scheme applies it
    """
    widths: dict[str, tuple[int, ...]] = {}
    for operator in scheme.operators:
        count = 1 if tied else scheme.applications(operator)
        widths[operator] = _share(full_width(shape, operator), count)
        if operator != "G" and count > 1:
            # All attentions have heads of equal width; the widths of G compensate for the rounding below.
            widths[operator] = (max(1, round(full_width(shape, operator) / count)),) * count
    if shape.inner_sizes is not None and "G" in widths:
        if len(shape.inner_sizes) != len(widths["G"]):
            raise MacaronError(
                f"scheme {scheme.name!r} has {len(widths['G'])} feed-forward networks in a layer, but inner_sizes "
                f"gives {len(shape.inner_sizes)} widths"
            )
        return {**widths, "G": shape.inner_sizes}
    twin = sum(sublayer_parameters(shape, operator, full_width(shape, operator)) for operator in scheme.operators)
    excess = layer_parameters(shape, widths) - twin
    if abs(excess) > TOLERANCE * twin and "G" in widths:
        per_unit = 2 * shape.hidden_size + int(shape.bias)
        total = sum(widths["G"]) - round(excess / per_unit)
        if total < len(widths["G"]):
            raise MacaronError(
                f"scheme {scheme.name!r} has too many sub-steps for a layer of {twin:,} parameters: their norms and "
                "biases alone use it up. Take a larger hidden size or tie the sub-steps (tying = 'layer')."
            )
        widths["G"] = _share(total, len(widths["G"]))
    return widths


def layer_parameters(shape: LayerShape, widths: dict[str, tuple[int, ...]]) -> int:
    """Parameters of a layer with these sub-layers."""
    return sum(sublayer_parameters(shape, op, width) for op, each in widths.items() for width in each)


def _share(total: int, count: int) -> tuple[int, ...]:
    """Split a width into ``count`` parts that differ by at most one and sum to it (each at least 1)."""
    least, rest = divmod(total, count)
    return tuple(max(1, least + (index < rest)) for index in range(count))
