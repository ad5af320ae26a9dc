"""What the classes with ``generate`` share: transformers' caches, with a slot for every evaluation of attention."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicCache, EncoderDecoderCache

from macaron.huggingface.base import PreTrainedMixin
from macaron.nn.attention import KeyValueCache


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
