"""The decoder's cache for beams: nothing in it moves when the beams are reordered.

The N beams of a sentence are decoded as N positions of *one* sequence. At step t their keys and values are written
to places t N ... t N + N - 1 of the sentence's buffer and stay there. Which of all those places belong to the past
of a beam is said by a mask, and reordering the beams reorders the rows of that mask, N x t N numbers a sentence.
A beam thus looks at N times more keys than it needs, which is little beside the layer's matrix products, and no
key is ever copied. The encoder's output, too, is held once for a sentence: its N beams are queries to one memory.

Letters as in `macaron.nn.attention`; N beams.
"""

import math

import torch
from torch import Tensor

_FIRST_CAPACITY = 32  # steps; doubled when full, so that growing costs little in the end


class BeamCache:
    """Keys and values of all beams of a batch, with the mask that tells whose they are.

    :param rows: B, number of sentences
    :param beam: N
    :param dtype: of the model, which the mask is added in
    """

    def __init__(self, rows: int, beam: int, dtype: torch.dtype, device: torch.device) -> None:
        self.beam = beam
        self._steps = 0
        self._past: dict[int, tuple[Tensor, Tensor]] = {}
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}
        # A beam sees itself and, in this step, none of the others.
        itself = torch.full((beam, beam), -math.inf, dtype=dtype, device=device).fill_diagonal_(0.0)
        self._itself = itself
        self._ancestry = itself.new_empty(rows, 1, beam, 0)

    @property
    def length(self) -> int:
        """Number of steps held."""
        return self._steps

    @property
    def mask(self) -> Tensor | None:
        """(B, 1, N, (t + 1) N) for the present step, added to the attention's logits; one beam needs none."""
        return self._ancestry if self.beam > 1 else None

    def begin_step(self) -> None:
        """Make room in the mask for the beams of the step to come."""
        if self.beam > 1:
            here = self._itself.expand(self._ancestry.shape[0], 1, -1, -1)
            self._ancestry = torch.cat([self._ancestry, here], dim=3)

    def end_step(self) -> None:
        """All slots have been extended."""
        self._steps += 1

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write (B, H, N, K) of the present step; all steps, (B, H, (t + 1) N, K), come back as a view."""
        start, end = self._steps * self.beam, (self._steps + 1) * self.beam
        kept = self._past.get(slot)
        if kept is None or kept[0].shape[2] < end:
            kept = self._past[slot] = _grown(kept, key, start, end), _grown(kept, value, start, end, 1)
        keys, values = kept
        keys[:, :, start:end] = key
        values[:, :, start:end] = value
        return keys[:, :, :end], values[:, :, :end]

    def memory(self, slot: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, (B, H, S, K) for all beams together."""
        return self._memory.get(slot)

    def store_memory(self, slot: int, key: Tensor, value: Tensor) -> None:
        """Keep keys and values of the encoder's output."""
        self._memory[slot] = key.contiguous(), value.contiguous()

    def reorder(self, parents: Tensor) -> None:
        """Beam n of a sentence goes on from beam ``parents[:, n]``: (B, N)."""
        if self.beam > 1:
            index = parents[:, None, :, None].expand(-1, 1, -1, self._ancestry.shape[3])
            self._ancestry = self._ancestry.gather(2, index)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order. The only operation that copies keys."""
        for store in (self._past, self._memory):
            for slot, (key, value) in store.items():
                store[slot] = key.index_select(0, rows), value.index_select(0, rows)
        self._ancestry = self._ancestry.index_select(0, rows)


def _grown(kept: tuple[Tensor, Tensor] | None, like: Tensor, used: int, needed: int, which: int = 0) -> Tensor:
    """A buffer for at least ``needed`` places with what ``kept`` held."""
    batch, heads, beam, width = like.shape
    old = None if kept is None else kept[which]
    places = _FIRST_CAPACITY * beam if old is None else 2 * old.shape[2]
    new = like.new_empty(batch, heads, max(places, needed), width)
    if old is not None:
        new[:, :, :used] = old[:, :, :used]
    return new
