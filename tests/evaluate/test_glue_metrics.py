"""GLUE's metrics by hand, by scipy and by their properties; the average by the published tables."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from macaron.data.glue import TASKS
from macaron.errors import MacaronError
from macaron.evaluate.glue_metrics import (
    accuracy,
    f1,
    glue_average,
    matthews,
    pearson,
    score,
    spearman,
    task_score,
)

BITS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40)
FLOATS = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda value: round(value, 3))
PAIRS = st.lists(st.tuples(FLOATS, FLOATS), min_size=3, max_size=30)


def test_by_hand():
    predicted, expected = [1, 1, 0, 1, 0, 0, 1, 1], [1, 0, 0, 1, 1, 0, 1, 0]
    # 3 true and 2 false positives, 2 true and 1 false negatives
    assert accuracy(predicted, expected) == 5 / 8
    assert f1(predicted, expected) == pytest.approx(2 * (3 / 5) * (3 / 4) / (3 / 5 + 3 / 4))
    assert matthews(predicted, expected) == pytest.approx((3 * 2 - 2 * 1) / math.sqrt(5 * 4 * 4 * 3))
    assert pearson([1, 2, 3, 4], [1, 3, 2, 5]) == pytest.approx(5.5 / math.sqrt(5 * 8.75))
    assert spearman([1, 2, 3, 4], [10, 30, 20, 50]) == pytest.approx(0.8)
    assert spearman([3.0, 1.0, 3.0, 2.0], [4, 1, 3, 2]) == pytest.approx(3 / math.sqrt(10))  # equal values share a rank


def test_where_nothing_varies_a_correlation_is_0():
    assert matthews([1, 1, 1], [1, 0, 1]) == matthews([1, 0, 1], [1, 1, 1]) == 0.0
    assert f1([0, 0], [1, 1]) == f1([1, 1], [0, 0]) == f1([0, 0], [0, 0]) == 0.0
    assert pearson([2.0, 2.0], [1.0, 3.0]) == spearman([2.0, 2.0], [1.0, 3.0]) == 0.0


@pytest.mark.parametrize(("predicted", "expected"), [([], []), ([1], [1, 0])])
def test_what_cannot_be_scored_is_refused(predicted: list[int], expected: list[int]):
    with pytest.raises(MacaronError, match="predictions for"):
        accuracy(predicted, expected)


@given(BITS)
def test_matthews_is_pearson_of_two_classes(pairs: list[tuple[int, int]]):
    ours, truth = zip(*pairs, strict=True)
    assert matthews(ours, truth) == pytest.approx(pearson(ours, truth), abs=1e-9)
    assert matthews(ours, truth) == pytest.approx(matthews([1 - x for x in ours], [1 - x for x in truth]))
    assert matthews([1 - x for x in ours], truth) == pytest.approx(-matthews(ours, truth))


@given(BITS)
def test_f1_and_accuracy(pairs: list[tuple[int, int]]):
    ours, truth = zip(*pairs, strict=True)
    assert f1(ours, truth) == pytest.approx(f1(truth, ours))
    assert (accuracy(ours, truth) == 1) == (ours == truth)
    assert f1(truth, truth) == (1.0 if any(truth) else 0.0)


@given(PAIRS)
def test_correlations_are_scipys(pairs: list[tuple[float, float]]):
    ours, truth = map(np.array, zip(*pairs, strict=True))
    # Where values hardly differ from their mean, nobody's correlation means anything.
    if min(np.std(ours), np.std(truth)) < 1e-6 * max(1.0, np.abs(ours).max(), np.abs(truth).max()):
        return
    assert pearson(ours, truth) == pytest.approx(scipy.stats.pearsonr(ours, truth).statistic, abs=1e-6)
    assert spearman(ours, truth) == pytest.approx(scipy.stats.spearmanr(ours, truth).statistic, abs=1e-9)
    assert spearman(np.exp(ours / 1e6), truth) == pytest.approx(spearman(ours, truth), abs=1e-9)


def test_scores_are_per_cent_and_in_order():
    assert list(score(("f1", "accuracy"), [1, 0], [1, 1]).items()) == [("f1", pytest.approx(200 / 3)), ("accuracy", 50)]


def test_the_average_of_published_rows():
    """The rows of the paper's table; its GLUE column has WNLI's 65.1 in it, all test labels being the same."""
    rows = {
        78.3: (52.1, 93.5, (88.9, 84.8), (87.1, 85.8), (71.2, 89.2), ((84.6,), (83.4,)), 90.5, 66.4),
        79.7: (57.6, 94.0, (88.4, 84.4), (87.5, 86.3), (70.8, 89.0), ((85.4,), (84.5,)), 91.6, 70.5),
    }
    for published, row in rows.items():
        scores = {}
        for name, value in zip(TASKS, (*row, 65.1), strict=True):
            sets = value if isinstance(value, tuple) and isinstance(value[0], tuple) else (value,)
            each = [one if isinstance(one, tuple) else (one,) for one in sets]
            scores[name] = task_score({str(i): dict(zip("ab", one, strict=False)) for i, one in enumerate(each)})
        average = glue_average(scores)
        assert average.glue is not None
        assert round(average.glue, 1) == published
        assert average.missing == ()


def test_a_missing_task_is_said_and_not_averaged_over():
    scores = {name: 80.0 for name in TASKS if name != "wnli"}
    average = glue_average(scores)
    assert (average.glue, average.glue_without_wnli, average.missing) == (None, 80.0, ("wnli",))
    assert "needs WNLI" in str(average)
    average = glue_average({"cola": 50.0, "rte": 60.0})
    assert (average.glue, average.glue_without_wnli, average.mean_of_given) == (None, None, 55.0)
    assert str(average).startswith("no GLUE average: missing SST-2, MRPC, STS-B, QQP, MNLI, QNLI, WNLI")
    assert glue_average({}).mean_of_given is None
