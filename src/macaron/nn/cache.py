"""The key-value cache of a decoder.

A cache has slots, not layers: a scheme may evaluate self-attention several times in a layer, each with keys of its own.
The stack that owns the attentions numbers the slots.
"""

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of earlier positions, and those of the encoder's output. It grows by concatenation.

    Memory slots depend on the encoder's output alone. With tied weights several layers share one projection, yet each
    has a slot: the tensors are small and the rule is simple.
    """

    def __init__(self) -> None:
        self._past: dict[int, tuple[Tensor, Tensor]] = {}
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def length(self) -> int:
        """Number of positions held."""
        return next(iter(self._past.values()))[0].shape[2] if self._past else 0

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append (B, H, T, K) to a slot and return all of it, (B, H, S, K)."""
        if slot in self._past:
            past_key, past_value = self._past[slot]
            key, value = torch.cat([past_key, key], dim=2), torch.cat([past_value, value], dim=2)
        self._past[slot] = key, value
        return key, value

    def memory(self, slot: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, (B, H, S, K), if they have been stored."""
        return self._memory.get(slot)

    def store_memory(self, slot: int, key: Tensor, value: Tensor) -> None:
        """Keep keys and values of the encoder's output."""
        self._memory[slot] = key.contiguous(), value.contiguous()

    def select(self, rows: Tensor) -> None:
        """Keep these rows of the batch, in this order."""
        for store in (self._past, self._memory):
            for slot, (key, value) in store.items():
                store[slot] = key.index_select(0, rows), value.index_select(0, rows)
