"""Transformers' classes around our networks and tokenizer: Auto classes, ``generate``, ``Trainer``, pipelines.

Importing transformers takes seconds: it is imported when one of these names is first used.
"""

from typing import TYPE_CHECKING

from macaron import lazy

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

__getattr__ = lazy(
    __name__,
    configuration=["HFEncoderConfig", "HFTranslationConfig"],
    encoder=["HFEncoderForMaskedLM", "HFEncoderForPreTraining", "HFEncoderForSequenceClassification", "HFEncoderModel"],
    tokenizer=["HFTokenizer"],
    translation=["HFTranslationModel"],
)
