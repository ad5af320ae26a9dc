"""Fine-tuning on a GPU: recorded steps do what plain ones do, run after run. Needs a GPU."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

from macaron.models import EncoderForPreTraining, EncoderForSequenceClassification, preset
from macaron.tasks.classification import ClassificationBatch, ClassificationLoss, FineTuning, Objective
from macaron.tasks.finetune import FineTuner
from macaron.text.tokenizer import MacaronTokenizer
from macaron.train.step import WARM_UP, RecordedStep, TrainStep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
VOCABULARY = 300


def autocast():
    return torch.autocast("cuda", torch.bfloat16, cache_enabled=False)


def batch(seed: int, rows: int, width: int) -> ClassificationBatch:
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(6, VOCABULARY, (rows, width), generator=draw)
    lengths = torch.randint(3, width + 1, (rows, 1), generator=draw)
    real = torch.arange(width) < lengths
    tokens = tokens.masked_fill(~real, 1)
    segments = (torch.arange(width) > lengths // 2).long()
    targets = torch.randint(0, 2, (rows,), generator=draw)
    weights = torch.ones(rows)
    weights[-1] = 0.0
    return ClassificationBatch(*(each.cuda() for each in (tokens, segments, real, targets, weights)))


def test_graphs_of_several_shapes_give_the_gradients_of_plain_steps():
    torch.manual_seed(1)
    config = preset("macaron-bert-tiny", vocab_size=VOCABULARY, dropout=0.0, attention_dropout=0.0)
    model = EncoderForSequenceClassification(config).cuda()
    model.classifier.weight.data.normal_()
    objective = Objective("classes", ("a", "b"))
    plain = ClassificationLoss(copy.deepcopy(model), objective)
    recorded = ClassificationLoss(model, objective)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        one, other = TrainStep(plain, autocast), RecordedStep(recorded, autocast)
        shapes = ((16, 32), (8, 64), (16, 64))
        for turn in range(WARM_UP + 3):
            for number, (rows, width) in enumerate(shapes):
                data = batch(10 * turn + number, rows, width)
                for parameter in (*plain.parameters(), *recorded.parameters()):
                    if parameter.grad is not None:
                        parameter.grad.zero_()
                a, b = one(data, 1 / rows), other(data, 1 / rows)
                torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
                for (name, p), q in zip(plain.named_parameters(), recorded.parameters(), strict=True):
                    scale = float(p.grad.abs().max())
                    assert float((p.grad - q.grad).abs().max()) <= 2e-2 * scale + 1e-6, (turn, rows, width, name)
        assert len(other.recorded) == len(shapes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("encoder")
    tokenizer = MacaronTokenizer.train(["the cat sat on mat it was good bad"] * 20, 330, kind="encoder")
    torch.manual_seed(0)
    config = preset("macaron-bert-tiny", vocab_size=len(tokenizer))
    EncoderForPreTraining(config).save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


def test_runs_in_one_process_learn_and_repeat(folder: Path):
    draw = np.random.default_rng(3)
    words = ["the", "cat", "sat", "on", "mat", "it", "was"]
    labels = [float(each) for each in draw.integers(2, size=500)]
    texts = [" ".join([*draw.choice(words, int(draw.integers(2, 30))), ("bad", "good")[int(y)]]) for y in labels]
    tuner = FineTuner(folder, "cuda")
    found = {}
    for kind in ("classes", "one-logit", "classes"):
        objective = Objective(kind, ("bad", "good"))
        data = tuner.encode([texts], objective, labels)
        dev = {"dev": data}
        for batch_size in (32, 16):
            outcome = tuner.fit(data, dev, objective, FineTuning(batch_size, 1e-3, 3), ("accuracy",))
            assert outcome.score > 95
            losses = [each["loss"] for each in outcome.epochs]
            if (kind, batch_size) in found:
                assert losses == pytest.approx(found[kind, batch_size], rel=0.05)
            found[kind, batch_size] = losses
