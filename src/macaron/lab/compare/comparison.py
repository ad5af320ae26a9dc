"""Compare runs: fairness, scores, tests, breakdowns and example sentences, as a page and as JSON."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from macaron.data.prepared import PreparedData, PreparedText, Split
from macaron.errors import MacaronError, UsageError
from macaron.evaluate.significance import bootstrap_interval
from macaron.files import write_json
from macaron.lab.compare.breakdowns import Words, by_frequency, by_length
from macaron.lab.compare.examples import choose
from macaron.lab.compare.fairness import Fairness, Question, check_vary, fairness, group, unequal
from macaron.lab.compare.finished_run import FinishedRun, folder_digests
from macaron.lab.compare.kind_tests import TRIALS, SentenceTests, pooled, seed_test, sentence_tests
from macaron.lab.compare.kinds import Kind, label_kinds, open_runs
from macaron.lab.compare.result import KindScore, Pair, Result
from macaron.lab.compare.translations import (
    Search,
    caseless,
    require_same_languages,
    shared_definition,
    translate_run,
)
from macaron.lab.compare.verdict import Evidence, corrected, verdict
from macaron.lab.page import check_page_path, write_page

Say = Callable[[str], None]
LOSS = "validation loss"


def write_comparison(
    runs: Mapping[str, Path] | Sequence[Path],
    data: Path | None,
    split: str,
    out: Path,
    *,
    json_file: Path | None = None,
    **options: Any,
) -> Result:
    """Compare runs, write the page and, if asked for, all numbers as JSON; parameters as in `compare`."""
    from macaron.lab.compare.comparison_page import comparison_page

    check_page_path(out)
    if json_file is not None and json_file.is_dir():
        raise UsageError(f"--json {json_file} is a folder: name a file in it, such as {json_file / 'comparison.json'}")
    if json_file is not None and json_file.resolve() == out.resolve():
        raise UsageError(f"--json {json_file} is the page (--out): the numbers need a file of their own")
    result = compare(runs, data, split, **options)
    write_page(out, comparison_page(result))
    if json_file is not None:
        write_json(json_file, result.to_dict())
    return result


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
    :param data: a prepared folder; by default that of the first run's recipe
    :param split: test or valid
    :param vary: settings (``train.learning_rate``) that differ on purpose, beside the shape of the network
    :param trials: resamples and exchanges of every test
    :param say: is told the progress
    """
    search = search or Search()
    opened = open_runs(runs)
    question = Question(check_vary(vary, opened), search.settled)
    kinds = label_kinds(group(opened, question), named=isinstance(runs, Mapping))
    fair = [fairness(kinds[0], kind, question) for kind in kinds[1:]]
    if opened[0].recipe.kind == "text":
        return _compare_losses(kinds, fair, data)
    if split not in ("valid", "test"):
        raise MacaronError(f"split is valid or test, not {split!r}")
    part: Split = "valid" if split == "valid" else "test"
    return _compare_translations(kinds, fair, data or opened[0].recipe.data, part, search, trials, say)


def _compare_translations(
    kinds: list[Kind], fair: list[Fairness], folder: Path, split: Split, search: Search, trials: int, say: Say
) -> Result:
    data = PreparedData.open(folder)
    runs = [run for kind in kinds for run in kind.runs]
    for run in runs:
        require_same_languages(run, data)
    sources, references = (data.text(split, language) for language in data.languages)
    if not sources:
        raise MacaronError(f"{folder}: its {split} split is empty: there is nothing to compare on")
    definition = shared_definition(runs)
    made = {run.name: translate_run(run, data, split, search, definition, say) for run in runs}
    say("testing the differences")
    scored = {run.name: {score.metric: score for score in made[run.name].scores} for run in runs}
    metrics = {score.metric: score.definition for score in made[runs[0].name].scores}
    statistics = {
        metric: [[scored[run.name][metric].statistics for run in kind.runs] for kind in kinds] for metric in metrics
    }
    scores = {
        metric: tuple(
            KindScore(tuple(scored[run.name][metric].score for run in kind.runs), bootstrap_interval(pooled(of_runs)))
            for kind, of_runs in zip(kinds, statistics[metric], strict=True)
        )
        for metric in metrics
    }
    # sacreBLEU is case-sensitive, which would be unfair to models of lower-cased text.
    folded = caseless(runs)
    primary = "tokenised BLEU" if folded else next(iter(metrics))
    tested = [
        {metric: sentence_tests(of[0], of[i], trials) for metric, of in statistics.items() if not each.unfair}
        for i, each in enumerate(fair, start=1)
    ]
    tests_allowed = [not each.unfair for each in fair]
    words = Words(data, split)
    line_words = {run.name: words.of(made[run.name].translations) for run in runs}
    say("counting the words of the training data")
    frequencies = by_frequency(
        words.counts(data.pairs("train").target),
        words.of(references),
        [[line_words[run.name] for run in kind.runs] for kind in kinds],
        tests_allowed,
        trials,
    )
    pairs = []
    for pair in _pairs(kinds, fair, primary, scores, tested):
        one, other = _same_seed(pair.first, pair.second)
        outputs = (made[one.name].translations, made[other.name].translations)
        reading = choose(sources, references, *outputs, folded, ranked=not pair.fairness.unfair)
        pairs.append(replace(pair, reading=reading, read_runs=(one.name, other.name)))
    lengths = [len(line.split()) for line in sources]
    return Result(
        task="pairs",
        kinds=tuple(kinds),
        metric=primary,
        metrics=metrics,
        scores=scores,
        pairs=tuple(pairs),
        data=str(folder),
        split=split,
        count=len(sources),
        cautions=tuple(_data_cautions(runs, data, split)),
        translated=made,
        lengths=tuple(by_length(lengths, statistics[primary], tests_allowed, trials)),
        frequencies=tuple(frequencies),
    )


