"""Whole networks: configuration, presets, translation, encoder, language model. Names are imported when first used."""

from typing import TYPE_CHECKING

from macaron import lazy

if TYPE_CHECKING:
    from macaron.models.configuration import EncoderConfig as EncoderConfig
    from macaron.models.configuration import LanguageConfig as LanguageConfig
    from macaron.models.configuration import TranslationConfig as TranslationConfig
    from macaron.models.encoder import EncoderForMaskedLM as EncoderForMaskedLM
    from macaron.models.encoder import EncoderForPreTraining as EncoderForPreTraining
    from macaron.models.encoder import EncoderForSequenceClassification as EncoderForSequenceClassification
    from macaron.models.encoder import EncoderModel as EncoderModel
    from macaron.models.presets import preset as preset
    from macaron.models.translation import LanguageModel as LanguageModel
    from macaron.models.translation import TranslationModel as TranslationModel

__getattr__ = lazy(__name__, __file__)
