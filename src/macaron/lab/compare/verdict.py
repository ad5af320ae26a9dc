"""The verdict of a comparison: one sentence that claims no more than the tests support.

There are two sources of randomness. Tests over sentences say whether other sentences would show the same difference
between these trained models; a test over seeds says whether other trainings would, on these sentences. One kind of
model is called better than another only if all tests agree.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

ALPHA = 0.05
#: The smallest p-value that is shown.
LEAST_P = 0.0001
#: The size of a difference in standard deviations over seeds, and its interval: names in `DifferenceTest.numbers`.
EFFECT = ("Hedges' g", "g, low", "g, high")
#: The number of runs of each kind that a test over seeds needs.
LEAST_SEEDS = 3

#: ``unfair``: nothing is concluded; ``untested``: there is no test; ``none``: no difference shown; or the better one.
VerdictKind = Literal["unfair", "untested", "none", "first", "second"]
#: What the conclusion holds for: nothing, these trained models, other seeds too.
Reach = Literal["nothing", "models", "seeds"]


@dataclass(frozen=True)
class DifferenceTest:
    """A two-sided test of a difference: its 95 % interval, and the p-value of each method.

    :param numbers: what else a table shows of it; of a test over seeds Hedges' g and its 95 % interval are among them
    """

    low: float
    high: float
    p_values: dict[str, float]
    numbers: dict[str, float] = field(default_factory=dict)

    def shows(self, difference: float) -> bool:
        """Whether the interval lies on the difference's own side of zero, and all p-values are small."""
        beside = (difference > 0 and self.low > 0) or (difference < 0 and self.high < 0)
        return beside and bool(self.p_values) and all(p < ALPHA for p in self.p_values.values())


@dataclass(frozen=True)
class Evidence:
    """The input of a verdict on two kinds of model.

    :param difference: second minus first
    :param adjusted: the largest p-value, corrected for several comparisons
    :param remarks: what a reader must know besides, such as unequal sizes
    """

    first: str
    second: str
    metric: str
    difference: float
    runs: tuple[int, int] = (1, 1)
    sentences: DifferenceTest | None = None
    seeds: DifferenceTest | None = None
    adjusted: float | None = None
    comparisons: int = 1
    unfair: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    lower_is_better: bool = False
    digits: int = 2

    @property
    def tests(self) -> dict[str, DifferenceTest]:
        """The tests by what they are over. One over seeds counts only with enough of them."""
        found = {"sentences": self.sentences, "seeds": self.seeds if min(self.runs) >= LEAST_SEEDS else None}
        return {over: test for over, test in found.items() if test is not None}

    @property
    def p_value(self) -> float | None:
        """The p-value that decides: the largest of all tests, corrected."""
        found = [p for test in self.tests.values() for p in test.p_values.values()]
        return max([*found, self.adjusted or 0.0]) if found else None


@dataclass(frozen=True)
class Verdict:
    """The outcome, what it holds for, both in words; the metric on which it rests, and the p-value that decides."""

    outcome: VerdictKind
    reach: Reach
    sentence: str
    metric: str
    p_value: float | None = None


