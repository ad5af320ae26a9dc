"""Linear maps for the CPU: matrices packed for oneDNN, which is part of PyTorch, in float32 and in int8.

PyTorch multiplies by a matrix in row-major order. oneDNN multiplies faster by a matrix that was rearranged into blocks,
especially for few rows (one sentence), and it supports int8.

Where PyTorch has no oneDNN (macOS), float32 products are PyTorch's own and int8 is refused. The environment variable
``MACARON_PACKED=off`` does the same anywhere, for tests.
"""

import copy
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.errors import MacaronError
from macaron.nn.attention import Context

_SMALLEST = 1e-12  # of a scale, for rows of zeros
_SEVEN_BITS = 63  # the largest level of a number with 7 bits
#: The int8 kernel's last arguments: scale, zero point and type of the output, then no post-operation.
_AS_FLOAT: tuple[Any, ...] = (1.0, 0, torch.float32, "none", [], "")


class Direct(nn.Module):
    """A module without hooks, whose sub-modules are plain attributes: each of both costs a tenth of a product."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As ``forward``."""
        return self.forward(*args, **kwargs)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if isinstance(value, nn.Module):
            self.__dict__[name] = value  # found before PyTorch searches its three tables

    def take_over(self, plain: nn.Module) -> None:
        """Have the attributes of a plain module; sub-modules and parameters are shared."""
        own = (item for item in vars(plain).items() if not item[0].startswith("_"))
        for name, value in (*own, *plain.named_children(), *plain.named_parameters(recurse=False)):
            setattr(self, name, value)


#: The number of threads for products inside `threads_for_products`; otherwise empty.
_threads: list[int] = []
#: Up to this many threads are used for everything: two cost small operations no more than one.
_FEW_THREADS = 2


@contextmanager
def threads_for_products() -> Iterator[None]:
    """A context in which only products use PyTorch's threads, if there are many.

    For one sentence, waking many threads for any other operation takes longer than its work. All others get one thread
    rather than a few: OpenMP ends and restarts threads between a team of two and a team of sixteen.
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
    """Call a kernel with the threads for products."""
    if not _threads:
        return kernel(*args)
    torch.set_num_threads(_threads[0])
    try:
        return kernel(*args)
    finally:
        torch.set_num_threads(1)


class PackedLinear(Direct):
    """``c (x W^T + b)`` in float32.

    :param weight: (O, I); ``bias`` is (O,)
    :param relu: apply ReLU; not together with ``onto``
    :param nonnegative: x has no negative numbers (used in int8 only)
    :param coefficient: c, of the sub-step whose last product this is
    """

    #: The sub-layer and the forms of operators that go with it, if not those of `macaron.decode.cpu.model`.
    sublayer: ClassVar[Any] = None
    kinds: ClassVar[dict[type[nn.Module], Any]] = {}

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        relu: bool = False,
        nonnegative: bool = False,
        coefficient: float = 1.0,
    ) -> None:
        super().__init__()
        self.relu, self.after, self.coefficient = relu, "relu" if relu else "none", coefficient
        # Plain attributes, not buffers: oneDNN's blocks can be neither saved nor moved.
        weight, self.bias = weight.detach(), None if bias is None else bias.detach() * coefficient
        self.kernel: Any = None
        self.pack(weight, nonnegative)

    def pack(self, weight: Tensor, nonnegative: bool) -> None:
        """Prepare the matrix."""
        self.weight = weight if self.coefficient == 1 else weight * self.coefficient
        if packed_products():
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight)
            self.kernel = torch.ops.mkldnn._linear_pointwise.default
            self.adding_kernel = torch.ops.mkldnn._linear_pointwise.binary

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """(..., I) to (..., O), added to ``onto`` if given."""
        if self.kernel is None:
            y = product(F.linear, x, self.weight, self.bias)
            if self.relu:
                y.relu_()
            return y if onto is None else y.add_(onto)
        if onto is None:
            return product(self.kernel, x, self.weight, self.bias, self.after, [], "")
        return product(self.adding_kernel, x, onto, self.weight, self.bias, "add")


class Int8Linear(PackedLinear):
    """``c (x W^T + b)`` with W and x rounded to 8 bits.

    W has one scale for each of its rows, computed once. x has one for each of its rows, computed at each call: the
    result for one row does not depend on the others, so a translation does not depend on its batch.
    """

    def pack(self, weight: Tensor, nonnegative: bool) -> None:
        """Round the matrix and prepare it."""
        scales = (weight.abs().amax(dim=1) / 127).clamp_(min=_SMALLEST)
        rounded = (weight / scales[:, None]).round_().to(torch.int8)
        self.scales, self.zeros = scales * self.coefficient, torch.zeros(len(weight), dtype=torch.long)
        self.nonnegative = nonnegative
        self.levels = 127 if nonnegative else activation_levels()
        self.zero = 0 if nonnegative else self.levels + 1
        self.smallest = torch.tensor(_SMALLEST)
        self.kernel = _rounding_kernel()
        self.rounds = self.kernel is not None
        if self.rounds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch may remove such tensors one day; then the other branch serves
                tensor = torch._make_per_channel_quantized_tensor(rounded, self.scales, self.zeros, 0)
            self.weight = torch.ops.quantized.linear_prepack(tensor, None)
        else:
            self.weight = torch.ops.onednn.qlinear_prepack(rounded, None)
            self.kernel = torch.ops.onednn.qlinear_pointwise.default

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """(..., I) to (..., O), added to ``onto`` if given."""
        rows = x.reshape(-1, x.shape[-1])
        # Several cheap operations: vector_norm and addcdiv would be shorter and slower.
        sizes = (rows if self.nonnegative else rows.abs()).amax(dim=1, keepdim=True)
        scale = torch.add(self.smallest, sizes, alpha=1 / self.levels)
        if self.rounds:
            y = product(self.kernel, rows / scale, 1.0, self.zero, self.weight)
        else:
            # The kernel takes unsigned numbers. Conversion to signed ones is four times faster, and sums wrap around.
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


class RowOperator(Direct):
    """An operator that has no form for rows: the plain one with packed matrices, its other parameters shared."""

    def __init__(self, plain: nn.Module, linear: type[PackedLinear], coefficient: float) -> None:
        super().__init__()
        self.plain = copy.deepcopy(plain, {id(parameter): parameter for parameter in plain.parameters()})
        self.coefficient = coefficient
        for name, part in list(self.plain.named_modules()):
            if isinstance(part, nn.Linear):
                parent, _, own = name.rpartition(".")
                setattr(self.plain.get_submodule(parent), own, linear(part.weight, part.bias))

    def forward(self, x: Tensor, onto: Tensor | None, context: Context, slot: int) -> Tensor:
        """Move (B T, D); the result is added to ``onto`` if given."""
        moved = self.plain(x.view(context.batch, -1, x.shape[-1]), context, slot).view_as(x)
        return moved * self.coefficient if onto is None else torch.add(onto, moved, alpha=self.coefficient)


def packed_products() -> bool:
    """Whether this PyTorch has oneDNN's packed products, and they are not switched off (``MACARON_PACKED=off``)."""
    available = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return available and hasattr(torch.ops.mkldnn, "_linear_pointwise") and os.environ.get("MACARON_PACKED") != "off"


