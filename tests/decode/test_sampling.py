"""Sampling: the right distribution, and the same random numbers for a sentence wherever it stands."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from macaron.decode import Sampling, SearchSettings, translate_ids
from macaron.decode.beam import draw
from macaron.errors import MacaronError
from macaron.models.translation import TranslationModel

PAD, EOS = 1, 2


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(), [0.5, 0.1, 0.15, 0.25]),
        (Sampling(temperature=0.5), [0.25 / 0.345, 0.01 / 0.345, 0.0225 / 0.345, 0.0625 / 0.345]),
        (Sampling(top_k=2), [2 / 3, 0, 0, 1 / 3]),
        (Sampling(top_k=1), [1, 0, 0, 0]),
        (Sampling(top_k=9), [0.5, 0.1, 0.15, 0.25]),
        (Sampling(top_p=0.6), [2 / 3, 0, 0, 1 / 3]),
        (Sampling(top_p=0.8), [0.5 / 0.9, 0, 0.15 / 0.9, 0.25 / 0.9]),
        (Sampling(top_p=1e-9), [1, 0, 0, 0]),
        (Sampling(top_k=3, top_p=0.7), [2 / 3, 0, 0, 1 / 3]),
    ],
)
def test_distribution(sampling: Sampling, expected: list[float]):
    count = 100_000
    logits = torch.tensor([0.5, 0.1, 0.15, 0.25], dtype=torch.float64).log() + 3.0
    uniform = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    tokens = draw(logits.expand(count, -1), sampling, uniform)
    found = torch.bincount(tokens, minlength=4) / count
    assert found.tolist() == pytest.approx(expected, abs=2 / count)


def test_first_tokens_have_the_probabilities_of_the_model(make_model: Callable[..., TranslationModel]):
    model = make_model(vocab_size=8)
    source, copies, samples = [4, 5, EOS], 1500, 4
    settings = SearchSettings(beam=samples, max_length=1, sampling=Sampling(seed=3))
    found = translate_ids(model, [source] * copies, settings)
    first = Counter(each.tokens[0] for best in found for each in best)
    with torch.no_grad():
        states = model.decode(torch.tensor([[EOS]]), model.encode(torch.tensor([source])))
        logits = model.logits(states)[0, 0]
    logits[[PAD, EOS]] = -torch.inf  # padding never, the end not at once
    total = copies * samples
    for token, probability in enumerate(logits.softmax(-1).tolist()):
        deviation = (total * probability * (1 - probability)) ** 0.5
        assert abs(first[token] - total * probability) <= 4 * deviation


def test_a_seed_gives_the_same_samples_in_every_batch(make_model: Callable[..., TranslationModel]):
    model = make_model().double()
    sources = [[4, EOS], [5, 6, EOS], [4, 5, 6, 7, 8, 9, EOS], [4, EOS]]
    keys = [(number,) for number in range(4)]

    def run(seed: int, chosen: list[int]) -> list[Any]:
        settings = SearchSettings(beam=3, max_length=15, sampling=Sampling(seed=seed, top_p=0.95))
        found = translate_ids(model, [sources[i] for i in chosen], settings, keys=[keys[i] for i in chosen])
        return [[each.tokens for each in best] for best in found]

    together = run(7, [0, 1, 2, 3])
    assert run(7, [0, 1, 2, 3]) == together
    assert [run(7, [i])[0] for i in range(4)] == together
    assert run(7, [2, 0, 3, 1]) == [together[i] for i in (2, 0, 3, 1)]
    assert run(8, [0, 1, 2, 3]) != together
    assert together[0] != together[3]  # the same sentence elsewhere in the input is another draw


def test_scores_are_those_of_the_model(make_model: Callable[..., TranslationModel]):
    model = make_model().double()
    source = [4, 9, 7, EOS]
    settings = SearchSettings(beam=4, max_length=12, sampling=Sampling(temperature=2.0))
    best = translate_ids(model, [source], settings)[0]
    assert [each.score for each in best] == sorted((each.score for each in best), reverse=True)
    for each in best:
        assert 2 <= len(each.tokens) <= 13
        assert each.tokens[-1] == EOS
        with torch.no_grad():
            states = model.decode(torch.tensor([[EOS, *each.tokens[:-1]]]), model.encode(torch.tensor([source])))
            table = model.logits(states).log_softmax(-1)[0]
        steps = table.gather(1, torch.tensor(each.tokens)[:, None])[:, 0].tolist()
        assert each.token_scores == pytest.approx(steps, abs=1e-9)
        assert each.score == pytest.approx(sum(steps) / len(steps))


def test_top_1_is_greedy_search(make_model: Callable[..., TranslationModel]):
    model = make_model().double()
    sources = [[4, EOS], [5, 6, EOS]]
    drawn = translate_ids(model, sources, SearchSettings(beam=1, max_length=9, sampling=Sampling(top_k=1)))
    greedy = translate_ids(model, sources, SearchSettings(beam=1, max_length=9))
    assert [best[0].tokens for best in drawn] == [best[0].tokens for best in greedy]


@pytest.mark.parametrize("bad", [{"temperature": 0}, {"top_k": -1}, {"top_p": 0}, {"top_p": 1.5}, {"seed": -1}])
def test_mistakes(bad: dict[str, Any]):
    with pytest.raises(MacaronError, match=next(iter(bad))):
        Sampling(**bad)
