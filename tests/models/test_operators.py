"""Networks with every operator: their size, batches, caches, masks; what makes no sense is refused."""

from typing import Any

import pytest
import torch

from macaron.errors import MacaronError
from macaron.models import EncoderConfig, TranslationConfig, TranslationModel
from macaron.models.summary import count
from macaron.nn import Context, KeyValueCache, LayerSettings, build_layer, layer_parameters, layer_widths
from macaron.ode import scheme
from macaron.train.task import same_text
from operators import OPERATORS, SIZES, tiny

PAD, EOS = 1, 2
every = pytest.mark.parametrize("changes", OPERATORS.values(), ids=OPERATORS)
LENGTHS = (7, 3, 5)


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def sentences() -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return [torch.cat([torch.randint(4, 30, (n - 1,), generator=draw), torch.tensor([EOS])]) for n in LENGTHS]


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


@every
def test_one_sentence_is_as_in_a_batch(changes: dict[str, Any]):
    model, rows = tiny(changes).double(), sentences()
    together = model(padded(rows), padded(rows))
    for index, row in enumerate(rows):
        close(together[index, : len(row)], model(row[None], row[None])[0])


@every
def test_packed_rows_are_as_sentences_alone(changes: dict[str, Any]):
    model, rows = tiny(changes).double(), sentences()
    row = torch.cat(rows)[None]
    number = torch.repeat_interleave(torch.tensor([[1, 2, 3]]), torch.tensor(LENGTHS), dim=1)
    positions = 2 + torch.cat([torch.arange(length) for length in LENGTHS])[None]
    same, size = same_text(number, number), row.shape[1]
    x = model.embedding(row, positions)
    memory = model.encoder(x, Context(mask=same, positions=positions))
    mask = same & torch.ones(size, size, dtype=torch.bool).tril()
    context = Context(mask=mask, memory=memory, memory_mask=same, positions=positions)
    found = model.logits(model.decoder(x, context))[0].split(LENGTHS)
    for alone, part in zip(rows, found, strict=True):
        close(part, model(alone[None], alone[None])[0])


@every
def test_cached_is_uncached(changes: dict[str, Any]):
    model = tiny(changes).double()
    source, target = padded(sentences()), torch.randint(4, 30, (3, 6))
    real = source != PAD
    memory = model.encode(source, real)
    whole = model.decode(target, memory, real)
    for cuts in ([1] * 6, [3, 1, 2]):
        cache = KeyValueCache()
        close(torch.cat([model.decode(part, memory, real, cache) for part in target.split(cuts, 1)], 1), whole)
    cache = KeyValueCache()
    model.decode(target[:, :4], memory, real, cache)
    rows = torch.tensor([2, 0])
    cache.select(rows)
    last = model.decode(target[rows, 4:], memory[rows], real[rows], cache)
    close(last, whole[rows, 4:])


@every
def test_padding_on_the_left(changes: dict[str, Any]):
    model, (row, *_) = tiny(changes).double(), sentences()
    behind = torch.cat([torch.full((2,), PAD), row])[None]
    memory = model.encode(row[None], row[None] != PAD)
    close(model.encode(behind, behind != PAD)[:, 2:], memory)
    cache, real = KeyValueCache(), behind != PAD
    parts = [
        model.decode(behind[:, start:end], memory, cache=cache, target_real=real[:, :end])
        for start, end in ((0, 4), (4, 5), (5, real.shape[1]))
    ]
    close(torch.cat(parts, 1)[:, 2:], model.decode(row[None], memory))


@every
def test_half_precision(changes: dict[str, Any]):
    model, rows = tiny(changes), padded(sentences())
    exact = model(rows, rows).detach()
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(rows, rows)
    rounded.float().square().sum().backward()
    assert float((rounded.detach() - exact).abs().max()) < 0.1 * float(exact.abs().max())
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters() if parameter.grad is not None)


@every
def test_all_weights_get_a_gradient(changes: dict[str, Any]):
    model = tiny(changes)
    model(padded(sentences()), padded(sentences())).logsumexp(-1).square().sum().backward()
    still = [name for name, each in model.named_parameters() if each.grad is None or not bool(each.grad.any())]
    # The velocity is zero before the first sub-step, whatever is made of it.
    assert [name for name in still if not name.endswith((".velocity.beta", ".velocity.mu"))] == []
    assert len(still) <= 4


@every
@pytest.mark.parametrize("size", [64, 512])
def test_the_size_is_that_of_the_plain_network(changes: dict[str, Any], size: int):
    fields = {**SIZES, **changes, "vocab_size": 1000, "hidden_size": size, "intermediate_size": 4 * size}
    operators = ("activation", "norm_type", "attention", "cross_attention", "decoder_settings", "velocity")
    operators += ("positions_at",)
    plain = {name: value for name, value in fields.items() if name not in operators}
    if isinstance(plain.get("scheme"), dict):  # weighted branches have the feed-forward networks, too
        plain["scheme"] = "lie-fg"
    assert abs(count(TranslationConfig(**fields)) / count(TranslationConfig(**plain)) - 1) <= 0.005


