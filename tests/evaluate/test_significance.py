"""Intervals and comparisons: what must hold whatever the numbers are."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from macaron.errors import MacaronError
from macaron.evaluate import Comparison, approximate_randomisation, bootstrap_interval, paired_bootstrap
from macaron.evaluate.scores import SentenceStatistics, bleu_formula, bleu_statistics, chrf_statistics

WORDS = ["the", "a", "cat", "dog", "sees", "eats", "big", "small", "house", "in", "on", "and", "runs"]


def corpus(sentences: int, noise: float, seed: int, reference_seed: int = 0) -> tuple[list[str], list[str]]:
    reference_random, noise_random = random.Random(reference_seed), random.Random(seed)
    references, hypotheses = [], []
    for _ in range(sentences):
        line = [reference_random.choice(WORDS) for _ in range(reference_random.randint(5, 15))]
        references.append(" ".join(line))
        noisy = [noise_random.choice(WORDS) if noise_random.random() < noise else word for word in line]
        hypotheses.append(" ".join(noisy))
    return hypotheses, references


def statistics(sentences: int, noise: float, seed: int) -> SentenceStatistics:
    hypotheses, references = corpus(sentences, noise, seed)
    return bleu_statistics([h.split() for h in hypotheses], [r.split() for r in references])


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_an_interval_contains_the_score(noise: float, seed: int) -> None:
    sample = statistics(200, noise, seed)
    interval = bootstrap_interval(sample)
    assert interval.low - 1e-9 <= sample.score() <= interval.high + 1e-9
    assert interval.high - interval.low < 10


def test_more_sentences_give_a_narrower_interval() -> None:
    few, many = bootstrap_interval(statistics(100, 0.2, 1)), bootstrap_interval(statistics(1600, 0.2, 1))
    ratio = (few.high - few.low) / (many.high - many.low)
    assert 2.5 < ratio < 6  # sqrt(16) = 4 in theory


def test_the_interval_agrees_with_plain_resampling() -> None:
    sample = statistics(300, 0.2, 3)
    generator = np.random.default_rng(7)
    scores = [
        float(bleu_formula(sample.rows[generator.integers(0, 300, 300)].sum(axis=0).astype(float))) for _ in range(2000)
    ]
    low, high = np.quantile(scores, [0.025, 0.975])
    interval = bootstrap_interval(sample, resamples=2000)
    assert interval.low == pytest.approx(low, abs=0.4)
    assert interval.high == pytest.approx(high, abs=0.4)


@pytest.mark.parametrize("compare", [paired_bootstrap, approximate_randomisation])
def test_identical_systems_have_p_one(compare: Callable[..., Comparison]) -> None:
    sample = statistics(100, 0.3, 1)
    result = compare(sample, sample)
    assert result.p_value == 1
    assert result.difference == 0


@pytest.mark.parametrize("compare", [paired_bootstrap, approximate_randomisation])
def test_a_clear_difference_is_significant_and_a_chance_one_is_not(
    compare: Callable[..., Comparison],
) -> None:
    worse, better = statistics(500, 0.3, 1), statistics(500, 0.1, 2)
    clear = compare(worse, better)
    assert clear.p_value < 0.01
    assert clear.difference > 10
    assert compare(statistics(500, 0.2, 5), statistics(500, 0.2, 6)).p_value > 0.05


@pytest.mark.slow
def test_chance_differences_are_significant_as_rarely_as_promised() -> None:
    p_values = [
        approximate_randomisation(statistics(100, 0.2, 2 * i), statistics(100, 0.2, 2 * i + 1), trials=200).p_value
        for i in range(100)
    ]
    assert sum(p <= 0.05 for p in p_values) <= 12
    assert sum(p <= 0.5 for p in p_values) >= 30


def test_the_order_of_the_sentences_changes_nothing() -> None:
    first, second = statistics(150, 0.3, 1), statistics(150, 0.2, 2)
    order = np.random.default_rng(0).permutation(150)
    moved, moved_second = (SentenceStatistics(s.rows[order], s.formula) for s in (first, second))
    assert bootstrap_interval(first) == bootstrap_interval(moved)
    assert paired_bootstrap(first, second) == paired_bootstrap(moved, moved_second)
    assert approximate_randomisation(first, second) == approximate_randomisation(moved, moved_second)


def test_seeds_repeat_and_differ() -> None:
    sample = statistics(100, 0.3, 1)
    assert bootstrap_interval(sample, seed=1) == bootstrap_interval(sample, seed=1)
    assert bootstrap_interval(sample, seed=1).low != bootstrap_interval(sample, seed=2).low


def test_chrf_has_intervals_too() -> None:
    hypotheses, references = corpus(100, 0.3, 1)
    sample = chrf_statistics(hypotheses, references)
    interval = bootstrap_interval(sample)
    assert interval.low < sample.score() < interval.high


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(MacaronError, match="same sentences"):
        paired_bootstrap(statistics(10, 0.1, 1), statistics(11, 0.1, 1))
    with pytest.raises(MacaronError, match="at least 1"):
        bootstrap_interval(statistics(10, 0.1, 1), resamples=0)
    with pytest.raises(MacaronError, match="between 0 and 1"):
        bootstrap_interval(statistics(10, 0.1, 1), level=95)
