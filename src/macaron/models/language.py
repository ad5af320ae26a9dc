"""The language model, a causal stack over one embedding; and a classifier on it."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from macaron.models.configuration import LanguageConfig
from macaron.models.network import Network, build_embedding
from macaron.models.translation import DecoderNetwork
from macaron.nn.embedding import Embedding
from macaron.nn.linear import Linear
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


class LanguageForSequenceClassification(Network):
    """Classification and regression on the last token's state, as GPT was fine-tuned."""

    config_class: ClassVar[Any] = LanguageConfig
    config: LanguageConfig

    def build(self, config: LanguageConfig) -> None:
        """Make language model and classifier."""
        self.model = LanguageModel(config)
        if self.embedding.output_bias is not None:
            self.embedding.output_bias.requires_grad_(False)  # not used
        self.classifier = Linear(config.hidden_size, config.num_labels, std=0.0)  # as an encoder's

    @property
    def embedding(self) -> Embedding:  # type: ignore[override]
        """The embedding of the language model."""
        return self.model.embedding

    @property
    def stack(self) -> Stack:
        """The layers."""
        return self.model.decoder

    def features(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """The state (B, D) of the last token of each text (B, T); padding is on the right."""
        states = self.model.decode(ids)
        return states[torch.arange(len(ids), device=ids.device), real.sum(1) - 1]

    def forward(self, ids: Tensor, real: Tensor | None = None) -> Any:
        """Tokens (B, T) to logits (B, labels)."""
        return self.classifier(self.features(ids, ids != self.pad if real is None else real))
