"""The result of a comparison, for the page and for JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean, stdev
from typing import Any

from macaron.data.manifest import DataKind
from macaron.evaluate import Interval, Score, SentenceStatistics, bootstrap_interval
from macaron.evaluate.stored import Evaluation
from macaron.lab.compare.examples import Reading
from macaron.lab.compare.fairness import Fairness
from macaron.lab.compare.finished_run import FinishedRun, Kind
from macaron.lab.compare.kind_statistics import Part, pooled
from macaron.lab.compare.verdict import DifferenceTest, Evidence, Verdict, overall, verdict


@dataclass(frozen=True)
class KindScore:
    """The scores of a kind in a metric: of each run, with an interval over sentences of their mean.

    :param statistics: the counts behind the scores; a loss has none
    """

    scores: tuple[float, ...]
    interval: Interval | None = None
    statistics: tuple[SentenceStatistics, ...] = ()

    @classmethod
    def of(cls, scores: Sequence[Score]) -> "KindScore":
        """From the scores of the runs."""
        statistics = tuple(score.statistics for score in scores)
        return cls(tuple(score.score for score in scores), bootstrap_interval(pooled(statistics)), statistics)

    @property
    def mean(self) -> float:
        """The mean over its runs."""
        return mean(self.scores)

    @property
    def deviation(self) -> float | None:
        """The standard deviation over its runs, if there are several."""
        return stdev(self.scores) if len(self.scores) > 1 else None

    def text(self, digits: int) -> str:
        """Its mean, and the standard deviation if there is one."""
        spread = "" if self.deviation is None else f" ± {self.deviation:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        interval = None if self.interval is None else asdict(self.interval)
        spread = {"standard_deviation": self.deviation, "interval_over_sentences": interval}
        return {"mean": self.mean, "scores": list(self.scores), **spread}


@dataclass(frozen=True)
class Pair:
    """A kind compared with the first one. An unfair pair is not tested."""

    first: Kind
    second: Kind
    fairness: Fairness
    sentences: dict[str, DifferenceTest]
    seeds: dict[str, DifferenceTest]
    evidence: Evidence
    reading: Reading | None = None
    read_runs: tuple[str, str] = ("", "")

    @property
    def verdict(self) -> Verdict:
        """What may be said of the two kinds."""
        return verdict(self.evidence)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        read = None if self.reading is None else {"runs": list(self.read_runs), **asdict(self.reading)}
        return {
            "first": self.first.label,
            "second": self.second.label,
            "verdict": asdict(self.verdict),
            "deciding_p_value": None if self.fairness.unfair else self.evidence.p_value,
            "fairness": {"fair": not self.fairness.unfair, **asdict(self.fairness)},
            "tests_over_sentences": {metric: asdict(test) for metric, test in self.sentences.items()},
            "tests_over_seeds": {metric: asdict(test) for metric, test in self.seeds.items()},
            "sentences": read,
        }


@dataclass(frozen=True)
class Result:
    """The result of a comparison.

    :param metric: the metric that decides; it is chosen before anything is scored
    :param trials: resamples, and random exchanges, of a test over sentences
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
    trials: int = 0
    cautions: tuple[str, ...] = ()
    translated: dict[str, Evaluation] = field(default_factory=dict)
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

    def table(self) -> str:
        """The scores for a terminal, a line for each kind; of several seeds mean and standard deviation."""
        several = any(len(kind.runs) > 1 for kind in self.kinds)
        losses = tuple(KindScore(tuple(run.final_loss for run in kind.runs)) for kind in self.kinds)
        columns = {"valid loss": losses, **self.scores} if self.task == "pairs" else self.scores
        rows = [["", *(["seeds"] if several else []), "parameters", "updates", *columns]]
        for i, kind in enumerate(self.kinds):
            updates = sorted({run.progress.update for run in kind.runs})
            row = [kind.label, *([str(len(kind.runs))] if several else []), f"{kind.parameters:,}"]
            row.append(" to ".join(f"{each:,}" for each in updates[:: max(len(updates) - 1, 1)]))
            rows.append([*row, *(scores[i].text(4 if "loss" in name else 2) for name, scores in columns.items())])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        )

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": 2,
            "trials": self.trials,
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
            "by_length": [asdict(part) for part in self.lengths],
            "by_frequency": [asdict(part) for part in self.frequencies],
        }

    def _run(self, run: FinishedRun) -> dict[str, Any]:
        made, translations = self.translated.get(run.name), {}
        if made is not None:
            translations = {"search": made.search, "translations": made.kept and str(made.kept), "reused": made.reused}
        return {
            "name": run.name,
            "folder": str(run.path),
            "seed": run.seed,
            "updates": run.progress.update,
            "seconds": run.summary["seconds"],
            "final_model": run.summary["final_model"],
            "validation_loss": run.final_loss,
            "model": run.fingerprint,
            **translations,
        }
