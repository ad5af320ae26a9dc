"""Linear maps and embedding tables that draw their own weights, and the feed-forward network.

Each leaf has its own initialisation: transformers initialises leaf by leaf, and only what a checkpoint did not fill.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Activation = Callable[[Tensor], Tensor]
_BITS = 1 << 16  # values of a random number that decides what dropout keeps


@dataclass(frozen=True)
class Gated:
    """``gate(a) * b`` of the halves a and b of a tensor (..., 2 I): (..., I)."""

    gate: Activation

    def __call__(self, x: Tensor) -> Tensor:
        """Gate the second half by the first."""
        a, b = x.chunk(2, dim=-1)
        return self.gate(a) * b


def relu_squared(x: Tensor) -> Tensor:
    """The square of relu."""
    return F.relu(x).square()


#: Those of `macaron.nn.budget.ACTIVATION_NAMES`.
ACTIVATIONS: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,  # exact, by erf
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu2": relu_squared,
    "silu": F.silu,
    "glu": Gated(torch.sigmoid),
    "swiglu": Gated(F.silu),
    "geglu": Gated(F.gelu),
}


def dropout(x: Tensor, rate: float, training: bool) -> Tensor:
    """``F.dropout``, on a CPU with 16 random bits for each number.

    There, PyTorch's random numbers take a fifth as long as the products of a small network. A number is kept if its
    bits exceed a threshold; the generator makes 64 of them at a time.
    """
    threshold, elsewhere = round(rate * _BITS), x.device.type != "cpu" or torch.compiler.is_compiling()
    if not training or elsewhere or not 0 < threshold < _BITS:
        return F.dropout(x, rate, training)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.long).random_(-(1 << 63), None).view(torch.int16)
    # A product with bytes is several times faster than one with booleans.
    kept = (bits[: x.numel()] >= threshold - _BITS // 2).view(torch.uint8).view(x.shape)
    return (x * kept).mul_(_BITS / (_BITS - threshold))


def xavier_bound(fan_in: int, fan_out: int) -> float:
    """Half the width of Xavier's uniform distribution."""
    return math.sqrt(6 / (fan_in + fan_out))


class Linear(nn.Linear):
    """``nn.Linear`` with weights drawn from U(-bound, bound) or N(0, std^2), and a zero bias.

    With neither ``bound`` nor ``std`` it is Xavier's rule on the matrix itself.
    """

    bound: float | None = None
    std: float | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        bound: float | None = None,
        std: float | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.bound, self.std = bound, std
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights."""
        if self.weight.is_meta:
            return  # to be loaded; torch imports its compiler to draw nothing
        if self.std is not None:
            nn.init.normal_(self.weight, std=self.std)
        else:
            bound = self.bound or xavier_bound(self.in_features, self.out_features)
            nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class EmbeddingTable(nn.Embedding):
    """``nn.Embedding`` drawn from N(0, 1/D), with one row that starts at zero (padding, a frozen segment)."""

    zero_row: int | None = None

    def __init__(self, num_embeddings: int, embedding_dim: int, zero_row: int | None = None) -> None:
        super().__init__(num_embeddings, embedding_dim)
        self.zero_row = zero_row
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the rows."""
        if self.weight.is_meta or getattr(self.weight, "_is_hf_initialized", False):
            return  # filled from a checkpoint: its padding row is trained (the output is tied) and must stay
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)
        if self.zero_row is not None:
            with torch.no_grad():
                self.weight[self.zero_row] = 0


class FeedForward(nn.Module):
    """G: convection, how each particle moves by itself, ``W2 drop(act(W1 x + b1)) + b2``.

    A gated activation halves the width: then W1 has twice the rows, those of the gates first.

    :param activation: a name in `ACTIVATIONS`, or any function of a tensor
    :param dropout: on the inner activations
    """

    def __init__(
        self,
        hidden_size: int,
        inner_size: int,
        activation: str | Activation,
        dropout: float,
        init: str,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation] if isinstance(activation, str) else activation
        self.dropout = dropout
        normal = init == "kaiming"  # otherwise Xavier's rule; both as in the authors' code
        rows = 2 * inner_size if isinstance(self.activation, Gated) else inner_size
        bound, std = xavier_bound(hidden_size, inner_size), hidden_size**-0.5 if normal else None
        self.fc1 = Linear(hidden_size, rows, bias, bound=bound, std=std)
        self.fc2 = Linear(inner_size, hidden_size, bias, std=math.sqrt(2 / inner_size) if normal else None)

    def forward(self, x: Tensor, context: object, slot: int) -> Tensor:
        """Move (B, T, D); ``context`` and ``slot`` are not used."""
        inner = self.activation(self.fc1(x))
        return self.fc2(dropout(inner, self.dropout, self.training))
