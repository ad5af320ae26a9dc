"""The position-wise feed-forward network: how each particle moves by itself."""

import math
from collections.abc import Callable

import torch.nn.functional as F
from torch import Tensor, nn

from macaron.nn.attention import Context
from macaron.nn.linear import Linear

Activation = Callable[[Tensor], Tensor]
ACTIVATIONS: dict[str, Activation] = {"relu": F.relu, "gelu": F.gelu}  # gelu: exact, by erf


class FeedForward(nn.Module):
    """G: convection, ``W2 drop(act(W1 x + b1)) + b2``.

    :param hidden_size: D
    :param inner_size: I
    :param activation: ``"relu"``, ``"gelu"`` or any function of a tensor
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
        self.fc1 = Linear(hidden_size, inner_size, bias, std=hidden_size**-0.5 if normal else None)
        self.fc2 = Linear(inner_size, hidden_size, bias, std=math.sqrt(2 / inner_size) if normal else None)

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """Move (B, T, D); other positions, ``context`` and ``slot`` play no part."""
        inner = self.activation(self.fc1(x))
        return self.fc2(F.dropout(inner, self.dropout, self.training))
