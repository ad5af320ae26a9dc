"""Decoding: beam search, sampling, and the Translator. Names are imported when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macaron.decode.search import translate_ids as translate_ids
    from macaron.decode.settings import Hypothesis as Hypothesis
    from macaron.decode.settings import Sampling as Sampling
    from macaron.decode.settings import SearchSettings as SearchSettings
    from macaron.decode.translator import Translator as Translator

_HOME = {
    "Hypothesis": "settings",
    "Sampling": "settings",
    "SearchSettings": "settings",
    "Translator": "translator",
    "translate_ids": "search",
}
__all__ = ["Hypothesis", "Sampling", "SearchSettings", "Translator", "translate_ids"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'macaron.decode' has no attribute {name!r}")
    return getattr(import_module(f"macaron.decode.{_HOME[name]}"), name)
