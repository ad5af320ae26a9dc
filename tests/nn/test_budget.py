"""Twins of equal size."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.models import TranslationConfig
from macaron.models.summary import count
from macaron.nn import LayerSettings, build_layer, layer_parameters, layer_widths
from macaron.ode import names, scheme

PAPER = LayerSettings(hidden_size=512, num_attention_heads=8, intermediate_size=2048)
BIG = LayerSettings(hidden_size=1024, num_attention_heads=16, intermediate_size=4096)
TINY = LayerSettings(hidden_size=128, num_attention_heads=4, intermediate_size=512)


def test_the_papers_pair_differs_by_three_hidden_sizes():
    transformer = layer_parameters(PAPER, layer_widths(scheme("transformer"), PAPER))
    macaron = layer_parameters(PAPER, layer_widths(scheme("macaron"), PAPER))
    assert macaron - transformer == 3 * 512


def test_shares():
    assert layer_widths(scheme("macaron"), PAPER) == {"G": (1024, 1024), "F": (64,)}
    assert layer_widths(scheme("strang-fgf"), PAPER) == {"F": (32, 32), "G": (2048,)}
    assert layer_widths(scheme("macaron"), replace(PAPER, tying="layer")) == {"G": (2048,), "F": (64,)}


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("settings", [PAPER, BIG, TINY])
def test_the_count_is_that_of_the_real_layer(name: str, settings: LayerSettings):
    with torch.device("meta"):
        layer = build_layer(scheme(name), settings)
    widths = layer_widths(scheme(name), settings)
    assert sum(p.numel() for p in layer.parameters()) == layer_parameters(settings, widths)


@pytest.mark.parametrize("name", [n for n in names() if "H" not in scheme(n).operators])
@pytest.mark.parametrize("size", [{}, {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}])
@pytest.mark.parametrize("tying", ["none", "layer", "depth"])
def test_twins_agree_within_half_a_percent(name: str, size: dict[str, int], tying: str):
    twin = count(TranslationConfig(vocab_size=1000, scheme="lie-fg", tying=tying, **size))
    mine = count(TranslationConfig(vocab_size=1000, scheme=name, tying=tying, **size))
    assert abs(mine / twin - 1) <= 0.005


@given(
    hidden=st.integers(4, 64).map(lambda n: n * 8),
    heads=st.sampled_from([1, 2, 4, 8]),
    inner=st.integers(64, 4096),
    name=st.sampled_from(names()),
    affine=st.booleans(),
    bias=st.booleans(),
)
def test_any_layer_is_within_half_a_percent_or_refused(
    hidden: int, heads: int, inner: int, name: str, affine: bool, bias: bool
):
    settings = LayerSettings(
        hidden_size=hidden, num_attention_heads=heads, intermediate_size=inner, norm_affine=affine, bias=bias
    )
    made = scheme(name)
    full = {op: (inner if op == "G" else hidden // heads,) for op in made.operators}
    try:
        widths = layer_widths(made, settings)
    except MacaronError as error:
        assert "too many sub-steps" in str(error)  # noqa: PT017
        return
    assert all(width >= 1 for each in widths.values() for width in each)
    twin = layer_parameters(settings, full)
    # One unit of inner width is the grain of the adjustment.
    grain = (2 * hidden + bias) / 2
    assert abs(layer_parameters(settings, widths) - twin) <= max(0.005 * twin, grain) + 1
