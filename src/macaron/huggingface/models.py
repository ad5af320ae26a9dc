"""The networks in transformers' interface: the encoders, and those that write text (``AutoModelForSeq2SeqLM``, ...)."""

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import (
    BaseModelOutput,
    CausalLMOutputWithPast,
    MaskedLMOutput,
    Seq2SeqLMOutput,
    SequenceClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import can_return_tuple

from macaron.huggingface.base import IGNORED, GeneratingMixin, PreTrainedMixin, attentions_of, real_tokens, token_loss
from macaron.huggingface.configuration import HFEncoderConfig, HFLanguageConfig, HFTranslationConfig
from macaron.models.encoder import (
    EncoderForMaskedLM,
    EncoderForPreTraining,
    EncoderForSequenceClassification,
    EncoderModel,
)
from macaron.models.translation import LanguageModel, TranslationModel


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


class HFTranslationModel(GeneratingMixin, TranslationModel, GenerationMixin, PreTrainedModel):
    """`macaron.models.TranslationModel` for transformers."""

    config_class: ClassVar[Any] = HFTranslationConfig
    generation_config: Any

    @staticmethod
    def new_cache() -> EncoderDecoderCache:
        """An empty cache."""
        return EncoderDecoderCache(DynamicCache(), DynamicCache())

    def get_encoder(self, modality: str | None = None) -> "EncoderCall":
        """The encoder as a module of its own, as ``generate`` wants it."""
        return EncoderCall(self)

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: BaseModelOutput | tuple[Tensor, ...] | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        decoder_inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        **kwargs: Any,
    ) -> Seq2SeqLMOutput:
        """As any ``AutoModelForSeq2SeqLM``: logits, and a loss when ``labels`` are given.

        Without ``attention_mask`` the padding is recognised by its token. ``labels`` are the target tokens with their
        end; the decoder's input is made from them.
        """
        if encoder_outputs is None:
            given = input_ids, attention_mask, None, inputs_embeds, output_attentions, output_hidden_states
            encoder_outputs = self.encoder_output(*given, return_dict=True)
        encoded: Any = BaseModelOutput(*encoder_outputs) if isinstance(encoder_outputs, tuple) else encoder_outputs
        if decoder_input_ids is None and decoder_inputs_embeds is None:
            if labels is None:
                raise ValueError("give decoder_input_ids, or labels to make them from")
            decoder_input_ids = self.prepare_decoder_input_ids_from_labels(labels)
        asked = past_key_values, use_cache, labels, output_attentions, output_hidden_states
        x, past_key_values, states, weights = self.written(
            decoder_input_ids,
            asked,
            memory=encoded.last_hidden_state,
            real=real_tokens(input_ids, attention_mask, self.pad),
            target_real=None if decoder_attention_mask is None else decoder_attention_mask.bool(),
            vectors=decoder_inputs_embeds,
        )
        logits = self.logits(x)
        return Seq2SeqLMOutput(
            loss=token_loss(logits, labels, self.pad, kwargs.get("num_items_in_batch")),
            logits=logits,
            past_key_values=past_key_values,
            decoder_hidden_states=states,
            decoder_attentions=attentions_of(weights, "F"),
            cross_attentions=attentions_of(weights, "H"),
            encoder_last_hidden_state=encoded.last_hidden_state,
            encoder_hidden_states=encoded.hidden_states,
            encoder_attentions=encoded.attentions,
        )

    def prepare_decoder_input_ids_from_labels(self, labels: Tensor) -> Tensor:
        """Labels (B, T) shifted right behind the start token; ignored labels become padding."""
        start = self.config.decoder_start_token_id
        shifted = F.pad(labels[:, :-1], (1, 0), value=2 if start is None else start)
        return shifted.masked_fill(shifted == IGNORED, self.pad)

    def generate(self, inputs: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; without ``attention_mask`` the padding is recognised by its token, as in ``forward``.

        On the way to the decoder the source tokens are dropped, so the mask has to be made before.
        """
        source = kwargs.get("input_ids") if inputs is None else inputs
        if source is not None and kwargs.get("attention_mask") is None and not source.is_floating_point():
            kwargs["attention_mask"] = (source != self.pad).long()
        return super().generate(inputs, *args, **kwargs)


class EncoderCall(nn.Module):
    """The model's encoder as ``generate`` calls it. It borrows the model: nothing is registered twice."""

    main_input_name = "input_ids"

    def __init__(self, model: HFTranslationModel) -> None:
        super().__init__()
        self.forward = model.encoder_output


class HFLanguageModel(GeneratingMixin, LanguageModel, GenerationMixin, PreTrainedModel):
    """`macaron.models.LanguageModel` for transformers."""

    config_class: ClassVar[Any] = HFLanguageConfig

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast:
        """As any ``AutoModelForCausalLM``: logits, and a loss when ``labels`` (the tokens themselves) are given.

        Padding, on either side, is what ``attention_mask`` says; positions are counted over the other tokens.
        """
        if input_ids is None and inputs_embeds is None:
            raise ValueError("give input_ids or inputs_embeds")
        asked = past_key_values, use_cache, labels, output_attentions, output_hidden_states
        real = None if attention_mask is None else attention_mask.bool()
        x, past_key_values, states, weights = self.written(input_ids, asked, target_real=real, vectors=inputs_embeds)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.logits(x[:, kept])
        loss = None
        if labels is not None:
            loss = token_loss(logits[:, :-1], labels[:, 1:], self.pad, kwargs.get("num_items_in_batch"))
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=past_key_values,
            hidden_states=states,
            attentions=attentions_of(weights, "F"),
        )
