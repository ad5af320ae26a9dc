"""Mixtures: how often each pair is seen, epoch by epoch."""

import numpy as np
import pytest

from macaron.data.batching import CorpusPart, Mixture, reweighted
from macaron.errors import MacaronError

KEPT = np.array([0, 1, 3, 4, 7, 8, 9, 11, 12])  # of 13 pairs; the first corpus has 5 of them, the second 8


def mixture(first: float, second: float, seed: int = 1) -> Mixture:
    return Mixture(KEPT, [CorpusPart("a", 5, weight=first), CorpusPart("b", 8, weight=second)], seed)


def test_weights_of_one_change_nothing():
    even = mixture(1.0, 1.0)
    assert even.constant
    assert all(even.epoch(number).tolist() == KEPT.tolist() for number in (1, 2, 7))


def test_a_whole_weight_repeats_every_pair():
    twice = mixture(1.0, 2.0)
    assert twice.constant
    assert twice.epoch(3).tolist() == [0, 1, 3, 4, *np.repeat([7, 8, 9, 11, 12], 2).tolist()]


@pytest.mark.parametrize("weight", [0.5, 0.3, 1.5, 2.25, 0.1])
def test_a_fraction_sees_all_pairs_equally_often(weight: float):
    mixed = mixture(1.0, weight)
    seen = np.zeros(13, np.int64)
    for number in range(1, 41):
        drawn = mixed.epoch(number)
        assert drawn[:4].tolist() == [0, 1, 3, 4]
        assert (np.diff(drawn) >= 0).all()
        seen += np.bincount(drawn, minlength=13)
        ours = seen[[7, 8, 9, 11, 12]]
        assert ours.max() - ours.min() <= 1
        assert ours.sum() == round(number * weight * 5)
    assert not mixed.constant
    assert (seen[[2, 5, 6, 10]] == 0).all()  # too long, left out


def test_two_halves_are_the_whole_and_depend_on_seed_and_epoch_alone():
    corpora = [CorpusPart("a", 1000, weight=0.5)]
    kept = np.arange(1000)
    one, same, other = (Mixture(kept, corpora, seed) for seed in (1, 1, 2))
    halves = [one.epoch(number) for number in (1, 2, 3)]
    assert sorted([*halves[0], *halves[1]]) == kept.tolist()
    assert halves[0].tolist() != halves[2].tolist()
    assert [same.epoch(number).tolist() for number in (3, 2, 1)] == [half.tolist() for half in reversed(halves)]
    assert other.epoch(1).tolist() != halves[0].tolist()


def test_an_epoch_without_pairs_is_refused():
    with pytest.raises(MacaronError, match="an epoch sees no pair"):
        mixture(0.1, 0.1)


def test_a_recipe_changes_the_weights_of_the_corpora_it_names():
    corpora = (CorpusPart("a", 5, "<x>", 3.0), CorpusPart("b", 8))
    assert [each.weight for each in reweighted(corpora, {}, "folder")] == [3.0, 1.0]
    assert [each.weight for each in reweighted(corpora, {"a": 1.0, "b": 0.5}, "folder")] == [1.0, 0.5]
    assert [each.weight for each in reweighted(corpora, {"elsewhere": 1.0}, "folder")] == [3.0, 1.0]
    with pytest.raises(MacaronError, match=r"c has weight 2, but folder holds no such corpus \(it holds a, b\)"):
        reweighted(corpora, {"c": 2.0}, "folder")
    assert str(corpora[0]) == "a: 5 pairs, weight 3, tag <x>"
