"""Drop-in replacements for ``torch.nn.TransformerEncoderLayer`` and ``TransformerDecoderLayer``.

They take the arguments of torch's layers, and ``scheme=``. ``dim_feedforward`` is the total inner width of a layer: the
default scheme, Macaron's, has two feed-forward networks of half that width each. With ``scheme="lie-fg"`` the outputs
are those of torch's layers, and ``load_state_dict`` takes theirs, alone or inside ``torch.nn.TransformerEncoder`` and
``TransformerDecoder``.
"""

from types import SimpleNamespace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from macaron.nn.attention import Context
from macaron.nn.budget import LayerSettings
from macaron.nn.layer import build_layer
from macaron.nn.linear import Activation
from macaron.ode import Scheme, lift
from macaron.ode import scheme as find_scheme

#: The parts of torch's layers and the sub-layers that hold their weights here; those of a decoder have H1, too.
_TORCH_PARTS = {
    "self_attn.out_proj.": "F1.operator.out.",
    "self_attn.in_proj_": "F1.operator.qkv.",
    "multihead_attn.out_proj.": "H1.operator.out.",
    "linear1.": "G1.operator.fc1.",
    "linear2.": "G1.operator.fc2.",
}


class _TorchLayer(nn.Module):
    """Base of both layers: constructor, masks, batch dimension, torch's weights."""

    decoder = False

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Activation = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        scheme: str | dict[str, Any] | Scheme = "strang-gfg",
        integrator: str = "euler",
        tying: Literal["none", "layer", "depth"] = "none",
    ) -> None:
        super().__init__()
        if nhead < 1 or d_model < 1 or d_model % nhead:
            raise ValueError(f"d_model ({d_model}) must be a multiple of nhead ({nhead})")
        if tying == "depth":
            raise ValueError("tying across depth concerns a stack; a single layer has tying 'none' or 'layer'")
        self.scheme = find_scheme(scheme)
        if not self.decoder and "H" in self.scheme.operators:
            raise ValueError(f"scheme {self.scheme.name!r} has cross-attention (H): it belongs to a decoder layer")
        if self.decoder and "H" not in self.scheme.operators:
            self.scheme = lift(self.scheme)
        settings = LayerSettings(
            hidden_size=d_model,
            num_attention_heads=nhead,
            intermediate_size=dim_feedforward,
            bias=bias,
            norm="pre" if norm_first else "post",
            layer_norm_eps=layer_norm_eps,
            activation=activation,
            dropout=dropout,
            attention_dropout=dropout,
            activation_dropout=dropout,
            integrator=integrator,
            tying=tying,
        )
        with torch.device(device or torch.get_default_device()):
            self.layer = build_layer(self.scheme, settings)
        if dtype is not None:
            self.to(dtype)
        self.nhead = nhead
        # torch.nn.TransformerEncoder and TransformerDecoder read layer.self_attn.batch_first.
        self.self_attn = SimpleNamespace(batch_first=batch_first)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """As in `nn.Module`; weights of torch's layer get our names first (``state_dict`` is torch's own copy)."""
        start = f"{prefix}self_attn."
        if any(name.startswith(start) for name in state_dict):
            plain = find_scheme("lie-fg")
            if self.scheme.branches != (lift(plain) if self.decoder else plain).branches:
                raise ValueError(
                    f"these are weights of torch's own layer (such as {start}in_proj_weight). A layer of scheme "
                    f'{self.scheme.name!r} has other sub-layers: make it with scheme="transformer"'
                )
            order = ("F1", "H1", "G1") if self.decoder else ("F1", "G1")
            renamed = {f"norm{i}.": f"{name}.norm." for i, name in enumerate(order, 1)} | _TORCH_PARTS
            for name in [name for name in state_dict if name.startswith(prefix)]:
                own = name.removeprefix(prefix)
                if own.startswith("multihead_attn.in_proj_"):  # queries come from another sequence than keys and values
                    kind, both = own.removeprefix("multihead_attn.in_proj_"), state_dict.pop(name)
                    width = both.shape[0] // 3
                    state_dict[f"{prefix}layer.sublayers.H1.operator.q.{kind}"] = both[:width].clone()
                    state_dict[f"{prefix}layer.sublayers.H1.operator.kv.{kind}"] = both[width:].clone()
                for theirs, ours in renamed.items():
                    if own.startswith(theirs):
                        new = f"{prefix}layer.sublayers.{ours}{own.removeprefix(theirs)}"
                        state_dict[new] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _run(self, x: Tensor, context: Context) -> Tensor:
        if x.dim() not in (2, 3):
            raise ValueError(f"expected (batch, position, feature) or (position, feature), not {tuple(x.shape)}")
        memory = context.memory
        if x.dim() == 2:
            context.memory = None if memory is None else memory.unsqueeze(0)
            return self.layer(x.unsqueeze(0), context).squeeze(0)
        if self.self_attn.batch_first:
            return self.layer(x, context)
        context.memory = None if memory is None else memory.transpose(0, 1)
        return self.layer(x.transpose(0, 1), context).transpose(0, 1)

    def _mask(self, mask: Tensor | None, padding: Tensor | None, dtype: torch.dtype) -> Tensor | None:
        """Torch's masks (true = forbidden, or floats to add) as one to add that broadcasts to (B, H, T, S)."""
        if mask is not None and mask.dim() == 3:  # (B * H, T, S)
            mask = mask.view(-1, self.nhead, *mask.shape[1:])
        if padding is not None:
            padding = padding.reshape(-1, 1, 1, padding.shape[-1])  # (B, 1, 1, S)
        found = [_additive(each, dtype) for each in (mask, padding) if each is not None]
        return sum(found[1:], found[0]) if found else None


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(mask, float("-inf"))


class TransformerEncoderLayer(_TorchLayer):
    """``torch.nn.TransformerEncoderLayer`` for any scheme of F and G (the default is Macaron's)."""

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Pass ``src`` through the layer; see ``torch.nn.TransformerEncoderLayer`` for shapes and masks.

        ``is_causal`` is a hint that ``src_mask`` is causal; with a mask given it changes nothing.
        """
        mask = self._mask(src_mask, src_key_padding_mask, src.dtype)
        return self._run(src, Context(mask=mask, causal=is_causal and src_mask is None))


class TransformerDecoderLayer(_TorchLayer):
    """``torch.nn.TransformerDecoderLayer`` for any scheme; a scheme without H is lifted (F becomes F H)."""

    decoder = True

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Pass ``tgt`` through the layer; see ``torch.nn.TransformerDecoderLayer`` for shapes and masks."""
        if memory_is_causal and memory_mask is None:
            raise ValueError("memory_is_causal is a hint about memory_mask, which is missing")
        context = Context(
            mask=self._mask(tgt_mask, tgt_key_padding_mask, tgt.dtype),
            causal=tgt_is_causal and tgt_mask is None,
            memory=memory,
            memory_mask=self._mask(memory_mask, memory_key_padding_mask, tgt.dtype),
        )
        return self._run(tgt, context)
