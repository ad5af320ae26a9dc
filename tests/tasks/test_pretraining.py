"""The losses of pre-training do not depend on how texts are laid out, and only what is needed is computed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from macaron.data.pretraining_texts import Corpus
from macaron.errors import MacaronError
from macaron.models import EncoderForPreTraining, preset
from macaron.tasks import pretraining_batches as batches
from macaron.tasks.pretraining import PretrainingLoss
from macaron.tasks.pretraining_batches import FIRST_WORD, Plan, PretrainingBatch, Shape
from macaron.text.vocabulary import CLS, EOS, MASK, PAD
from macaron.train.settings import PretrainSettings, TrainSettings

VOCABULARY, WIDTH = 60, 32
TRAIN = TrainSettings(max_updates=1, row_tokens=WIDTH, batch_tokens=4 * WIDTH, accumulate=3)
WORDS = range(FIRST_WORD, VOCABULARY)
CASES = {
    "both": PretrainSettings(),
    "sentences": PretrainSettings(pairs="sentences"),
    "reference": PretrainSettings(pairs="sentences", cls_target=True),
    "words alone": PretrainSettings(nsp=False),
    "pairs alone": PretrainSettings(mlm=False),
    "short texts": PretrainSettings(max_tokens=12, mask_ratio=0.4),
}


def text(seed: int = 3) -> tuple[np.ndarray, Corpus]:
    """Flat ids with some unknown words among them, and where sentences and documents lie."""
    random = np.random.default_rng(seed)
    sentences = random.integers(1, 14, 120)
    ids = random.integers(FIRST_WORD, VOCABULARY, sentences.sum()).astype(np.uint16)
    ids[random.random(len(ids)) < 0.05] = 3
    inner = np.sort(random.choice(np.arange(1, 120), 15, replace=False))
    return ids, Corpus(np.concatenate([[0], np.cumsum(sentences)]), np.concatenate([[0], inner, [120]]))


def loss_module(settings: PretrainSettings, **changes: Any) -> PretrainingLoss:
    torch.manual_seed(0)
    small = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": VOCABULARY}
    config = preset("macaron-bert-tiny", **{**small, "dropout": 0.0, "attention_dropout": 0.0, **changes})
    return PretrainingLoss(EncoderForPreTraining(config).double(), settings, chunk=7)


def planned(settings: PretrainSettings, seed: tuple[int, int] = (1, 1), group: int = 3) -> tuple[Plan, Shape]:
    shape = Shape.of(TRAIN, settings, text()[1])
    return batches.plan(text()[1], shape, TRAIN, settings, seed, group), shape


def laid_out(made: Plan, shape: Shape, settings: PretrainSettings, index: int, first: int = 0) -> PretrainingBatch:
    return batches.collate(text()[0], made, index, shape, settings, WORDS, first)


def alone(batch: PretrainingBatch) -> list[dict[str, torch.Tensor]]:
    """The texts of a batch one by one, as transformers would have them."""
    found = []
    targets = torch.full(batch.ids.shape, -100).flatten()
    real = batch.targets != PAD
    targets[batch.masked[real]] = batch.targets[real]
    targets = targets.view_as(batch.ids)
    known = batch.follows >= 0
    labels = dict(zip(batch.firsts[known].tolist(), batch.follows[known].tolist(), strict=True))
    for row in range(len(batch.ids)):
        for number in range(1, int(batch.text[row].max()) + 1):
            places = (batch.text[row] == number).nonzero().squeeze(1)
            found.append(
                {
                    "input_ids": batch.ids[row, places][None],
                    "token_type_ids": batch.segments[row, places][None],
                    "labels": targets[row, places][None],
                    "next": torch.tensor([labels.get(row * WIDTH + int(places[0]), -1)]),
                }
            )
    return found


@pytest.mark.parametrize("name", CASES)
def test_packed_texts_are_those_texts_alone(name: str):
    """Through the whole head at all places, one text at a time: the same losses and gradients."""
    settings = CASES[name]
    module = loss_module(settings)
    made, shape = planned(settings)
    batch = laid_out(made, shape, settings, 0)
    batch = replace(batch, weights=batch.weights.double())
    packed = module(batch)
    packed[0].backward()
    gradients = {key: parameter.grad.clone() for key, parameter in module.named_parameters()}
    module.zero_grad()

    word_weight, pair_weight = batch.weights.tolist()
    mlm = nsp = torch.zeros((), dtype=torch.float64)
    texts = alone(batch)
    assert len(texts) == int((batch.ids == CLS).sum())
    for each in texts:
        words, second = module.model(each["input_ids"], segments=each["token_type_ids"])
        logits, labels = words[0], each["labels"][0]
        mlm = mlm + F.cross_entropy(logits, labels, ignore_index=-100, reduction="sum") * word_weight
        if each["next"] >= 0:
            follows = second[:, 0]
            nsp = nsp + F.binary_cross_entropy_with_logits(follows, each["next"].double()) * pair_weight
    parts = [*([mlm] if settings.mlm else []), *([nsp] if settings.nsp else [])]
    torch.testing.assert_close(packed, torch.stack([sum(parts), *parts]), rtol=1e-9, atol=1e-9)
    sum(parts).backward()
    for key, parameter in module.named_parameters():
        expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(gradients[key], expected, rtol=1e-7, atol=1e-8, msg=key)


def check_stretches(batch: PretrainingBatch) -> None:
    """Two places are in one stretch if they are in one text, or in the padding of one row."""
    starts = batch.starts.tolist()
    assert starts == sorted(starts)
    assert (starts[0], starts[-1]) == (0, batch.ids.numel())
    stretch = np.searchsorted(starts, np.arange(batch.ids.numel()), side="right").reshape(batch.ids.shape)
    assert (np.diff(starts) <= WIDTH).all()
    for row, of_row in zip(batch.text.numpy(), stretch, strict=True):
        assert ((row[:, None] == row) == (of_row[:, None] == of_row)).all()
    assert (stretch[1:, 0] != stretch[:-1, -1]).all()


@pytest.mark.parametrize("name", CASES)
def test_every_batch_is_well_formed(name: str):
    settings = CASES[name]
    made, shape = planned(settings)
    words = pairs = tokens = 0
    shapes = set()
    for index in range(len(made.tokens)):
        batch = laid_out(made, shape, settings, index)
        shapes.add(tuple(tuple(getattr(batch, field).shape) for field in PretrainingBatch.__dataclass_fields__))
        assert int((batch.text > 0).sum()) == made.tokens[index]
        assert (batch.ids == PAD).equal(batch.text == 0)
        targets = batch.targets[batch.targets != PAD]
        allowed = targets >= FIRST_WORD
        assert bool((allowed | (targets == CLS) & settings.cls_target).all())  # never a special token
        seen = batch.ids.flatten()[batch.masked[: len(targets)]]
        assert bool(((seen == MASK) | (seen >= FIRST_WORD) | (targets == CLS)).all())
        firsts = batch.firsts[batch.follows >= 0]
        assert bool((batch.ids.flatten()[firsts] == CLS).all())
        ends = (batch.ids == EOS).sum()
        assert ends == (2 if settings.nsp else 1) * (batch.ids == CLS).sum()
        check_stretches(batch)
        words += len(targets)
        pairs += len(firsts)
        tokens += int(made.tokens[index])
        # Where a text begins its positions do.
        assert bool((batch.positions.flatten()[(batch.ids == CLS).flatten()] == 2).all())
    assert len(shapes) == 1
    assert tokens == made.spans.lengths.sum()
    if settings.nsp:
        assert pairs == len(made.spans)
    if settings.mlm:
        planned_words = int(made.counts.sum()) + settings.cls_target * len(made.spans)
        assert words == planned_words
        assert made.counts.sum() == pytest.approx(settings.mask_ratio * made.spans.words.sum(), rel=0.15)


def test_a_batch_with_more_texts_than_usual_has_them_all():
    settings = CASES["both"]
    made, shape = planned(settings)
    usual, more = (laid_out(made, each, settings, 0) for each in (shape, replace(shape, texts=1)))
    check_stretches(more)
    assert len(more.starts) > len(usual.starts)
    assert more.starts.unique().equal(usual.starts.unique())


@pytest.mark.parametrize("name", CASES)
def test_an_update_is_the_mean_over_words_plus_the_mean_over_pairs(name: str):
    settings = CASES[name]
    module = loss_module(settings)
    made, shape = planned(settings)
    assert len(made.tokens) > 3
    for group in (range(3), range(3, min(6, len(made.tokens)))):
        of_update = [laid_out(made, shape, settings, index) for index in group]
        total = sum(module(batch) for batch in of_update) / int(made.tokens[list(group)].sum())
        states = [module.states(batch) for batch in of_update]
        sums = sum(
            module.losses(*each, replace(batch, weights=torch.ones(2)))
            for each, batch in zip(states, of_update, strict=True)
        )
        counts = {
            "mlm": sum(int((batch.targets != PAD).sum()) for batch in of_update),
            "nsp": sum(int((batch.follows >= 0).sum()) for batch in of_update),
        }
        on = [kind for kind in ("mlm", "nsp") if getattr(settings, kind)]
        means = torch.stack([sums[1 + i] / counts[kind] for i, kind in enumerate(on)])
        torch.testing.assert_close(total[1:], means, rtol=1e-6, atol=0)
        torch.testing.assert_close(total[0], means.sum(), rtol=1e-6, atol=0)


def test_segments_follow_the_model():
    settings = PretrainSettings()
    made, shape = planned(settings)
    usual, reference = (laid_out(made, shape, settings, 0, first) for first in (0, 1))
    assert usual.segments.equal(1 - reference.segments)
    assert bool((reference.segments[reference.text == 0] == 1).all())  # padding has the first sentence's
    assert bool((reference.segments[reference.ids == CLS] == 1).all())
    row = reference.text[0] == 1
    segments, ids = reference.segments[0][row], reference.ids[0][row]
    border = int((ids == EOS).nonzero()[0, 0])
    assert segments[: border + 1].tolist() == [1] * (border + 1)
    assert set(segments[border + 1 :].tolist()) == {0}


def test_other_epochs_have_other_texts_and_other_masks():
    settings = PretrainSettings()
    (one, shape), (again, _), (other, _) = (planned(settings, seed) for seed in ((1, 1), (1, 1), (1, 2)))
    same = [laid_out(made, shape, settings, 1) for made in (one, again)]
    assert all(getattr(same[0], name).equal(getattr(same[1], name)) for name in PretrainingBatch.__dataclass_fields__)
    assert not laid_out(other, shape, settings, 1).ids.equal(same[0].ids)
    # The same texts with the masks of another epoch.
    moved = laid_out(replace(one, seed=(1, 2)), shape, settings, 1)
    assert moved.text.equal(same[0].text)
    assert not moved.masked.equal(same[0].masked)


def test_every_micro_batch_has_masks_of_its_own():
    """Rows that are all alike, one text in each: what is masked must not be the same places again and again."""
    settings = PretrainSettings(nsp=False)
    corpus = Corpus(np.arange(0, 601, 30), np.arange(21))
    shape = Shape.of(TRAIN, settings, corpus)
    ids = np.full(600, FIRST_WORD, np.uint16)
    made = batches.plan(corpus, shape, TRAIN, settings, (1, 1), 1)
    assert len(made.tokens) == 5
    found = [batches.collate(ids, made, i, shape, settings, WORDS, 0) for i in range(5)]
    assert all(batch.text.equal(found[0].text) for batch in found)
    assert len({tuple(batch.masked[batch.targets != PAD].tolist()) for batch in found}) == 5


def test_a_micro_batch_of_tiny_texts_has_room_for_its_words():
    """Sentences of one word: more of them are masked than a share of the places; the last ones are not."""
    settings = PretrainSettings(pairs="sentences", mask_ratio=0.05)
    corpus = Corpus(np.arange(201), np.array([0, 100, 200]))
    shape = Shape.of(TRAIN, settings, corpus)
    ids = np.full(200, FIRST_WORD, np.uint16)
    made = batches.plan(corpus, shape, TRAIN, settings, (1, 1), 1)
    found = [batches.collate(ids, made, i, shape, settings, WORDS, 0) for i in range(len(made.tokens))]
    words = [int((batch.targets != PAD).sum()) for batch in found]
    assert max(words) == shape.masked
    assert sum(words) == made.counts.sum() < len(made.spans)
    for batch, count, tokens in zip(found, words, made.tokens, strict=True):
        assert float(batch.weights[0]) == pytest.approx(tokens / count)


def test_counting_what_is_right():
    settings = PretrainSettings()
    module = loss_module(settings)
    made, shape = planned(settings)
    batch = laid_out(made, shape, settings, 0)
    words, firsts = module.states(batch)
    right = module.right(words, firsts, batch)
    assert right[1].tolist() == [int((batch.targets != PAD).sum()), int((batch.follows >= 0).sum())]
    best = module.model.mlm_logits(words).argmax(-1)
    told = replace(batch, targets=torch.where(batch.targets == PAD, PAD, best))
    assert module.right(words, firsts, told)[0, 0] == right[1, 0]
    says = (module.model.next_sentence(firsts).squeeze(-1) > 0).int()
    told = replace(batch, follows=torch.where(batch.follows < 0, -1, 1 - says))
    assert module.right(words, firsts, told)[0, 1] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mlm": False, "nsp": False}, "nothing is left to learn"),
        ({"mask_ratio": 0.0}, "pretrain.mask_ratio must be above 0"),
        ({"mask_share": 0.8, "random_share": 0.3}, "more than 1 together"),
        ({"next_share": 1.5}, "pretrain.next_share must be from 0 to 1"),
        ({"mlm": False, "cls_target": True}, "needs pretrain.mlm = true"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], message: str):
    with pytest.raises(MacaronError, match=message):
        PretrainSettings(**settings)


def test_settings_that_do_not_fit_the_rows():
    with pytest.raises(MacaronError, match=r"pretrain.max_tokens at most train.row_tokens"):
        PretrainSettings(max_tokens=64).check(TRAIN)
    with pytest.raises(MacaronError, match=r"train.row_tokens must be at least 8"):
        PretrainSettings().check(TrainSettings(max_updates=1, row_tokens=4))
    with pytest.raises(MacaronError, match="rows of plain text are packed"):
        PretrainSettings().check(TrainSettings(max_updates=1, batching="bucket"))
