"""The language model, a causal stack over one embedding; and a classifier on it."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from macaron.models.configuration import LanguageConfig
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.models.network import build_embedding
from macaron.models.translation import DecoderNetwork
from macaron.nn.stack import Stack


class LanguageModel(DecoderNetwork):
    """Decoder only; the embedding serves input and output."""

    config_class: ClassVar[Any] = LanguageConfig
    config: LanguageConfig

    def build(self, config: LanguageConfig) -> None:
        """Make embedding and stack."""
        self.embedding = build_embedding(config, self.pad)
        scheme = config.encoder_scheme_value()
        self.decoder = Stack(scheme, config.num_hidden_layers, config, config.prologue, config.epilogue)

    def forward(self, ids: Tensor, real: Tensor | None = None) -> Any:
        """Logits (B, T, V) of the tokens that follow each token (B, T); ``real`` (B, T): which are no padding."""
        return self.logits(self.decode(ids, target_real=real))


class LanguageForSequenceClassification(EncoderForSequenceClassification):
    """Classification and regression on the last token's state, as GPT was fine-tuned."""

    config_class: ClassVar[Any] = LanguageConfig
    encoder_class: ClassVar[Any] = LanguageModel
    model: Any

    @property
    def stack(self) -> Stack:
        """The layers."""
        return self.model.decoder

    def features(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """The state (B, D) of the last token of each text (B, T); padding is on the right."""
        states: Tensor = self.model.decode(ids)
        return states[torch.arange(len(ids), device=ids.device), real.sum(1) - 1]
