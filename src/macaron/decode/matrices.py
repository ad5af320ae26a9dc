"""Matrices laid out for oneDNN, which is part of PyTorch: in float32 and in int8.

PyTorch multiplies by a matrix as it lies in memory. oneDNN multiplies faster by one that was cut into blocks before,
the more so the fewer rows there are to multiply (one sentence), and it knows int8.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.errors import MacaronError

_SMALLEST = 1e-12  # of a scale: a row of zeros has one, too
#: The kernel's last arguments: scale, zero and type of the output, then what is to follow it: nothing.
_AS_FLOAT: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")


class Direct(nn.Module):
    """A module that is called without the search for hooks: for one sentence, that costs a tenth of a product."""

    def __call__(self, *args: Any) -> Any:
        """As ``forward``."""
        return self.forward(*args)


#: The number of threads for products while everything else has one, see `threads_for_products`; otherwise empty.
_threads: list[int] = []


@contextmanager
def threads_for_products() -> Iterator[None]:
    """A context in which only products use PyTorch's threads.

    For one sentence, everything else is so little that waking a thread takes longer than the work.
    """
    threads = torch.get_num_threads()
    if threads == 1 or _threads:
        yield
        return
    _threads.append(threads)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        _threads.clear()
        torch.set_num_threads(threads)


def _product(kernel: Callable[..., Tensor], *args: Any) -> Tensor:
    """Call a kernel, with all threads if they are for products only."""
    if not _threads:
        return kernel(*args)
    torch.set_num_threads(_threads[0])
    try:
        return kernel(*args)
    finally:
        torch.set_num_threads(1)


class PackedLinear(Direct):
    """``x W^T + b`` in float32.

    Where PyTorch has no oneDNN it is the plain product.

    :param weight: (O, I)
    :param bias: (O,)
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, relu: bool = False) -> None:
        super().__init__()
        self.packed = packs()
        self.after = "relu" if relu else "none"
        # Plain attributes, not buffers: blocks of oneDNN can be neither saved nor moved.
        weight = weight.detach().contiguous()
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight) if self.packed else weight
        self.bias = None if bias is None else bias.detach()
        self.kernel = torch.ops.mkldnn._linear_pointwise.default if self.packed else None

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        if self.kernel is not None:
            return _product(self.kernel, x, self.weight, self.bias, self.after, [], "")
        y = F.linear(x, self.weight, self.bias)
        return y.relu_() if self.after == "relu" else y


class Int8Linear(Direct):
    """``x W^T + b`` with W and x rounded to 8 bits.

    W has a scale for each of its rows, found once. x has one for each of its rows, found anew each time: what comes out
    for one row does not depend on the others, so a translation does not depend on its batch.

    :param weight: (O, I)
    :param bias: (O,)
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, relu: bool = False) -> None:
        super().__init__()
        weight = weight.detach()
        self.relu = relu
        self.scales = (weight.abs().amax(dim=1) / 127).clamp_(min=_SMALLEST)
        rounded = (weight / self.scales[:, None]).round_().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
        self.zeros = torch.zeros(len(weight), dtype=torch.long)
        self.bias = None if bias is None else bias.detach()
        self.levels = activation_levels()
        self.smallest = torch.tensor(_SMALLEST)
        self.kernel = torch.ops.onednn.qlinear_pointwise.default

    def forward(self, x: Tensor) -> Tensor:
        """(..., I) to (..., O)."""
        rows = x.reshape(-1, x.shape[-1])
        # Several small operations, each of them cheap: vector_norm, addcdiv and addcmul would be shorter and slower.
        scale = torch.add(self.smallest, rows.abs().amax(dim=1, keepdim=True), alpha=1 / self.levels)
        # The kernel wants unsigned numbers, zero at 128. Conversion cuts, and the half makes that rounding.
        rounded = (rows / scale).add_(128.5).to(torch.uint8)
        y = _product(self.kernel, rounded, 1.0, 128, self.weight, self.scales, self.zeros, None, *_AS_FLOAT).mul_(scale)
        if self.bias is not None:
            y += self.bias
        if self.relu:
            y.relu_()
        return y.view(*x.shape[:-1], -1)


def packs() -> bool:
    """Whether this PyTorch has oneDNN's packed product."""
    available = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def activation_levels() -> int:
    """The largest level of a rounded activation.

    Processors without VNNI add pairs of products in 16 bits, which 7 bits cannot overflow.
    """
    known = getattr(torch.cpu, "_is_vnni_supported", None)
    return 127 if known is not None and known() else 63


def check_int8() -> None:
    """Raise unless int8 products work here."""
    try:
        product = Int8Linear(torch.eye(16), None)(torch.eye(16))
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise MacaronError(
            f"int8 needs a PyTorch with oneDNN, which this one lacks ({reason}): leave --int8 out, or install the "
            "usual PyTorch for x86-64"
        ) from None
    if not torch.allclose(product, torch.eye(16), atol=0.02):
        raise MacaronError("int8 products are wrong on this processor: leave --int8 out")
