"""Pre-training on a GPU: the kernels that know where texts begin, and the recorded step. Needs a GPU."""

import copy

import numpy as np
import pytest
import torch

from macaron.data.pretraining_texts import Corpus
from macaron.models import EncoderForPreTraining, preset
from macaron.tasks import pretraining_batches as batches
from macaron.tasks.pretraining import PretrainingLoss
from macaron.train.settings import PretrainSettings, TrainSettings
from macaron.train.step import WARM_UP, RecordedStep, TrainStep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
VOCABULARY, WIDTH = 500, 96  # PyTorch's flash kernel takes rows of this width
TRAIN = TrainSettings(max_updates=1, row_tokens=WIDTH, batch_tokens=16 * WIDTH)


def some_batches(count: int) -> tuple[list[batches.PretrainingBatch], batches.Shape]:
    random = np.random.default_rng(3)
    sentences = random.integers(2, 30, 3000)
    ids = random.integers(6, VOCABULARY, sentences.sum()).astype(np.uint16)
    corpus = Corpus(np.concatenate([[0], np.cumsum(sentences)]), np.arange(0, 3001, 3))
    settings = PretrainSettings()
    shape = batches.Shape.of(TRAIN, settings, corpus)
    made = batches.plan(corpus, shape, TRAIN, settings, (1, 1), 1)
    laid = [
        batches.collate(ids, made, index, shape, settings, range(6, VOCABULARY), 0)
        # The last one has rows without any text.
        for index in [*range(count - 1), len(made.tokens) - 1]
    ]
    return [batches.on_device(each, torch.device("cuda")) for each in laid], shape


def module(attention: str, **changes) -> PretrainingLoss:
    torch.manual_seed(1)
    small = {"hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 256}
    config = preset(
        "macaron-bert-base", vocab_size=VOCABULARY, **{**small, "dropout": 0.0, "attention_dropout": 0.0, **changes}
    )
    made = PretrainingLoss(EncoderForPreTraining(config).cuda(), PretrainSettings())
    made.fused = made.criterion.losses.fused = attention == "fused"
    return made


def autocast():
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)


def compare(one: PretrainingLoss, two: PretrainingLoss, tolerance: float) -> None:
    for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
        assert (a.grad - b.grad).norm() <= tolerance * b.grad.norm() + 1e-6, name


def test_fused_is_masked():
    masked, fused = module("masked"), module("fused")
    for batch in some_batches(3)[0]:
        losses = []
        for each in (fused, masked):
            each.zero_grad()
            losses.append(TrainStep(each, autocast)(batch, 1e-3))
        torch.testing.assert_close(losses[0], losses[1], rtol=2e-3, atol=0)
        compare(fused, masked, 2e-2)


@pytest.mark.parametrize(("attention", "compiled"), [("masked", False), ("masked", True), ("fused", False)])
def test_a_replayed_step_is_the_plain_one(attention, compiled):
    plain = module(attention)
    fast = copy.deepcopy(plain)
    if compiled:
        for part in (
            *fast.model.model.encoder.layers,
            fast.model.model.embedding,
            fast.model.head,
            fast.criterion.losses,
        ):
            part.compile(dynamic=False)
    given, _ = some_batches(WARM_UP + 3)
    with torch.cuda.stream(torch.cuda.Stream()):
        replayed, step = RecordedStep(fast, autocast), TrainStep(plain, autocast)
        for batch in given:
            for each in (plain, fast):
                for parameter in each.parameters():
                    if parameter.grad is not None:
                        parameter.grad.zero_()
            torch.testing.assert_close(replayed(batch, 1e-3), step(batch, 1e-3), rtol=3e-3, atol=0)
            compare(fast, plain, 3e-2)
        assert len(replayed.recorded) == 1


@pytest.mark.parametrize("attention", ["masked", "fused"])
def test_dropout_follows_the_seed(attention):
    trained = module(attention, dropout=0.1, attention_dropout=0.1)
    (batch, *_), _ = some_batches(2)
    with torch.cuda.stream(torch.cuda.Stream()):
        step = RecordedStep(trained, autocast)
        for _ in range(WARM_UP):
            step(batch, 1.0)

        def loss(seed: int) -> float:
            torch.manual_seed(seed)
            return float(step(batch, 1.0)[0])

        first, again, other = loss(5), loss(5), loss(6)
    assert first == again
    assert first != other
