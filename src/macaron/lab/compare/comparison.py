"""Compare runs: is it fair, what do they score, what can be shown, where do they differ; a page and JSON of it all."""

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from macaron.data.prepared import PreparedData, PreparedText, Split
from macaron.errors import MacaronError, UsageError
from macaron.evaluate.significance import bootstrap_interval
from macaron.lab.compare.examples import choose
from macaron.lab.compare.fairness import Fairness, Question, check_vary, fairness, group, unequal
from macaron.lab.compare.result import KindScore, Pair, Result, final_loss
from macaron.lab.compare.runs import Kind, Run, label_kinds, open_runs
from macaron.lab.compare.significance import TRIALS, SeedTest, SentenceTests, pooled, seed_test, sentence_tests
from macaron.lab.compare.training_data import training_digest
from macaron.lab.compare.translations import (
    Search,
    Translated,
    caseless,
    require_same_languages,
    shared_definition,
    translate_run,
)
from macaron.lab.compare.verdict import Evidence, holm, verdict
from macaron.lab.compare.words import Words, by_frequency, by_length
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
    search: Search | None = None,
    vary: Collection[str] = (),
    trials: int = TRIALS,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Compare runs, write the page (and JSON), and return what JSON holds.

    :param runs: folders of runs, by name if they have names of their own; the first kind is what others are compared
        with
    :param data: a prepared folder; by default that of the first run's recipe
    :param split: test or valid
    :param vary: settings (``train.learning_rate``) that are compared on purpose, beside the shape of the network
    :param trials: resamples and exchanges of every test
    :param say: told what is going on
    """
    from macaron.lab.compare.page import comparison_page

    check_page_path(out)
    if json_file is not None:
        _check_json(json_file, out)
    result = compare(runs, data, split, search=search, vary=vary, trials=trials, say=say)
    found = result.to_dict()
    write_page(out, comparison_page(result))
    if json_file is not None:
        _write(json_file, json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return found


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
    """Compare runs; parameters as in `write_comparison`."""
    search = search or Search()
    opened = open_runs(runs)
    question = Question(check_vary(vary, opened), search.settled)
    kinds = label_kinds(group(opened, question), named=isinstance(runs, Mapping))
    fair = [fairness(kinds[0], kind, question) for kind in kinds[1:]]
    if opened[0].kind == "text":
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
    metrics = {score.metric: score.definition for score in made[runs[0].name].scores}
    statistics = {
        metric: [[_of(made[run.name], metric).statistics for run in kind.runs] for kind in kinds] for metric in metrics
    }
    scores = {
        metric: tuple(
            KindScore(
                tuple(_of(made[run.name], metric).score for run in kind.runs),
                bootstrap_interval(pooled(of_runs)),
            )
            for kind, of_runs in zip(kinds, statistics[metric], strict=True)
        )
        for metric in metrics
    }
    # sacreBLEU looks at case; of models that have none it would judge what they cannot know.
    folded = caseless(runs)
    primary = "tokenised BLEU" if folded else next(iter(metrics))
    tested = [
        {metric: sentence_tests(statistics[metric][0], statistics[metric][i], trials) for metric in metrics}
        if not each.unfair
        else {}
        for i, each in enumerate(fair, start=1)
    ]
    words = Words(data, split)
    line_words = {run.name: words.of(made[run.name].translations) for run in runs}
    say("counting the words of the training data")
    frequencies = by_frequency(
        words.counts(data.pairs("train").target),
        words.of(references),
        [[line_words[run.name] for run in kind.runs] for kind in kinds],
        trials,
    )
    pairs = []
    for pair in _pairs(kinds, fair, primary, scores, tested):
        one, other = _same_seed(pair.first, pair.second)
        reading = choose(sources, references, made[one.name].translations, made[other.name].translations, folded)
        pairs.append(Pair(**{**vars(pair), "reading": reading, "read_runs": (one.name, other.name)}))
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
        lengths=tuple(by_length([len(line.split()) for line in sources], statistics[primary], trials)),
        frequencies=tuple(frequencies),
    )


def _compare_losses(kinds: list[Kind], fair: list[Fairness], folder: Path | None) -> Result:
    if folder is not None:
        held = PreparedText.open(folder).tokenizer_fingerprint
        for run in (run for kind in kinds for run in kind.runs):
            if run.config.tokenizer_fingerprint not in (None, held):
                raise MacaronError(f"{run.path} was not trained on {folder}: the tokenizers differ. Give other data.")
    scores = {LOSS: tuple(KindScore(tuple(final_loss(run) for run in kind.runs)) for kind in kinds)}
    pairs = _pairs(kinds, fair, LOSS, scores, [{} for _ in fair], lower_is_better=True, digits=4)
    definition = "of the final model on the validation data, as the run itself measured it; lower is better"
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
    """Each kind against the first, with verdicts that know of each other."""
    first = kinds[0]
    seeds: list[dict[str, SeedTest]] = []
    evidence = []
    for i, (kind, each, tests) in enumerate(zip(kinds[1:], fair, tested, strict=True), start=1):
        over_seeds = {m: seed_test(of[0].scores, of[i].scores) for m, of in scores.items()} if not each.unfair else {}
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
    found = corrected(evidence)
    return [
        Pair(first, kind, each, tests, of_seeds, shown, verdict(shown))
        for kind, each, tests, of_seeds, shown in zip(kinds[1:], fair, tested, seeds, found, strict=True)
    ]


def corrected(evidence: Sequence[Evidence]) -> list[Evidence]:
    """The same with p-values that allow for all comparisons that were tested."""
    decide = {i: each.p_value for i, each in enumerate(evidence) if not each.unfair and each.p_value is not None}
    adjusted = dict(zip(decide, holm([p for p in decide.values() if p is not None]), strict=True))
    return [
        Evidence(**{**vars(each), "adjusted": adjusted.get(i), "comparisons": max(len(decide), 1)})
        for i, each in enumerate(evidence)
    ]


def _data_cautions(runs: Sequence[Run], data: PreparedData, split: Split) -> list[str]:
    cautions = []
    own = training_digest(data)
    known = [run.identity for run in runs if run.identity is not None]
    if any((each["training data"], each["tokenizer"]) != (own, data.tokenizer_fingerprint) for each in known):
        cautions.append(
            f"not all runs were trained on the training data of {data.folder}: nobody has checked that its {split} "
            "sentences were not among what they were trained on, and word frequencies are those of this folder"
        )
    if split == "valid":
        cautions.append("the final models were chosen by their loss on these very sentences; the test split is cleaner")
    return cautions


def _same_seed(first: Kind, second: Kind) -> tuple[Run, Run]:
    """A run of each whose translations are shown: of one seed if there is one that both have."""
    for run in first.runs:
        for other in second.runs:
            if run.seed == other.seed:
                return run, other
    return first.runs[0], second.runs[0]


def _of(made: Translated, metric: str) -> Any:
    return next(score for score in made.scores if score.metric == metric)


def _check_json(path: Path, page: Path) -> None:
    """Refuse what would be refused, or regretted, after all the work."""
    if path.is_dir():
        raise UsageError(f"--json {path} is a folder: name a file in it, such as {path / 'comparison.json'}")
    if path.resolve() == page.resolve():
        raise UsageError(f"--json {path} is the page (--out): the numbers need a file of their own")


def _write(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, path)
    except OSError as error:
        with suppress(OSError):
            aside.unlink()
        raise MacaronError(f"{path} cannot be written: {error.strerror}. Choose another place.") from error