def _compare_losses(kinds: list[Kind], fair: list[Fairness], folder: Path | None) -> Result:
    if folder is not None:
        held = PreparedText.open(folder).tokenizer_fingerprint
        for run in (run for kind in kinds for run in kind.runs):
            if run.model_config.tokenizer_fingerprint not in (None, held):
                raise MacaronError(f"{run.path} was not trained on {folder}: the tokenizers differ. Give other data.")
    scores = {LOSS: tuple(KindScore(tuple(run.final_loss for run in kind.runs)) for kind in kinds)}
    pairs = _pairs(kinds, fair, LOSS, scores, [{} for _ in fair], lower_is_better=True, digits=4)
    definition = "of the final model on the validation data, as measured by the run; lower is better"
    where = None if folder is None else str(folder)
    return Result("text", tuple(kinds), LOSS, {LOSS: definition}, scores, tuple(pairs), data=where)


def _pairs(
    kinds: list[Kind],
    fair: list[Fairness],
    primary: str,
    scores: dict[str, tuple[KindScore, ...]],
    tested: list[dict[str, SentenceTests]],
    **style: Any,
) -> list[Pair]:
    """Each kind against the first; p-values are corrected for all comparisons."""
    first, seeds, evidence = kinds[0], [], []
    for i, (kind, each, tests) in enumerate(zip(kinds[1:], fair, tested, strict=True), start=1):
        over_seeds = {m: seed_test(of[0].scores, of[i].scores) for m, of in scores.items() if not each.unfair}
        seeds.append({metric: test for metric, test in over_seeds.items() if test is not None})
        remark = unequal(first, kind)
        evidence.append(
            Evidence(
                first=first.label,
                second=kind.label,
                metric=primary,
                difference=scores[primary][i].mean - scores[primary][0].mean,
                runs=(len(first.runs), len(kind.runs)),
                sentences=tests[primary].evidence if primary in tests else None,
                seeds=seeds[-1][primary].evidence if primary in seeds[-1] else None,
                unfair=each.unfair,
                remarks=() if remark is None else (remark,),
                **style,
            )
        )
    return [
        Pair(first, kind, each, tests, of_seeds, shown, verdict(shown))
        for kind, each, tests, of_seeds, shown in zip(kinds[1:], fair, tested, seeds, corrected(evidence), strict=True)
    ]


def _data_cautions(runs: Sequence[FinishedRun], data: PreparedData, split: Split) -> list[str]:
    cautions = []
    own = folder_digests(data.folder.resolve())
    known = [run.identity for run in runs if run.identity is not None]
    if any(each["training data"] not in own or each["tokenizer"] != data.tokenizer_fingerprint for each in known):
        cautions.append(
            f"not all runs were trained on the training data of {data.folder}: its {split} sentences may be among "
            "what they were trained on, and word frequencies are those of this folder"
        )
    if split == "valid":
        cautions.append("the final models were chosen by their loss on these very sentences; use the test split")
    return cautions


def _same_seed(first: Kind, second: Kind) -> tuple[FinishedRun, FinishedRun]:
    """A run of each kind whose translations are shown: with the same seed if possible."""
    pairs = [(run, other) for run in first.runs for other in second.runs]
    return next((pair for pair in pairs if pair[0].seed == pair[1].seed), pairs[0])
