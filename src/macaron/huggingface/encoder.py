"""The text encoders in transformers' interface."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor
from transformers.modeling_outputs import MaskedLMOutput, SequenceClassifierOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import can_return_tuple

from macaron.huggingface.base import PreTrainedMixin, token_loss
from macaron.huggingface.configuration import HFEncoderConfig
from macaron.models.encoder import (
    EncoderForMaskedLM,
    EncoderForPreTraining,
    EncoderForSequenceClassification,
    EncoderModel,
)


class EncoderMixin(PreTrainedMixin):
    """What the encoders share."""

    config_class: ClassVar[Any] = HFEncoderConfig
    base_model_prefix = "model"


class HFEncoderModel(EncoderMixin, EncoderModel, PreTrainedModel):
    """`macaron.models.EncoderModel` for transformers: without a head."""

    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"next_sentence\.", r"head\.", r"classifier\."]

    forward = PreTrainedMixin.encoder_output


class HFEncoderForPreTraining(EncoderMixin, EncoderForPreTraining, PreTrainedModel):
    """`macaron.models.EncoderForPreTraining` for transformers: masked words and next sentence."""

    encoder_class: ClassVar[type[EncoderModel]] = HFEncoderModel

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        next_sentence_label: Tensor | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Both logits, in BERT's class; the loss is the mean over masked words plus the mean over sentence pairs.

        :param labels: (B, T), -100 where no word is to be predicted
        :param next_sentence_label: (B,), **1 = the second sentence really follows** (transformers' BERT has 0)
        """
        # Late: its import imports this module, too (see `macaron.huggingface`).
        from transformers.models.bert.modeling_bert import BertForPreTrainingOutput

        encoded = self.model(input_ids, attention_mask, token_type_ids, return_dict=True, **kwargs)
        states = encoded.last_hidden_state
        words, follows = self.mlm_logits(states), self.next_sentence(states[:, 0])
        loss = token_loss(words, labels, self.pad, num_items_in_batch)
        if next_sentence_label is not None:
            target = next_sentence_label.view(-1, 1).to(follows.dtype)
            nsp = F.binary_cross_entropy_with_logits(follows, target)
            loss = nsp if loss is None else loss + nsp
        return BertForPreTrainingOutput(loss, words, follows, encoded.hidden_states, encoded.attentions)


class HFEncoderForMaskedLM(EncoderMixin, EncoderForMaskedLM, PreTrainedModel):
    """`macaron.models.EncoderForMaskedLM` for transformers: masked words alone."""

    encoder_class: ClassVar[type[EncoderModel]] = HFEncoderModel
    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"next_sentence\."]

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> MaskedLMOutput:
        """Logits (B, T, V), and a loss when ``labels`` (B, T) are given."""
        encoded = self.model(input_ids, attention_mask, token_type_ids, return_dict=True, **kwargs)
        logits = self.mlm_logits(encoded.last_hidden_state)
        loss = token_loss(logits, labels, self.pad, num_items_in_batch)
        return MaskedLMOutput(loss, logits, encoded.hidden_states, encoded.attentions)


class HFEncoderForSequenceClassification(EncoderMixin, EncoderForSequenceClassification, PreTrainedModel):
    """`macaron.models.EncoderForSequenceClassification` for transformers."""

    encoder_class: ClassVar[type[EncoderModel]] = HFEncoderModel
    _keys_to_ignore_on_load_unexpected: ClassVar[list[str]] = [r"next_sentence\.", r"head\."]

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits (B, labels); the loss follows ``config.problem_type``.

        ``regression``: mean squared error; ``single_label_classification``: cross-entropy;
        ``multi_label_classification``: independent yes/no per logit (with one label: binary classification by one
        logit, as the authors' code does). Unset, one label means regression, several with labels in floating point mean
        multi-label.
        """
        kwargs.pop("num_items_in_batch", None)
        encoded = self.model(input_ids, attention_mask, token_type_ids, return_dict=True, **kwargs)
        logits = self.classifier(self.pooled(encoded.last_hidden_state))
        loss = None if labels is None else self._loss(logits, labels)
        return SequenceClassifierOutput(loss, logits, encoded.hidden_states, encoded.attentions)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        kind, several = self.config.problem_type, self.config.num_labels > 1
        if kind == "single_label_classification" or (kind is None and several and not labels.is_floating_point()):
            return F.cross_entropy(logits.float(), labels.view(-1))
        targets = labels.view_as(logits).to(logits.dtype)
        if kind == "regression" or (kind is None and not several):
            return F.mse_loss(logits, targets)
        return F.binary_cross_entropy_with_logits(logits, targets)
