"""SimCut, R-Drop and word dropout against their definitions, and in every layout of a batch."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.errors import MacaronError
from macaron.models import TranslationModel, preset
from macaron.nn.loss import PairDivergence
from macaron.recipe import recipe_from
from macaron.tasks.translation import TranslationBatch, TranslationLoss
from macaron.text.vocabulary import EOS, PAD
from macaron.train.settings import CONSISTENCY
from operators import OPERATORS, tiny

ROWS, WIDTH, VOCABULARY = 4, 12, 30
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
SIMCUT, R_DROP = (3.0, False), (5.0, True)


def module(divergence: tuple[float, bool] | None, cut: float = 0.0, word_dropout: float = 0.0) -> TranslationLoss:
    torch.manual_seed(3)
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": VOCABULARY}
    model = TranslationModel(preset("macaron-tiny", **shape, **STILL)).double()
    apart = None if divergence is None else PairDivergence(*divergence, PAD)
    return TranslationLoss(model, 0.1, apart, cut, word_dropout)


def sentences() -> tuple[list[list[int]], list[list[int]]]:
    draw = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, WIDTH // 2, (2, 2 * ROWS), generator=draw).tolist()
    source, target = (
        [[*torch.randint(4, VOCABULARY, (n,), generator=draw).tolist(), EOS] for n in side] for side in lengths
    )
    return source, target


def padded(start: int = 0, stop: int = 2 * ROWS, width: int = WIDTH) -> TranslationBatch:
    sides = [[row + [PAD] * (width - len(row)) for row in side[start:stop]] for side in sentences()]
    source, target = map(torch.tensor, sides)
    previous = target.roll(1, 1)
    previous[:, 0] = EOS
    return TranslationBatch(source, target, previous, consistent=True)


def packed() -> TranslationBatch:
    """Two sentences in a row."""
    numbers = torch.zeros(2, 3, ROWS, WIDTH, dtype=torch.long)
    numbers[:, 0] = PAD
    for side, texts in enumerate(sentences()):
        for row in range(ROWS):
            start = 0
            for number, text in enumerate(texts[2 * row : 2 * row + 2], start=1):
                span = slice(start, start := start + len(text))
                numbers[side, 0, row, span] = torch.tensor(text)
                numbers[side, 1, row, span] = torch.arange(2, 2 + len(text))
                numbers[side, 2, row, span] = number
    (source, source_places, source_text), (target, places, text) = numbers
    previous = target.roll(1, 1)
    previous[:, 0] = EOS
    return TranslationBatch(
        source, target, previous, source_places.int(), places.int(), source_text.int(), text.int(), consistent=True
    )


def computed(made: TranslationLoss, *batches: TranslationBatch) -> list[Tensor]:
    """The sums, and the gradients of the first of them."""
    made.zero_grad()
    total = torch.zeros(3, dtype=torch.float64)
    for batch in batches:
        sums = made(batch)
        sums[0].backward()
        total[: len(sums)] += sums.detach()
    return [total, *(p.grad.clone() for p in made.parameters() if p.grad is not None)]


def log_probabilities(model: TranslationModel, batch: TranslationBatch, kept: tuple[Tensor, Tensor]) -> Tensor:
    """Of one pass, in which the token vectors that are not kept are zero; positions are added to them all the same."""
    real = batch.source != PAD
    source, previous = (
        model.embedding.tokens(ids) * mask[..., None]
        for ids, mask in zip((batch.source, batch.previous), kept, strict=True)
    )
    states = model.decode(batch.previous, model.encode(batch.source, real, vectors=source), real, vectors=previous)
    return model.logits(states).log_softmax(-1)


def smoothed(scores: Tensor, batch: TranslationBatch) -> tuple[Tensor, Tensor]:
    """The label-smoothed loss and the nll, as sums."""
    flat, targets = scores.flatten(0, 1), batch.target.flatten()
    return tuple(  # type: ignore[return-value]
        F.cross_entropy(flat, targets, ignore_index=PAD, reduction="sum", label_smoothing=share) for share in (0.1, 0.0)
    )


def divergence(p: Tensor, q: Tensor, batch: TranslationBatch) -> Tensor:
    """The sum over real targets of KL(p || q), from log-probabilities."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(p)):
        for place in range(WIDTH):
            if batch.target[row, place] != PAD:
                a, b = p[row, place], q[row, place]
                total = total + sum(a[v].exp() * (a[v] - b[v]) for v in range(VOCABULARY))
    return total


