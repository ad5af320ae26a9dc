"""Whole networks: configuration and presets, translation, encoder. Names are imported when they are first used."""

from typing import TYPE_CHECKING

from macaron import lazy

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

__getattr__ = lazy(
    __name__,
    configuration=["EncoderConfig", "TranslationConfig"],
    encoder=["EncoderForMaskedLM", "EncoderForPreTraining", "EncoderForSequenceClassification", "EncoderModel"],
    presets=["preset"],
    translation=["TranslationModel"],
)
