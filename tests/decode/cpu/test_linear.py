"""Packed products: in float32 the plain ones, in int8 those of whole numbers.

`.ci/run` repeats all tests of this folder as on a processor without VNNI, and without packed products.
"""

import os
import platform
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from macaron.decode.cpu import linear
from macaron.decode.cpu.linear import Int8Linear, PackedLinear, check_int8, packed_products, threads_for_products
from macaron.errors import MacaronError

needs_int8 = pytest.mark.skipif(not packed_products(), reason="int8 needs oneDNN")


def random_product(bias: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Numbers (3, 5, 33), a matrix (70, 33), something to add (70,)."""
    torch.manual_seed(0)
    weight, x = torch.randn(70, 33) * torch.rand(70, 1), torch.randn(3, 5, 33) * 10 ** torch.randn(3, 5, 1)
    weight[7], x[1, 2] = 0.0, 0.0  # rows without a scale
    return x, weight, torch.randn(70) if bias else None


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_float32(relu: bool, bias: bool, packing: str, monkeypatch: pytest.MonkeyPatch):
    if packing == "off":
        monkeypatch.setenv("MACARON_PACKED", "off")
        assert not packed_products()
    x, weight, added = random_product(bias)
    plain = F.linear(x, weight, added)
    torch.testing.assert_close(PackedLinear(weight, added, relu)(x), plain.relu() if relu else plain)
    rows, onto = x.flatten(0, 1), torch.randn(15, 70)
    moved = PackedLinear(weight, added, coefficient=-0.3)(rows, onto)
    torch.testing.assert_close(moved, onto - 0.3 * plain.flatten(0, 1), atol=1e-4, rtol=1e-4)


@needs_int8
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_int8(relu: bool, bias: bool):
    x, weight, added = random_product(bias)
    plain = F.linear(x, weight, added)
    exact = plain.relu() if relu else plain
    # It is a product of whole numbers, which can be repeated ...
    found, levels = Int8Linear(weight, added, relu)(x), linear.activation_levels()
    again = in_whole_numbers(x, weight, levels) + (0.0 if added is None else added)
    torch.testing.assert_close(found, again.relu() if relu else again, atol=1e-5, rtol=1e-4)
    # ... and no further from the exact one than half a level of either factor allows.
    steps, sizes = weight.abs().amax(1) / 127, x.abs().amax(-1, keepdim=True) / levels
    bound = x.abs().sum(-1, keepdim=True) * steps / 2 + sizes / 2 * weight.abs().sum(1) + 33 * sizes * steps / 4
    assert bool(((found - exact).abs() <= bound * 1.001 + 1e-6).all())
    assert not torch.equal(found, exact)
    rows, onto = x.flatten(0, 1), torch.randn(15, 70)
    moved = Int8Linear(weight, added, coefficient=-0.3)(rows, onto)
    torch.testing.assert_close(moved, onto - 0.3 * Int8Linear(weight, added)(rows), atol=1e-4, rtol=1e-4)

    # Numbers that are not negative need no sign, and have all levels on every processor.
    found = Int8Linear(weight, added, relu, nonnegative=True)(x.abs())
    again = in_whole_numbers(x.abs(), weight, 127) + (0.0 if added is None else added)
    torch.testing.assert_close(found, again.relu() if relu else again, atol=1e-5, rtol=1e-4)


def in_whole_numbers(x: torch.Tensor, weight: torch.Tensor, levels: int) -> torch.Tensor:
    steps, sizes = weight.abs().amax(1) / 127, x.abs().amax(-1, keepdim=True) / levels
    whole = (weight / steps.clamp(min=1e-12)[:, None]).round()
    return (x / sizes.clamp(min=1e-12)).round() @ whole.T * sizes * steps


@needs_int8
def test_an_int8_row_does_not_depend_on_the_others():
    torch.manual_seed(3)
    product = Int8Linear(torch.randn(256, 128), torch.randn(256), relu=True)
    x = torch.randn(40, 128) * torch.logspace(-3, 3, 40)[:, None]
    assert torch.equal(torch.cat([product(row) for row in x.split(1)]), product(x))


@needs_int8
def test_the_largest_numbers_do_not_saturate():
    for sign in (1.0, -1.0):
        found = Int8Linear(torch.full((64, 64), 2.0), None)(torch.full((1, 64), sign))
        torch.testing.assert_close(found, torch.full((1, 64), sign * 128))


@needs_int8
def test_without_vnni_activations_have_7_bits():
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("only processors of this kind have such a mode")
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    code = "from macaron.decode.cpu.linear import *; check_int8(); print(activation_levels())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == "63\n"


def test_where_int8_does_not_work(monkeypatch: pytest.MonkeyPatch):
    class Missing(Int8Linear):
        def __init__(self, *_: object) -> None:
            raise RuntimeError("no such operator\nand much more")

    monkeypatch.setattr(linear, "Int8Linear", Missing)
    monkeypatch.setattr(linear, "packed_products", lambda: True)
    with pytest.raises(MacaronError, match=r"oneDNN \(no such operator\): leave --int8 out"):
        check_int8()
    monkeypatch.undo()
    monkeypatch.setenv("MACARON_PACKED", "off")
    with pytest.raises(MacaronError, match=r"oneDNN \(its packed products are missing or switched off\)"):
        check_int8()


@pytest.mark.parametrize("packing", ["on", "off"])
def test_for_one_sentence_only_products_have_threads_if_there_are_many(packing: str, monkeypatch: pytest.MonkeyPatch):
    before = torch.get_num_threads()
    seen: list[int] = []

    def kernel(x: torch.Tensor, *_: object) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return x

    monkeypatch.setenv("MACARON_PACKED", packing)
    monkeypatch.setattr(F, "linear", kernel)  # the product without packing
    product = PackedLinear(torch.eye(16), None)
    if packing == "on":
        product.kernel = kernel
    try:
        for threads in (3, 2):
            torch.set_num_threads(threads)
            with threads_for_products():
                product(torch.eye(16))
                seen.append(torch.get_num_threads())
            seen.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert seen == [3, 1, 3, 2, 2, 2]
