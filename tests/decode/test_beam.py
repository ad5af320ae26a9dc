"""The state of a beam search, step by step with given log-probabilities."""

import itertools
from collections.abc import Callable

import pytest
import torch

from macaron.decode import SearchSettings, search, translate_ids
from macaron.decode.beam import Beams, topk_continuations
from macaron.errors import MacaronError
from macaron.models.translation import TranslationModel

PAD, EOS, UNK = 1, 2, 3
FIRST = torch.tensor([0])


def scores(beam: int, vocabulary: int, *rows: dict[int, float]) -> torch.Tensor:
    """Log-probabilities (1, N, V): those given, and next to nothing for the rest."""
    table = torch.full((1, beam, vocabulary), -50.0, dtype=torch.float64)
    for row, given in enumerate(rows):
        for token, value in given.items():
            table[0, row, token] = value
    return table


def advance(state: Beams, table: torch.Tensor, step: int, at_limit: bool) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, parents = state.advance(table, step, at_limit)
    state.remember(tokens, parents)
    return tokens, parents


def beams(limit: int, **settings: object) -> Beams:
    return Beams(SearchSettings(**settings), torch.tensor([limit]), PAD, EOS, torch.float64)  # type: ignore[arg-type]


def test_late_stopping_waits_for_a_longer_hypothesis_that_could_still_win():
    state = beams(2, beam=1, stop="late")
    advance(state, scores(1, 8, {4: -0.5}), 0, False)
    advance(state, scores(1, 8, {EOS: -0.4, 5: -0.7}), 1, False)
    assert state.results(FIRST, 5)[0][0].score == pytest.approx(-0.45)
    assert not state.closed.item()  # -1.2 over three tokens would be better
    advance(state, scores(1, 8, {EOS: 0.0}), 2, True)
    assert state.closed.item()
    assert state.results(FIRST, 5)[0][0].tokens == (4, 5, EOS)
    assert state.results(FIRST, 5)[0][0].score == pytest.approx(-0.4)


def test_an_end_counts_only_in_the_first_half_of_the_candidates():
    state = beams(9, beam=2)
    advance(state, scores(2, 8, {4: -1.0, 5: -1.1, EOS: -0.1}), 0, False)
    assert state.totals.tolist() == [[-1.0, -1.1]]  # an end at once is not allowed, and takes nobody's place
    tokens, parents = advance(state, scores(2, 8, {4: -1.0, 5: -1.2, EOS: -1.3}, {4: -9.0, EOS: -9.0}), 1, False)
    assert (tokens.tolist(), parents.tolist()) == ([[4, 5]], [[0, 0]])
    with pytest.raises(MacaronError, match="not finite"):  # nothing has ended, which cannot be at the end of a search
        state.results(FIRST, 5)
    advance(state, scores(2, 8, {4: -1.0, 5: -1.2, EOS: -0.3}, {}), 2, False)
    assert [each.tokens for each in state.results(FIRST, 5)[0]] == [(4, 4, EOS)]
    assert state.results(FIRST, 5)[0][0].token_scores == pytest.approx([-1.0, -1.0, -0.3])


def test_early_stopping_keeps_who_came_first():
    state = beams(9, beam=1)
    advance(state, scores(1, 8, {4: -1.0}), 0, False)
    advance(state, scores(1, 8, {EOS: -5.0, 4: -6.0}), 1, False)
    assert state.closed.item()
    advance(state, scores(1, 8, {EOS: 0.0}), 2, False)  # a step that a GPU has taken before it was asked
    assert [each.tokens for each in state.results(FIRST, 5)[0]] == [(4, EOS)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(4)))[::5])
def test_rounding_errors_do_not_choose_among_ties(order: tuple[int, ...]):
    state = beams(9, beam=2)
    noise = [1e-13 * place for place in order]
    tied = {5 + i: -2.0 + noise[i] for i in range(4)}
    totals, index = state._candidates(scores(2, 12, {4: -1.0} | tied))
    assert index.tolist() == [[4, 5, 6, 7]]
    assert totals.tolist() == [pytest.approx([-1.0, -2.0, -2.0, -2.0])]


@pytest.mark.parametrize(
    ("sentences", "vocabulary"),
    [(32, 10_000), (32, 10_112), (4, 10_000)],
    ids=["blocks and a rest", "whole blocks", "beam by beam"],
)
def test_the_best_continuations_are_what_topk_finds(sentences: int, vocabulary: int):
    torch.manual_seed(0)
    table, totals = torch.randn(sentences, 5, vocabulary), torch.randn(sentences, 5)
    table[0, 0, -9:] = 9.0 + torch.arange(9)  # the best of a sentence all in the last places
    totals[1, 1:] = -torch.inf  # hypotheses that do not exist
    sums, index = (table + totals[..., None]).flatten(1).topk(14, dim=1)
    found, places = topk_continuations(totals, table, 14)
    assert torch.equal(found, sums)
    assert torch.equal(places, index)


def test_asking_seldom_changes_nothing(make_model: Callable[..., TranslationModel], monkeypatch: pytest.MonkeyPatch):
    """As on a GPU: complete sentences stay in the batch for a while."""
    model = make_model(seed=1).double()
    sources = [[4 + i, *range(5, 5 + 3 * i), EOS] for i in range(9)]
    for stop in ("early", "late"):
        settings = SearchSettings(beam=4, max_length=8, max_ratio=0.7, stop=stop)  # type: ignore[arg-type]
        often = translate_ids(model, sources, settings)
        for patience, leave in ((1, 0.5), (7, 0.0), (8, 0.25), (100, 0.0)):
            monkeypatch.setitem(search._CHECKS, "cpu", (patience, False, leave, 0))
            seldom = translate_ids(model, sources, settings)
            assert [[each.tokens for each in best] for best in seldom] == [
                [each.tokens for each in best] for best in often
            ]
        monkeypatch.undo()
