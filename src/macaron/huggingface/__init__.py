"""Transformers' classes around our networks and tokenizer: Auto classes, ``generate``, ``Trainer``, pipelines.

Importing transformers takes seconds: it is imported when one of these names is first used.
"""

from typing import TYPE_CHECKING

from macaron import lazy

if TYPE_CHECKING:
    from macaron.huggingface.configuration import HFEncoderConfig as HFEncoderConfig
    from macaron.huggingface.configuration import HFLanguageConfig as HFLanguageConfig
    from macaron.huggingface.configuration import HFTranslationConfig as HFTranslationConfig
    from macaron.huggingface.encoder import HFEncoderForMaskedLM as HFEncoderForMaskedLM
    from macaron.huggingface.encoder import HFEncoderForPreTraining as HFEncoderForPreTraining
    from macaron.huggingface.encoder import HFEncoderForSequenceClassification as HFEncoderForSequenceClassification
    from macaron.huggingface.encoder import HFEncoderModel as HFEncoderModel
    from macaron.huggingface.tokenizer import HFTokenizer as HFTokenizer
    from macaron.huggingface.translation import HFLanguageModel as HFLanguageModel
    from macaron.huggingface.translation import HFTranslationModel as HFTranslationModel

__getattr__ = lazy(
    __name__,
    configuration=["HFEncoderConfig", "HFLanguageConfig", "HFTranslationConfig"],
    encoder=["HFEncoderForMaskedLM", "HFEncoderForPreTraining", "HFEncoderForSequenceClassification", "HFEncoderModel"],
    tokenizer=["HFTokenizer"],
    translation=["HFLanguageModel", "HFTranslationModel"],
)