@cache
def activation_levels() -> int:
    """The largest level of a rounded activation: 127 (8 bits with the sign) or 63 (7 bits).

    Processors without VNNI add pairs of products in 16 bits and saturate; unsigned numbers up to 127 are safe there.
    A product of the largest numbers tells which kind of processor this is.
    """
    rows, weight = torch.full((1, 64), 255, dtype=torch.uint8), torch.full((64, 64), 127, dtype=torch.int8)
    packed, scales, zeros = torch.ops.onednn.qlinear_prepack(weight, None), torch.ones(64), torch.zeros(64).long()
    sums = torch.ops.onednn.qlinear_pointwise(rows, 1.0, 0, packed, scales, zeros, None, *_AS_FLOAT)
    return 127 if bool((sums == 255 * 127 * 64).all()) else _SEVEN_BITS


def _rounding_kernel() -> Any:
    """fbgemm's product of float32 rows, which it rounds, and an int8 matrix: for processors without VNNI, or None."""
    packs = torch.backends.quantized.engine in ("x86", "fbgemm") and activation_levels() == _SEVEN_BITS
    packs &= hasattr(torch, "_make_per_channel_quantized_tensor")
    found = getattr(torch.ops.quantized, "linear_with_input_q_dq_qweight_dq_output_fp32", None) if packs else None
    return found and found.default


def check_int8() -> None:
    """Raise unless int8 products work here."""
    try:
        if not packed_products():
            raise NotImplementedError("its packed products are missing or switched off")
        made = Int8Linear(torch.eye(16), None)(torch.eye(16))
    except (RuntimeError, NotImplementedError, AttributeError) as error:
        raise MacaronError(
            f"int8 needs a PyTorch with oneDNN ({str(error).strip().splitlines()[0][:200]}): leave --int8 out, or "
            "install the usual PyTorch for x86-64"
        ) from error
    if not torch.allclose(made, torch.eye(16), atol=0.02):
        raise MacaronError("int8 products are wrong on this processor: leave --int8 out")
