"""Searching with every operator: packed matrices, fixed shapes, and no cache give the same."""

from typing import Any

import pytest
import torch

from macaron.decode import SearchSettings, translate_ids
from macaron.decode.cpu.linear import packed_products
from macaron.decode.cpu.model import CpuTranslationModel
from macaron.decode.forced import forced
from macaron.decode.search import Scorer
from operators import OPERATORS, tiny

every = pytest.mark.parametrize("changes", OPERATORS.values(), ids=OPERATORS)
SOURCES = [[7, 9, 11, 4, 5, 2], [12, 2], [20, 21, 22, 2]]
SETTINGS = SearchSettings(beam=3, max_length=12, stop="late")


@every
def test_scores_are_those_without_a_cache_and_packed_matrices_find_the_same(changes: dict[str, Any]):
    model = tiny(changes, scale=2.0)
    found = translate_ids(model, SOURCES, SETTINGS)
    assert len({each.tokens for best in found for each in best}) > 3
    for source, best in zip(SOURCES, found, strict=True):
        target, states = forced(model, [source] * len(best), [each.tokens for each in best])
        scores = model.logits(states).log_softmax(-1).gather(-1, target[..., None]).squeeze(-1)
        for row, each in zip(scores, best, strict=True):
            assert row[: len(each.tokens)].tolist() == pytest.approx(each.token_scores, abs=1e-4)
    for fast in [CpuTranslationModel(model)]:
        for mine, theirs in zip(translate_ids(fast, SOURCES, SETTINGS), found, strict=True):
            assert [each.tokens for each in mine] == [each.tokens for each in theirs]
            assert [each.score for each in mine] == pytest.approx([each.score for each in theirs], abs=1e-4)


@every
def test_a_recorded_step_sees_what_a_growing_cache_sees(changes: dict[str, Any]):
    model = tiny(changes).double()
    draw = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        scorers = [Scorer(model, SOURCES, 2, fixed) for fixed in (False, True)]
        for step in range(5):
            tokens = torch.randint(4, 30, (3, 2), generator=draw)
            parents = torch.randint(0, 2, (3, 2), generator=draw)
            scores = []
            for scorer in scorers:
                scorer.cache.reserve(step)
                scores.append(scorer.step(tokens))
                scorer.cache.end_step(parents)
            torch.testing.assert_close(scores[1], scores[0], rtol=1e-9, atol=1e-9)


@every
@pytest.mark.skipif(not packed_products(), reason="int8 needs oneDNN")
def test_int8_is_near(changes: dict[str, Any]):
    model = tiny(changes)
    source, target = torch.tensor([SOURCES[0]]), torch.tensor([[2, 5, 6, 7]])
    with torch.inference_mode():
        found, expected = (each(source, target).softmax(-1) for each in (CpuTranslationModel(model, int8=True), model))
    assert float((found - expected).abs().max()) < 0.05
