"""The text encoder: pre-training heads (masked words, next sentence), classification and regression."""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput, SequenceClassifierOutput
from transformers.utils import ModelOutput

from macaron.models.base import MacaronPreTrainedModel, key_mask, real_tokens, token_loss
from macaron.models.configuration import EncoderConfig, steps_of
from macaron.nn import Context, Embedding, Stack
from macaron.nn.embedding import token_positions
from macaron.nn.linear import Linear

Output = TypeVar("Output", bound=ModelOutput)


def as_asked(output: Output, return_dict: bool | None) -> Output | tuple[Any, ...]:
    """An output as it is, or as a tuple for who does not want it by name."""
    return output if return_dict in (None, True) else output.to_tuple()


class EncoderPreTrainedModel(MacaronPreTrainedModel):
    """Base of the encoder models; the encoder itself is ``model`` in each of them."""

    config: EncoderConfig
    config_class = EncoderConfig
    base_model_prefix = "model"

    @property
    def pad(self) -> int:
        """The padding token."""
        return 1 if self.config.pad_token_id is None else self.config.pad_token_id


class EncoderModel(EncoderPreTrainedModel):
    """Embedding and stack, without a head."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"next_sentence\.", r"head\.", r"classifier\."]

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.embedding = Embedding(
            config.vocab_size,
            config.hidden_size,
            self.pad,
            config.dropout,
            config.type_vocab_size,
            config.first_segment if config.freeze_first_segment else None,
        )
        self.encoder = Stack(
            config.encoder_scheme_value(),
            config.num_hidden_layers,
            config.layer_settings(),
            steps_of(config.prologue),
            steps_of(config.epilogue),
        )
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The token embedding."""
        return self.embedding.tokens

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.embedding.tokens = value  # type: ignore[assignment]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> BaseModelOutput | tuple[Any, ...]:
        """Tokens (B, T) to states (B, T, D). Without ``token_type_ids`` all belong to the first segment."""
        real = real_tokens(input_ids, attention_mask, self.pad)
        if inputs_embeds is None:
            if input_ids is None:
                raise ValueError("give input_ids or inputs_embeds")
            inputs_embeds = self.embedding.tokens(input_ids)
        if token_type_ids is None:
            token_type_ids = torch.full(inputs_embeds.shape[:2], self.config.first_segment, device=inputs_embeds.device)
        positions = None if real is None else token_positions(real)
        x = self.embedding.from_vectors(inputs_embeds, positions, token_type_ids)
        context = Context(mask=key_mask(real), kernel=self.kernel, weights=[] if output_attentions else None)
        states: list[Tensor] | None = [] if output_hidden_states else None
        x = self.encoder(x, context, states)
        output = BaseModelOutput(
            last_hidden_state=x,
            hidden_states=None if states is None else (*states, x),
            attentions=None if context.weights is None else tuple(weights for _, weights in context.weights),
        )
        return as_asked(output, return_dict)


class MaskedHead(nn.Module):
    """Dense, gelu, norm: what stands between a state and the (tied) output embedding."""

    def __init__(self, hidden_size: int, eps: float) -> None:
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps)

    def forward(self, states: Tensor) -> Tensor:
        """(..., D) to (..., D)."""
        return self.norm(F.gelu(self.dense(states)))


@dataclass
class PreTrainingOutput(ModelOutput):
    """Loss and logits of both objectives; names as in transformers' BERT."""

    loss: Tensor | None = None
    prediction_logits: Tensor | None = None
    seq_relationship_logits: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


class MaskedWordsModel(EncoderPreTrainedModel):
    """Base of the two that predict masked words."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.model = EncoderModel(config)
        self.head = MaskedHead(config.hidden_size, config.layer_norm_eps)

    def mlm_logits(self, states: Tensor) -> Tensor:
        """(..., D) to (..., V)."""
        return F.linear(self.head(states), self.model.embedding.tokens.weight)

    def mlm_loss(self, logits: Tensor, labels: Tensor | None, count: Any) -> Tensor | None:
        """The mean over masked words, or their sum over ``count``; None without labels."""
        return None if labels is None else token_loss(logits, labels, self.pad, num_items_in_batch=count)


class EncoderForPreTraining(MaskedWordsModel):
    """Masked words and next sentence."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.next_sentence = nn.Linear(config.hidden_size, 1)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> PreTrainingOutput | tuple[Any, ...]:
        """Both logits; the loss is the mean over masked words plus the mean over sentence pairs.

        :param labels: (B, T), -100 where no word is to be predicted
        :param next_sentence_label: (B,), **1 = the second sentence really follows** (transformers' BERT has 0)
        """
        encoded = self.model(input_ids, attention_mask, token_type_ids, **kwargs)
        states = encoded.last_hidden_state
        words, follows = self.mlm_logits(states), self.next_sentence(states[:, 0])
        loss = self.mlm_loss(words, labels, num_items_in_batch)
        if next_sentence_label is not None:
            target = next_sentence_label.view(-1, 1).to(follows.dtype)
            nsp = F.binary_cross_entropy_with_logits(follows, target)
            loss = nsp if loss is None else loss + nsp
        output = PreTrainingOutput(loss, words, follows, encoded.hidden_states, encoded.attentions)
        return as_asked(output, return_dict)


class EncoderForMaskedLM(MaskedWordsModel):
    """Masked words alone; loads the folder of a pre-trained model."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"next_sentence\."]

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> MaskedLMOutput | tuple[Any, ...]:
        """Logits (B, T, V), and a loss when ``labels`` (B, T) are given."""
        encoded = self.model(input_ids, attention_mask, token_type_ids, **kwargs)
        logits = self.mlm_logits(encoded.last_hidden_state)
        loss = self.mlm_loss(logits, labels, num_items_in_batch)
        output = MaskedLMOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return as_asked(output, return_dict)


class EncoderForSequenceClassification(EncoderPreTrainedModel):
    """Classification and regression on the first token's state."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"next_sentence\.", r"head\."]

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.model = EncoderModel(config)
        # Zero at the start, as in the authors' code: before training all classes are equally likely.
        self.classifier = Linear(config.hidden_size, config.num_labels, std=0.0)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        """Logits (B, labels); the loss follows ``config.problem_type``.

        ``regression``: mean squared error; ``single_label_classification``: cross-entropy;
        ``multi_label_classification``: independent yes/no per logit (with one label: binary classification by one
        logit, as the authors' code does). Unset, one label means regression, several with labels in floating point mean
        multi-label.
        """
        kwargs.pop("num_items_in_batch", None)
        encoded = self.model(input_ids, attention_mask, token_type_ids, **kwargs)
        logits = self.classifier(encoded.last_hidden_state[:, 0])
        loss = None if labels is None else self._loss(logits, labels)
        output = SequenceClassifierOutput(loss, logits, encoded.hidden_states, encoded.attentions)
        return as_asked(output, return_dict)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind = self.config.problem_type
        if kind is None and self.config.num_labels == 1:
            kind = "regression"
        if kind is None:
            kind = "multi_label_classification" if labels.is_floating_point() else "single_label_classification"
        if kind == "regression":
            return F.mse_loss(logits, labels.view_as(logits).to(logits.dtype))
        if kind == "multi_label_classification":
            return F.binary_cross_entropy_with_logits(logits, labels.view_as(logits).to(logits.dtype))
        return F.cross_entropy(logits.float(), labels.view(-1))
