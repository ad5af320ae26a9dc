"""The drop-in layers against torch's own."""

import pytest
import torch
from torch import Tensor, nn

from macaron.nn import TransformerDecoderLayer, TransformerEncoderLayer

D, H, INNER = 16, 4, 32
S, T, B = 6, 5, 3


def pair_of_encoders(**kwargs):
    torch.manual_seed(0)
    theirs = nn.TransformerEncoderLayer(D, H, INNER, **kwargs)
    ours = TransformerEncoderLayer(D, H, INNER, **kwargs, scheme="lie-fg")
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def pair_of_decoders(**kwargs):
    torch.manual_seed(0)
    theirs = nn.TransformerDecoderLayer(D, H, INNER, **kwargs)
    ours = TransformerDecoderLayer(D, H, INNER, **kwargs, scheme="lie-fg")
    ours.load_state_dict(theirs.state_dict())
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


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [True, False])
def test_torchs_stacks_load_into_ours(norm_first: bool):
    kwargs = {"batch_first": True, "norm_first": norm_first}
    x, tgt = torch.randn(B, S, D), torch.randn(B, T, D)
    for stack, layer, torchs, inputs in (
        (nn.TransformerEncoder, TransformerEncoderLayer, nn.TransformerEncoderLayer, (x,)),
        (nn.TransformerDecoder, TransformerDecoderLayer, nn.TransformerDecoderLayer, (tgt, x)),
    ):
        theirs = stack(torchs(D, H, INNER, **kwargs), 2, nn.LayerNorm(D)).eval()
        for weight in theirs.parameters():
            nn.init.normal_(weight, std=0.3)  # layers, biases and norms that differ
        ours = stack(layer(D, H, INNER, **kwargs, scheme="transformer"), 2, nn.LayerNorm(D)).eval()
        given = theirs.state_dict()
        names = list(given)
        assert not any(ours.load_state_dict(given))
        assert list(given) == names  # the caller's weights keep their names
        with torch.no_grad():
            torch.testing.assert_close(ours(*inputs), theirs(*inputs), rtol=1e-6, atol=1e-6)
        again = stack(layer(D, H, INNER, **kwargs, scheme="transformer"), 2, nn.LayerNorm(D))
        again.load_state_dict(ours.state_dict())  # our own names are taken as before


def test_torchs_weights_are_refused_elsewhere():
    theirs = nn.TransformerEncoderLayer(D, H, INNER).state_dict()
    for scheme in ("macaron", "lie-gf", "parallel"):
        layer = TransformerEncoderLayer(D, H, INNER, scheme=scheme)
        with pytest.raises(ValueError, match=r'make it with scheme="transformer"'):
            layer.load_state_dict(theirs)
    layer = TransformerEncoderLayer(D, H, INNER, scheme="transformer")
    theirs.pop("norm2.weight")
    with pytest.raises(RuntimeError, match=r"Missing key.*G1\.norm\.weight"):
        layer.load_state_dict(theirs)
    with pytest.raises(RuntimeError, match="size mismatch"):
        layer.load_state_dict(nn.TransformerEncoderLayer(D, H, 2 * INNER).state_dict())


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
