"""Beam search: exact where it can be, independent of the batch, scores that the model confirms."""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch

from macaron.decode import Hypothesis, Sampling, SearchSettings, translate_ids
from macaron.errors import MacaronError
from macaron.models.translation import TranslationModel

PAD, EOS, UNK = 1, 2, 3


def log_probabilities(model: TranslationModel, source: list[int], tokens: tuple[int, ...]) -> list[float]:
    """By teacher forcing, without a cache, one sentence at a time."""
    with torch.no_grad():
        memory = model.encode(torch.tensor([source]))
        states = model.decode(torch.tensor([[EOS, *tokens[:-1]]]), memory)
        table = model.logits(states).log_softmax(-1)[0]
    return table.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()


def random_sources(count: int, vocabulary: int = 30, seed: int = 0) -> list[list[int]]:
    draw = random.Random(seed)
    lengths = [1, 2, 40] + [draw.randint(1, 25) for _ in range(count - 3)]
    return [[*(draw.randrange(3, vocabulary) for _ in range(length)), EOS] for length in lengths]


def tokens_of(found: list[list[Hypothesis]]) -> list[list[tuple[int, ...]]]:
    return [[each.tokens for each in best] for best in found]


@pytest.mark.parametrize("penalty", [1.0, 0.0, 0.6, -0.5])
def test_a_beam_wide_enough_finds_the_exact_best(penalty: float, make_model: Callable[..., TranslationModel]):
    model = make_model(vocab_size=6).double()
    source, longest = [4, 5, 3, EOS], 3
    alphabet = [0, UNK, 4, 5]
    every = [(*words, EOS) for length in range(1, longest + 1) for words in itertools.product(alphabet, repeat=length)]
    scores = {each: sum(log_probabilities(model, source, each)) / len(each) ** penalty for each in every}
    best = sorted(every, key=lambda each: -scores[each])
    # More beams than there are hypotheses: some of them stay empty.
    wide = SearchSettings(beam=330, length_penalty=penalty, max_length=longest, stop="late")
    found = translate_ids(model, [source], wide)[0]
    assert [each.tokens for each in found] == best
    assert [each.score for each in found] == pytest.approx([scores[each] for each in best])
    narrow = SearchSettings(beam=4, length_penalty=penalty, max_length=longest, stop="late")
    assert set(tokens_of(translate_ids(model, [source], narrow))[0]) <= set(every)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheme": "lie-fg", "norm": "pre"},
        {"scheme": "parallel"},
        {"integrator": "heun", "tying": "layer"},
        {"decoder_scheme": "strang3-gfhfg", "tying": "depth"},
        {"scheme": "lie-fg", "decoder_prologue": [["G", 0.5]], "decoder_epilogue": [["F", 0.5], ["G", 0.5]]},
        {"head_size": 5, "scheme": "strang-fgf"},
    ],
)
@pytest.mark.parametrize("beam", [1, 4])
def test_scores_are_those_of_the_model_without_a_cache(
    changes: dict[str, Any], beam: int, make_model: Callable[..., TranslationModel]
):
    model = make_model(**changes).double()
    sources = random_sources(6)
    settings = SearchSettings(beam=beam, max_length=40, length_penalty=0.7)
    for source, best in zip(sources, translate_ids(model, sources, settings), strict=True):
        assert len(best) == beam
        assert [each.score for each in best] == sorted((each.score for each in best), reverse=True)
        assert len({each.tokens for each in best}) == beam
        for each in best:
            assert each.tokens.count(EOS) == 1
            assert each.tokens[-1] == EOS
            assert PAD not in each.tokens
            assert 2 <= len(each.tokens) <= 41
            assert each.token_scores == pytest.approx(log_probabilities(model, source, each.tokens), abs=1e-9)
            assert each.score == pytest.approx(sum(each.token_scores) / len(each.tokens) ** 0.7)


@pytest.mark.parametrize("stop", ["early", "late"])
@pytest.mark.parametrize("beam", [1, 5, 40])
def test_batches_do_not_matter_in_float64(stop: Any, beam: int, make_model: Callable[..., TranslationModel]):
    model = make_model(seed=1).double()
    sources = random_sources(12)
    # Limits of their own for all sentences: they end at different steps even if the model never does.
    settings = SearchSettings(beam=beam, max_length=10, max_ratio=0.5, stop=stop)
    alone = [translate_ids(model, [source], settings)[0] for source in sources]
    assert len({len(found[0].tokens) for found in alone}) > 3
    for size, seed in ((2, 0), (5, 1), (12, 2), (12, 3)):
        order = random.Random(seed).sample(range(len(sources)), len(sources))
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            for i, found in zip(batch, translate_ids(model, [sources[i] for i in batch], settings), strict=True):
                assert [each.tokens for each in found] == [each.tokens for each in alone[i]]
                assert [each.score for each in found] == pytest.approx([each.score for each in alone[i]], abs=1e-10)


