"""Converts foreign checkpoints to model folders. Names are imported on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macaron.convert.fairseq import Conversion as Conversion
    from macaron.convert.fairseq import convert_fairseq as convert_fairseq

__all__ = ["Conversion", "convert_fairseq"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'macaron.convert' has no attribute {name!r}")
    from macaron.convert import fairseq

    return getattr(fairseq, name)
