"""Rows of packed texts as fused kernels see them."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

SEEDS = 256  # drawn at a time


class Dropout(NamedTuple):
    """A seed (4,) int32, the rate, and the factor of what is kept."""

    seed: Tensor
    rate: float
    factor: float


@dataclass
class PackedRows:
    """Packed rows (B, T), and what all sub-layers of a forward pass share.

    :param texts: (B, T) int32, the number of the text of each position; it attends to those with its number
    :param memory_texts: (B, S), likewise of cross-attention's keys
    :param offsets: cumulative lengths of the texts, (N + 1,) int32, for rows that are too long for our kernel
    """

    texts: Tensor
    memory_texts: Tensor | None = None
    offsets: Tensor | None = None
    weights: dict[int, Tensor] = field(default_factory=dict)
    seeds: list[Tensor] = field(default_factory=list)

    def cast(self, modules: Iterable[nn.Module]) -> "PackedRows":
        """Convert the weights of all linear maps of these modules at once."""
        linear = (part for module in modules for part in module.modules() if isinstance(part, nn.Linear))
        given = {id(each): each for part in linear for each in (part.weight, part.bias) if each is not None}
        made = [torch.empty_like(each, dtype=self.dtype) for each in given.values()]
        with torch.no_grad():
            torch._foreach_copy_(made, list(given.values()))
        self.weights = dict(zip(given, made, strict=True))
        return self

    @property
    def dtype(self) -> torch.dtype:
        """That of products and states."""
        kind = self.texts.device.type
        return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else torch.get_default_dtype()

    def cross(self, texts: Tensor) -> "PackedRows":
        """Rows (B, T) of another sequence, which attend to these."""
        return replace(self, texts=texts, memory_texts=self.texts)

    def half(self, weight: Tensor) -> Tensor:
        """A weight in the precision of products."""
        return self.weights[id(weight)]

    def dropout(self, rate: float) -> Dropout:
        """Dropout with a seed of its own, from the device's generator: a graph draws anew at every replay."""
        if not rate:
            return Dropout(self.texts, 0.0, 1.0)  # any seed will do
        if not self.seeds:
            limits = torch.iinfo(torch.int32)
            drawn = torch.randint(limits.min, limits.max, (SEEDS, 4), dtype=torch.int32, device=self.texts.device)
            self.seeds.extend(drawn.unbind(0))
        return Dropout(self.seeds.pop(), rate, 1 / (1 - rate))
