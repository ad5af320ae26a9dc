"""Whole networks: configuration and presets, translation, encoder. Names are imported when asked for."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from macaron.models.configuration import EncoderConfig as EncoderConfig
    from macaron.models.configuration import TranslationConfig as TranslationConfig
    from macaron.models.encoder import EncoderForMaskedLM as EncoderForMaskedLM
    from macaron.models.encoder import EncoderForPreTraining as EncoderForPreTraining
    from macaron.models.encoder import EncoderForSequenceClassification as EncoderForSequenceClassification
    from macaron.models.encoder import EncoderModel as EncoderModel
    from macaron.models.presets import preset as preset
    from macaron.models.translation import TranslationModel as TranslationModel

_HOME = {
    "EncoderConfig": "configuration",
    "TranslationConfig": "configuration",
    "EncoderModel": "encoder",
    "EncoderForMaskedLM": "encoder",
    "EncoderForPreTraining": "encoder",
    "EncoderForSequenceClassification": "encoder",
    "TranslationModel": "translation",
    "preset": "presets",
}
__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    # A configuration must be importable before the models are: transformers asks for it first.
    if name not in _HOME:
        raise AttributeError(f"module 'macaron.models' has no attribute {name!r}")
    return getattr(import_module(f"macaron.models.{_HOME[name]}"), name)
