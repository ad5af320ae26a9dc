"""How particles act on each other, F and H, as a value: data in the configuration, as the scheme is. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from macaron.errors import MacaronError, unknown
from macaron.limits import LONGEST_TEXT, Between
from macaron.settings import build

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
