"""Beam cache: the beams of a sentence are positions of one sequence, and a mask stores their ancestry.

Each step appends keys and values of the N beams to the sentence's buffer (the first step one position, since all beams
are equal): P = 1 + N t positions after t further steps. Reordering beams reorders the rows of the mask, N x P numbers
per sentence; keys and values are not copied. A beam's query is compared with N times more keys than it needs, which
costs little beside the layer's matrix products. The encoder's output is also stored once per sentence: its N beams are
queries to one memory.

Letters as in `macaron.nn.attention`; N beams.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from macaron.nn.attention import KeyValueCache

#: Steps that buffers have room for at first, and that they grow by. A fixed cache reads all of it at every step.
ROOM = 32


class BeamCache(KeyValueCache):
    """Keys and values of all beams of a batch, and the ancestry mask.

    :param dtype: of the attention, which the mask is added in
    :param fixed: keep shapes and addresses from step to step, as a recorded step needs them: positions are tensors,
        and attention sees the whole buffers, the mask hiding what has not been written. Otherwise it sees what has.
    """

    def __init__(self, rows: int, beam: int, dtype: torch.dtype, device: torch.device, fixed: bool = False) -> None:
        super().__init__()
        self.beam, self.fixed = beam, fixed
        self.steps = torch.zeros(1, dtype=torch.long, device=device)
        #: (B, 1, n, P) for the present step, added to the attention's logits
        self.mask: Tensor | None = None
        #: What an attention keeps of the encoder's output of one sentence instead of keys and values.
        self.folded: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        self._start = self._end = 0
        self._buffers: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # both, keys, values: one buffer
        self._positions, self._offsets = self.steps, torch.arange(1 - beam, 1, device=device)
        # In a step a beam sees itself and none of the others; the first step's position is seen by all.
        self._itself = torch.full((beam, beam), -math.inf, dtype=dtype, device=device).fill_diagonal_(0.0)
        self._ancestry = self._itself.new_full((rows, 1, beam, ROOM * beam), -math.inf)
        self._ancestry[..., 0] = 0.0

    @property
    def capacity(self) -> int:
        """Positions that the buffers have room for."""
        return self._ancestry.shape[3]

    def reserve(self, step: int) -> None:
        """Make room for a step, counted from 0. This is never recorded: buffers may be replaced."""
        self._end = 1 + step * self.beam
        self._start = max(0, self._end - self.beam)
        if self._end > self.capacity:
            more = ROOM * self.beam
            self._ancestry = pad(self._ancestry, (0, more), value=-math.inf)
            for slot, (both, _, _) in self._buffers.items():
                self._buffers[slot] = _with_views(pad(both, (0, 0, 0, 0, 0, more)))

    def begin_step(self, beams: int) -> None:
        """Begin a step of all N beams, or in the first step of one for all."""
        if self.fixed:
            self._positions = self.steps if beams == 1 else self.steps * self.beam + self._offsets
        if beams == self.beam:
            own = self._itself.expand(len(self._ancestry), 1, -1, -1)
            if self.fixed:
                self._ancestry.index_copy_(3, self._positions, own)
            else:
                self._ancestry[..., self._start : self._end] = own
        self.mask = self._seen()[:, :, :beams] if self.fixed or self.beam > 1 else None

    def end_step(self, parents: Tensor) -> None:
        """Beam n of a sentence continues beam ``parents[:, n]``: (B, N). Only the mask moves."""
        if self.beam > 1:
            seen = self._seen()
            seen.copy_(seen.gather(2, parents[:, None, :, None].expand_as(seen)))
        self.steps.add_(1)

    def extend(self, slot: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write (B, H, n, K) of the present step and return all that attention sees, (B, H, P, K), as views."""
        return self.extend_both(slot, torch.stack([key, value], dim=3))

    def extend_both(self, slot: int, both: Tensor) -> tuple[Tensor, Tensor]:
        """As `extend`, with keys and values in one tensor, (B, H, n, 2, K)."""
        kept = self._buffers.get(slot)
        if kept is None:
            # A fixed cache reads what has not been written, and 0 times a random number may be NaN.
            make = both.new_zeros if self.fixed else both.new_empty
            kept = _with_views(make((*both.shape[:2], self.capacity, *both.shape[3:])))
            self._buffers[slot] = kept
        buffer, keys, values = kept
        if self.fixed:
            buffer.index_copy_(2, self._positions, both)
            return keys, values
        buffer.narrow(2, self._start, both.shape[2]).copy_(both)
        return keys.narrow(2, 0, self._end), values.narrow(2, 0, self._end)

    def distances(self, queries: int, keys: int, device: torch.device) -> Tensor:
        """The distances (1, P) from the present step, which all beams share, to the positions of the buffers."""
        steps = (torch.arange(keys, device=device) + self.beam - 1).div(self.beam, rounding_mode="floor")
        return (steps - self.steps).unsqueeze(0)

    def select(self, rows: Tensor) -> None:
        """Keep these sentences, in this order. The only operation that copies keys."""
        super().select(rows)
        for slot, (both, _, _) in self._buffers.items():
            self._buffers[slot] = _with_views(both.index_select(0, rows))
        self._ancestry = self._ancestry.index_select(0, rows)

    def _seen(self) -> Tensor:
        """The mask, (B, 1, N, P)."""
        return self._ancestry if self.fixed else self._ancestry[..., : self._end]


def _with_views(both: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A buffer (B, H, P, 2, K) with views of its keys and values."""
    return both, both.select(3, 0), both.select(3, 1)
