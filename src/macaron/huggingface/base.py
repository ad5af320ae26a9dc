"""What the classes of all networks share in transformers: construction, the encoder, the loss over tokens, caches."""

from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from huggingface_hub import ModelCard, hf_hub_download
from huggingface_hub.errors import EntryNotFoundError
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import can_return_tuple

from macaron.files import atomic_file
from macaron.models.configuration import ModelConfig
from macaron.models.load import CARD, MODEL_FILES, USED_FILES, has_own_card
from macaron.nn.attention import KeyValueCache
from macaron.seal import checked, seal

IGNORED = -100  # transformers' label for "no target here"


def from_verified(cls: Any, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Any:
    """As ``from_pretrained`` in transformers; the files of a local folder are verified."""
    load = PreTrainedModel.__dict__["from_pretrained"].__get__(None, cls)  # a class method, bound to this class
    with checked(Path(pretrained_model_name_or_path or "", kwargs.get("subfolder") or ""), USED_FILES):
        return load(pretrained_model_name_or_path, *args, **kwargs)


def save_sealed(self: Any, save_directory: Any, is_main_process: bool = True, *args: Any, **kwargs: Any) -> None:
    """As ``save_pretrained`` in transformers, with the model card; the digests of the files are recorded."""
    self.card = read_card(save_directory, self.name_or_path)
    PreTrainedModel.save_pretrained(self, save_directory, is_main_process, *args, **kwargs)
    if is_main_process:
        write_card(save_directory, self.card)  # an upload has replaced it
        seal(save_directory, MODEL_FILES)


def read_card(*folders: str | Path) -> bytes | None:
    """The model card of the first of these folders that has one."""
    found = (Path(folder, CARD) for folder in folders if folder)
    return next((path.read_bytes() for path in found if path.is_file()), None)


def write_card(folder: str | Path, card: bytes | None, repository: str = "", token: Any = None) -> None:
    """Write a model card, if there is one, in the place of the one that transformers has made or found.

    :param repository: to which the folder is uploaded: a card that users have written or edited there stays
    """
    if card is None:
        return
    if repository:
        with suppress(EntryNotFoundError):
            if has_own_card(Path(hf_hub_download(repository, CARD, token=token)).parent):
                return
        made = read_card(folder)
        if made is not None and (tags := ModelCard(made.decode()).data.tags):  # with those that were asked for
            own = ModelCard(card.decode())
            own.data.tags = list(dict.fromkeys([*(own.data.tags or []), *tags]))
            card = str(own).encode()
    with atomic_file(Path(folder, CARD)) as file:
        file.write(card)


class PreTrainedMixin:
    """Makes a class of transformers from one of our networks: `class HFx(PreTrainedMixin, x, PreTrainedModel)`.

    The network brings its parts and its mathematics; all other methods are transformers' own.
    """

    config_class: ClassVar[Any]
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    #: The model card of the folder that it was saved to, or else loaded from.
    card: bytes | None = None
    _supports_sdpa = True

    device = PreTrainedModel.device
    num_parameters = PreTrainedModel.num_parameters
    from_pretrained: ClassVar[Any] = classmethod(from_verified)
    save_pretrained: ClassVar[Any] = save_sealed

    def __init__(self: Any, config: Any) -> None:
        if isinstance(config, ModelConfig):
            config = self.config_class.wrap(config)
        PreTrainedModel.__init__(self, config)
        self.build(config.core)
        self.post_init()

    def _upload_modified_files(self: Any, working_dir: Any, repo_id: str, *args: Any, **kwargs: Any) -> Any:
        # Before it leaves: ``save_pretrained(push_to_hub=True)`` uploads as it saves.
        write_card(working_dir, self.card, repo_id, kwargs.get("token"))
        seal(working_dir, MODEL_FILES)
        return PreTrainedModel._upload_modified_files(self, working_dir, repo_id, *args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        # Each leaf draws its own weights, through functions of torch.nn.init, which leave alone what was loaded.
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()

    def get_input_embeddings(self: Any) -> nn.Module:
        """The token embedding."""
        return self.embedding.tokens

    def set_input_embeddings(self: Any, value: nn.Module) -> None:
        """Replace the token embedding."""
        self.embedding.tokens = value

    @can_return_tuple  # type: ignore[untyped-decorator]
    def encoder_output(
        self: Any,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> BaseModelOutput:
        """The encoder's states (B, T, D) for tokens (B, T) or token vectors (B, T, D), and what else is asked for.

        Without ``token_type_ids`` all belong to the first segment.
        """
        if input_ids is None and inputs_embeds is None:
            raise ValueError("give input_ids or inputs_embeds")
        states: list[Tensor] | None = [] if output_hidden_states else None
        weights: list[tuple[str, Tensor]] | None = [] if output_attentions else None
        real = real_tokens(input_ids, attention_mask, self.pad)
        x = self.encode(input_ids, real, token_type_ids, vectors=inputs_embeds, states=states, weights=weights)
        return BaseModelOutput(x, None if states is None else (*states, x), attentions_of(weights, "F"))


def real_tokens(ids: Tensor | None, mask: Tensor | None, pad_token_id: int) -> Tensor | None:
    """A boolean (B, T) mask of real tokens: the given one, otherwise all that is not padding."""
    if mask is not None:
        return mask.bool()
    return None if ids is None else ids != pad_token_id


def attentions_of(weights: list[tuple[str, Tensor]] | None, operator: str) -> tuple[Tensor, ...] | None:
    """The weights of one kind of attention, self-attention (F) or cross-attention (H), if they were collected."""
    return None if weights is None else tuple(each for name, each in weights if name == operator)


def token_loss(logits: Tensor, labels: Tensor | None, pad_token_id: int, count: Any = None) -> Tensor | None:
    """Cross-entropy of logits (..., V) over the labelled positions (...), in float32 at least; None without labels.

    Labels of -100 and padding are no targets. The mean is over targets, or over ``count`` where a trainer that
    accumulates gradients gives the number for the whole batch (``num_items_in_batch``).
    """
    if labels is None:
        return None
    targets = labels.masked_fill(labels == pad_token_id, IGNORED).reshape(-1)
    precise = torch.promote_types(logits.dtype, torch.float32)
    total = F.cross_entropy(
        logits.reshape(-1, logits.shape[-1]).to(precise), targets, ignore_index=IGNORED, reduction="sum"
    )
    if count is None:
        count = (targets != IGNORED).sum().clamp(min=1)
    return total / count


class GeneratingMixin(PreTrainedMixin):
    """`PreTrainedMixin` for networks that write text. Transformers wants its GenerationMixin among their own bases."""

    @staticmethod
    def new_cache() -> Any:
        """An empty cache."""
        return DynamicCache()

    def _prepare_cache_for_generation(
        self: Any, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        # transformers makes one slot per layer; a scheme may evaluate attention several times in a layer, so we hand
        # over caches that grow by themselves.
        kind = generation_config.cache_implementation
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache is not False:
            if kind not in (None, "dynamic"):
                raise ValueError(f"cache_implementation={kind!r} is not supported; use 'dynamic'")
            model_kwargs["past_key_values"] = self.new_cache()
            return
        super()._prepare_cache_for_generation(  # type: ignore[misc]
            generation_config, model_kwargs, *args, **kwargs
        )

    def written(self: Any, ids: Tensor | None, asked: tuple[Any, ...], **given: Any) -> tuple[Any, ...]:
        """The decoder's states, the cache, the states of all layers and the weights of attention, if asked for.

        :param asked: cache, ``use_cache``, ``labels``, ``output_attentions``, ``output_hidden_states``
        :param given: as in `DecoderNetwork.decode`
        """
        cache, use_cache, labels, output_attentions, output_hidden_states = asked
        if use_cache is None:
            use_cache = self.config.use_cache and labels is None and not self.training
        if use_cache and cache is None:
            cache = self.new_cache()
        states: list[Tensor] | None = [] if output_hidden_states else None
        weights: list[tuple[str, Tensor]] | None = [] if output_attentions else None
        own = None if cache is None else TransformersCache(cache)
        x = self.decode(ids, cache=own, states=states, weights=weights, **given)
        return x, cache, None if states is None else (*states, x), weights


class TransformersCache(KeyValueCache):
    """Transformers' cache behind the interface of ours."""

    def __init__(self, cache: Any) -> None:
        self.cache = cache
        self.own = cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache

    @property
    def length(self) -> int:
        """Number of positions held."""
        return int(self.own.get_seq_length())

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append to a slot; all of it comes back."""
        both: tuple[Tensor, Tensor] = self.own.update(key, value, slot)
        return both

    def memory(self, slot: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, if stored."""
        if not self.cache.is_updated.get(slot):
            return None
        layer = self.cache.cross_attention_cache.layers[slot]
        return layer.keys, layer.values

    def store_memory(self, slot: int, key: Tensor, value: Tensor) -> None:
        """Keep keys and values of the encoder's output."""
        self.cache.cross_attention_cache.update(key, value, slot)
        self.cache.is_updated[slot] = True
