"""The drop-in layers against torch's own."""

import pytest
import torch
from torch import Tensor, nn

from macaron.nn import TransformerDecoderLayer, TransformerEncoderLayer

D, H, INNER = 16, 4, 32
S, T, B = 6, 5, 3


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    weight, bias = theirs.in_proj_weight, theirs.in_proj_bias
    merged, split = [("qkv", slice(0, 3 * D))], [("q", slice(0, D)), ("kv", slice(D, 3 * D))]
    pairs = merged if hasattr(ours, "qkv") else split
    for name, rows in pairs:
        linear = getattr(ours, name)
        linear.weight.data = weight.data[rows].clone()
        if bias is not None:
            linear.bias.data = bias.data[rows].clone()
    ours.out.load_state_dict(theirs.out_proj.state_dict())


def match(ours: nn.Module, theirs: nn.Module, order: list[tuple[str, str, str]]) -> None:
    """Copy torch's weights: (our sub-layer, their norm, their attention or 'ffn')."""
    for name, norm, what in order:
        sub = ours.layer.sublayers[name]
        sub.norm.load_state_dict(getattr(theirs, norm).state_dict())
        if what == "ffn":
            sub.operator.fc1.load_state_dict(theirs.linear1.state_dict())
            sub.operator.fc2.load_state_dict(theirs.linear2.state_dict())
        else:
            copy_attention(sub.operator, getattr(theirs, what))


def pair_of_encoders(**kwargs):
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(D, H, INNER, **kwargs)
    ours = TransformerEncoderLayer(D, H, INNER, **kwargs, scheme="lie-fg")
    match(ours, theirs, [("F1", "norm1", "self_attn"), ("G1", "norm2", "ffn")])
    return ours, theirs


def pair_of_decoders(**kwargs):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(D, H, INNER, **kwargs)
    ours = TransformerDecoderLayer(D, H, INNER, **kwargs, scheme="lie-fg")
    match(
        ours,
        theirs,
        [("F1", "norm1", "self_attn"), ("H1", "norm2", "multihead_attn"), ("G1", "norm3", "ffn")],
    )
    return ours, theirs


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu", torch.nn.functional.silu])
def test_encoder_equals_torchs(norm_first: bool, batch_first: bool, bias: bool, activation):
    kwargs = {"norm_first": norm_first, "batch_first": batch_first, "bias": bias, "activation": activation}
    ours, theirs = pair_of_encoders(dropout=0.0, **kwargs)
    x = torch.randn(B, S, D) if batch_first else torch.randn(S, B, D)
    close(ours(x), theirs(x))
    close(ours(x[0]), theirs(x[0]))  # unbatched


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
@pytest.mark.parametrize("three_dimensional", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_encoder_masks(kind: torch.dtype, three_dimensional: bool, padded: bool):
    ours, theirs = pair_of_encoders(dropout=0.0, batch_first=True)
    x = torch.randn(B, S, D)
    mask: Tensor = torch.ones(S, S, dtype=torch.bool).triu(1)
    if three_dimensional:
        mask = mask.expand(B * H, S, S)
    if kind != torch.bool:
        mask = torch.zeros(mask.shape).masked_fill(mask, float("-inf"))
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[1, 4:] = True
    given = padding if padded else None
    close(ours(x, mask, given), theirs(x, mask, given))
    if not three_dimensional:
        close(ours(x, mask, given, is_causal=True), theirs(x, mask, given, is_causal=True))
        if not padded:
            close(ours(x, is_causal=True), theirs(x, mask, is_causal=True))


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_decoder_equals_torchs(norm_first: bool, batch_first: bool):
    ours, theirs = pair_of_decoders(dropout=0.0, norm_first=norm_first, batch_first=batch_first)
    tgt, memory = torch.randn(B, T, D), torch.randn(B, S, D)
    if not batch_first:
        tgt, memory = tgt.transpose(0, 1), memory.transpose(0, 1)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[2, 3:] = True
    arguments = {"tgt_mask": mask, "memory_key_padding_mask": padding}
    close(ours(tgt, memory, **arguments), theirs(tgt, memory, **arguments))
    close(
        ours(tgt, memory, tgt_is_causal=True, memory_key_padding_mask=padding),
        theirs(tgt, memory, **arguments),
    )


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("scheme", ["macaron", "best22-gfgf", "sws", "lie-fg"])
def test_inside_torchs_stacks(scheme: str):
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(TransformerEncoderLayer(D, H, INNER, scheme=scheme, batch_first=True), 2).eval()
    decoder = nn.TransformerDecoder(TransformerDecoderLayer(D, H, INNER, scheme=scheme, batch_first=True), 2).eval()
    x, tgt = torch.randn(B, S, D), torch.randn(B, T, D)
    padding = torch.zeros(B, S, dtype=torch.bool)
    padding[0, 4:] = True
    memory = encoder(x, src_key_padding_mask=padding)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    y = decoder(tgt, memory, tgt_mask=mask, memory_key_padding_mask=padding)
    assert y.shape == tgt.shape
    # What padding holds must not matter, nor the future.
    changed = x.clone()
    changed[0, 4:] = 9.0
    close(encoder(changed, src_key_padding_mask=padding)[0, :4], memory[0, :4])
    later = tgt.clone()
    later[:, 3:] = 9.0
    close(decoder(later, memory, tgt_mask=mask, memory_key_padding_mask=padding)[:, :3], y[:, :3])


def test_dim_feedforward_is_the_layers_total():
    macaron = TransformerEncoderLayer(64, 4, 256)
    torchs = nn.TransformerEncoderLayer(64, 4, 256)
    ours, theirs = (sum(p.numel() for p in layer.parameters()) for layer in (macaron, torchs))
    assert ours - theirs == 3 * 64


def test_device_and_dtype():
    layer = TransformerEncoderLayer(D, H, INNER, device="meta", dtype=torch.bfloat16)
    assert {(p.device.type, p.dtype) for p in layer.parameters()} == {("meta", torch.bfloat16)}
    with pytest.raises(ValueError, match="multiple of nhead"):
        TransformerEncoderLayer(10, 4)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="belongs to a decoder layer"):
        TransformerEncoderLayer(D, H, INNER, scheme="strang-gfhg")
    with pytest.raises(ValueError, match="concerns a stack"):
        TransformerEncoderLayer(D, H, INNER, tying="depth")
    with pytest.raises(ValueError, match="expected"):
        TransformerEncoderLayer(D, H, INNER)(torch.randn(2, 3, 4, D))
    with pytest.raises(ValueError, match="multiple of nhead"):
        TransformerEncoderLayer(D, 0, INNER)
