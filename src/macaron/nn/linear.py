"""Linear maps and embedding tables that know how to draw their own weights.

The rule sits on the leaf, not on the layer that owns it: transformers initialises leaf by leaf, and only what a
checkpoint did not fill.
"""

import math

import torch
from torch import nn


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


class Table(nn.Embedding):
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
