"""Decoding on a GPU: steps recorded as a CUDA graph, and products of half precision.

A step has hundreds of small kernels: launched one by one from Python, the GPU would wait for most of them. The first
two steps of a batch run eagerly, which loads all kernels; the next one is recorded, and from then on it is replayed.
When sentences leave the batch or the cache grows, shapes change, and a step is recorded again.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn.attention import sdpa_kernel

from macaron.decode.beam import Beams
from macaron.decode.cache import BeamCache
from macaron.device import ATTENTION_KERNELS, Recording
from macaron.models.translation import TranslationModel

#: A step: last tokens (B, N), number of the step, whether a sentence is at its limit -> next tokens and their parents.
BeamStep = Callable[[Tensor, int, bool], tuple[Tensor, Tensor]]


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
            if step <= 1:
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
    """A context for the decoder's step; ``half``: precision of its matrix products, if less than the model's."""
    precision = nullcontext() if half is None else torch.autocast(device.type, half, cache_enabled=False)
    with precision, sdpa_kernel(ATTENTION_KERNELS):
        yield


@contextmanager
def encoder_precision() -> Iterator[None]:
    """A context for the encoder: products of float32 numbers rounded to 11 bits (TF32)."""
    products = torch.backends.cuda.matmul
    before, products.fp32_precision = products.fp32_precision, "tf32"
    try:
        yield
    finally:
        products.fp32_precision = before


@contextmanager
def without_collection() -> Iterator[None]:
    """A context without garbage collection: thousands of new texts make Python walk through all objects of PyTorch."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


class Logits:
    """``x W^T`` in float32 from factors of 11 bits (float16), W (V, D) and a bias (V,): all are within their range."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight.to(torch.float16).T, bias

    def __call__(self, x: Tensor) -> Tensor:
        """(..., D) to (..., V)."""
        rows, product = x.to(torch.float16).flatten(0, -2), partial(torch.mm, out_dtype=torch.float32)
        # Only a GPU multiplies halves into float32; elsewhere this is for tests.
        y = product(rows, self.weight) if rows.is_cuda else rows.float() @ self.weight.float()
        return (y if self.bias is None else y + self.bias).view(*x.shape[:-1], -1)


def with_kernels(model: TranslationModel, half: torch.dtype | None) -> TranslationModel:
    """The model with Triton kernels for products of half precision; as it is, if there are none for its operators."""
    if half is None or find_spec("triton") is None:
        return model
    from macaron.decode.gpu_model import GpuTranslationModel

    made = GpuTranslationModel(model, half)
    return made if made.complete else model
