"""The decoder's cache for beams: nothing in it moves when the beams are reordered.

The N beams of a sentence are decoded as N positions of *one* sequence. At every step their keys and values are written
to the next N places of the sentence's buffer and stay there (one place in the first step, where all beams are one).
Which of all those places belong to the past of a beam is said by a mask, and reordering the beams reorders the rows of
that mask, N x P numbers a sentence. P, the places so far, is 1 + N t after t further steps.
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
        self._steps = self._start = self._end = 0
        self._past: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # both, keys, values: one buffer
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}
        self._folded: dict[int, tuple[Tensor, ...]] = {}
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
        """(B, 1, N, P) for the present step, added to the attention's logits; one beam needs none."""
        return self._ancestry if self.beam > 1 else None

    def begin_step(self, beams: int) -> None:
        """Make room for the beams of the step to come: all N, or in the first step one for all."""
        self._start, self._end = self._end, self._end + beams
        if self.beam > 1:
            here = self._itself[:beams, :beams].expand(len(self._ancestry), 1, -1, -1)
            self._ancestry = torch.cat([self._ancestry[:, :, :beams], here], dim=3)

    def end_step(self) -> None:
        """All slots have been extended."""
        self._steps += 1

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write (B, H, N, K) of the present step; all, (B, H, P, K), come back as views."""
        return self.extend_both(slot, torch.stack([key, value], dim=3))

    def extend_both(self, slot: int, both: Tensor) -> tuple[Tensor, Tensor]:
        """As `extend`, with keys and values in one tensor, (B, H, N, 2, K)."""
        kept = self._past.get(slot)
        if kept is None or kept[0].shape[2] < self._end:
            kept = self._past[slot] = _with_views(self._grown(None if kept is None else kept[0], both))
        buffer, keys, values = kept
        buffer.narrow(2, self._start, both.shape[2]).copy_(both)
        return keys.narrow(2, 0, self._end), values.narrow(2, 0, self._end)

    def memory(self, slot: int) -> tuple[Tensor, Tensor] | None:
        """Keys and values of the encoder's output, (B, H, S, K) for all beams together."""
        return self._memory.get(slot)

    def store_memory(self, slot: int, key: Tensor, value: Tensor) -> None:
        """Keep keys and values of the encoder's output."""
        self._memory[slot] = key.contiguous(), value.contiguous()

    def folded(self, slot: int) -> tuple[Tensor, ...] | None:
        """What `store_folded` has kept."""
        return self._folded.get(slot)

    def store_folded(self, slot: int, tensors: tuple[Tensor, ...]) -> None:
        """Keep what an attention has made of the encoder's output of one sentence instead of keys and values."""
        self._folded[slot] = tensors

    def reorder(self, parents: Tensor) -> None:
        """Beam n of a sentence goes on from beam ``parents[:, n]``: (B, N). To be called after every step."""
        if self._steps == 1:  # from the one that there was
            self._ancestry = self._ancestry.expand(-1, -1, self.beam, -1)
        elif self.beam > 1:
            index = parents[:, None, :, None].expand(-1, 1, -1, self._ancestry.shape[3])
            self._ancestry = self._ancestry.gather(2, index)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order. The only operation that copies keys."""
        for slot, (both, _, _) in self._past.items():
            self._past[slot] = _with_views(both.index_select(0, rows))
        for slot, (key, value) in self._memory.items():
            self._memory[slot] = key.index_select(0, rows), value.index_select(0, rows)
        self._ancestry = self._ancestry.index_select(0, rows)

    def _grown(self, old: Tensor | None, like: Tensor) -> Tensor:
        """A buffer with room for the present step, and what the old one held."""
        places = _FIRST_CAPACITY * self.beam if old is None else 2 * old.shape[2]
        new = like.new_empty(*like.shape[:2], max(places, self._end), *like.shape[3:])
        if old is not None:
            new[:, :, : self._start] = old[:, :, : self._start]
        return new


def _with_views(both: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, H, places, 2, K) with the keys and the values in it."""
    return both, both.select(3, 0), both.select(3, 1)
