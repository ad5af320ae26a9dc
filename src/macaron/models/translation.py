"""The networks that write text: the translation model, the language model; and a classifier on the latter."""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from macaron.models.configuration import GenerationSettings, LanguageConfig, TranslationConfig
from macaron.models.encoder import EncoderForSequenceClassification
from macaron.models.network import Network, build_embedding, key_mask
from macaron.nn.attention import Context, KeyValueCache, Padding
from macaron.nn.embedding import FIRST_POSITION, token_positions
from macaron.nn.stack import Stack


class DecoderNetwork(Network):
    """Base of the networks that write text: a causal stack, with the encoder's output beside it or alone."""

    decoder: Stack

    def decode(
        self,
        ids: Any,
        memory: Tensor | None = None,
        real: Tensor | None = None,
        cache: KeyValueCache | None = None,
        *,
        target_real: Tensor | None = None,
        vectors: Tensor | None = None,
        states: list[Tensor] | None = None,
        weights: list[tuple[str, Tensor]] | None = None,
    ) -> Tensor:
        """Target tokens (B, T) and the encoder's output, if there is an encoder, to states (B, T, D).

        :param real: (B, S), which source positions are tokens
        :param cache: continues after the positions that it holds
        :param target_real: (B, T), which target positions are tokens, those in the cache included; None means all
        :param vectors: this and the others are as in `encode`
        """
        steps = ids.shape[1] if vectors is None else vectors.shape[1]
        if target_real is None:
            start = FIRST_POSITION + (cache.length if cache is not None else 0)
            positions = torch.arange(start, start + steps, device=(ids if vectors is None else vectors).device)
        else:
            positions = token_positions(target_real)[:, -steps:]
        context = Context(
            mask=key_mask(target_real),
            causal=True,
            memory=memory,
            memory_mask=key_mask(real),
            cache=cache,
            weights=weights,
            positions=positions,
        )
        return self.decoder(self.embedding(ids, positions, vectors=vectors), context, states)

    def logits(self, states: Tensor) -> Tensor:
        """States (..., D) to logits (..., V)."""
        return self.embedding.logits(states)


class TranslationModel(DecoderNetwork):
    """Encoder-decoder; the embedding serves source, target and output (logits = x E^T)."""

    config_class: ClassVar[Any] = TranslationConfig
    config: TranslationConfig

    def __init__(self, config: TranslationConfig) -> None:
        super().__init__(config)
        self.generation_config: Any = GenerationSettings()

    def build(self, config: TranslationConfig) -> None:
        """Make embedding and stacks."""
        self.embedding = build_embedding(config, self.pad)
        encoder, decoder = config.encoder_scheme_value(), config.decoder_scheme_value()
        self.encoder = Stack(encoder, config.encoder_layers, config, config.prologue, config.epilogue)
        ends = config.decoder_prologue, config.decoder_epilogue
        self.decoder = Stack(decoder, config.decoder_layers, config.decoder_layer_settings(), *ends)

    def token_states(
        self, ids: Tensor, target: Tensor, target_real: Tensor, vectors: Sequence[Tensor | None] = (None, None)
    ) -> tuple[Tensor, Tensor]:
        """The decoder's states of the tokens alone, (1, N, D), and their indices in (B T,), for training on a CPU.

        The numbers are those of `decode`; stacks must not need positions. A GPU would have to wait for N.

        :param vectors: (B, S, D) and (B, T, D), token vectors instead of ids
        """
        real = ids != self.pad
        left, right, mask = Padding(real), Padding(target_real), key_mask(real)
        x = left.remove(self.embedding(ids, token_positions(real), vectors=vectors[0]))
        memory = self.encoder(x, Context(mask=mask, padding=left))
        context = Context(causal=True, memory=memory, memory_mask=mask)
        context.padding, context.memory_padding = right, left
        y = right.remove(self.embedding(target, vectors=vectors[1]))
        return self.decoder(y, context), right.rows

    def forward(self, ids: Tensor, target: Tensor) -> Tensor:
        """Logits (B, T, V) of the tokens that follow each target token (B, T), given source tokens (B, S)."""
        real = ids != self.pad
        return self.logits(self.decode(target, self.encode(ids, real), real))


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

    def features(self, ids: Tensor, real: Tensor, segments: Tensor | None = None) -> Tensor:
        """The state (B, D) of the last token of each text (B, T); padding is on the right."""
        states: Tensor = self.model.decode(ids)
        return states[torch.arange(len(ids), device=ids.device), real.sum(1) - 1]
