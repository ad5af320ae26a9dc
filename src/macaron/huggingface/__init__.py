"""Transformers' classes around our networks and tokenizer: Auto classes, ``generate``, ``Trainer``, pipelines."""

from typing import TYPE_CHECKING

from macaron._lazy import lazy

if TYPE_CHECKING:
    from macaron.huggingface.configuration import HFEncoderConfig, HFTranslationConfig
    from macaron.huggingface.encoder import (
        HFEncoderForMaskedLM,
        HFEncoderForPreTraining,
        HFEncoderForSequenceClassification,
        HFEncoderModel,
    )
    from macaron.huggingface.tokenizer import HFTokenizer
    from macaron.huggingface.translation import HFTranslationModel

__all__ = [
    "HFEncoderConfig",
    "HFEncoderForMaskedLM",
    "HFEncoderForPreTraining",
    "HFEncoderForSequenceClassification",
    "HFEncoderModel",
    "HFTokenizer",
    "HFTranslationConfig",
    "HFTranslationModel",
]

# Importing transformers takes seconds: only what is asked for does so.
_ENCODERS = ["HFEncoderForMaskedLM", "HFEncoderForPreTraining", "HFEncoderForSequenceClassification", "HFEncoderModel"]
__getattr__ = lazy(
    __name__,
    {
        "configuration": ["HFEncoderConfig", "HFTranslationConfig"],
        "encoder": _ENCODERS,
        "tokenizer": ["HFTokenizer"],
        "translation": ["HFTranslationModel"],
    },
)
