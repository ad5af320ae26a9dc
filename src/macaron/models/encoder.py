"""The text encoder: pre-training heads (masked words, next sentence), classification and regression."""

from collections import OrderedDict
from typing import Any, ClassVar

from torch import Tensor, nn

from macaron.models.configuration import EncoderConfig
from macaron.models.network import Network, build_embedding
from macaron.nn.embedding import Embedding
from macaron.nn.linear import Linear
from macaron.nn.stack import Stack


class EncoderModel(Network):
    """Embedding and stack, without a head."""

    config_class: ClassVar[Any] = EncoderConfig
    config: EncoderConfig

    def build(self, config: EncoderConfig) -> None:
        """Make embedding and stack."""
        segments = config.type_vocab_size, config.first_segment, config.freeze_first_segment
        self.embedding = build_embedding(config, self.pad, *segments)
        scheme = config.encoder_scheme_value()
        self.encoder = Stack(scheme, config.num_hidden_layers, config, config.prologue, config.epilogue)

    def forward(self, ids: Tensor, real: Tensor | None = None, segments: Tensor | None = None) -> Any:
        """Tokens (B, T) to states (B, T, D), as `encode`; ``real`` is by default all but padding."""
        return self.encode(ids, ids != self.pad if real is None else real, segments)


class HeadedEncoder(Network):
    """Base of the encoders with heads; the encoder itself is ``model`` in each of them."""

    config_class: ClassVar[Any] = EncoderConfig
    config: EncoderConfig
    encoder_class: ClassVar[type[EncoderModel]] = EncoderModel

    def build(self, config: EncoderConfig) -> None:
        """Make the encoder."""
        self.model = self.encoder_class(self.config)

    @property
    def embedding(self) -> Embedding:  # type: ignore[override]
        """The embedding of the encoder."""
        return self.model.embedding


class EncoderForMaskedLM(HeadedEncoder):
    """Masked words alone; loads the folder of a pre-trained model."""

    def build(self, config: EncoderConfig) -> None:
        """Make encoder and head."""
        super().build(config)
        dense = nn.Linear(config.hidden_size, config.hidden_size)
        norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        # Between a state and the (tied) output embedding.
        self.head = nn.Sequential(OrderedDict(dense=dense, gelu=nn.GELU(), norm=norm))

    def mlm_logits(self, states: Tensor) -> Tensor:
        """States (..., D) to logits (..., V)."""
        return self.model.embedding.logits(self.head(states))

    def forward(self, ids: Tensor, real: Tensor | None = None, segments: Tensor | None = None) -> Any:
        """Tokens (B, T) to logits (B, T, V)."""
        return self.mlm_logits(self.model(ids, real, segments))


class EncoderForPreTraining(EncoderForMaskedLM):
    """Masked words and next sentence."""

    def build(self, config: EncoderConfig) -> None:
        """Make encoder and both heads."""
        super().build(config)
        self.next_sentence = nn.Linear(config.hidden_size, 1)

    def forward(self, ids: Tensor, real: Tensor | None = None, segments: Tensor | None = None) -> Any:
        """Tokens (B, T) to the logits of words (B, T, V) and of "the second sentence really follows" (B, 1)."""
        states = self.model(ids, real, segments)
        return self.mlm_logits(states), self.next_sentence(states[:, 0])


class EncoderForSequenceClassification(HeadedEncoder):
    """Classification and regression on the first token's state."""

    def build(self, config: EncoderConfig) -> None:
        """Make encoder and classifier."""
        super().build(config)
        # Zero at the start, as in the authors' code: before training all classes are equally likely.
        self.classifier = Linear(config.hidden_size, config.num_labels, std=0.0)
        self.pooler = Linear(config.hidden_size, config.hidden_size) if getattr(config, "pooler", False) else None
        if self.embedding.output_bias is not None:
            self.embedding.output_bias.requires_grad_(False)  # of the masked-word head, not used here

    def features(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """The state (B, D) of the first token of each text (B, T)."""
        return self.pooled(self.model.encode(ids, real, segments))

    def pooled(self, states: Tensor) -> Tensor:
        """What the classifier reads, (B, D), of the encoder's states (B, T, D)."""
        first = states[:, 0]
        return first if self.pooler is None else self.pooler(first).tanh()

    def forward(self, ids: Tensor, real: Tensor | None = None, segments: Tensor | None = None) -> Any:
        """Tokens (B, T) to logits (B, labels)."""
        return self.classifier(self.features(ids, ids != self.pad if real is None else real, segments))
