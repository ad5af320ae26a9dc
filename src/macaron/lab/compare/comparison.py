"""Compare runs: fairness, scores, tests, breakdowns and example sentences, as a page and as JSON."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from macaron.data.prepared import PreparedData, PreparedText, Split
from macaron.decode import Translator
from macaron.errors import MacaronError, UsageError
from macaron.evaluate.evaluation import evaluate_split, text_digest
from macaron.evaluate.stored import Evaluation, Measurement, Search
from macaron.files import write_json
from macaron.lab.compare.examples import choose
from macaron.lab.compare.fairness import Fairness, Question, fairness, group
from macaron.lab.compare.finished_run import FinishedRun, Kind, label_kinds, open_runs
from macaron.lab.compare.kind_statistics import (
    TRIALS,
    Words,
    by_frequency,
    by_length,
    parts_of,
    seed_test,
    sentence_test,
)
from macaron.lab.compare.result import KindScore, Pair, Result
from macaron.lab.compare.verdict import Evidence, corrected
from macaron.lab.page import check_page_path, write_page
from macaron.nn.budget import TOLERANCE
from macaron.text.fingerprint import of_ids

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
    definition = shared_definition(runs)
    made = {run.name: translate_run(run, data, split, search, definition, say) for run in runs}
    allowed = [not each.unfair for each in fair]
    if any(allowed):
        say("testing the differences")
    metrics = {score.metric: score.definition for score in made[runs[0].name].scores}
    scored = {name: {score.metric: score for score in each.scores} for name, each in made.items()}
    scores = {
        metric: tuple(KindScore.of([scored[run.name][metric] for run in kind.runs]) for kind in kinds)
        for metric in metrics
    }
    # sacreBLEU is case-sensitive, which would be unfair to models of lower-cased text.
    folded = caseless(runs)
    primary = "tokenised BLEU" if folded else next(iter(metrics))
    tested = _pairs(kinds, fair, primary, scores, trials)
    sizes = [len(line.split()) for line in sources]
    lengths = by_length(sizes, [each.statistics for each in scores[primary]])
    words = Words(data, split)
    say("counting the words of the training data")
    counts, wanted = words.counts(data.pairs("train").target), words.of(references)
    said = [[words.of(made[run.name].translations) for run in kind.runs] for kind in kinds]
    pairs = []
    for pair in tested:
        names = pair.first.runs[0].name, pair.second.runs[0].name
        first, second = (made[name].translations for name in names)
        reading = choose(sources, references, first, second, folded, ranked=not pair.fairness.unfair)
        pairs.append(replace(pair, reading=reading, read_runs=names))
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
        trials=trials,
        cautions=tuple(_data_cautions(runs, data, split)),
        translated=made,
        lengths=parts_of(lengths, allowed, trials),
        frequencies=parts_of(by_frequency(counts, wanted, said), allowed, trials),
    )


def shared_definition(runs: Sequence[FinishedRun]) -> dict[str, bool]:
    """The tokenised BLEU of all runs: as `macaron evaluate` defines that of the first; caseless if any run is."""
    said = getattr(runs[0].model_config, "evaluation", None) or {}
    lower = caseless(runs) or said.get("lower", True)
    return {"lower": bool(lower), "compound_split": bool(said.get("compound_split", False))}


def caseless(runs: Sequence[FinishedRun]) -> bool:
    """Whether any of the models works on lower-cased tokens."""
    tokenizers = [run.tokenizer_settings for run in runs]
    return any(each.get("pipeline") == "moses" and each.get("lower", True) for each in tokenizers)


def translate_run(
    run: FinishedRun, data: PreparedData, split: Split, search: Search, definition: dict[str, bool], say: Say
) -> Evaluation:
    """Translate and score a split as `macaron evaluate` does, or read what is stored in the run."""
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
    scores = {LOSS: tuple(KindScore(tuple(run.final_loss for run in kind.runs)) for kind in kinds)}
    pairs = _pairs(kinds, fair, LOSS, scores, trials=0, lower_is_better=True, digits=4)
    definition = "of the final model on the validation data, as measured by the run; lower is better"
    data = None if folder is None else str(folder)
    return Result("text", tuple(kinds), LOSS, {LOSS: definition}, scores, tuple(pairs), data)


def _pairs(
    kinds: list[Kind],
    fair: list[Fairness],
    primary: str,
    scores: dict[str, tuple[KindScore, ...]],
    trials: int,
    **style: Any,
) -> list[Pair]:
    """Each kind against the first; p-values are corrected for all comparisons."""
    first, pairs = kinds[0], []
    for i, (kind, each) in enumerate(zip(kinds[1:], fair, strict=True), start=1):
        tested = {} if each.unfair else {metric: (of[0], of[i]) for metric, of in scores.items()}
        sentences = {
            metric: sentence_test(one.statistics, other.statistics, trials)
            for metric, (one, other) in tested.items()
            if one.statistics
        }
        over_seeds = {metric: seed_test(one.scores, other.scores) for metric, (one, other) in tested.items()}
        seeds = {metric: test for metric, test in over_seeds.items() if test is not None}
        share = kind.parameters / first.parameters - 1
        size = f"{100 * abs(share):.2f} % {'more' if share > 0 else 'fewer'} parameters"
        evidence = Evidence(
            first=first.label,
            second=kind.label,
            metric=primary,
            difference=scores[primary][i].mean - scores[primary][0].mean,
            runs=(len(first.runs), len(kind.runs)),
            sentences=sentences.get(primary),
            seeds=seeds.get(primary),
            unfair=each.unfair,
            remarks=(f"{kind.label} has {size} than {first.label}",) if abs(share) > TOLERANCE else (),
            **style,
        )
        pairs.append(Pair(first, kind, each, sentences, seeds, evidence))
    shown = corrected([pair.evidence for pair in pairs])
    return [replace(pair, evidence=own) for pair, own in zip(pairs, shown, strict=True)]


def _data_cautions(runs: Sequence[FinishedRun], data: PreparedData, split: Split) -> list[str]:
    cautions = []
    if any(run.data_digest not in (None, data.digest) for run in runs):
        cautions.append(
            f"not all runs were trained on the training data of {data.folder}: its {split} sentences may be among "
            "what they were trained on, and word frequencies are those of this folder"
        )
    if split == "valid":
        cautions.append("the final models were selected by their loss on these sentences; use the test split")
    return cautions
