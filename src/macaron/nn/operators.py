"""The operators of a network, made from settings: attention, convolution, weighted branches, feed-forward.

All of them move (B, T, D) and have one interface: ``operator(x, context, slot)``, with ``slot`` that of the evaluation
in the cache. The letters of shapes are those of `macaron.nn.attention`.
"""

import torch
from torch import Tensor, nn

from macaron.nn.attention import Context, CrossAttention, SelfAttention, whole_mask
from macaron.nn.budget import Interaction, LayerSettings
from macaron.nn.linear import ACTIVATIONS, EmbeddingTable, FeedForward, Gated, Linear, dropout, xavier_bound


def build_operator(
    operator: str, width: int, settings: LayerSettings, application: int = 0, depth: int = 0, branch: int = 0
) -> nn.Module:
    """F, G or H.

    :param width: head width of F and H, inner width of G
    :param application: number of the sub-layer among those of the operator in its layer
    :param depth: number of the layer
    :param branch: inner width of a branch (`WeightedBranches`)
    """
    size, drawn = settings.hidden_size, (settings.initializer, settings.bias)
    if operator == "G":
        return FeedForward(size, width, settings.activation_of(application), settings.activation_dropout, *drawn)
    value = settings.interaction(operator)
    shape = size, settings.num_attention_heads, width, settings.attention_dropout
    if value.convolves:
        return Convolution(width, value, value.kernel(depth), settings)
    out = WeightedBranches(width, branch, settings) if value.kind == "weighted" else None
    return {"F": SelfAttention, "H": CrossAttention}[operator](*shape, *drawn, value, out)


class Convolution(nn.Module):
    """F: each particle is moved by its neighbours, with weights that depend on their distance (Wu et al., 2019).

    The weights of a head are the softmax of a kernel: learned (lightweight), or a linear function of the particle's own
    state (dynamic). They are written as a band matrix, as attention has one. So masks, packed rows and beams work as
    in attention, and so does the cache: it has the inputs of all earlier positions, more than the last kernel - 1.

    :param kernel: size of the kernels: the particle itself and its neighbours, in a causal one only those before it
    """

    def __init__(self, head_size: int, interaction: Interaction, kernel: int, settings: LayerSettings) -> None:
        super().__init__()
        size, heads, bias = settings.hidden_size, settings.num_attention_heads, settings.bias
        self.num_heads, self.kernel, self.dropout = heads, kernel, settings.attention_dropout
        self.before = kernel - 1 if settings.causal else (kernel - 1) // 2
        width, normal = heads * head_size, settings.initializer == "kaiming"
        bound, std = xavier_bound(size, width), size**-0.5 if normal else None
        self.gate = Gated(torch.sigmoid) if interaction.glu else None
        self.values = Linear(size, 2 * width if interaction.glu else width, bias, bound=bound, std=std)
        self.weights: nn.Module = EmbeddingTable(heads, kernel)
        if interaction.kind == "dynamic":
            self.weights = Linear(width, heads * kernel, False)
        self.out = Linear(width, size, bias, std=width**-0.5 if normal else None)

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        """Move (B, T, D)."""
        x = x if context.padding is None else context.padding.add(x)
        batch, steps, _ = x.shape
        inner = self.values(x) if self.gate is None else self.gate(self.values(x))
        values = inner.unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        if isinstance(self.weights, EmbeddingTable):
            kernels = self.weights.weight[:, None].expand(batch, -1, steps, -1)
        else:
            kernels = self.weights(inner).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
        kernels = kernels.softmax(dim=-1)  # (B, H, T, kernel)
        if context.cache is not None:
            _, values = context.cache.extend(slot, values, values)  # there are no keys
        keys = values.shape[2]
        place = context.distances(steps, keys, x.device) + self.before
        allowed = (place >= 0) & (place < self.kernel)
        mask = whole_mask(context.mask, context.causal, steps, keys, x.device)
        if mask is not None:
            allowed = allowed & (mask if mask.dtype == torch.bool else mask > -torch.inf)
        band = kernels.gather(-1, place.clamp(0, self.kernel - 1).expand(batch, self.num_heads, steps, keys))
        band = band.masked_fill(~allowed, 0.0).to(values.dtype)
        if context.weights is not None:
            context.weights.append(("F", band))
        band = dropout(band, self.dropout, self.training)
        mixed = (band @ values).transpose(1, 2).flatten(2)
        return self.out(mixed if context.padding is None else context.padding.remove(mixed))


class WeightedBranches(nn.Module):
    """``sum_i alpha_i FFN_i(kappa_i head_i W_i)``: the output of an attention whose heads have feed-forward networks.

    The weights alpha and kappa are softmaxes of parameters, so each of them sums to 1 (Weighted Transformer, Ahmed et
    al., 2017).

    :param inner_size: inner width of each feed-forward network
    """

    def __init__(self, head_size: int, inner_size: int, settings: LayerSettings) -> None:
        super().__init__()
        heads, size = settings.num_attention_heads, settings.hidden_size
        name = settings.activation_of(0)
        self.activation = ACTIVATIONS[name] if isinstance(name, str) else name
        self.dropout, self.shape = settings.activation_dropout, (heads, head_size)
        rows = 2 * inner_size if isinstance(self.activation, Gated) else inner_size
        self.bounds = {
            "heads": xavier_bound(heads * head_size, size),
            "fc1": xavier_bound(size, inner_size),
            "fc2": xavier_bound(inner_size, size),
        }
        self.kappa, self.alpha = (nn.Parameter(torch.empty(heads)) for _ in range(2))
        self.heads = nn.Parameter(torch.empty(heads, head_size, size))
        self.fc1 = nn.Parameter(torch.empty(heads, size, rows))
        self.fc2 = nn.Parameter(torch.empty(heads, inner_size, size))
        self.bias1 = nn.Parameter(torch.empty(heads, 1, rows)) if settings.bias else None
        self.bias2 = nn.Parameter(torch.empty(heads, 1, size)) if settings.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights; at first all branches have the same."""
        for name, parameter in self.named_parameters(recurse=False):
            bound = self.bounds.get(name, 0.0)
            if not parameter.is_meta:
                nn.init.uniform_(parameter, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        """Heads side by side, (B, T, H K), to (B, T, D)."""
        heads = x.view(*x.shape[:2], *self.shape)
        inner = torch.einsum("bthk,hkd,h->hbtd", heads, self.heads, self.kappa.softmax(0)).flatten(1, 2)
        inner = inner @ self.fc1 if self.bias1 is None else torch.baddbmm(self.bias1, inner, self.fc1)
        inner = dropout(self.activation(inner), self.dropout, self.training)
        moved = inner @ self.fc2 if self.bias2 is None else torch.baddbmm(self.bias2, inner, self.fc2)
        return torch.einsum("hnd,h->nd", moved, self.alpha.softmax(0)).view(*x.shape[:2], -1)