def verdict(evidence: Evidence) -> Verdict:
    """What may be said of two kinds of model."""
    first, second, tests, digits = evidence.first, evidence.second, evidence.tests, evidence.digits
    if evidence.unfair:
        reasons = "; ".join(evidence.unfair)
        said = f"This is not a fair comparison of {first} and {second}, so nothing is concluded: {reasons}."
        return Verdict("unfair", "nothing", said, evidence.metric)
    reach: Reach = "seeds" if "seeds" in tests else "models"
    whole = f"{second} − {first} is {signed(evidence.difference, digits)} {evidence.metric}"
    outcome: VerdictKind = "none"
    if (p_value := evidence.p_value) is None:
        few = "one seed each" if max(evidence.runs) == 1 else f"a test over seeds needs {LEAST_SEEDS} of each"
        reason = few if min(evidence.runs) < LEAST_SEEDS else "no spread"
        outcome, said = "untested", f"{whole}; nothing could be tested ({reason})"
    else:
        intervals = " and ".join(
            f"{signed(test.low, digits)} to {signed(test.high, digits)}{f' over {over}' if len(tests) > 1 else ''}"
            for over, test in tests.items()
        )
        whole += f", 95 % interval {intervals}, p {'' if p_value <= LEAST_P else '= '}{p_text(p_value)}"
        if evidence.comparisons > 1:
            whole += f" after Holm's correction for {evidence.comparisons} comparisons"
        if reach == "seeds" and EFFECT[0] in tests["seeds"].numbers:
            g, low, high = (signed(tests["seeds"].numbers[name]) for name in EFFECT)
            whole += f", {EFFECT[0]} {g} ({low} to {high})"
        if p_value < ALPHA and all(test.shows(evidence.difference) for test in tests.values()):
            outcome = "second" if (evidence.difference > 0) != evidence.lower_is_better else "first"
            better, worse = (second, first) if outcome == "second" else (first, second)
            verb = f"has the lower {evidence.metric}" if evidence.lower_is_better else "scores higher"
            limits = "; other seeds may give another result" if reach == "models" else ""
            said = f"{better} {verb} than {worse}: {whole}{limits}"
        else:
            said = f"no difference between {first} and {second} could be shown: {whole}; any difference inside the "
            said += "interval could have been missed"
    one, other = evidence.runs
    if reach == "seeds":
        where = f"over {one} seeds each" if one == other else f"over {one} and {other} seeds"
        where += " and on these sentences" if evidence.sentences else ""
    else:
        where = "on these sentences, " if evidence.sentences else ""
        where += f"for these {'two' if one + other == 2 else one + other} trained models"
    text = "; ".join([f"{where}, {said}", *evidence.remarks])
    return Verdict(outcome, reach, f"{text[0].upper()}{text[1:]}.", evidence.metric, p_value)


def either(score: Verdict, loss: Verdict | None = None) -> Verdict:
    """The verdict by the score and by the loss: it rests on the first that shows a difference, and says on which."""
    if loss is None or score.outcome == "unfair" or loss.outcome == "untested":
        return score
    ranking = ("first", "second")
    rests, other = (loss, score) if loss.outcome in ranking and score.outcome not in ranking else (score, loss)
    texts = [f"{each.sentence[0].lower()}{each.sentence[1:-1]}" for each in (rests, other)]
    opposed = "; the two metrics disagree" if {score.outcome, loss.outcome} == {*ranking} else ""
    by = "Decided by" if rests.outcome in ranking else "By"
    return replace(rests, sentence=f"{by} {rests.metric}: {texts[0]}; by {other.metric}: {texts[1]}{opposed}.")


def overall(verdicts: Sequence[Verdict], first: str) -> str:
    """One sentence for all kinds that were compared with the first."""
    if len(verdicts) == 1:
        return verdicts[0].sentence
    sentences = [each.sentence for each in sorted(verdicts, key=lambda each: each.outcome != "unfair")]
    return f"Compared with {first}: {'; '.join(text[0].lower() + text[1:-1] for text in sentences)}."


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values corrected by Holm's step-down method."""
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * np.array(p_values)[order]), 1.0)
    return adjusted.tolist()


def corrected(evidence: Sequence[Evidence]) -> list[Evidence]:
    """The same with p-values that are corrected for all comparisons that were tested."""
    decide = {i: p for i, each in enumerate(evidence) if not each.unfair and (p := each.p_value) is not None}
    adjusted = dict(zip(decide, holm(list(decide.values())), strict=True))
    count = max(len(decide), 1)
    return [replace(each, adjusted=adjusted.get(i), comparisons=count) for i, each in enumerate(evidence)]


def p_text(p_value: float) -> str:
    """A p-value that is never rounded across the significance level."""
    if p_value <= LEAST_P:
        return f"≤ {LEAST_P:.4f}"
    texts = (f"{p_value:.{digits}f}" for digits in range(3, 12))
    return next((t for t in texts if (float(t) < ALPHA) == (p_value < ALPHA) and float(t) > 0), repr(p_value))


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign, with more decimals if it would be rounded to zero."""
    texts = (f"{value:+.{places}f}" for places in range(digits, digits + 4))
    text = next((text for text in texts if float(text)), f"{value:+.1e}") if value else f"{0:.{digits}f}"
    return text.replace("-", "−")
