"""What a comparison may say: whatever the evidence, never more than the tests support."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.lab.compare.verdict import (
    ALPHA,
    LEAST_SEEDS,
    DifferenceTest,
    Evidence,
    corrected,
    either,
    holm,
    overall,
    p_text,
    signed,
    verdict,
)

#: Any word by which one model would be put above another.
RANKS = re.compile(r"\b(better|worse|higher|lower|best|beats|ahead|wins|outperforms|improves|stronger|weaker)\b")

differences = st.floats(-100, 100, allow_nan=False)
p_values = st.one_of(st.floats(0, 1), st.sampled_from([0.0, ALPHA, math.nextafter(ALPHA, 0), 50 / 1001, 0.001, 1.0]))


def of_numbers(low: float, high: float, *p_values: float) -> DifferenceTest:
    return DifferenceTest(low, high, {str(i): p for i, p in enumerate(p_values)})


@st.composite
def evidenced(draw: st.DrawFn, methods: int) -> DifferenceTest:
    low, high = sorted((draw(differences), draw(differences)))
    return of_numbers(low, high, *(draw(p_values) for _ in range(methods)))


@st.composite
def evidence(draw: st.DrawFn) -> Evidence:
    return Evidence(
        first="one",
        second="two",
        metric=draw(st.sampled_from(["sacreBLEU", "loss"])),
        difference=draw(differences),
        runs=(draw(st.integers(1, 6)), draw(st.integers(1, 6))),
        sentences=draw(st.none() | evidenced(2)),
        seeds=draw(st.none() | evidenced(1)),
        adjusted=draw(st.none() | p_values),
        comparisons=draw(st.integers(1, 4)),
        unfair=tuple(draw(st.lists(st.sampled_from(["train.learning_rate is 1 for one and 2 for two"]), max_size=1))),
        remarks=tuple(draw(st.lists(st.just("two has 3.10 % more parameters than one"), max_size=1))),
        lower_is_better=draw(st.booleans()),
    )


@given(evidence())
def test_one_is_called_better_only_where_every_test_shows_it(given_: Evidence):
    found = verdict(given_)
    ranked = bool(RANKS.search(found.sentence))
    assert ranked == (found.outcome in ("first", "second"))
    if ranked:
        assert not given_.unfair
        used = [given_.sentences] if given_.sentences else []
        used += [given_.seeds] if given_.seeds and min(given_.runs) >= LEAST_SEEDS else []
        assert used
        for test in used:
            assert all(p < ALPHA for p in test.p_values.values())
            assert not test.low <= 0 <= test.high
        assert given_.adjusted is None or given_.adjusted < ALPHA
        higher = "second" if given_.difference > 0 else "first"
        assert (found.outcome == higher) != given_.lower_is_better
        better, worse = ("two", "one") if found.outcome == "second" else ("one", "two")
        assert re.search(rf"{better} (scores higher|has the lower \w+) than {worse}", found.sentence)


@pytest.mark.parametrize("over", ["sentences", "seeds"])
@pytest.mark.parametrize("doubt", [of_numbers(-0.1, 2.0, 0.01), of_numbers(0.5, 2.0, 0.06), of_numbers(-3, -1, 0.01)])
def test_one_test_in_doubt_is_enough(over: str, doubt: DifferenceTest):
    """Its interval holds zero, its p-value is large, or it says the opposite: the other test cannot make up for it."""
    clear = of_numbers(0.5, 2.0, 0.001)
    sure = Evidence("one", "two", "sacreBLEU", 1.2, runs=(3, 3), sentences=clear, seeds=clear)
    assert verdict(sure).outcome == "second"
    assert verdict(replace(sure, **{over: doubt})).outcome == "none"


@given(evidence())
def test_nothing_is_said_of_other_seeds_without_a_test_over_seeds(given_: Evidence):
    found = verdict(given_)
    enough = min(given_.runs) >= LEAST_SEEDS and given_.seeds is not None
    if found.reach == "seeds":
        assert enough
    if found.outcome != "unfair" and not enough:
        assert found.reach == "models"
        assert re.search(r"[Ff]or these (two|\d+) trained models", found.sentence)
        assert not re.search(r"[Oo]ver \d+ (and \d+ )?seeds", found.sentence)
        if found.outcome in ("first", "second"):
            assert "other seeds may give another result" in found.sentence


@given(evidence())
def test_an_unfair_comparison_says_so_first_and_ranks_nothing(given_: Evidence):
    found = verdict(given_)
    assert (found.outcome == "unfair") == bool(given_.unfair)
    if given_.unfair:
        assert found.sentence.startswith("This is not a fair comparison")
        assert given_.unfair[0] in found.sentence
        assert not re.search(r"p [=≤]|interval|sacreBLEU|loss", found.sentence)


@given(evidence())
def test_where_nothing_is_shown_the_interval_says_what_could_have_been_missed(given_: Evidence):
    found = verdict(given_)
    if found.outcome == "none":
        assert "no difference between one and two could be shown" in found.sentence
        assert "could have been missed" in found.sentence
        for test in given_.tests.values():
            assert f"{signed(test.low)} to {signed(test.high)}" in found.sentence
    # It is one sentence: no full stop but the last that a space or the end follows.
    assert len(re.findall(r"\.(?:\s|$)", found.sentence)) == 1


def test_one_seed():
    """The wording of the most frequent case, in full."""
    shown = Evidence("lie-fg", "strang-gfg", "sacreBLEU", 1.25, sentences=of_numbers(0.4, 2.1, 0.003, 0.004))
    assert verdict(shown).sentence == (
        "On these sentences, for these two trained models, strang-gfg scores higher than lie-fg: strang-gfg − lie-fg "
        "is +1.25 sacreBLEU, 95 % interval +0.40 to +2.10, p = 0.004; other seeds may give another result."
    )


def test_the_seeds_have_a_veto_and_so_have_the_sentences():
    clear, doubtful = of_numbers(0.5, 2.0, 0.001), of_numbers(-0.5, 3.0, 0.2)
    for sentences, seeds, outcome in ((clear, clear, "second"), (clear, doubtful, "none"), (doubtful, clear, "none")):
        found = verdict(Evidence("a", "b", "sacreBLEU", 1.2, (3, 3), sentences, seeds))
        assert (found.outcome, found.reach) == (outcome, "seeds")
        assert "over sentences" in found.sentence
        assert "over seeds" in found.sentence


def test_two_seeds_are_no_test_even_if_somebody_made_one():
    clear = of_numbers(0.5, 2.0, 0.001, 0.001)
    found = verdict(Evidence("a", "b", "sacreBLEU", 1.2, (2, 3), clear, seeds=clear))
    assert found.reach == "models"
    assert "for these 5 trained models" in found.sentence


def test_losses_of_single_runs_are_not_tested():
    found = verdict(Evidence("a", "b", "validation loss", -0.1234, lower_is_better=True, digits=4))
    assert found.outcome == "untested"
    assert found.sentence == (
        "For these two trained models, b − a is −0.1234 validation loss; nothing could be tested (one seed each)."
    )


def test_several_comparisons_are_one_sentence_with_the_unfair_ones_first():
    clear = of_numbers(0.5, 2.0, 0.001, 0.001)
    given_ = [
        Evidence("a", "b", "sacreBLEU", 1.2, sentences=clear),
        Evidence("a", "c", "sacreBLEU", 1.2, sentences=of_numbers(-1, 2, 0.4, 0.4)),
        Evidence("a", "d", "sacreBLEU", 1.2, unfair=("it was stopped",)),
    ]
    # The unfair one was not tested, so the correction is for two.
    holm = "after Holm's correction for 2 comparisons"
    assert overall([verdict(each) for each in corrected(given_)], "a") == (
        "Compared with a: this is not a fair comparison of a and d, so nothing is concluded: it was stopped; "
        "on these sentences, for these two trained models, b scores higher than a: b − a is +1.20 sacreBLEU, 95 % "
        f"interval +0.50 to +2.00, p = 0.002 {holm}; other seeds may give another result; "
        "on these sentences, for these two trained models, no difference between a and c could be shown: c − a is "
        f"+1.20 sacreBLEU, 95 % interval −1.00 to +2.00, p = 0.400 {holm}; any difference inside the interval could "
        "have been missed."
    )


@given(st.lists(evidence(), min_size=2, max_size=4))
def test_several_comparisons_rank_no_more_than_each_by_itself(several: list[Evidence]):
    found = [verdict(each) for each in several]
    text = overall(found, "one")
    assert bool(RANKS.search(text)) == any(each.outcome in ("first", "second") for each in found)
    assert len(re.findall(r"\.(?:\s|$)", text)) == 1


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm(values: list[float]):
    found = holm(values)
    assert all(q >= p for p, q in zip(values, found, strict=True))
    assert all(q <= 1 for q in found)
    order = sorted(range(len(values)), key=lambda i: values[i])
    assert all(found[a] <= found[b] for a, b in pairwise(order))
    # Step down: hypotheses are rejected from the smallest p on, while p_(k) < alpha / (m - k).
    rejected = 0
    while rejected < len(values) and values[order[rejected]] * (len(values) - rejected) < ALPHA:
        rejected += 1
    assert sum(q < ALPHA for q in found) == rejected


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == []


@given(st.floats(0, 1))
def test_a_p_value_never_rounds_across_the_limit(p: float):
    text = p_text(p)
    shown = float(text.removeprefix("≤ "))
    assert (shown < ALPHA) == (p < ALPHA)
    assert shown > 0


@given(st.floats(-1000, 1000, allow_nan=False))
def test_the_sign_of_a_difference_is_never_rounded_away(value: float):
    text = signed(value)
    assert text.startswith("+" if value > 0 else "−" if value < 0 else "0")


def test_how_numbers_are_written():
    assert p_text(50 / 1001) == "0.04995"
    assert p_text(0.05) == "0.050"
    assert p_text(1 / 10001) == "≤ 0.0001"
    assert signed(-0.004) == "−0.004"
    assert signed(0.0) == "0.00"


def by_two(score: float, loss: float, p_score: float = 0.001, p_loss: float = 0.001) -> list[Evidence]:
    """Evidence of a score and of a loss: differences with intervals of half a point, and their p-values."""
    tests = [of_numbers(score - 0.5, score + 0.5, p_score), of_numbers(loss - 0.5, loss + 0.5, p_loss)]
    return [
        Evidence("a", "b", "sacreBLEU", score, runs=(5, 5), seeds=tests[0]),
        Evidence("a", "b", "validation nll", loss, runs=(5, 5), seeds=tests[1], lower_is_better=True, digits=4),
    ]


@pytest.mark.parametrize(
    ("score", "loss", "outcome", "metric"),
    [
        (1.0, -1.0, "second", "sacreBLEU"),
        (0.1, -1.0, "second", "validation nll"),
        (0.1, 1.0, "first", "validation nll"),
        (1.0, 0.1, "second", "sacreBLEU"),
        (0.1, 0.1, "none", "sacreBLEU"),
        (1.0, 1.0, "second", "sacreBLEU"),  # they disagree: the score was chosen first
    ],
)
def test_the_verdict_rests_on_the_score_or_on_the_loss_and_says_which(
    score: float, loss: float, outcome: str, metric: str
):
    found = either(*map(verdict, by_two(score, loss)))
    assert (found.outcome, found.metric) == (outcome, metric)
    other = "validation nll" if metric == "sacreBLEU" else "sacreBLEU"
    by = "By" if outcome == "none" else "Decided by"
    assert re.match(rf"{by} {metric}: over 5 seeds each, .*; by {other}: over 5 seeds each, ", found.sentence)
    assert ("the two metrics disagree" in found.sentence) == (score == loss == 1.0)
    assert bool(RANKS.search(found.sentence)) == (outcome != "none")
    assert len(re.findall(r"\.(?:\s|$)", found.sentence)) == 1


def test_both_metrics_count_as_comparisons():
    """A difference in the loss alone that would pass by itself does not pass when two were looked at."""
    alone = by_two(0.1, -1.0, 0.8, 0.03)
    assert verdict(alone[1]).outcome == "second"
    found = either(*map(verdict, corrected(alone)))
    assert found.outcome == "none"
    assert "p = 0.060 after Holm's correction for 2 comparisons" in found.sentence


def test_an_untested_loss_and_an_unfair_comparison_are_silent_about_the_loss():
    score, loss = by_two(1.0, -1.0)
    untested = replace(loss, runs=(1, 1), seeds=None)
    assert either(verdict(score), verdict(untested)) == verdict(score)
    unfair = [replace(each, unfair=("train.learning_rate is 1 for a and 2 for b",)) for each in (score, loss)]
    assert either(*map(verdict, unfair)) == verdict(unfair[0])


def test_the_size_of_a_difference_is_said_with_its_interval():
    seeds = replace(of_numbers(0.5, 2.0, 0.01), numbers={"Hedges' g": 2.5, "g, low": 0.4, "g, high": 4.5})
    found = verdict(Evidence("a", "b", "chrF2", 1.2, runs=(3, 3), seeds=seeds)).sentence
    assert "p = 0.010, Hedges' g +2.50 (+0.40 to +4.50)" in found
    few = verdict(Evidence("a", "b", "chrF2", 1.2, runs=(2, 3), seeds=seeds)).sentence
    assert "Hedges" not in few
