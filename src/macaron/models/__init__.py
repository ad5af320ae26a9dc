"""Whole networks: configuration and presets, translation, encoder. Names are imported when asked for."""

from typing import TYPE_CHECKING

from macaron._lazy import lazy

if TYPE_CHECKING:
    from macaron.models.configuration import EncoderConfig, TranslationConfig
    from macaron.models.encoder import (
        EncoderForMaskedLM,
        EncoderForPreTraining,
        EncoderForSequenceClassification,
        EncoderModel,
    )
    from macaron.models.presets import preset
    from macaron.models.translation import TranslationModel

__all__ = [
    "EncoderConfig",
    "EncoderForMaskedLM",
    "EncoderForPreTraining",
    "EncoderForSequenceClassification",
    "EncoderModel",
    "TranslationConfig",
    "TranslationModel",
    "preset",
]

_ENCODERS = ["EncoderForMaskedLM", "EncoderForPreTraining", "EncoderForSequenceClassification", "EncoderModel"]
__getattr__ = lazy(
    __name__,
    {
        "configuration": ["EncoderConfig", "TranslationConfig"],
        "encoder": _ENCODERS,
        "presets": ["preset"],
        "translation": ["TranslationModel"],
    },
)