@pytest.mark.parametrize("name", ["tiny_macaron_v2_trained", "tiny_plain_v1_trained"])
def test_batches_do_not_matter_in_float32(name: str, golden_model: Callable[[str], TranslationModel]):
    model = golden_model(name)
    draw = random.Random(5)
    sources = [[*(draw.randrange(4, 50) for _ in range(draw.randint(1, 12))), EOS] for _ in range(24)]
    settings = SearchSettings(beam=5, max_length=40)
    alone = [translate_ids(model, [source], settings)[0] for source in sources]
    for size, seed in ((3, 0), (8, 1), (24, 2), (24, 3)):
        order = random.Random(seed).sample(range(len(sources)), len(sources))
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            for i, found in zip(batch, translate_ids(model, [sources[i] for i in batch], settings), strict=True):
                assert [each.score for each in found] == pytest.approx([each.score for each in alone[i]], abs=1e-4)
                scores = [each.score for each in alone[i]]
                if min((a - b for a, b in itertools.pairwise(scores)), default=1.0) > 1e-4:
                    assert [each.tokens for each in found] == [each.tokens for each in alone[i]]


def test_ties_are_broken_by_the_smaller_token_in_every_batch(make_model: Callable[..., TranslationModel]):
    model = make_model(seed=2).double()
    with torch.no_grad():  # every word has a double that the model cannot tell from it
        model.embedding.tokens.weight[17:30] = model.embedding.tokens.weight[4:17]
    sources = random_sources(9)
    settings = SearchSettings(beam=6, max_length=12)
    together = translate_ids(model, sources, settings)
    for source, found in zip(sources, together, strict=True):
        assert tokens_of(translate_ids(model, [source], settings))[0] == [each.tokens for each in found]
    assert tokens_of(translate_ids(model, sources[::-1], settings))[::-1] == tokens_of(together)
    assert all(token < 17 for best in together for token in best[0].tokens)


def test_a_model_without_preferences_still_ends(make_model: Callable[..., TranslationModel]):
    model = make_model().double()
    with torch.no_grad():
        model.embedding.tokens.weight.zero_()
    sources = [[4, EOS], [5, 6, 7, EOS]]
    found = translate_ids(model, sources, SearchSettings(beam=3, max_length=4))
    assert tokens_of(found)[0] == tokens_of(found)[1]
    assert len(found[0]) == 3


def test_limits_and_the_shortest_length(make_model: Callable[..., TranslationModel]):
    model = make_model()
    with torch.no_grad():  # the end is by far the most probable token
        model.decoder.norm.bias.copy_(model.embedding.tokens.weight[EOS] * 50)
    sources = [[4, EOS], [4, 5, 6, 7, EOS]]
    for shortest in (1, 3):
        best = translate_ids(model, sources, SearchSettings(beam=2, min_length=shortest))
        assert [len(each[0].tokens) for each in best] == [shortest + 1, shortest + 1]
    with torch.no_grad():  # and here the least
        model.decoder.norm.bias.copy_(model.embedding.tokens.weight[EOS] * -50)
    best = translate_ids(model, sources, SearchSettings(beam=2, max_length=3, max_ratio=0.8))
    assert [[len(each.tokens) for each in found] for found in best] == [[5, 5], [8, 8]]


def test_half_precision_scores_are_in_float32(make_model: Callable[..., TranslationModel]):
    model = make_model()
    exact = translate_ids(model, [[4, 5, EOS]], SearchSettings(max_length=5))[0]
    rough = translate_ids(model.to(torch.bfloat16), [[4, 5, EOS]], SearchSettings(max_length=5))[0]
    assert rough[0].score == pytest.approx(exact[0].score, abs=0.1)


def test_training_mode_is_left_as_it_was(make_model: Callable[..., TranslationModel]):
    model = make_model(dropout=0.5).train()
    sources = random_sources(4)
    assert translate_ids(model, sources) == translate_ids(model, sources)
    assert model.training


def test_mistakes(make_model: Callable[..., TranslationModel]):
    model = make_model()
    assert translate_ids(model, []) == []
    for sources, words in (([[]], "no tokens"), ([[4, 30]], "token 30"), ([[-1]], "token -1")):
        with pytest.raises(MacaronError, match=words):
            translate_ids(model, sources)
    for settings, words in (({"beam": 0}, "beam"), ({"stop": "never"}, "stop"), ({"min_length": 300}, "min_length")):
        with pytest.raises(MacaronError, match=words):
            SearchSettings(**settings)


@pytest.mark.parametrize("size", [1e30, 3e38])
@pytest.mark.parametrize("settings", [{}, {"beam": 1}, {"stop": "late"}, {"sampling": Sampling()}])
def test_scores_that_are_not_finite_are_refused(
    size: float, settings: dict[str, Any], make_model: Callable[..., TranslationModel]
):
    """Finite weights, as a flipped bit makes them, whose products are not."""
    model = make_model()
    with torch.no_grad():
        model.decoder.norm.weight[0] = size
        model.embedding.tokens.weight[:, 0] = size
    with pytest.raises(MacaronError, match="scores that are not finite"):
        translate_ids(model, random_sources(4), SearchSettings(max_length=9, **settings))
