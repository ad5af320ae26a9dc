"""Which words are to be predicted, and what is seen in their place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.data.pretraining_texts import choose, corrupt, masked_counts

MASK, FIRST, VOCABULARY = 4, 6, 300
texts = st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40), min_size=1, max_size=12)


def flat(given_texts):
    lengths = np.array([len(text) for text in given_texts])
    return np.concatenate([np.array(text) for text in given_texts]), lengths


@given(texts, st.floats(0.01, 0.9), st.integers(0, 2**31))
def test_exact_counts_and_never_a_special_token(given_texts, ratio, seed):
    ids, lengths = flat(given_texts)
    counts = masked_counts(lengths, ratio)
    assert (counts >= 1).all()
    assert (np.abs(counts - ratio * lengths) <= np.where(counts == 1, 1, 0.5)).all()
    allowed = ids >= FIRST
    chosen = choose(lengths, counts, allowed, np.random.default_rng(seed))
    assert not chosen[~allowed].any()
    owner = np.repeat(np.arange(len(lengths)), lengths)
    there = np.bincount(owner, weights=allowed, minlength=len(lengths))
    assert (np.bincount(owner, weights=chosen, minlength=len(lengths)) == np.minimum(counts, there)).all()


@given(texts, st.integers(0, 2**31))
def test_the_same_seed_gives_the_same_masks(given_texts, seed):
    ids, lengths = flat(given_texts)
    counts = masked_counts(lengths, 0.3)

    def once(number):
        random = np.random.default_rng(number)
        chosen = choose(lengths, counts, ids >= FIRST, random)
        return chosen, corrupt(ids, chosen, MASK, range(FIRST, VOCABULARY), 0.8, 0.1, random)

    (one, seen), (again, seen_again) = once(seed), once(seed)
    assert (one == again).all()
    assert (seen == seen_again).all()
    assert (seen[~one] == ids[~one]).all()


def test_shares():
    random = np.random.default_rng(1)
    ids = random.integers(FIRST, VOCABULARY, 200_000)
    lengths = np.full(1000, 200)
    chosen = choose(lengths, masked_counts(lengths, 0.15), ids >= FIRST, random)
    assert chosen.sum() == 30 * 1000
    # Every place of a text is chosen as often as any other.
    assert chosen.reshape(1000, 200).mean(0) == pytest.approx(0.15, abs=0.06)
    seen = corrupt(ids, chosen, MASK, range(FIRST, VOCABULARY), 0.8, 0.1, random)
    share = (seen[chosen] == MASK).mean()
    assert share == pytest.approx(0.8, abs=0.01)
    kept = (seen[chosen] == ids[chosen]).mean()
    assert kept == pytest.approx(0.1 + 0.1 / (VOCABULARY - FIRST), abs=0.01)
    others = seen[chosen & (seen != MASK) & (seen != ids)]
    assert FIRST <= others.min() <= FIRST + 3
    assert others.max() >= VOCABULARY - 3
    assert (seen[~chosen] == ids[~chosen]).all()


def test_nothing_is_masked_where_nothing_is_asked():
    lengths = np.array([5, 7])
    assert masked_counts(lengths, 0.0).tolist() == [0, 0]
    assert not choose(lengths, np.zeros(2, np.int64), np.ones(12, bool), np.random.default_rng(0)).any()
