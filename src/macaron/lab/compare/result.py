"""What a comparison found, as values: for the page, and for JSON."""

from dataclasses import dataclass, field
from typing import Any

from macaron.data.prepared import DataKind
from macaron.errors import MacaronError
from macaron.evaluate.significance import Interval
from macaron.lab.compare.examples import Reading
from macaron.lab.compare.fairness import Fairness
from macaron.lab.compare.runs import Kind, Run
from macaron.lab.compare.significance import SeedTest, SentenceTests, spread
from macaron.lab.compare.translations import Translated
from macaron.lab.compare.verdict import Evidence, Verdict, overall
from macaron.lab.compare.words import Part


@dataclass(frozen=True)
class KindScore:
    """What a kind scores in a metric: each run, and for all together an interval over sentences."""

    scores: tuple[float, ...]
    interval: Interval | None = None

    @property
    def mean(self) -> float:
        """The mean over its runs."""
        return sum(self.scores) / len(self.scores)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over its runs, of more than one."""
        return spread(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        interval = None if self.interval is None else self.interval.to_dict()
        return {
            "mean": self.mean,
            "standard_deviation": self.deviation,
            "scores": list(self.scores),
            "interval_over_sentences": interval,
        }


@dataclass(frozen=True)
class Pair:
    """A kind compared with the first one. Where that is not fair, nothing is tested.

    :param sentences: by metric, the tests over sentences
    :param seeds: by metric, the test over seeds
    """

    first: Kind
    second: Kind
    fairness: Fairness
    sentences: dict[str, SentenceTests]
    seeds: dict[str, SeedTest]
    evidence: Evidence
    verdict: Verdict
    reading: Reading | None = None
    read_runs: tuple[str, str] = ("", "")

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "first": self.first.label,
            "second": self.second.label,
            "verdict": self.verdict.to_dict(),
            "deciding_p_value": None if self.fairness.unfair else self.evidence.p_value,
            "fairness": self.fairness.to_dict(),
            "tests_over_sentences": {metric: tests.to_dict() for metric, tests in self.sentences.items()},
            "tests_over_seeds": {metric: test.to_dict() for metric, test in self.seeds.items()},
            "sentences": None if self.reading is None else {"runs": list(self.read_runs), **self.reading.to_dict()},
        }


@dataclass(frozen=True)
class Result:
    """All that a comparison found.

    :param metric: the one that decides; it is chosen before anything is scored
    :param metrics: all of them, with their definitions
    :param scores: by metric, those of each kind
    """

    task: DataKind
    kinds: tuple[Kind, ...]
    metric: str
    metrics: dict[str, str]
    scores: dict[str, tuple[KindScore, ...]]
    pairs: tuple[Pair, ...]
    data: str | None = None
    split: str | None = None
    count: int = 0
    cautions: tuple[str, ...] = ()
    translated: dict[str, Translated] = field(default_factory=dict)
    lengths: tuple[Part, ...] = ()
    frequencies: tuple[Part, ...] = ()

    @property
    def digits(self) -> int:
        """Decimals of a score."""
        return 4 if self.task == "text" else 2

    @property
    def sentence(self) -> str:
        """The verdict, in one sentence."""
        return overall([pair.verdict for pair in self.pairs], self.kinds[0].label)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": 1,
            "verdict": self.sentence,
            "metric": self.metric,
            "metrics": self.metrics,
            "data": self.data,
            "split": self.split,
            "sentences": self.count,
            "cautions": list(self.cautions),
            "kinds": [
                {
                    "label": kind.label,
                    "parameters": kind.parameters,
                    "difference_in_size": kind.parameters / self.kinds[0].parameters - 1,
                    "scores": {metric: scores[i].to_dict() for metric, scores in self.scores.items()},
                    "runs": [self._run(run) for run in kind.runs],
                }
                for i, kind in enumerate(self.kinds)
            ],
            "comparisons": [pair.to_dict() for pair in self.pairs],
            "by_length": [part.to_dict() for part in self.lengths],
            "by_frequency": [part.to_dict() for part in self.frequencies],
        }

    def _run(self, run: Run) -> dict[str, Any]:
        made = self.translated.get(run.name)
        kept = None if made is None or made.kept is None else str(made.kept)
        own = {"search": made.search, "translations": kept, "reused": made.reused} if made else {}
        return {
            "name": run.name,
            "folder": str(run.path),
            "seed": run.seed,
            "updates": run.updates,
            "seconds": run.summary["seconds"],
            "final_model": run.summary["final_model"],
            "validation_loss": final_loss(run),
            "model": run.fingerprint,
            **own,
        }


def final_loss(run: Run) -> float:
    """The validation loss of the model that a run chose."""
    try:
        return float(run.summary["candidates"][run.summary["final_model"]])
    except (KeyError, TypeError, ValueError):
        raise MacaronError(f"{run.path / 'summary.json'}: damaged; train the run again") from None
