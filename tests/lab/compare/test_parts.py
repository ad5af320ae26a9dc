"""The statistics of a comparison: pooled scores, tests over seeds, parts of the test set, sentences to read."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from macaron.evaluate import paired_bootstrap, sacre_bleu
from macaron.evaluate.scores import SentenceStatistics, bleu_statistics
from macaron.lab.compare.examples import MOST, choose, marked, sentence_scores
from macaron.lab.compare.kind_statistics import (
    CLASSES,
    LEAST,
    by_frequency,
    by_length,
    f1_formula,
    hedges_g,
    length_classes,
    paired,
    parts_of,
    pooled,
    seed_test,
    sentence_test,
    word_matches,
)
from macaron.lab.compare.verdict import Evidence, corrected, either, verdict

WORDS = ["the", "cat", "sat", "on", "mat", "a", "dog", "ran", "in", "house"]


def noisy(references: list[list[str]], share: float, seed: int) -> list[list[str]]:
    """Translations in which a share of the words is wrong."""
    generator = np.random.default_rng(seed)
    return [[w if generator.random() > share else str(generator.choice(WORDS)) for w in line] for line in references]


@pytest.fixture(scope="module")
def references() -> list[list[str]]:
    generator = np.random.default_rng(0)
    return [[str(w) for w in generator.choice(WORDS, generator.integers(3, 12))] for _ in range(400)]


def statistics(references: list[list[str]], share: float, seed: int) -> SentenceStatistics:
    return bleu_statistics(noisy(references, share, seed), references)


def test_a_pool_scores_the_mean_of_its_runs(references: list[list[str]]):
    runs = [statistics(references, 0.2, seed) for seed in range(3)]
    assert pooled(runs).score() == pytest.approx(np.mean([run.score() for run in runs]))
    # Resampling a pool resamples each run alike: all scores are of the same sentences.
    sums = pooled(runs).rows[:50].sum(axis=0, dtype=float)
    first = [run.formula(run.rows[:50].sum(axis=0, dtype=float)) for run in runs]
    assert float(pooled(runs).formula(sums)) == pytest.approx(np.mean(first))


def test_kinds_of_different_numbers_of_runs_keep_their_means(references: list[list[str]]):
    one = [statistics(references, 0.2, seed) for seed in range(2)]
    other = [statistics(references, 0.3, seed) for seed in range(3)]
    a, b = paired(one, other)
    assert a.rows.shape == b.rows.shape
    assert a.score() == pytest.approx(np.mean([run.score() for run in one]))
    assert b.score() == pytest.approx(np.mean([run.score() for run in other]))
    found = sentence_test(one, other, trials=500)
    assert found.low < b.score() - a.score() < found.high < 0
    assert found.p_values["randomisation"] < 0.05


def test_one_run_each_is_the_usual_paired_test(references: list[list[str]]):
    one, other = statistics(references, 0.2, 1), statistics(references, 0.25, 2)
    found, usual = sentence_test([one], [other], trials=300), paired_bootstrap(one, other, resamples=300)
    assert usual.interval is not None
    assert (found.low, found.high) == (usual.interval.low, usual.interval.high)
    assert found.p_values["paired bootstrap"] == usual.p_value


@pytest.mark.slow
def test_sentence_tests_of_equals_are_rarely_significant(references: list[list[str]]):
    """The tests hold their level: of models that are equally good, few pairs look different."""
    found = [
        max(
            sentence_test(
                [statistics(references, 0.2, s)], [statistics(references, 0.2, s + 100)], trials=200
            ).p_values.values()
        )
        for s in range(40)
    ]
    assert sum(p < 0.05 for p in found) <= 6


SCORES = st.lists(st.integers(0, 10_000).map(lambda n: n / 100), min_size=3, max_size=6)


@given(SCORES, SCORES)
def test_the_test_over_seeds_is_welchs(first: list[float], second: list[float]):
    found = seed_test(first, second)
    a, b = (np.var(each, ddof=1) / len(each) for each in (first, second))
    if not np.ptp(first) and not np.ptp(second):
        assert found is None
        return
    assert found is not None
    # The definition, by hand.
    t = (np.mean(second) - np.mean(first)) / math.sqrt(a + b)
    degrees = (a + b) ** 2 / (a**2 / (len(first) - 1) + b**2 / (len(second) - 1))
    assert found.numbers["t"] == pytest.approx(t, rel=1e-6, abs=1e-9)
    assert found.numbers["degrees of freedom"] == pytest.approx(degrees, rel=1e-6)
    half = stats.t.ppf(0.975, degrees) * math.sqrt(a + b)
    difference = np.mean(second) - np.mean(first)
    assert found.low == pytest.approx(difference - half, rel=1e-6, abs=1e-6)
    assert found.high == pytest.approx(difference + half, rel=1e-6, abs=1e-6)
    assert found.p_values["Welch's t-test"] == pytest.approx(2 * stats.t.sf(abs(t), degrees), rel=1e-6, abs=1e-9)


@pytest.mark.filterwarnings("error")
def test_one_kind_without_spread_is_tested_without_a_warning():
    found = seed_test([40.0, 40.0, 40.0], [40.0, 40.1, 40.2])
    assert found is not None
    assert found.numbers["degrees of freedom"] == pytest.approx(2)
    assert found.p_values["Welch's t-test"] == pytest.approx(stats.ttest_1samp([40.0, 40.1, 40.2], 40.0).pvalue)


def test_too_few_seeds_are_not_tested():
    assert seed_test([1.0, 2.0], [3.0, 4.0, 5.0]) is None
    assert seed_test([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]) is None


@given(st.lists(st.integers(1, 60), min_size=1, max_size=80), st.integers(1, 6))
def test_classes_of_length_hold_every_sentence_once(lengths: list[int], classes: int):
    found = length_classes(lengths, classes)
    assert len(found) <= classes
    held = [[n for n in lengths if low <= n <= high] for low, high in found]
    assert all(held)
    assert sorted(n for part in held for n in part) == sorted(lengths)


def test_parts_by_length(references: list[list[str]]):
    lengths = [len(line) for line in references]
    kinds = [[statistics(references, 0.1, 1)], [statistics(references, 0.4, 2)]]
    parts = parts_of(by_length(lengths, kinds), [True])
    assert sum(part.size for part in parts) == len(references)
    for part in parts:
        (difference,) = part.differences
        assert difference is not None
        assert difference.high < 0
        # Wider than 95 % for each, so that all hold together.
        assert difference.level == pytest.approx(1 - 0.05 / len(parts))
        assert difference.low <= part.scores[1] - part.scores[0] <= difference.high
    first, longest = parts[0], length_classes(lengths)[0][1]
    assert first.name == f"3 to {longest} words"
    rows = kinds[0][0].rows[[i for i, n in enumerate(lengths) if n <= longest]]
    assert first.scores[0] == pytest.approx(float(kinds[0][0].formula(rows.sum(axis=0, dtype=float))))


def test_words_by_frequency():
    counts = Counter({"the": 5000, "cat": 30, "sat": 2})
    reference = [["the", "cat", "sat", "zyx"], ["the", "the"]]
    translation = [["the", "cat", "cat", "abc"], ["the"]]
    rows = word_matches(counts, translation, reference)
    by_class = {first: rows[:, i].tolist() for i, first in enumerate(CLASSES)}
    assert by_class[1000] == [[1, 1, 1], [1, 1, 2]]  # matched, of the translation, of the reference
    assert by_class[25] == [[1, 2, 1], [0, 0, 0]]
    assert by_class[1] == [[0, 0, 1], [0, 0, 0]]
    assert by_class[0] == [[0, 1, 1], [0, 0, 0]]
    assert rows.sum(axis=(0, 1)).tolist() == [3, 5, 6]
    assert float(f1_formula(np.array([1.0, 2.0, 1.0]))) == pytest.approx(200 / 3)
    assert float(f1_formula(np.zeros(3))) == 0
    parts = parts_of(by_frequency(counts, reference, [[translation], [reference]]), [True])
    assert [part.name for part in parts] == ["never", "1 to 4", "25 to 99", "1,000 or more"]
    assert all(part.scores[1] == 100 for part in parts)
    assert all(part.size < LEAST and part.differences == (None,) for part in parts)


def test_small_classes_and_unfair_kinds_are_not_tested(references: list[list[str]]):
    some = references[: 2 * LEAST]
    kinds = [[statistics(some, share, 1)] for share in (0.1, 0.4)]
    parts = parts_of(by_length([len(line) for line in some], kinds), [True])
    assert all(part.size < LEAST and part.differences == (None,) for part in parts)
    kinds = [[statistics(references, share, 1)] for share in (0.1, 0.4, 0.4)]
    parts = parts_of(by_length([len(line) for line in references], kinds), [False, True])
    assert all(part.differences[0] is None and part.differences[1] is not None for part in parts)


def test_sentences_of_both_sides_alike_and_some_by_lot(references: list[list[str]]):
    lines = [" ".join(line) for line in references]
    first, second = ([" ".join(line) for line in noisy(references, 0.3, seed)] for seed in (1, 2))
    found = choose(lines, lines, first, second)
    sorts = Counter(example.sort for example in found.examples)
    assert sorts["first"] == sorts["second"] == MOST
    assert sorts["drawn"] == 10
    assert sum(found.counts) == len(lines)
    assert found.same == sum(a == b for a, b in zip(first, second, strict=True))
    difference = sentence_scores(second, lines) - sentence_scores(first, lines)
    best = next(example for example in found.examples if example.sort == "second")
    assert best.line - 1 == int(np.argmax(difference))
    assert best.chrf[1] - best.chrf[0] == pytest.approx(difference.max())
    assert choose(lines, lines, first, second) == found
    # Where one is better everywhere there are no examples of the other, and so none that would flatter.
    flawless = choose(lines, lines, lines, second)
    assert Counter(example.sort for example in flawless.examples) == {"drawn": 10}


def test_words_that_differ():
    assert marked("He saw the cat .", "He seen the dog .", "He saw a dog .") == [
        ("He", "same"),
        ("saw", "right"),
        ("the", "same"),
        ("cat", "other"),
        (".", "same"),
    ]
    assert marked("the cat", "a cat", "The dog") == [("the", "other"), ("cat", "same")]
    assert marked("the cat", "a cat", "The dog", caseless=True) == [("the", "right"), ("cat", "same")]


def test_sentence_scores_are_sacrebleus():
    import sacrebleu

    lines, references = ["the cat sat on it", "a dog"], ["the cat sat on the mat", "a dog ran"]
    ours = sentence_scores(lines, references)
    theirs = [sacrebleu.CHRF().sentence_score(a, [b]).score for a, b in zip(lines, references, strict=True)]
    assert ours.tolist() == pytest.approx(theirs)
    assert sacre_bleu(lines, references).metric == "sacreBLEU"


def test_hedges_g_by_hand():
    """Means 2 and 5, pooled deviation 1, 4 degrees of freedom: d = 3, J = Γ(2) / (√2 Γ(1.5)) = 0.7979."""
    g, low, high = hedges_g([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    factor = 1 / (math.sqrt(2) * math.gamma(1.5))
    assert g == pytest.approx(3 * factor)
    # The ends: models whose t would be as large as this one, 3 / √(2/3), in 2.5 % of all cases, or as small.
    for end, tail in ((low, 0.975), (high, 0.025)):
        shift = end / factor / math.sqrt(2 / 3)
        assert stats.nct.cdf(3 / math.sqrt(2 / 3), 4, shift) == pytest.approx(tail, abs=1e-6)
    assert hedges_g([4.0, 5.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx((-g, -high, -low))


@given(st.integers(3, 8), st.integers(3, 8), st.floats(-1e4, 1e4), st.integers(0, 1000))
def test_the_interval_of_g_agrees_with_the_pooled_t_test(one: int, other: int, shift: float, seed: int):
    generator = np.random.default_rng(seed)
    first, second = generator.normal(size=one), generator.normal(shift, size=other)
    g, low, high = hedges_g(first.tolist(), second.tolist())
    assert low < g < high
    p_value = stats.ttest_ind(first, second).pvalue
    if abs(p_value - 0.05) > 1e-6:
        assert (low > 0 or high < 0) == (p_value < 0.05)


def test_the_interval_of_g_holds_what_it_promises():
    """Of 95 % of all samples it contains the true difference, 1.5 standard deviations; J makes g nearly unbiased."""
    generator = np.random.default_rng(3)
    found = [hedges_g(generator.normal(size=4), generator.normal(1.5, size=4)) for _ in range(600)]
    factor = math.exp(math.lgamma(3) - math.lgamma(2.5)) / math.sqrt(3)
    assert np.mean([low / factor < 1.5 < high / factor for _, low, high in found]) == pytest.approx(0.95, abs=0.025)
    assert np.mean([g for g, *_ in found]) == pytest.approx(1.5, abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("kinds", "seeds"), [(2, 3), (3, 5)])
def test_kinds_that_are_alike_are_told_apart_in_few_families(kinds: int, seeds: int):
    """The whole chain from scores and losses to verdicts, for normally distributed ones of equal spread."""
    generator, families, wrong = np.random.default_rng(7), 600, 0
    for _ in range(families):
        found: list[Evidence] = []
        scores, losses = generator.normal(40.0, 0.3, (kinds, seeds)), generator.normal(2.0, 0.01, (kinds, seeds))
        for i in range(1, kinds):
            for metric, (first, *others) in (("sacreBLEU", scores), ("validation nll", losses)):
                second, lower = others[i - 1], metric == "validation nll"
                test, difference = seed_test(first, second), float(np.mean(second) - np.mean(first))
                runs = (seeds, seeds)
                found.append(Evidence("a", f"{i}", metric, difference, runs, seeds=test, lower_is_better=lower))
        verdicts = list(map(verdict, corrected(found)))
        pairs = [either(*verdicts[i : i + 2]) for i in range(0, len(verdicts), 2)]
        wrong += any(each.outcome in ("first", "second") for each in pairs)
    # Of 600 families, 5 % are 30, with a standard deviation of 5; Welch's test finds fewer with few seeds.
    assert 6 < wrong < 40
