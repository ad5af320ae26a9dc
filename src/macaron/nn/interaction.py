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
}
#: The settings that each kind has, and those that need another one.
_OPTIONS = {"softmax": ("positions", "qk_norm", "clip", "theta")}
_NEEDS = {"clip": "relative", "theta": "rotary"}


@dataclass(frozen=True, kw_only=True)
class Interaction:
    """Which operator moves a particle by the others, and its settings.

    :param kind: softmax (attention)
    :param positions: how attention sees positions, beside those in the states: rotary turns queries and keys by angles
        (Su et al.); relative adds vectors of clipped distances to keys and values (Shaw et al.)
    :param qk_norm: queries and keys of each head are normalised (RMSNorm with a gain)
    :param clip: largest distance that relative positions tell apart
    :param theta: base of the rotary frequencies
    """

    kind: Literal["softmax"] = "softmax"
    positions: Literal["none", "rotary", "relative"] = "none"
    qk_norm: bool = False
    clip: Annotated[int, Between(1, LONGEST_TEXT)] = 16
    theta: Annotated[float, Between(1, 1e9)] = 10000.0

    @property
    def ordered(self) -> bool:
        """Whether it sees the order of positions by itself."""
        return self.positions != "none"


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
            raise MacaronError(f"{name}.{key} needs {name}.positions = {needed!r}: leave it out")
    if name == "cross_attention" and made.ordered:
        raise MacaronError(
            f"cross_attention has no positions ({made.positions}): source and target are two sequences, with no "
            "distances between them"
        )
    return made