def gradients(model: TranslationModel, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


def assert_close(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-9) -> None:
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def test_simcut():
    made, batch = module(SIMCUT, cut=0.3), padded()
    torch.manual_seed(7)
    found = computed(made, batch)
    torch.manual_seed(7)
    draws = [torch.rand(4 * ROWS, WIDTH)[2 * ROWS :] for _ in range(2)]
    source, target = ((draw >= 0.3) for draw in draws)
    source[batch.source == EOS] = True  # the end of the source
    target[:, 0] = True  # the start of the target
    p = log_probabilities(made.model, batch, (torch.ones_like(source), torch.ones_like(target)))
    q = log_probabilities(made.model, batch, (source, target))
    (loss, nll), apart = smoothed(p, batch), divergence(p, q, batch)
    objective = loss + 3 * apart
    assert apart > 0.1
    assert_close(found, [torch.stack([objective, nll, apart]).detach(), *gradients(made.model, objective)])


def test_r_drop_with_word_dropout():
    made, batch = module(R_DROP, word_dropout=0.3), padded()
    torch.manual_seed(7)
    found = computed(made, batch)
    torch.manual_seed(7)
    source, target = (torch.rand(4 * ROWS, WIDTH) >= 0.3 for _ in range(2))
    target[:, 0] = True
    masks = zip(source.chunk(2), target.chunk(2), strict=True)
    p, q = (log_probabilities(made.model, batch, kept) for kept in masks)
    losses, nlls = zip(smoothed(p, batch), smoothed(q, batch), strict=True)
    apart = (divergence(p, q, batch) + divergence(q, p, batch)) / 2
    objective = sum(losses) + 5 * apart
    assert apart > 0.1
    assert_close(found, [torch.stack([objective, sum(nlls) / 2, apart]).detach(), *gradients(made.model, objective)])


def test_word_dropout_alone():
    made, batch = module(None, word_dropout=0.3), padded()
    torch.manual_seed(7)
    found = computed(made, batch)
    torch.manual_seed(7)
    kept = tuple(torch.rand(2 * ROWS, WIDTH) >= 0.3 for _ in range(2))
    assert not kept[0][batch.source == EOS].all()  # the end of the source is not spared
    kept[1][:, 0] = True
    loss, nll = smoothed(log_probabilities(made.model, batch, kept), batch)  # type: ignore[arg-type]
    assert_close(found, [torch.stack([loss, nll, nll * 0]).detach(), *gradients(made.model, loss)])
    made.eval()
    assert made(batch).equal(module(None)(batch))


ALL = pytest.mark.parametrize(
    "settings",
    [
        {"divergence": SIMCUT, "cut": 1.0},
        {"divergence": R_DROP, "word_dropout": 1.0},
        {"divergence": None, "word_dropout": 1.0},
    ],
    ids=str,
)


@ALL
def test_every_layout_of_a_batch(settings: Any):
    """With all words cut but those that are spared there is nothing random."""
    made = module(**settings)
    expected = computed(made, packed())
    assert_close(computed(made, padded()), expected)  # without padding
    made.model.encoder.needs_positions = True
    assert_close(computed(made, padded()), expected)  # with padding
    assert_close(computed(made, padded(0, 3), padded(3, 5), padded(5)), expected)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("divergence", [SIMCUT, R_DROP], ids=["simcut", "r-drop"])
def test_every_operator_in_every_layout(name: str, divergence: tuple[float, bool]):
    model = tiny({**OPERATORS[name], **STILL}, VOCABULARY).double().train()
    cut = {"word_dropout": 1.0} if divergence is R_DROP else {"cut": 1.0}
    made = TranslationLoss(model, 0.1, PairDivergence(*divergence, PAD), **cut)
    expected = computed(made, packed())
    assert expected[0][2] > 0 or divergence is R_DROP  # its copies lose the same words here
    assert_close(computed(made, padded()), expected)
    model.encoder.needs_positions = True
    assert_close(computed(made, padded()), expected)


@pytest.mark.parametrize("settings", [{"divergence": SIMCUT, "cut": 0.3}, {"divergence": R_DROP, "word_dropout": 0.3}])
def test_without_padding_the_same_words_are_cut(settings: Any):
    made, found = module(**settings), []
    for needs in (False, True):
        made.model.encoder.needs_positions = needs
        torch.manual_seed(9)
        found.append(computed(made, padded()))
    assert_close(*found)


def test_a_weight_of_zero():
    plain = computed(module(None), padded())
    cut = computed(module((0.0, False), cut=0.3), padded())
    assert cut[0][2] > 0.1
    assert_close([cut[0][:2], *cut[1:]], [plain[0][:2], *plain[1:]])
    # Both copies of R-Drop have a cross-entropy, and the sum is not halved.
    twice = computed(module((0.0, True)), padded())
    assert_close(twice, [plain[0] * torch.tensor([2.0, 1.0, 0.0]), *(2 * each for each in plain[1:])])


def test_before_it_begins_and_in_validation_the_loss_is_the_plain_one():
    made, plain = module(SIMCUT, cut=0.3), module(None)
    batch = padded()
    batch = replace(batch, consistent=False)
    assert made(batch).tolist() == [*plain(batch).tolist(), 0.0]


def test_in_bfloat16_the_divergence_is_that_of_float32():
    made, batch = module(R_DROP, word_dropout=1.0).float(), packed()
    precise = made(batch)
    with torch.autocast("cpu", torch.bfloat16):
        sums = made(batch)
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums, precise, rtol=0.03, atol=0.05)


