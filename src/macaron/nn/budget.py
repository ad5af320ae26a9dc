"""The settings of a layer, as data in a configuration: how particles act on each other (F and H), widths. No torch.

Widths follow from a parameter budget (see `macaron.nn.layer.layer_widths`): networks of different schemes have the same
number of parameters.

A layer may apply an operator several times. Untied, each application has its own weights and a share of the width:
k feed-forward networks have 1/k of the inner width each, k attentions keep their heads and have 1/k of the head width.
Tied applications share one sub-layer of full width.

The remaining difference (norms, biases, rounding) is small: Macaron has 3 D parameters a layer more than the
Transformer. For schemes of many sub-steps it is not small; their feed-forward networks are made narrower instead.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from macaron.errors import MacaronError, naming, nearest, unknown
from macaron.limits import LONGEST_TEXT, MODEL_SIZES, Between
from macaron.ode import Velocity, integrator, velocity
from macaron.settings import build, check_fields

#: Short for the settings that are needed most often.
NAMES: dict[str, dict[str, Any]] = {
    "softmax": {},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "qk-norm": {"qk_norm": True},
    **{kind: {"kind": kind} for kind in ("weighted", "lightweight", "dynamic")},
}
#: The settings that each kind has, and those that need another one.
_ATTENTION, _CONVOLUTION = ("positions", "qk_norm", "clip", "theta"), ("kernels", "glu")
_OPTIONS = {"softmax": _ATTENTION, "weighted": _ATTENTION, "lightweight": _CONVOLUTION, "dynamic": _CONVOLUTION}
_NEEDS = {"clip": "relative", "theta": "rotary"}


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """Which operator moves a particle by the others, and its settings.

    :param kind: softmax (attention); weighted: attention with a feed-forward network for each head (Weighted
        Transformer); lightweight, dynamic: convolutions (Wu et al.)
    :param positions: how attention sees positions, beside those in the states: rotary turns queries and keys by angles
        (Su et al.); relative adds vectors of clipped distances to keys and values (Shaw et al.)
    :param qk_norm: queries and keys of each head are normalised (RMSNorm with a gain)
    :param clip: largest distance that relative positions tell apart
    :param theta: base of the rotary frequencies
    :param kernels: sizes of a convolution's kernels, by layer; the last one is that of all further layers
    :param glu: whether the input of a convolution is gated
    """

    kind: Literal["softmax", "weighted", "lightweight", "dynamic"] = "softmax"
    positions: Literal["none", "rotary", "relative"] = "none"
    qk_norm: bool = False
    clip: Annotated[int, Between(1, LONGEST_TEXT)] = 16
    theta: Annotated[float, Between(1, 1e9)] = 10000.0
    kernels: tuple[Annotated[int, Between(1, 1000)], ...] = (3, 7, 15, 31)
    glu: bool = True

    @property
    def convolves(self) -> bool:
        """Whether it is a convolution."""
        return self.kind in ("lightweight", "dynamic")

    @property
    def ordered(self) -> bool:
        """Whether it sees the order of positions by itself."""
        return self.convolves or self.positions != "none"

    def kernel(self, layer: int) -> int:
        """The size of the kernel in a layer, counted from 0."""
        return self.kernels[min(layer, len(self.kernels) - 1)]


def interaction(data: Any, name: str = "attention") -> Interaction:
    """The value that a configuration holds as data: a name, or a table of settings.

    :param name: of the setting, for messages
    """
    if isinstance(data, str):
        if data not in NAMES:
            raise unknown(name, data, NAMES)
        data = NAMES[data]
    if not isinstance(data, Mapping):
        raise MacaronError(f"{name} must be one of {', '.join(NAMES)}, or a table of settings, not {data!r}")
    made = build(Interaction, data, path=(name,))
    for key in set(data) - {"kind"}:
        needed = _NEEDS.get(key, made.positions)
        if key not in _OPTIONS[made.kind]:
            raise MacaronError(f"{name}.{key} makes no sense with {name}.kind = {made.kind!r}: leave it out")
        if needed != made.positions:
            raise MacaronError(f"{name}.{key} needs {name}.positions = {needed!r}: give that, or leave it out")
    if not made.kernels:
        raise MacaronError(f"{name}.kernels is empty: give the size of a kernel, or one for each layer")
    if name == "cross_attention" and made.ordered:
        raise MacaronError(
            f"cross_attention cannot be {made.kind if made.convolves else made.positions}: source and target are two "
            "sequences, with no distances between them"
        )
    return made


TOLERANCE = 0.005  # twins agree within 0.5 %
#: Settings that encoder and decoder have in common.
_SHARED = {"hidden_size", "bias", "causal", "positions_at"}
#: A gated activation multiplies one half of its input by a function of the other.
GATED_NAMES = ("glu", "swiglu", "geglu")
ACTIVATION_NAMES = ("relu", "gelu", "gelu_new", "relu2", "silu", *GATED_NAMES)
Rate = Annotated[float, Between(0, 1)]


@dataclass(frozen=True, kw_only=True)
class LayerSettings:
    """Everything about a layer that is not its scheme. Model configurations extend it.

    :param head_size: width of an attention head; by default hidden size / heads
    :param intermediate_size: inner width of the feed-forward networks of *one layer in total*; gated ones have three
        matrices, and two thirds of the width, for the same number of parameters
    :param inner_sizes: their exact inner widths, in order of application, instead of shares of that total: for
        converted networks, whose widths are given
    :param integrator: how a sub-step is integrated: euler, midpoint, heun, rk3, rk4
    :param layer_integrator: how a layer as a whole is integrated, likewise: its move is the field (ODE Transformer)
    :param velocity: kick and drift of particles that have a velocity, a name or a table (`macaron.ode.velocity`)
    :param tying: none; layer: applications of an operator within a layer share weights; depth: one field for all
    :param positions_at: where position vectors are added: input; none; layers: before every layer, with a vector of the
        layer, which is learned (Universal Transformer)
    :param norm_type: layer (LayerNorm) or rms (RMSNorm, which has no bias)
    :param activation: relu, gelu, gelu_new (GPT-2's), relu2, silu, or gated: glu, swiglu, geglu; or a function; or a
        sequence with one for each feed-forward network of a layer
    :param attention: the operator F, a name or a table of settings (`Interaction`); ``cross_attention``: H
    :param initializer: xavier or kaiming, both as in the authors' code
    :param causal: whether these are layers of a decoder
    """

    hidden_size: int = 512
    num_attention_heads: int = 4
    head_size: int | None = None
    intermediate_size: int = 2048
    inner_sizes: tuple[Annotated[int, Between(1, MODEL_SIZES["intermediate_size"])], ...] | None = None
    integrator: str = "euler"
    layer_integrator: str = "euler"
    velocity: Any = "none"
    tying: Literal["none", "layer", "depth"] = "none"
    norm: Literal["pre", "post"] = "pre"
    norm_type: Literal["layer", "rms"] = "layer"
    norm_affine: bool = True
    layer_norm_eps: Annotated[float, Between(1e-30, 1e30)] = 1e-5
    activation: Any = "relu"
    attention: Any = "softmax"
    cross_attention: Any = "softmax"
    dropout: Rate = 0.1
    attention_dropout: Rate = 0.0
    activation_dropout: Rate = 0.0
    positions_at: Literal["input", "none", "layers"] = "input"
    initializer: Literal["xavier", "kaiming"] = "xavier"
    bias: bool = True
    causal: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        for name, most in MODEL_SIZES.items():
            value = getattr(self, name, None)
            if value is not None:
                Between(0 if name.endswith("_layers") else 1, most).check(name, value)
        if self.hidden_size % self.num_attention_heads and self.head_size is None:
            raise MacaronError(
                f"hidden_size ({self.hidden_size}) is not a multiple of num_attention_heads "
                f"({self.num_attention_heads}): change one of them or give head_size"
            )
        given = [self.activation] if isinstance(self.activation, str) or callable(self.activation) else self.activation
        if not given:
            raise MacaronError("activation is an empty list: give one, or one for each feed-forward network of a layer")
        for activation in given:
            if not callable(activation) and activation not in ACTIVATION_NAMES:
                raise MacaronError(f"no activation {activation!r}; choose one of {', '.join(ACTIVATION_NAMES)}")
        still = self.velocity_value().plain
        for name in ("integrator", "layer_integrator"):
            with naming(name):
                stages = integrator(getattr(self, name)).stages
            if stages > 1 and not still:
                raise MacaronError(
                    f"a velocity is kicked once in a sub-step, so velocity makes no sense with {name} = "
                    f"{getattr(self, name)!r}: take euler"
                )
        for operator in ("F", "H"):
            value = self.interaction(operator)
            if value.convolves and len(value.kernels) > 1 and self.tying == "depth":
                raise MacaronError(
                    f"attention.kernels has {len(value.kernels)} sizes, but all layers are one (tying = 'depth'): give "
                    "one size, such as attention = { kind = 'dynamic', kernels = [7] }"
                )

        if self.positions_at == "none" and not self.causal and not self.interaction("F").ordered:
            raise MacaronError(
                "positions_at = 'none' leaves an encoder that cannot see the order of words: give it an attention that "
                "can (rotary, relative, lightweight, dynamic)"
            )

    def of_decoder(self, changes: Mapping[str, Any]) -> "LayerSettings":
        """The settings of a decoder's layers: those of the encoder, with some changes."""
        known = {each.name: getattr(self, each.name) for each in fields(LayerSettings)}
        for name in changes:
            if name not in known or name in _SHARED:
                raise MacaronError(f"no setting {name!r}{nearest(name, set(known) - _SHARED)}")
        return LayerSettings(**{**known, **changes, "causal": True})

    def velocity_value(self) -> Velocity:
        """The coefficients of kick and drift."""
        return velocity(self.velocity)

    def interaction(self, operator: str) -> Interaction:
        """The value of F or H."""
        return interaction(self.attention) if operator == "F" else interaction(self.cross_attention, "cross_attention")

    def activation_of(self, application: int) -> str | Callable[[Any], Any]:
        """The activation of a layer's feed-forward network, counted from 0."""
        each = self.activation
        return each if isinstance(each, str) or callable(each) else each[min(application, len(each) - 1)]

    def gated(self, application: int) -> bool:
        """Whether it is gated."""
        return self.activation_of(application) in GATED_NAMES


def full_width(settings: LayerSettings, operator: str) -> int:
    """The undivided width of an operator: inner width for G, head width for F and H."""
    if operator == "G":
        return settings.intermediate_size
    return settings.head_size or settings.hidden_size // settings.num_attention_heads


def inner_width(settings: LayerSettings, share: int, application: int) -> int:
    """The width of a feed-forward network with as many parameters as a plain one of the width ``share``."""
    if not settings.gated(application):
        return share
    hidden, bias = settings.hidden_size, int(settings.bias)
    return max(1, round(share * (2 * hidden + bias) / (3 * hidden + 2 * bias)))


def branch_width(settings: LayerSettings, share: float) -> int:
    """The width of a head's feed-forward network, if those of all heads have the share of a plain one."""
    return inner_width(settings, max(1, round(share / settings.num_attention_heads)), 0)
