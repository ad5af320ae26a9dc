"""Matrices laid out for oneDNN, which is part of PyTorch: in float32 and in int8.

PyTorch multiplies by a matrix as it lies in memory. oneDNN multiplies faster by one that was cut into blocks before,
the more so the fewer rows there are to multiply (one sentence), and it knows int8.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.errors import MacaronError

_SMALLEST = 1e-12  # of a scale: a row of zeros has one, too
#: The kernel's last arguments: scale, zero and type of the output, then what is to follow it: nothing.
_AS_FLOAT: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")


class Direct(nn.Module):
    """A module that is called without the search for hooks, and whose parts are ordinary attributes.

    For one sentence, both cost a tenth of a product.
    """

    def __call__(self, *args: Any) -> Any:
        """As ``forward``."""
        return self.forward(*args)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module):
            self.__dict__[name] = value  # found at once, where PyTorch looks in three tables first


#: The number of threads for products while everything else has one, see `threads_for_products`; otherwise empty.
_threads: list[int] = []
#: Up to so many threads are for everything: two cost small operations no more than one.
_FEW_THREADS = 2


@contextmanager
def threads_for_products() -> Iterator[None]:
    """A context in which only products use PyTorch's threads, if there are many.

    For one sentence, everything else is so little that waking many threads takes longer than the work. One thread then,
    not a few: OpenMP would end threads and start them again between a team of two and a team of sixteen.
    """
    threads = torch.get_num_threads()
    if threads <= _FEW_THREADS or _threads:
        yield
        return
    _threads.append(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _threads.clear()
        torch.set_num_threads(threads)


def product(kernel: Callable[..., Tensor], *args: Any) -> Tensor:
    """Call a kernel, with all threads if they are for products only."""
    if not _threads:
        return kernel(*args)
    torch.set_num_threads(_threads[0])
    try:
        return kernel(*args)
    finally:
        torch.set_num_threads(1)


class PackedLinear(Direct):
    """``step (x W^T + b)`` in float32.

    Where PyTorch has no oneDNN it is the plain product.

    :param weight: (O, I)
    :param bias: (O,)
    :param relu: cut off what is below zero; not together with ``onto``
    :param positive: no number of x is below zero (of use in int8 only)
    :param step: how far a sub-layer moves its states by this, its last product
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        relu: bool = False,
        positive: bool = False,
        step: float = 1.0,
    ) -> None:
        super().__init__()
        self.after = "relu" if relu else "none"
        # Plain attributes, not buffers: blocks of oneDNN can be neither saved nor moved.
        weight, self.bias = weight.detach(), None if bias is None else bias.detach()
        if step != 1:
            weight, self.bias = weight * step, None if self.bias is None else self.bias * step
        self.weight, self.kernel, self.adding_kernel = weight.contiguous(), None, None
        if packs():
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight)
            self.kernel = torch.ops.mkldnn._linear_pointwise.default
            self.adding_kernel = torch.ops.mkldnn._linear_pointwise.binary

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """(..., I) to (..., O), added to ``onto`` if that is given."""
        if self.adding_kernel is not None and onto is not None:
            return product(self.adding_kernel, x, onto, self.weight, self.bias, "add")
        if self.kernel is not None:
            return product(self.kernel, x, self.weight, self.bias, self.after, [], "")
        y = F.linear(x, self.weight, self.bias)
        if self.after == "relu":
            y.relu_()
        return y if onto is None else y.add_(onto)


class Int8Linear(Direct):
    """``step (x W^T + b)`` with W and x rounded to 8 bits.

    W has a scale for each of its rows, found once. x has one for each of its rows, found anew each time: what comes out
    for one row does not depend on the others, so a translation does not depend on its batch.

    Parameters are those of `PackedLinear`.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        relu: bool = False,
        positive: bool = False,
        step: float = 1.0,
    ) -> None:
        super().__init__()
        weight = weight.detach()
        self.relu, self.positive = relu, positive
        scales = (weight.abs().amax(dim=1) / 127).clamp_(min=_SMALLEST)
        rounded = (weight / scales[:, None]).round_().to(torch.int8)
        self.weight, self.scales = torch.ops.onednn.qlinear_prepack(rounded, None), scales * step
        self.zeros = torch.zeros(len(weight), dtype=torch.long)
        self.bias = None if bias is None else bias.detach() * step
        self.levels = 127 if positive else activation_levels()
        self.zero = 0 if positive else self.levels + 1
        self.smallest = torch.tensor(_SMALLEST)
        self.kernel = torch.ops.onednn.qlinear_pointwise.default

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """(..., I) to (..., O), added to ``onto`` if that is given."""
        rows = x.reshape(-1, x.shape[-1])
        # Several small operations, each of them cheap: vector_norm and addcdiv would be shorter and slower.
        sizes = (rows if self.positive else rows.abs()).amax(dim=1, keepdim=True)
        scale = torch.add(self.smallest, sizes, alpha=1 / self.levels)
        # The kernel wants unsigned numbers. Conversion to signed ones is four times faster, and the sum wraps around.
        rounded = (rows / scale).round_().to(torch.int8).view(torch.uint8)
        if self.zero:
            rounded += self.zero
        y = product(self.kernel, rounded, 1.0, self.zero, self.weight, self.scales, self.zeros, None, *_AS_FLOAT)
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)
        if self.relu:
            y.relu_()
        if onto is not None:
            y += onto
        return y.view(*x.shape[:-1], -1)


def packs() -> bool:
    """Whether this PyTorch has oneDNN's packed product."""
    available = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


@cache
def activation_levels() -> int:
    """The largest level of a rounded activation, 127 or 63.

    Without VNNI, pairs of products are added in 16 bits, and what does not fit is cut off: unsigned numbers up to 127
    fit. Which way it is done here is found by trying, with the largest numbers there are.
    """
    rows, weight = torch.full((1, 64), 255, dtype=torch.uint8), torch.full((64, 64), 127, dtype=torch.int8)
    packed, scales, zeros = torch.ops.onednn.qlinear_prepack(weight, None), torch.ones(64), torch.zeros(64).long()
    sums = torch.ops.onednn.qlinear_pointwise(rows, 1.0, 0, packed, scales, zeros, None, *_AS_FLOAT)
    return 127 if bool((sums == 255 * 127 * 64).all()) else 63


def check_int8() -> None:
    """Raise unless int8 products work here."""
    try:
        made = Int8Linear(torch.eye(16), None)(torch.eye(16))
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise MacaronError(
            f"int8 needs a PyTorch with oneDNN, which this one lacks ({reason}): leave --int8 out, or install the "
            "usual PyTorch for x86-64"
        ) from None
    if not torch.allclose(made, torch.eye(16), atol=0.02):
        raise MacaronError("int8 products are wrong on this processor: leave --int8 out")