def refused(changes: dict[str, Any], data: dict[str, Any] | None = None) -> str:
    with pytest.raises(MacaronError) as found:
        recipe_from({"data": {"out": "x", **(data or {})}, "train": {"max_updates": 5, **changes}})
    return str(found.value)


def test_settings():
    train = recipe_from({"data": {"out": "x"}, "train": {"max_updates": 5, "consistency": "simcut"}}).train
    assert (train.cut, train.fixed_limits, CONSISTENCY) == (0.05, (), {"simcut": 3.0, "r-drop": 5.0})
    assert replace(train, consistency_from=0.5).fixed_limits == ("max_updates",)
    text = "changes nothing with train.consistency = "
    assert f"train.cut {text}'r-drop'" in refused({"consistency": "r-drop", "cut": 0.1})
    assert f"train.consistency_weight {text}'none'" in refused({"consistency_weight": 2.0})
    assert f"train.consistency_from {text}'none'" in refused({"consistency_from": 0.5})
    assert "train.word_dropout would also" in refused({"consistency": "simcut", "word_dropout": 0.1})
    assert "train.consistency" in refused({"consistency": "simcot"})
    for each in ({"cut": 0.0}, {"cut": 1.0}, {"consistency_from": 1.0}, {"consistency_weight": math.inf}):
        assert f"train.{next(iter(each))}" in refused({"consistency": "simcut", **each})
    for task in ("pre-training", "language-model"):
        for key, value in (("consistency", "simcut"), ("word_dropout", 0.1)):
            assert f"train.{key} = {value!r} is for translation" in refused({"task": task, key: value})
