"""The language model in transformers' interface: ``AutoModelForCausalLM``, ``generate``, text generation."""

from typing import Any, ClassVar

from torch import Tensor
from transformers.generation import GenerationMixin
from transformers.modeling_outputs import CausalLMOutputWithPast
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import can_return_tuple

from macaron.huggingface.base import GeneratingMixin, TransformersCache, attentions_of, token_loss
from macaron.huggingface.configuration import HFLanguageConfig
from macaron.models.translation import LanguageModel


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
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None and not self.training
        if use_cache and past_key_values is None:
            past_key_values = self.new_cache()
        states: list[Tensor] | None = [] if output_hidden_states else None
        weights: list[tuple[str, Tensor]] | None = [] if output_attentions else None
        x = self.decode(
            input_ids,
            cache=None if past_key_values is None else TransformersCache(past_key_values),
            target_real=None if attention_mask is None else attention_mask.bool(),
            vectors=inputs_embeds,
            states=states,
            weights=weights,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.logits(x[:, kept])
        loss = None
        if labels is not None:
            loss = token_loss(logits[:, :-1], labels[:, 1:], self.pad, kwargs.get("num_items_in_batch"))
        return CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=past_key_values,
            hidden_states=None if states is None else (*states, x),
            attentions=attentions_of(weights, "F"),
        )
