"""The search with fixed shapes, as it is recorded on a GPU. Here a recording calls the function again."""

import random
from types import SimpleNamespace

import pytest
import torch

from macaron.decode import gpu, search
from macaron.decode.gpu import Logits
from macaron.decode.search import translate_ids
from macaron.decode.settings import SearchSettings
from macaron.models import TranslationConfig, TranslationModel, preset

VOCABULARY = 60


def model(**changes) -> TranslationModel:
    torch.manual_seed(4)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 2}
    layers = {"encoder_layers": 2, "decoder_layers": 2}
    config = preset("macaron-tiny", vocab_size=VOCABULARY, **{**shape, **layers, **changes})
    assert isinstance(config, TranslationConfig)
    return TranslationModel(config).double().eval()


def sources() -> list[list[int]]:
    draw = random.Random(2)
    return [[draw.randrange(4, VOCABULARY) for _ in range(draw.randrange(1, 14))] + [2] for _ in range(9)]


def fixed(monkeypatch: pytest.MonkeyPatch, half: torch.dtype | None = None) -> list[int]:
    """Let `translate_ids` search as on a GPU; the result lists the number of rows of each recording."""
    recorded: list[int] = []
    scorer = search.Scorer

    class Repeated(gpu.RecordedSteps):
        def _record(self, tokens, step, at_limit):
            recorded.append(len(tokens))
            return super()._record(tokens, step, at_limit)

    monkeypatch.setattr(search, "Scorer", lambda model, sources, beam, *_: scorer(model, sources, beam, True, half))
    monkeypatch.setattr(search, "RecordedSteps", Repeated)
    monkeypatch.setattr(gpu, "Recording", lambda function: SimpleNamespace(replay=function))
    return recorded


@pytest.mark.parametrize("scheme", ["strang-gfg", "lie-fg"])
@pytest.mark.parametrize(
    "settings",
    [
        SearchSettings(beam=5, max_length=75),  # the cache grows twice
        SearchSettings(beam=1, max_length=40),
        SearchSettings(beam=4, length_penalty=0.6, max_length=8, max_ratio=1.5, stop="late"),
        SearchSettings(beam=3, length_penalty=0.0, max_length=20, min_length=6),
        SearchSettings(beam=2, max_length=30, stop="late-reference"),
    ],
)
def test_fixed_shapes_find_the_same(settings, scheme, monkeypatch):
    translator = model(scheme=scheme)
    expected = translate_ids(translator, sources(), settings)
    recorded = fixed(monkeypatch)
    found = translate_ids(translator, sources(), settings)
    assert recorded  # some steps were replayed
    for ours, theirs in zip(found, expected, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in theirs]
        assert [each.score for each in ours] == pytest.approx([each.score for each in theirs], abs=1e-10)
        for one, other in zip(ours, theirs, strict=True):
            assert one.token_scores == pytest.approx(other.token_scores, abs=1e-10)


def test_sentences_that_leave_are_recorded_anew(monkeypatch):
    recorded = fixed(monkeypatch)
    settings = SearchSettings(beam=2, max_length=4, max_ratio=3.0)
    assert len(translate_ids(model(), sources(), settings)) == 9
    assert recorded == sorted(recorded, reverse=True)
    assert len(set(recorded)) > 1


def test_fewer_hypotheses_are_the_first_ones():
    translator, settings = model(), SearchSettings(beam=5, max_length=12)
    everything = translate_ids(translator, sources(), settings)
    best = translate_ids(translator, sources(), settings, nbest=2)
    assert best == [each[:2] for each in everything]


def test_logits_are_nearer_than_those_of_bfloat16():
    draw = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 3, 512, generator=draw), torch.randn(100, 512, generator=draw)
    exact = x.double() @ weight.double().T
    found = Logits(weight)(x)
    rounded = (x.bfloat16().double() @ weight.bfloat16().double().T) - exact
    assert found.dtype == torch.float32
    assert (found - exact).norm() < 1e-3 * exact.norm()
    assert rounded.norm() > 2e-3 * exact.norm()  # what it is for


@pytest.mark.parametrize(("patience", "leave", "small"), [(1, 0.0, 0), (3, 0.3, 2), (4, 0.4, 100)])
def test_checks_that_are_answered_later_find_the_same(patience, leave, small, monkeypatch):
    settings = SearchSettings(beam=3, max_length=4, max_ratio=3.0)
    expected = translate_ids(model(), sources(), settings)
    fixed(monkeypatch)
    monkeypatch.setitem(search._CHECKS, "cpu", (patience, True, leave, small))
    told: list[int] = []

    def finished(numbers, results):
        for number, best in zip(numbers, results(), strict=True):
            assert [each.tokens for each in best] == [each.tokens for each in expected[number]]
        told.extend(numbers)

    translate_ids(model(), sources(), settings, finished=finished)
    assert sorted(told) == list(range(9))


def test_products_of_half_precision_stay_near_float32(monkeypatch):
    translator = model().float()
    settings = SearchSettings(beam=1, max_length=6)
    expected = translate_ids(translator, sources(), settings)
    fixed(monkeypatch, torch.bfloat16)
    found = translate_ids(translator, sources(), settings)
    scores = [(ours[0].score, theirs[0].score) for ours, theirs in zip(found, expected, strict=True)]
    assert any(ours != theirs for ours, theirs in scores)  # it is another precision
    assert all(ours == pytest.approx(theirs, abs=0.05) for ours, theirs in scores)
