"""Decoding on a GPU: steps recorded as a CUDA graph, and products of half precision.

A step has hundreds of small kernels: launched one by one from Python, the GPU would wait for most of them. Shapes
change when sentences leave the batch or the cache grows; then the next step runs eagerly, which lets the libraries
choose their kernels, the one after it is recorded, and from then on it is replayed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from macaron.decode.beam import Beams
from macaron.decode.cache import BeamCache
from macaron.device import Recording

#: A step: last tokens (B, N), number of the step, whether a sentence is at its limit -> next tokens and their parents.
BeamStep = Callable[[Tensor, int, bool], tuple[Tensor, Tensor]]
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class RecordedSteps:
    """Steps of a beam search with a fixed cache, recorded and replayed."""

    def __init__(self, step: BeamStep, state: Beams, cache: BeamCache) -> None:
        self.step, self.state, self.cache = step, state, cache
        self._kind: tuple[object, ...] | None = None
        self._replay: Callable[[], None] | None = None

    def __call__(self, tokens: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        """One step from the last tokens of all beams, (B, N), to the next ones and their parents."""
        # What a recorded step cannot change: shapes, and what is decided in Python rather than by a tensor.
        later = step >= self.state.settings.min_length
        kind = (len(tokens), self.cache.capacity, step > 0, at_limit, later)
        if kind != self._kind:
            self._kind, self._replay = kind, None
            return self.step(tokens, step, at_limit)
        if self._replay is None:
            self._replay = self._record(tokens, step, at_limit)
        self._replay()
        return self._tokens.clone(), self._parents.clone()

    def _record(self, tokens: Tensor, step: int, at_limit: bool) -> Callable[[], None]:
        """Record a step that reads its state from fixed addresses and writes it back there."""
        state = self.state
        held = [each.clone() for each in state.tensors()]
        self._tokens, self._parents = tokens.clone(), torch.zeros_like(tokens)

        def again() -> None:
            state.set_tensors(held)
            found, parents = self.step(self._tokens, step, at_limit)
            torch._foreach_copy_([*held, self._tokens, self._parents], [*state.tensors(), found, parents])
            state.set_tensors(held)

        recording = Recording(again)
        state.set_tensors(held)
        return recording.replay


@contextmanager
def decoder_kernels(device: torch.device, half: torch.dtype | None) -> Iterator[None]:
    """A context for the decoder's step.

    :param half: precision of its matrix products, if less than the model's; states, norms and sums keep theirs
    """
    precision = nullcontext() if half is None else torch.autocast(device.type, half, cache_enabled=False)
    # cuDNN's attention makes a plan for every new shape, which takes longer than all steps with it.
    with precision, sdpa_kernel(_KERNELS):
        yield


class SplitProduct:
    """``x W^T`` in float32 from products of half precision: (x' + x'') (W' + W'')^T without the smallest term.

    One product of three times the depth, with about 16 bits of precision: much faster than one in float32.

    :param weight: (V, D) in float32
    """

    def __init__(self, weight: Tensor, half: torch.dtype) -> None:
        high, low = split(weight, half)
        self.weight = torch.cat([high, high, low], dim=1)  # (V, 3 D)

    def __call__(self, x: Tensor) -> Tensor:
        """(..., D) in float32 to (..., V)."""
        high, low = split(x, self.weight.dtype)
        parts = torch.cat([high, low, high], dim=-1).flatten(0, -2)
        # Only a GPU multiplies halves into float32; elsewhere this is for tests.
        if parts.is_cuda:
            y = torch.mm(parts, self.weight.T, out_dtype=torch.float32)
        else:
            y = parts.float() @ self.weight.float().T
        return y.view(*x.shape[:-1], -1)


def split(x: Tensor, half: torch.dtype) -> tuple[Tensor, Tensor]:
    """A float32 tensor as the sum of two of less precision: the rounded one and the remainder."""
    high = x.to(half)
    return high, (x - high).to(half)
