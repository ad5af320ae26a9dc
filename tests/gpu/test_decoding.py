"""The kernels of a search on a GPU do what PyTorch does. Needs a GPU, or Triton's interpreter (TRITON_INTERPRET=1)."""

import os
import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from macaron.decode import search
from macaron.decode.beam import topk_continuations
from macaron.decode.search import translate_ids
from macaron.decode.settings import SearchSettings
from macaron.models import TranslationConfig, TranslationModel, preset

GPU = torch.cuda.is_available()
pytestmark = pytest.mark.skipif(not GPU and os.environ.get("TRITON_INTERPRET") != "1", reason="needs a GPU")
DEVICE = torch.device("cuda" if GPU else "cpu")
HALVES = [torch.float16, torch.bfloat16] if GPU else [torch.float16]  # the interpreter cannot multiply bfloat16
VOCABULARY = 2003


def noise(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape))).to(DEVICE)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("heads", "width", "beams", "written"), [(4, 128, 5, 9), (3, 24, 1, 31), (2, 16, 20, 0)])
def test_attention_of_beams(half, heads, width, beams, written):
    from macaron.decode.gpu_model import attend_beams

    rows, positions = 3, 32 * beams
    query = noise(rows * beams, 3 * heads * width).to(half).view(rows, beams, 3, heads, width)[:, :, 0].transpose(1, 2)
    both = noise(rows, heads, positions, 2, width).to(half)
    key, value = both.select(3, 0), both.select(3, 1)
    mask = torch.zeros(rows, 1, beams, positions, device=DEVICE, dtype=half)
    mask[noise(rows, 1, beams, positions) > 0] = -torch.inf
    mask[..., 0], mask[1] = 0.0, -torch.inf  # a sentence without any position
    seen = 1 + written * beams
    found = attend_beams(query, key, value, mask, torch.tensor([written], device=DEVICE), beams)
    parts = query.float(), key[:, :, :seen].float(), value[:, :, :seen].float()
    exact = F.scaled_dot_product_attention(*parts, attn_mask=mask[..., :seen].float())
    exact = exact.nan_to_num(0.0).transpose(1, 2).reshape(rows * beams, -1)
    torch.testing.assert_close(found.float(), exact, rtol=0, atol=0.002 if half == torch.float16 else 0.016)


@pytest.mark.parametrize("norm", [nn.LayerNorm(48), nn.LayerNorm(48, bias=False), nn.RMSNorm(48)])
def test_norm_and_shift(norm):
    from macaron.decode.gpu_model import norm_and_shift

    norm = norm.to(DEVICE)
    nn.init.normal_(norm.weight)
    x, shift = 3 * noise(7, 48) + 1, noise(48)
    for given in (shift, None):
        normed, shifted = norm_and_shift(x, norm, given, torch.float16)
        torch.testing.assert_close(normed.float(), norm(x), rtol=2e-3, atol=1e-3)
        torch.testing.assert_close(shifted, x if given is None else x + shift)


def test_the_best_continuations_of_logits():
    from macaron.decode.gpu_model import summarise

    logits, totals, pad = 4 * noise(3, 5, VOCABULARY), noise(3, 5), 1
    normaliser, maxima = summarise(logits, pad)
    torch.testing.assert_close(normaliser, logits.logsumexp(dim=-1))
    logits[..., pad] = -torch.inf
    found = topk_continuations(totals, logits, 14, maxima)
    best = (logits + totals[..., None]).flatten(1).topk(14, dim=1)
    assert torch.equal(found[0], best.values)
    assert torch.equal(found[1], best.indices)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    "changes", [{}, {"norm": "post"}, {"norm_type": "rms", "activation": "swiglu"}, {"integrator": "heun"}]
)
def test_a_search_with_kernels_finds_scores_near_those_of_float32(half, changes, monkeypatch):
    from macaron.decode.gpu_model import GpuTranslationModel

    torch.manual_seed(4)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    config = preset("macaron-tiny", vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=2, **shape, **changes)
    assert isinstance(config, TranslationConfig)
    plain = TranslationModel(config).to(DEVICE).eval()
    draw = random.Random(2)
    sources = [[draw.randrange(4, VOCABULARY) for _ in range(draw.randrange(1, 14))] + [2] for _ in range(6)]
    settings = SearchSettings(beam=3, max_length=6)
    expected = translate_ids(plain, sources, settings)
    fused = GpuTranslationModel(plain, half)
    assert fused.complete
    if not GPU:
        scorer = search.Scorer
        monkeypatch.setattr(search, "Scorer", lambda model, sources, beam, *_: scorer(model, sources, beam, True, half))
        monkeypatch.setattr(search, "RecordedSteps", lambda step, state, cache: step)
    found = translate_ids(fused, sources, settings, half=half)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours[0].score == pytest.approx(theirs[0].score, abs=0.005 if half == torch.float16 else 0.05)
