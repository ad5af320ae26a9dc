"""The decoder's step with fixed shapes and addresses, as a CUDA graph needs it.

The same idea as `macaron.decode.cache` (the N beams of a sentence are N positions of one sequence, and a mask says
whose past is whose), but the buffers have room for more steps than have been taken, the mask hides what has not been
written, and the number of the step is a tensor: a recorded step can be replayed.

Letters as in `macaron.nn.attention`; N beams.
"""

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from macaron.decode.scorer import encode_sources
from macaron.models.translation import TranslationModel
from macaron.nn import Context
from macaron.nn.embedding import FIRST_POSITION

_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
#: Room for so many steps at first, and so many more whenever it is full. All of it is looked at in every step.
ROOM = 32


class FixedBeamCache:
    """Keys and values of all beams of a batch in buffers of one size, changed in place only.

    :param rows: B, number of sentences
    :param dtype: of the attention, which the mask is added in
    """

    def __init__(self, rows: int, beam: int, dtype: torch.dtype, device: torch.device) -> None:
        self.beam, self.room = beam, ROOM
        self.steps = torch.zeros((), dtype=torch.long, device=device)
        self.places = self._beams = torch.arange(beam, device=device)
        self._past: dict[int, tuple[Tensor, Tensor]] = {}
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}
        self._itself = torch.full((beam, beam), -math.inf, dtype=dtype, device=device).fill_diagonal_(0.0)
        self.mask = self._itself.new_full((rows, 1, beam, self.room * beam), -math.inf)

    @property
    def length(self) -> int:
        """Number of steps held; asking makes a GPU wait."""
        return int(self.steps)

    def begin_step(self) -> None:
        """Every beam sees itself, and in this step none of the others."""
        self.places = self.steps * self.beam + self._beams
        self.mask.index_copy_(3, self.places, self._itself.expand(len(self.mask), 1, -1, -1))

    def end_step(self) -> None:
        """All slots have been extended."""
        self.steps.add_(1)

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write (B, H, N, K) of the present step; the buffers, (B, H, room N, K), come back."""
        if slot not in self._past:
            shape = (*key.shape[:2], self.room * self.beam, key.shape[3])
            self._past[slot] = key.new_zeros(shape), value.new_zeros(shape)
        keys, values = self._past[slot]
        keys.index_copy_(2, self.places, key)
        values.index_copy_(2, self.places, value)
        return keys, values

    def memory(self, slot: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, (B, H, S, K) for all beams together."""
        return self._memory.get(slot)

    def store_memory(self, slot: int, key: Tensor, value: Tensor) -> None:
        """Keep keys and values of the encoder's output."""
        self._memory[slot] = key.contiguous(), value.contiguous()

    def reorder(self, parents: Tensor) -> None:
        """Beam n of a sentence goes on from beam ``parents[:, n]``: (B, N). Only the mask moves."""
        if self.beam > 1:
            index = parents[:, None, :, None].expand(-1, 1, -1, self.mask.shape[3])
            self.mask.copy_(self.mask.gather(2, index))

    def grow(self) -> None:
        """Make room for more steps: new buffers."""
        more = ROOM * self.beam
        self.room += ROOM
        self.mask = torch.nn.functional.pad(self.mask, (0, more), value=-math.inf)
        for slot, both in self._past.items():
            key, value = (torch.nn.functional.pad(each, (0, 0, 0, more)) for each in both)
            self._past[slot] = key, value

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order: new buffers. The only operation that copies keys."""
        for store in (self._past, self._memory):
            for slot, (key, value) in store.items():
                store[slot] = key.index_select(0, rows), value.index_select(0, rows)
        self.mask = self.mask.index_select(0, rows)


class FixedScorer:
    """The model with the sources encoded and the past in a `FixedBeamCache`; takes the place of `Scorer`.

    :param sources: token ids of the sentences, each with its end
    :param half: precision of the decoder's matrix products, if less than the model's. States, norms and sums stay as
        they are, and so do the logits, where rounding would be seen at once.
    """

    def __init__(
        self,
        model: TranslationModel,
        sources: Sequence[Sequence[int]],
        beam: int,
        half: torch.dtype | None = None,
    ) -> None:
        self.model, self.half = model, half
        memory, self.memory_mask = encode_sources(model, sources, half)
        self.memory: Tensor | None = memory
        self.score_dtype = torch.promote_types(memory.dtype, torch.float32)
        self.cache = FixedBeamCache(len(sources), beam, half or memory.dtype, memory.device)
        self._output = None if half is None else _split_weight(model.embedding.tokens.weight, half)

    def step(self, tokens: Tensor) -> Tensor:
        """The last tokens of all beams, (B, N), to log-probabilities (B, N, V) of the next, in float32 or better."""
        model, cache = self.model, self.cache
        cache.begin_step()
        context = Context(
            mask=cache.mask,
            memory=self.memory,
            memory_mask=self.memory_mask,
            cache=cache,
            kernel=model.kernel,
        )
        x = model.embedding(tokens, (cache.steps + FIRST_POSITION).expand(1))
        # cuDNN's attention makes a plan for every new shape, which takes longer than all steps with it.
        with self._precision(tokens.device), sdpa_kernel(_KERNELS):
            states = model.decoder(x, context)
        cache.end_step()
        self.memory = None
        logits = model.logits(states) if self._output is None else split_product(states, self._output)
        return logits.log_softmax(dim=-1, dtype=self.score_dtype)

    def reorder(self, parents: Tensor) -> None:
        """Beam n of a sentence goes on from beam ``parents[:, n]``: (B, N)."""
        self.cache.reorder(parents)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order."""
        self.cache.select(rows)
        self.memory_mask = self.memory_mask.index_select(0, rows)

    def _precision(self, device: torch.device) -> AbstractContextManager[Any]:
        if self.half is None:
            return nullcontext()
        return torch.autocast(device.type, self.half, cache_enabled=False)


def split(x: Tensor, half: torch.dtype) -> tuple[Tensor, Tensor]:
    """A float32 tensor as the sum of two of less precision: the rounded one and what rounding left."""
    high = x.to(half)
    return high, (x - high).to(half)


def _split_weight(weight: Tensor, half: torch.dtype) -> Tensor:
    """(V, D) for `split_product`: (V, 3 D)."""
    high, low = split(weight, half)
    return torch.cat([high, high, low], dim=1)


def split_product(x: Tensor, weight: Tensor) -> Tensor:
    """``x W^T`` in float32 from products of half precision: (x' + x'') (W' + W'')^T without the least term.

    One product of three times the depth, with some 16 bits: much faster than one in float32.

    :param x: (..., D) in float32
    :param weight: (V, 3 D), see `_split_weight`
    """
    high, low = split(x, weight.dtype)
    parts = torch.cat([high, low, high], dim=-1).flatten(0, -2)
    # Only a GPU multiplies halves into whole ones; elsewhere this is for tests.
    cuda = parts.is_cuda
    product = torch.mm(parts, weight.T, out_dtype=torch.float32) if cuda else parts.float() @ weight.float().T
    return product.view(*x.shape[:-1], -1)
