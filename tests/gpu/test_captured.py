"""What is recorded as a CUDA graph does what it was recorded from. Needs a GPU."""

import copy
import random
from types import SimpleNamespace

import pytest
import torch

from macaron.decode import gpu
from macaron.decode.search import translate_ids
from macaron.decode.settings import SearchSettings
from macaron.models import TranslationConfig, TranslationModel, preset
from macaron.tasks.translation import TranslationBatch, TranslationLoss
from macaron.train.step import WARM_UP, RecordedStep, TrainStep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
VOCABULARY = 500


def model(**changes) -> TranslationModel:
    torch.manual_seed(1)
    config = preset("macaron-small", vocab_size=VOCABULARY, encoder_layers=2, decoder_layers=2, **changes)
    assert isinstance(config, TranslationConfig)
    return TranslationModel(config).cuda()


def packed_batch(seed: int, rows: int = 16, width: int = 64) -> TranslationBatch:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCABULARY, (3, rows, width), generator=draw).cuda()
    sentence = torch.arange(width).div(16, rounding_mode="floor").add(1).expand(rows, -1).cuda()
    places = torch.arange(width).remainder(16).add(2).expand(rows, -1).cuda()
    return TranslationBatch(ids[0], ids[1], ids[2], places, places, sentence, sentence)


def autocast():
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)


def gradients(module) -> dict[str, torch.Tensor]:
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("compiled", [False, True])
def test_a_replayed_step_gives_losses_and_gradients_of_the_plain_one(compiled):
    plain = TranslationLoss(model(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0), 0.1)
    fast = copy.deepcopy(plain)
    if compiled:
        for part in (
            *fast.model.encoder.layers,
            *fast.model.decoder.layers,
            fast.model.embedding,
            fast.criterion.losses,
        ):
            part.compile(dynamic=False)
    with torch.cuda.stream(torch.cuda.Stream()):
        replayed, step = RecordedStep(fast, autocast), TrainStep(plain, autocast)
        for number in range(WARM_UP + 3):
            for module in (plain, fast):
                for parameter in module.parameters():
                    if parameter.grad is not None:
                        parameter.grad.zero_()
            batch = packed_batch(number)
            ours, theirs = replayed(batch, 1e-3), step(batch, 1e-3)
            # Kernels of bfloat16 sum in other orders when they are fused.
            torch.testing.assert_close(ours, theirs, rtol=2e-3, atol=0)
            found = gradients(fast)
            for name, expected in gradients(plain).items():
                scale = expected.norm()
                assert (found[name] - expected).norm() <= (3e-2 if compiled else 1e-2) * scale + 1e-6, (number, name)
        assert len(replayed.recorded) == 1
        # Another shape goes the plain way.
        small = packed_batch(9, rows=4)
        torch.testing.assert_close(replayed(small, 1e-3), step(small, 1e-3), rtol=2e-3, atol=0)


def test_dropout_of_a_replayed_step_follows_the_seed():
    module = TranslationLoss(model(dropout=0.3), 0.1)
    batch = packed_batch(0)
    with torch.cuda.stream(torch.cuda.Stream()):
        step = RecordedStep(module, autocast)
        for _ in range(WARM_UP):
            step(batch, 1.0)

        def loss(seed: int) -> float:
            torch.manual_seed(seed)
            return float(step(batch, 1.0)[0])

        first, again, other = loss(5), loss(5), loss(6)
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    "settings",
    [
        SearchSettings(beam=5, max_length=70),
        SearchSettings(beam=1, max_length=40),
        SearchSettings(beam=4, length_penalty=0.6, max_length=10, max_ratio=1.5, stop="late"),
    ],
)
def test_a_recorded_search_finds_what_the_plain_one_finds(settings, monkeypatch):
    translator = model().eval()
    draw = random.Random(3)
    sources = [[draw.randrange(4, VOCABULARY) for _ in range(draw.randrange(1, 20))] + [2] for _ in range(40)]
    recorded = translate_ids(translator, sources, settings)
    monkeypatch.setattr(gpu, "Recording", lambda function: SimpleNamespace(replay=function))
    plain = translate_ids(translator, sources, settings)
    on_cpu = translate_ids(translator.cpu(), sources, settings)
    for ours, same, reference in zip(recorded, plain, on_cpu, strict=True):
        assert [each.tokens for each in ours] == [each.tokens for each in same]
        assert [each.score for each in ours] == pytest.approx([each.score for each in reference], abs=1e-3)
