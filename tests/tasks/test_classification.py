"""Fine-tuning: objectives, batches, and runs that repeat."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from macaron.convert import convert_fairseq
from macaron.convert.fairseq import weight_names
from macaron.errors import MacaronError
from macaron.seal import seal
from macaron.tasks import classifier
from macaron.tasks.classification import (
    ClassificationBatch,
    ClassificationLoss,
    FineTuning,
    Objective,
    usual_rate,
)
from macaron.tasks.classifier import Encoded, EncoderOnDevice, Predictor
from macaron.tasks.finetune import FineTuner, epoch_order
from macaron.tasks.glue.jobs import Job
from macaron.text.tokenizer import MacaronTokenizer
from macaron.train.optimiser import Optimiser, learning_rate

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CLASSIFIER = GOLDEN / "classifier_tiny_macaron_cross_entropy_classify"
FIRST = ["the cat sat on the mat", "good", "the house was bad and it run away on a mat"]
SECOND = ["it was good", "the cat and the house and the mat sat on the cat", ""]


def encode(folder: Path, texts: list[list[str]], max_length: int) -> Encoded:
    return EncoderOnDevice(folder, "cpu", max_length=max_length, new_head=True).encode(texts)


@pytest.mark.golden
def test_golden_loss_and_gradients_through_model_and_criterion(tmp_path: Path):
    convert_fairseq(CLASSIFIER / "checkpoint_min.pt", GOLDEN / "dict.bert.txt", tmp_path / "model")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    with np.load(CLASSIFIER / "io.npz") as file:
        io = {key: torch.from_numpy(file[key]) for key in file}
    recorded = json.loads((CLASSIFIER / "loss.json").read_text())
    module = ClassificationLoss(model, Objective("classes", ("neutral", "entailment", "contradiction")))
    targets = io["target"].view(-1)
    ones = torch.ones(len(targets))
    batch = ClassificationBatch(io["src_tokens"], io["segment"], io["src_tokens"] != 1, targets, ones)
    torch.testing.assert_close(module.logits(batch), io["logits"], rtol=1e-5, atol=1e-5)
    loss = module(batch)[0]
    assert loss.item() == pytest.approx(recorded["loss"], rel=1e-5)
    loss.backward()
    names, parameters = weight_names(model.config, "classifier"), dict(model.named_parameters())
    with np.load(CLASSIFIER / "grads.npz") as file:
        assert len(file) > 10
        for theirs in file:
            recorded_gradient = torch.from_numpy(file[theirs])
            found = torch.cat([parameters[ours].grad for ours in names[theirs]])
            scale = float(recorded_gradient.abs().max())
            torch.testing.assert_close(found, recorded_gradient, rtol=0, atol=1e-5 * scale)


def test_the_losses_of_the_three_kinds_by_hand():
    logits = torch.tensor([[0.3], [-1.2]])
    sigmoid = 1 / (1 + math.exp(-0.3)), 1 / (1 + math.exp(1.2))
    one = Job("cola", FineTuning()).objective
    assert (one.kind, one.logits) == ("one-logit", 1)
    losses = one.losses(logits, torch.from_numpy(one.targets([1, 0])))
    assert losses.tolist() == pytest.approx([-math.log(sigmoid[0]), -math.log(1 - sigmoid[1])])
    assert Job("cola", FineTuning(), one_logit=False).objective.logits == 2
    for name in ("sst2", "rte", "qnli", "wnli"):
        assert Job(name, FineTuning()).objective.logits == 2
    assert Job("mnli", FineTuning()).objective.logits == 3
    score = Job("stsb", FineTuning()).objective
    assert score.targets([5.0, 3.0, 0.0]).tolist() == [1.0, 0.0, -1.5]  # 0.5 * (score - 3)
    assert score.losses(logits, torch.tensor([1.0, 0.0])).tolist() == pytest.approx([0.49, 1.44])
    assert score.predictions(np.array([[0.5], [-1.0]])).tolist() == [4.0, 1.0]


@pytest.mark.parametrize("kind", ["one-logit", "score"])
def test_a_plain_head_says_the_same(kind):
    objective = Objective(kind, ("no", "yes") if kind == "one-logit" else ("score",), shift=3.0, scale=2.0)
    torch.manual_seed(0)
    states, weight, bias = torch.randn(5, 8), torch.randn(1, 8), torch.randn(1)
    trained = torch.nn.functional.linear(states, weight, bias)
    plain = torch.nn.functional.linear(states, *objective.plain_head(weight, bias))
    if kind == "one-logit":
        torch.testing.assert_close(plain.softmax(-1)[:, 1], trained[:, 0].sigmoid())
        assert plain.argmax(-1).tolist() == objective.predictions(trained.double().numpy()).tolist()
    else:
        torch.testing.assert_close(
            plain.double()[:, 0], torch.from_numpy(objective.predictions(trained.double().numpy()))
        )


def test_objectives_that_make_no_sense_are_refused():
    with pytest.raises(MacaronError, match="two classes, not 3"):
        Objective("one-logit", ("a", "b", "c"))
    with pytest.raises(MacaronError, match="only a"):
        Objective("classes", ("a",))
    with pytest.raises(MacaronError, match="batch size must be at most 100,000, not 1000000000"):
        FineTuning(batch_size=10**9)
    with pytest.raises(MacaronError, match="epochs must be at least 1"):
        FineTuning(epochs=0)


@pytest.mark.parametrize("fixed", [False, True])
@pytest.mark.parametrize("second", [None, SECOND])
def test_batches_are_what_the_tokenizer_makes(fixed: bool, second: list[str] | None, encoder_folder: Path):
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    texts = [FIRST] if second is None else [FIRST, second]
    classifier = EncoderOnDevice(encoder_folder, "cpu", max_length=64, new_head=True)
    classifier.fixed_shapes = fixed
    data = classifier.encode(texts)
    assert data.truncated == 0
    batch = classifier.batch(data, np.arange(3), 4)
    width = 32 if fixed else int(data.lengths.max())
    expected = tokenizer(*texts, return_tensors="pt", padding="max_length", max_length=width)
    assert batch.tokens.shape == ((4, width) if fixed else (3, width))
    assert torch.equal(batch.tokens[:3], expected["input_ids"])
    assert torch.equal(batch.segments[:3], expected["token_type_ids"])
    assert torch.equal(batch.real[:3].long(), expected["attention_mask"])
    assert batch.weights.tolist() == ([1, 1, 1, 0] if fixed else [1, 1, 1])


def test_cutting_keeps_both_texts_and_takes_from_the_longer(encoder_folder: Path):
    whole = encode(encoder_folder, [FIRST, SECOND], 64)
    cut = encode(encoder_folder, [FIRST, SECOND], 9)
    assert cut.truncated == 3
    for i in range(3):
        before, after = ([len(texts[i]) for texts in each.texts] for each in (whole, cut))
        assert sum(after) == 6
        assert all(kept >= min(was, 3) for kept, was in zip(after, before, strict=True))
        for texts, all_of_it in zip(cut.texts, whole.texts, strict=True):
            assert texts[i].tolist() == all_of_it[i][: len(texts[i])].tolist()
    assert (cut.lengths == 9).all()
    assert encode(encoder_folder, [FIRST], 5).lengths.max() == 5


def test_swapping_is_drawn_anew_every_epoch_and_swaps_the_segments_too(encoder_folder: Path):
    classifier = EncoderOnDevice(encoder_folder, "cpu", max_length=64, new_head=True)
    data, back = (classifier.encode(texts) for texts in ([FIRST, SECOND], [SECOND, FIRST]))
    swapped = classifier.batch(data, np.arange(3), 3, np.array([True, True, True]))
    straight = classifier.batch(back, np.arange(3), 3)
    assert torch.equal(swapped.tokens, straight.tokens)
    assert torch.equal(swapped.segments, straight.segments)
    draws = [epoch_order(np.ones(1000), 32, 1, epoch) for epoch in (1, 2, 1)]
    assert (draws[0][1] == draws[2][1]).all()
    assert (draws[0][0] == draws[2][0]).all()
    assert 400 < (draws[0][1] != draws[1][1]).sum() < 600
    assert sorted(draws[0][0]) == list(range(1000))
    assert (draws[0][0] != draws[1][0]).mean() > 0.9  # an order of its own in every epoch
    assert (draws[0][0] != np.arange(1000)).mean() > 0.9


@pytest.mark.parametrize("count", [5, 32, 1000, 5003])
def test_batches_have_little_padding(count: int):
    lengths = np.random.default_rng(1).integers(3, 60, count)
    order, _ = epoch_order(lengths, 32, 1, 1)
    assert sorted(order) == list(range(count))
    batches = [lengths[order[start : start + 32]] for start in range(0, count, 32)]
    padded = sum(len(batch) * batch.max() for batch in batches)
    if count >= 1000:
        assert padded < 1.1 * lengths.sum()
        means = [batch.mean() for batch in batches]
        assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.5  # short and long ones take turns


def test_the_rate_rises_for_a_tenth_and_falls_to_zero():
    settings = FineTuning(batch_size=10, learning_rate=5e-5, epochs=4)
    updates = settings.updates(245)
    train = settings.train_settings(updates)
    assert (updates, train.warmup, train.epsilon, train.betas) == (100, 10, 1e-6, (0.9, 0.999))
    rates = [learning_rate(train, n, (n - 10) / 90) for n in range(101)]
    assert rates[0] == 1e-7
    assert rates[5] == pytest.approx((1e-7 + 5e-5) / 2)
    assert rates[10] == 5e-5
    assert rates[55] == pytest.approx(2.5e-5)
    assert rates[100] == 0
    assert rates[99] > 0


def easy(count: int, seed: int) -> tuple[list[str], list[float]]:
    draw = np.random.default_rng(seed)
    words = ["the", "cat", "sat", "on", "mat", "it", "was", "and", "run", "away", "house"]
    texts, labels = [], []
    for _ in range(count):
        chosen, label = list(draw.choice(words, 5)), int(draw.integers(2))
        chosen[int(draw.integers(5))] = ("bad", "good")[label]
        texts.append(" ".join(chosen))
        labels.append(float(label))
    return texts, labels


def runs(folder: Path, *all_settings: FineTuning, kind="classes", fixed_shapes=False, **options):
    tuner = FineTuner(folder, "cpu", **options)
    tuner.fixed_shapes = fixed_shapes
    objective = Objective(kind, ("bad", "good"))
    texts, labels = easy(120, 1)
    held, truth = easy(40, 2)
    data = tuner.encode([texts], objective, labels)
    dev = {"dev": tuner.encode([held], objective, truth)}
    return [tuner.fit(data, dev, objective, settings, ("accuracy",)) for settings in all_settings]


def test_a_run_does_not_depend_on_what_ran_before(encoder_folder: Path):
    one, other = FineTuning(16, 1e-3, 1, seed=1), FineTuning(32, 5e-4, 2, seed=2, weight_decay=0.01)
    together = runs(encoder_folder, other, one, other)
    alone = runs(encoder_folder, one)[0]
    assert together[1].epochs == alone.epochs
    assert together[0].epochs == together[2].epochs
    assert together[0].epochs[0]["loss"] != alone.epochs[0]["loss"]
    assert alone.epochs[0]["loss"] == pytest.approx(math.log(2), abs=0.1)  # the head starts at zero


def test_filling_rows_change_nothing(encoder_folder: Path):
    """On a GPU shapes are fixed; the numbers are those of plain batches."""
    settings = FineTuning(32, 1e-3, 2)  # 120 examples: the last batch has 24
    plain = runs(encoder_folder, settings, dropout=0.0)[0]
    filled = runs(encoder_folder, settings, dropout=0.0, fixed_shapes=True)[0]
    for a, b in zip(plain.epochs, filled.epochs, strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
        assert a["scores"] == b["scores"]


def test_one_logit_and_two_both_learn(encoder_folder: Path):
    settings = FineTuning(16, 1e-3, 3)
    for kind in ("one-logit", "classes"):
        assert runs(encoder_folder, settings, kind=kind)[0].score > 90


def test_the_loss_of_a_batch_is_the_mean_over_its_examples(encoder_folder: Path, monkeypatch):
    """With a head of zeros the bias has the gradient mean(1/2 - label), whatever else the model does."""
    tuner = FineTuner(encoder_folder, "cpu", dropout=0.0)
    objective = Objective("one-logit", ("bad", "good"))
    texts, labels = easy(10, 1)
    data = tuner.encode([texts], objective, labels)
    found: list[float] = []
    plain = Optimiser.step

    def noted(self: Optimiser, rate: float, update: int) -> None:
        found.append(float(tuner.model.classifier.bias.grad))
        plain(self, 0.0, update)  # at a rate of nothing the head stays at zero

    monkeypatch.setattr(Optimiser, "step", noted)
    tuner.fit(data, {"dev": data}, objective, FineTuning(4, 1e-3, 1, seed=3), ("accuracy",))
    order = epoch_order(data.lengths, 4, 3, 1)[0]
    rows = [order[start : start + 4] for start in (0, 4, 8)]  # the last batch has two
    assert found == pytest.approx([np.mean([0.5 - labels[row] for row in part]) for part in rows])


def test_the_best_epoch_is_kept(encoder_folder: Path):
    """The labels of the development set are wrong: the more the model learns, the worse its score."""
    tuner = FineTuner(encoder_folder, "cpu", dropout=0.0)
    objective = Objective("classes", ("bad", "good"))
    texts, labels = easy(120, 1)
    data = tuner.encode([texts], objective, labels)
    wrong = tuner.encode([texts], objective, [1 - label for label in labels])
    settings = FineTuning(16, 2e-4, 4)
    last = tuner.fit(data, {"dev": wrong}, objective, settings, ("accuracy",))
    best = tuner.fit(data, {"dev": wrong}, objective, settings, ("accuracy",), keep_best=True)
    accuracies = [each["scores"]["dev"]["accuracy"] for each in best.epochs]
    assert best.epochs == last.epochs
    assert accuracies[0] == max(accuracies) > accuracies[-1]
    assert last.score == accuracies[-1]
    assert (best.kept, best.score) == (4 - accuracies[::-1].index(max(accuracies)), max(accuracies))
    # What it predicts now is what was scored then.
    predicted = objective.predictions(tuner.all_logits(wrong))
    assert (predicted == best.predictions["dev"]).all()
    assert 100 * np.mean(predicted == wrong.labels) == pytest.approx(best.score)
    assert (predicted != last.predictions["dev"]).any()


def test_narrower_encoders_and_shorter_runs_get_higher_rates():
    rates = [usual_rate(width, 100)[0] for width in (64, 128, 256, 512, 768, 1024)]
    assert rates == sorted(rates, reverse=True)
    assert (rates[0], rates[1], rates[4]) == (1e-3, 1e-3, 5e-5)
    rates = [usual_rate(768, updates)[0] for updates in (1, 1_000, 6_300, 100_000)]
    assert rates == [5e-5, 5e-5, 2e-5, 5e-6]
    assert {"128", "4,000"} <= {word.strip(";") for word in usual_rate(128, 4_000)[1].split()}


def test_symmetric_runs_see_both_orders(encoder_folder: Path):
    tuner = FineTuner(encoder_folder, "cpu", dropout=0.0)
    objective = Objective("classes", ("bad", "good"))
    (texts, labels), (other, _) = easy(48, 1), easy(48, 5)

    def losses(first: list[str], second: list[str], symmetric: bool) -> list[float]:
        data = tuner.encode([first, second], objective, labels)
        settings = FineTuning(16, 1e-3, 2, symmetric=symmetric)
        outcome = tuner.fit(data, {"dev": data}, objective, settings, ("accuracy",))
        return [each["loss"] for each in outcome.epochs]

    assert losses(texts, other, True) != losses(texts, other, False)
    assert losses(texts, texts, True) == losses(texts, texts, False)


def test_a_classifier_answers_by_name(encoder_folder: Path, tmp_path: Path):
    """By the names that are stored with it, wherever it has been trained and in whatever order."""
    tuner = FineTuner(encoder_folder, "cpu", max_length=12)
    turned = Objective("classes", ("entailment", "not_entailment"))
    texts, labels = easy(160, 1)
    data = tuner.encode([texts, texts], turned, labels)
    tuner.fit(data, {"dev": data}, turned, FineTuning(16, 1e-3, 3), ("accuracy",))
    tuner.save(tmp_path / "model", turned, {"texts": 2})
    predictor = Predictor(tmp_path / "model", "cpu")
    assert predictor.max_length == 12  # as in training
    theirs = AutoTokenizer.from_pretrained(tmp_path / "model")
    assert len(theirs("the bad cat " * 9, truncation=True)["input_ids"]) == theirs.model_max_length == 12
    given = [["the bad cat", "the good cat"]] * 2
    assert [each["label"] for each in predictor.predict(given)] == ["entailment", "not_entailment"]


def test_a_run_that_diverges_ends_and_says_so(encoder_folder: Path):
    outcome = runs(encoder_folder, FineTuning(16, 1e30, 3))[0]
    assert outcome.diverged
    assert len(outcome.epochs) < 3
    assert outcome.epochs[-1]["loss"] is None


def test_stopping_in_the_middle(encoder_folder: Path):
    tuner = FineTuner(encoder_folder, "cpu")
    objective = Objective("classes", ("bad", "good"))
    texts, labels = easy(64, 1)
    data = tuner.encode([texts], objective, labels)
    done = []

    def before_update() -> None:
        if len(done) == 5:
            raise KeyboardInterrupt
        done.append(1)

    with pytest.raises(KeyboardInterrupt):
        tuner.fit(
            data,
            {"dev": data},
            objective,
            FineTuning(16, 1e-3, 3),
            ("accuracy",),
            before_update,
        )
    assert len(done) == 5


def test_any_encoder_can_be_fine_tuned(encoder_folder: Path, tmp_path: Path):
    """Another task's classifier, with another number of classes; the authors' BERT. The head is always new."""
    tuner = FineTuner(encoder_folder, "cpu")
    three = Objective("classes", ("a", "b", "c"))
    data = tuner.encode([FIRST, SECOND], three, [0, 1, 2])
    tuner.fit(data, {"dev": data}, three, FineTuning(2, 1e-3, 1), ("accuracy",))
    tuner.save(tmp_path / "three", three, {"texts": 2})
    convert_fairseq(GOLDEN / "bert_tiny_macaron" / "checkpoint_min.pt", GOLDEN / "dict.bert.txt", tmp_path / "bert")
    for folder in (tmp_path / "three", tmp_path / "bert"):
        outcome = runs(folder, FineTuning(32, 1e-4, 1), kind="one-logit")[0]
        assert outcome.epochs[0]["loss"] == pytest.approx(math.log(2), abs=0.1)


def test_folders_that_cannot_be_fine_tuned(encoder_folder: Path, tmp_path: Path):
    with pytest.raises(MacaronError, match="no such folder"):
        FineTuner(tmp_path / "none")
    with pytest.raises(MacaronError, match=r"it has no config\.json"):
        FineTuner(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "macaron-translation"}')
    with pytest.raises(MacaronError, match="is not a text encoder; expected 'macaron-encoder'"):
        FineTuner(tmp_path)
    for path in encoder_folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "first_segment": 0}))
    seal(tmp_path)
    with pytest.raises(MacaronError, match="segment 1, the model has 0"):
        FineTuner(tmp_path)


@pytest.mark.slow
def test_processes_that_help_with_moses_make_the_same_tokens(encoder_folder: Path, monkeypatch):
    tokenizer = MacaronTokenizer.train(FIRST * 20, 120, kind="encoder", pipeline="moses", source_lang="en")
    texts = [f"{text} {number}." for number in range(20) for text in FIRST]
    encoder = EncoderOnDevice(encoder_folder, "cpu", max_length=64, new_head=True)
    encoder.tokenizer = tokenizer
    alone = encoder.encode([texts])
    monkeypatch.setattr(classifier, "MANY", 10)
    monkeypatch.setattr(classifier, "_CHUNK", 16)
    together = encoder.encode([texts])
    assert [each.tolist() for each in together.texts[0]] == [each.tolist() for each in alone.texts[0]]
