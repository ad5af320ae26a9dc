"""Compare runs: fairness, scores, tests, breakdowns and example sentences, as a value and for JSON."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal, cast

from macaron.data.prepared import DataKind, PreparedData, PreparedText, Split
from macaron.decode import Translator
from macaron.errors import MacaronError
from macaron.evaluate import Interval, SentenceStatistics, bootstrap_interval
from macaron.evaluate.evaluation import evaluate_split, text_digest
from macaron.evaluate.stored import Evaluation, Measurement, Search
from macaron.lab.compare.examples import Reading, choose
from macaron.lab.compare.fairness import Fairness, Question, fairness, group
from macaron.lab.compare.finished_run import FinishedRun, Kind, label_kinds, open_runs
from macaron.lab.compare.kind_statistics import (
    TRIALS,
    Part,
    Words,
    by_frequency,
    by_length,
    parts_of,
    pooled,
    seed_test,
    sentence_test,
)
from macaron.lab.compare.verdict import DifferenceTest, Evidence, Verdict, corrected, either, overall, verdict
from macaron.lab.page import note
from macaron.lab.run_folder import is_number
from macaron.nn.budget import TOLERANCE
from macaron.text.fingerprint import of_ids

Say = Callable[[str], None]
#: The loss is that of the objective, with label smoothing; the nll does not depend on it. Lower ones are better.
LOSS, NLL = "validation loss", "validation nll"
_MEASURED = "of the final model on the validation data, as measured by the run; lower is better"


@dataclass(frozen=True)
class KindScore:
    """The scores of a kind in a metric, those of its runs.

    :param statistics: the counts behind the scores; a loss has none
    """

    scores: tuple[float, ...]
    statistics: tuple[SentenceStatistics, ...] = ()

    @cached_property
    def interval(self) -> Interval | None:
        """The interval over sentences of their mean."""
        return bootstrap_interval(pooled(self.statistics)) if self.statistics else None

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
        return f"{self.mean:.{digits}f}" + ("" if self.deviation is None else f" ± {self.deviation:.{digits}f}")


@dataclass(frozen=True)
class Pair:
    """A kind compared with the first one. An unfair pair is not tested.

    :param evidence: by metric
    :param deciding: the metrics that decide: the score, and beside it the validation loss
    :param reading: sentences, translated by the first run of either kind
    """

    first: Kind
    second: Kind
    fairness: Fairness
    evidence: dict[str, Evidence]
    deciding: tuple[str, ...]
    reading: Reading | None = None

    @property
    def decide(self) -> list[Evidence]:
        """The evidence that decides."""
        return [self.evidence[metric] for metric in self.deciding]

    @property
    def verdict(self) -> Verdict:
        """What may be said of the two kinds."""
        return either(*map(verdict, self.decide))

    def tests(self, over: Literal["sentences", "seeds"]) -> dict[str, DifferenceTest]:
        """The tests over sentences or seeds, by metric."""
        return {metric: test for metric, each in self.evidence.items() if (test := getattr(each, over)) is not None}


@dataclass(frozen=True)
class Result:
    """The result of a comparison.

    :param metric: the metric that decides, with the validation loss; it is chosen before anything is scored
    :param trials: resamples, and random exchanges, of a test over sentences
    """

    task: DataKind
    kinds: list[Kind]
    metric: str
    metrics: dict[str, str]
    scores: dict[str, list[KindScore]]
    pairs: list[Pair]
    data: str | None = None
    split: str | None = None
    count: int = 0
    trials: int = 0
    cautions: Sequence[str] = ()
    translated: dict[str, Evaluation] = field(default_factory=dict)
    lengths: Sequence[Part] = ()
    frequencies: Sequence[Part] = ()

    @property
    def sentence(self) -> str:
        """The verdict, in one sentence."""
        return overall([pair.verdict for pair in self.pairs], self.kinds[0].label)

    def table(self) -> list[list[str]]:
        """The scores for a terminal: names of columns, and a row for each kind; mean and deviation of several seeds."""
        metrics = sorted(self.scores, key=lambda name: name not in (LOSS, NLL))  # the losses come first
        columns = [name.replace("validation", "valid") for name in metrics]
        several = any(len(kind.runs) > 1 for kind in self.kinds)
        rows = [["", *(["seeds"] if several else []), "parameters", "updates", *columns]]
        for i, kind in enumerate(self.kinds):
            updates = sorted({f"{run.progress.update:,}" for run in kind.runs})
            seeds = [str(len(kind.runs))] if several else []
            row = [kind.label, *seeds, f"{kind.parameters:,}", ", ".join(updates)]
            rows.append([*row, *(self.scores[name][i].text(digits(name)) for name in metrics)])
        return rows

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        kinds: list[dict[str, Any]] = []
        for i, kind in enumerate(self.kinds):
            scores = {
                metric: {
                    "mean": scores[i].mean,
                    "scores": scores[i].scores,
                    "standard_deviation": scores[i].deviation,
                    "interval_over_sentences": None if (ends := scores[i].interval) is None else asdict(ends),
                }
                for metric, scores in self.scores.items()
            }
            size = {"parameters": kind.parameters, "difference_in_size": kind.parameters / self.kinds[0].parameters - 1}
            runs = [self._run(run) for run in kind.runs]
            kinds.append({"label": kind.label, **size, "scores": scores, "runs": runs})
        comparisons = [
            {
                "first": pair.first.label,
                "second": pair.second.label,
                "verdict": asdict(pair.verdict),
                "deciding_p_value": pair.verdict.p_value,
                "fairness": {"fair": not pair.fairness.unfair, **asdict(pair.fairness)},
                "tests_over_sentences": {metric: asdict(test) for metric, test in pair.tests("sentences").items()},
                "tests_over_seeds": {metric: asdict(test) for metric, test in pair.tests("seeds").items()},
                "sentences": pair.reading and asdict(pair.reading),
            }
            for pair in self.pairs
        ]
        same = {name: getattr(self, name) for name in ("trials", "metric", "metrics", "data", "split", "cautions")}
        return {
            "format": 2,
            "verdict": self.sentence,
            **same,
            "sentences": self.count,
            "kinds": kinds,
            "comparisons": comparisons,
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


def compare(
    runs: Mapping[str, Path] | Sequence[Path],
    data: Path | None = None,
    split: str = "test",
    *,
    search: Search | None = None,
    vary: Collection[str] = (),
    trials: int = TRIALS,
    say: Say = lambda _: None,
) -> Result:
    """Compare runs.

    :param runs: folders of runs, by name if they have names of their own; others are compared with the first kind
    """
    search = search or Search()
    opened = open_runs(runs)
    given = {"decode.beam": search.beam, "decode.length_penalty": search.length_penalty}
    question = Question(frozenset(vary), frozenset(key for key, value in given.items() if value is not None))
    kinds = label_kinds(group(opened, question), named=isinstance(runs, Mapping))
    fair = [fairness(kinds[0], kind, question) for kind in kinds[1:]]
    if opened[0].recipe.kind == "text":
        return _compare_losses(kinds, fair, data)
    return _compare_translations(kinds, fair, data or opened[0].recipe.data, cast(Split, split), search, trials, say)


def _compare_translations(
    kinds: list[Kind], fair: list[Fairness], folder: Path, split: Split, search: Search, trials: int, say: Say
) -> Result:
    data = PreparedData.open(folder)
    runs = [run for kind in kinds for run in kind.runs]
    for run in runs:
        if run.languages and run.languages != data.languages:
            raise MacaronError(
                f"{run.path} translates from {run.languages[0]} to {run.languages[1]}, but {folder} holds "
                f"{data.source_lang} and {data.target_lang}: give the data that the runs were made for (--data)"
            )
    sources, references = (data.text(split, language) for language in data.languages)
    if not sources:
        raise MacaronError(f"{folder}: its {split} split is empty: there is nothing to compare on")
    tokenizers = [run.tokenizer_settings for run in runs]
    folded = any(each.get("pipeline") == "moses" and each.get("lower", True) for each in tokenizers)
    said = getattr(runs[0].model_config, "evaluation", None) or {}
    lower, compound_split = folded or bool(said.get("lower", True)), bool(said.get("compound_split", False))
    caseless = folded or bool(said.get("lower", False))
    definition = {"lower": lower, "compound_split": compound_split, **({"caseless": True} if caseless else {})}
    made = {run.name: _translate(run, data, split, search, definition, say) for run in runs}
    metrics = {score.metric: score.definition for score in made[runs[0].name].scores}
    scores = {}
    for i, metric in enumerate(metrics):
        found = [[made[run.name].scores[i] for run in kind.runs] for kind in kinds]
        scores[metric] = [KindScore(tuple(s.score for s in each), tuple(s.statistics for s in each)) for each in found]
    primary = "tokenised BLEU" if folded else next(iter(metrics))
    loss, scores[loss] = _losses(kinds)
    metrics[loss] = _MEASURED
    allowed = [not each.unfair for each in fair]
    if any(allowed):
        say("testing the differences")
    pairs = []
    for pair in _pairs(kinds, fair, primary, scores, trials):
        first, second = (made[kind.runs[0].name].translations for kind in (pair.first, pair.second))
        reading = choose(sources, references, first, second, folded, ranked=not pair.fairness.unfair)
        pairs.append(replace(pair, reading=reading))
    lengths = by_length([len(line.split()) for line in sources], [each.statistics for each in scores[primary]])
    words = Words(data, split)
    say("counting the words of the training data")
    counts, wanted = words.counts(data.pairs("train").target), words.of(references)
    translated = [[words.of(made[run.name].translations) for run in kind.runs] for kind in kinds]
    cautions = []
    if any(run.data_digest not in (None, data.digest) for run in runs):
        cautions.append(note("compare", "other-data", folder=data.folder, split=split))
    if split == "valid":
        cautions.append(note("compare", "selected"))
    return Result(
        *("pairs", kinds, primary, metrics, scores, pairs),
        data=str(folder),
        split=split,
        count=len(sources),
        trials=trials,
        cautions=cautions,
        translated=made,
        lengths=parts_of(lengths, allowed, trials),
        frequencies=parts_of(by_frequency(counts, wanted, translated), allowed, trials),
    )


def _translate(
    run: FinishedRun, data: PreparedData, split: Split, search: Search, definition: dict[str, bool], say: Say
) -> Evaluation:
    """Translate and score a split as `macaron evaluate` does, or read what is stored in the run.

    :param definition: of the tokenised BLEU of all runs: as that of the first is, but caseless if any run is
    """
    lines, references = (data.text(split, language) for language in data.languages)
    tags = data.tags(split) if run.tokenizer_settings.get("tags") else ()  # as in evaluate_split
    text = text_digest(lines, references, data.text_state(split), data.languages, tags)
    measurement = Measurement(run.path, split, run.fingerprint, text, search, definition)
    found = measurement.load(len(lines))
    if found is not None:
        say(f"{run.name}: stored translations ({found.kept})")
        return found
    say(f"{run.name}: translating {len(lines):,} sentences")
    translator = Translator(run.path, device=search.device, dtype=search.dtype)
    options = {name: getattr(search, name) for name in ("beam", "length_penalty", "batch_tokens")}
    scored = evaluate_split(translator, data, split, **definition, **options)
    return measurement.store(scored, f"{data.folder} ({split})")


def _compare_losses(kinds: list[Kind], fair: list[Fairness], folder: Path | None) -> Result:
    if folder is not None:
        held = of_ids(PreparedText.open(folder).tokenizer_fingerprint)
        for run in (run for kind in kinds for run in kind.runs):
            if of_ids(run.model_config.tokenizer_fingerprint or held) != held:
                raise MacaronError(f"{run.path} was not trained on {folder}: the tokenizers differ. Give other data.")
    loss, losses = _losses(kinds)
    scores, data = {loss: losses}, None if folder is None else str(folder)
    return Result("text", kinds, loss, {loss: _MEASURED}, scores, _pairs(kinds, fair, loss, scores), data)


def _losses(kinds: list[Kind]) -> tuple[str, list[KindScore]]:
    """The validation losses of all runs, and their name: the likelihood where all have recorded it."""
    recorded = all(is_number(run.final_nll) for kind in kinds for run in kind.runs)
    found = [tuple(run.final_nll if recorded else run.final_loss for run in kind.runs) for kind in kinds]
    return NLL if recorded else LOSS, list(map(KindScore, found))


def _pairs(
    kinds: list[Kind], fair: list[Fairness], primary: str, scores: dict[str, list[KindScore]], trials: int = 0
) -> list[Pair]:
    """Each kind against the first; p-values are corrected for all comparisons, in both metrics that decide."""
    first, pairs = kinds[0], []
    deciding = (primary, *(name for name in scores if name == NLL))  # other losses may be of different objectives
    for i, (kind, each) in enumerate(zip(kinds[1:], fair, strict=True), start=1):
        share = kind.parameters / first.parameters - 1
        size = f"{100 * abs(share):.2f} % {'more' if share > 0 else 'fewer'} parameters"
        evidence = {}
        for metric, of in scores.items():
            counted = of[0].statistics and not each.unfair
            evidence[metric] = Evidence(
                first=first.label,
                second=kind.label,
                metric=metric,
                difference=of[i].mean - of[0].mean,
                runs=(len(first.runs), len(kind.runs)),
                sentences=sentence_test(of[0].statistics, of[i].statistics, trials) if counted else None,
                seeds=None if each.unfair else seed_test(of[0].scores, of[i].scores),
                unfair=each.unfair,
                remarks=(f"{kind.label} has {size} than {first.label}",) if abs(share) > TOLERANCE else (),
                lower_is_better=metric in (LOSS, NLL),
                digits=digits(metric),
            )
        pairs.append(Pair(first, kind, each, evidence, deciding))
    shown = iter(corrected([each for pair in pairs for each in pair.decide]))
    return [replace(pair, evidence=pair.evidence | dict(zip(deciding, shown, strict=False))) for pair in pairs]


def digits(metric: str) -> int:
    """The decimals with which a metric is shown."""
    return 4 if metric in (LOSS, NLL) else 2
