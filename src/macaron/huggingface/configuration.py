"""Transformers' configuration classes: each wraps one of our dataclasses and has its fields as attributes."""

from typing import Any, ClassVar, Self

from transformers.configuration_utils import PreTrainedConfig

from macaron.models.configuration import EncoderConfig, LanguageConfig, ModelConfig, TranslationConfig

#: The fields of classifiers that transformers has itself.
_THEIRS = ("id2label", "label2id", "problem_type")


class HFModelConfig(PreTrainedConfig):
    """Base of all. Its attributes are transformers' and ours, and any of them may be set.

    A dataclass of ours, `core`, checks and computes; it is made anew from the attributes.
    """

    core_class: ClassVar[Any]

    def __post_init__(self, **given: Any) -> None:
        # Transformers has set its own fields; `given` are the others, ours among them.
        ours = self.core_class.from_dict(given).to_dict()
        super().__post_init__(**given)
        for name, value in ours.items():
            if name not in (*_THEIRS, "model_type"):
                setattr(self, name, value)

    @classmethod
    def wrap(cls, config: ModelConfig) -> Self:
        """The configuration with the fields of one of ours."""
        return cls(**config.to_dict())

    @property
    def core(self) -> Any:
        """The values of now as our dataclass."""
        return self.core_class.from_dict(self.to_dict())

    def encoder_scheme_value(self) -> Any:
        """The encoder's scheme."""
        return self.core.encoder_scheme_value()


class HFTranslationConfig(HFModelConfig):
    """`macaron.models.TranslationConfig` for transformers."""

    core_class: ClassVar[Any] = TranslationConfig
    model_type = TranslationConfig.model_type
    attribute_map: ClassVar[dict[str, str]] = {"num_hidden_layers": "encoder_layers"}
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]


class HFEncoderConfig(HFModelConfig):
    """`macaron.models.EncoderConfig` for transformers."""

    core_class: ClassVar[Any] = EncoderConfig
    model_type = EncoderConfig.model_type


class HFLanguageConfig(HFModelConfig):
    """`macaron.models.LanguageConfig` for transformers."""

    core_class: ClassVar[Any] = LanguageConfig
    model_type = LanguageConfig.model_type
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]


CONFIGURATIONS = (HFTranslationConfig, HFEncoderConfig, HFLanguageConfig)