@every
def test_the_budget_is_that_of_the_real_layer(changes: dict[str, Any]):
    known = {name: value for name, value in changes.items() if name not in ("scheme", "decoder_settings")}
    fields = {"hidden_size": 64, "intermediate_size": 256, **known}
    made = scheme(changes.get("scheme", "lie-fg"))
    for bias, affine in ((True, True), (False, True), (True, False)):
        settings = LayerSettings(bias=bias, norm_affine=affine, **fields)
        for depth in range(3):
            with torch.device("meta"):
                layer = build_layer(made, settings, depth)
            expected = layer_parameters(settings, layer_widths(made, settings, depth), depth)
            assert sum(parameter.numel() for parameter in layer.parameters()) == expected


@pytest.mark.parametrize("kind", ["lightweight", "dynamic"])
def test_a_kernel_is_whole_on_both_sides(kind: str):
    """An encoder's sees neighbours before and after, a decoder's as many before: none of it is cut off by the mask."""
    model = tiny({"attention": {"kind": kind, "kernels": [4]}, "encoder_layers": 1, "decoder_layers": 1}).double()
    ids = torch.randint(4, 30, (1, 12), generator=torch.Generator().manual_seed(0))
    other = ids.clone()
    other[0, 5] = 3
    memory = model.encode(ids)
    for run, seen in ((model.encode, [3, 4, 5, 6]), (lambda each: model.decode(each, memory), [5, 6, 7, 8])):
        moved = (run(ids) - run(other)).abs().amax(-1)[0]
        assert moved.nonzero().flatten().tolist() == seen


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"activation": "swish"}, "no activation 'swish'"),
        ({"activation": []}, "activation is an empty list"),
        ({"norm_type": "batch"}, "norm_type must be one of 'layer', 'rms'"),
        ({"attention": "rotery"}, "unknown attention 'rotery'; did you mean 'rotary'"),
        ({"attention": 3}, "attention must be one of softmax"),
        ({"attention": {"position": "rotary"}}, "attention.position.*did you mean 'positions'"),
        ({"attention": {"clip": 8}}, "attention.clip needs attention.positions = 'relative'"),
        ({"attention": {"positions": "relative", "clip": 0}}, "attention.clip must be at least 1"),
        ({"cross_attention": "rotary"}, "cross_attention cannot be rotary"),
        ({"cross_attention": "dynamic"}, "cross_attention cannot be dynamic"),
        ({"attention": {"kind": "dynamic", "qk_norm": True}}, "attention.qk_norm makes no sense with.*'dynamic'"),
        ({"attention": {"kernels": [3]}}, "attention.kernels makes no sense with attention.kind = 'softmax'"),
        ({"attention": {"kind": "dynamic", "kernels": []}}, "attention.kernels is empty"),
        ({"attention": {"kind": "dynamic", "kernels": [0]}}, "attention.kernels.0. must be at least 1"),
        ({"attention": "dynamic", "tying": "depth"}, "attention.kernels has 4 sizes, but all layers are one"),
        ({"positions_at": "none"}, "cannot see the order of words"),
        ({"positions_at": "sometimes"}, "positions_at must be one of 'input', 'none', 'layers'"),
        ({"decoder_settings": {"positions_at": "none"}}, "decoder_settings: no setting 'positions_at'"),
        ({"velocity": "nestorov"}, "unknown velocity 'nestorov'; did you mean 'nesterov'"),
        ({"velocity": {"gamma": 1}}, "unknown key 'velocity.gamma'"),
        ({"velocity": {"beta": 11}}, "velocity.beta must be at most 10"),
        ({"velocity": {"nu": 0}}, "velocity.nu = 0: nothing would move"),
        ({"velocity": "damped", "integrator": "rk4"}, "velocity makes no sense with integrator = 'rk4'"),
        ({"velocity": "damped", "layer_integrator": "heun"}, "velocity makes no sense with layer_integrator = 'heun'"),
        ({"layer_integrator": "rk5"}, "layer_integrator: unknown integrator 'rk5'"),
        ({"decoder_settings": {"hidden_size": 8}}, "decoder_settings: no setting 'hidden_size'"),
        ({"decoder_settings": {"attention": "rotery"}}, "decoder_settings: unknown attention 'rotery'"),
        ({"decoder_settings": {"dropout": "much"}}, "decoder_settings: dropout must be a number"),
    ],
)
def test_what_makes_no_sense_is_refused(fields: dict[str, Any], message: str):
    with pytest.raises(MacaronError, match=message):
        TranslationConfig(**fields)


def test_an_encoder_of_text_has_no_cross_attention():
    with pytest.raises(MacaronError, match="cross_attention is the decoder's"):
        EncoderConfig(cross_attention="qk-norm")
    assert EncoderConfig(cross_attention={}).interaction("H") == TranslationConfig().interaction("H")


def test_rotary_positions_need_pairs_of_channels():
    with pytest.raises(MacaronError, match="even width of a head, not 5"):
        TranslationModel(TranslationConfig(attention="rotary", head_size=5, hidden_size=20))


def test_a_velocity_follows_one_sequence():
    with pytest.raises(MacaronError, match="'parallel' is a sum of several sequences"):
        TranslationModel(TranslationConfig(velocity="damped", scheme="parallel"))


def test_older_configurations_are_plain_networks():
    for config in (TranslationConfig(), EncoderConfig()):
        data = config.to_dict()
        fields = ("norm_type", "attention", "cross_attention", "decoder_settings", "velocity", "layer_integrator")
        for name in (*fields, "positions_at"):
            data.pop(name, None)
        assert type(config).from_dict(data) == config
