"""The page of a comparison: verdict, fairness, scores, training curves, breakdowns, example sentences."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from macaron.data.prepared import DataKind
from macaron.errors import UsageError
from macaron.evaluate.significance import Interval
from macaron.files import write_json
from macaron.lab.charts import Dots, Series, dot_chart, duration, line_chart
from macaron.lab.compare.comparison import Pair, Result, compare, digits
from macaron.lab.compare.examples import Example, Reading, marked
from macaron.lab.compare.fairness import Effect
from macaron.lab.compare.finished_run import Kind
from macaron.lab.compare.kind_statistics import CLASSES, LEAST, LENGTHS, Part
from macaron.lab.compare.verdict import ALPHA, LEAST_SEEDS, DifferenceTest, Evidence, p_text, signed
from macaron.lab.page import Raw, asset, check_page_path, escape, html_table, note, render_page, section, write_page
from macaron.lab.run_folder import is_number
from macaron.nn.budget import TOLERANCE

#: The effects of differences in the order of the table.
_EFFECTS: dict[Effect, str] = {"unfair": "unfair", "compared": "compared", "harmless": "no effect"}
#: Metrics drawn against updates and seconds: name in metrics.jsonl for training, and the axis label.
_LOSSES: dict[DataKind, tuple[str, str]] = {"pairs": ("nll", "nll per token (nats)"), "text": ("loss", "loss (nats)")}


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
    check_page_path(out)
    if json_file is not None and json_file.resolve() == out.resolve():
        raise UsageError(f"--json {json_file} is the page (--out): the numbers need a file of their own")
    result = compare(runs, data, split, **options)
    write_page(out, comparison_page(result))
    if json_file is not None:
        write_json(json_file, result.to_dict())
    return result


def comparison_page(result: Result) -> str:
    """The whole page."""
    labels = [kind.label for kind in result.kinds]
    title = f"{', '.join(labels[:-1])} and {labels[-1]} compared"
    parts = [_verdict(result), _fairness(result), _scores(result), _curves(result)]
    lead = f"{sum(len(kind.runs) for kind in result.kinds)} trained models"
    if result.task == "pairs":
        split = "validation" if result.split == "valid" else "test"
        lead += f" on the {result.count:,} {split} sentences of {result.data}."
        lengths = note("compare", "lengths", classes=LENGTHS)
        frequencies = note("compare", "frequencies", classes=", ".join(f"{first:,}" for first in CLASSES))
        parts += [
            section("By length of the sentence", *_parts(result, result.lengths, result.metric, "sentences", lengths)),
            section("By frequency of the word", *_parts(result, result.frequencies, "F1", "words", frequencies)),
            _examples(result),
        ]
    else:
        lead += ", pre-trained on plain text."
    parts.append(_method(result))
    return render_page(title, "\n".join(parts), lead=lead, styles=("compare.css",), scripts=("compare.js",))


def _verdict(result: Result) -> str:
    """The verdict. The page says nowhere else that a comparison is unfair."""
    ordered = sorted((pair.verdict for pair in result.pairs), key=lambda each: each.outcome != "unfair")
    outcomes = list(dict.fromkeys(each.outcome for each in ordered))
    heading = note("compare", outcomes[0]) if len(outcomes) == 1 else f"Compared with {result.kinds[0].label}"
    said = f"<p>{escape(result.sentence)}</p>"
    if len(ordered) > 1:
        said = _list(each.sentence for each in ordered)
    elif outcomes == ["unfair"]:
        said = f"<p>So nothing is concluded, and no difference is shown:</p>{_list(result.pairs[0].fairness.unfair)}"
    if any(each.effect == "unfair" for pair in result.pairs for each in pair.fairness.differences):
        said += "<p>To compare such a setting on purpose, give <code>--vary section.key</code>.</p>"
    parts = [f'<div class="verdict {outcomes[0]}"><strong>{escape(heading)}.</strong> {said}</div>']
    if outcomes != ["unfair"]:
        metrics = " or ".join(each.metric for each in result.pairs[0].decide)
        rule = note("compare", "rule", metric=metrics, alpha=ALPHA, seeds=LEAST_SEEDS)
        rule += note("compare", "losses") if result.task == "text" else ""
        parts.append(f'<p class="note">{escape(rule)}</p>')
    return section("Verdict", *parts)


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _fairness(result: Result) -> str:
    parts, fair = [], [pair for pair in result.pairs if not pair.fairness.unfair]
    if fair:
        yes = "Yes, as far as could be verified"
        said = "Same recipe and same budget; whether the training data are the same is not known for all of them."
        if all(pair.fairness.same_data for pair in fair):
            yes, said = "Yes", "Same training data, same recipe, same budget: they differ only in what is compared."
        if len(fair) < len(result.pairs):
            yes += f" ({', '.join(pair.second.label for pair in fair)} and {result.kinds[0].label})"
        parts.append(f"<p><strong>{escape(yes)}.</strong> {said}</p>")
    cautions = [*(each for pair in result.pairs for each in pair.fairness.cautions), *result.cautions]
    if cautions:
        parts.append(f"<p>Note:</p>{_list(dict.fromkeys(cautions))}")
    rows = []
    for kind in result.kinds:
        share = kind.parameters / result.kinds[0].parameters - 1
        size = "–" if kind is result.kinds[0] else f"{signed(100 * share)} %{' (!)' if abs(share) > TOLERANCE else ''}"
        for run in kind.runs:
            row = [kind.label, run.name, run.seed, f"{kind.parameters:,}", size, f"{run.progress.update:,}"]
            rows.append([*row, duration(run.summary["seconds"]), run.summary["final_model"], f"{run.final_loss:.4f}"])
    headers = ["kind", "run", "seed", "parameters", "size vs. first", "updates", "time", "final model", "valid loss"]
    caption = f"The runs. Sizes count as equal within {100 * TOLERANCE:g} % of the first kind's."
    parts.append(html_table(headers, rows, caption=caption, numeric=(2, 3, 4, 5, 6, 8), stack=True))
    by_pair = [{each.key: each for each in pair.fairness.differences} for pair in result.pairs]
    differing: dict[Effect, list[list[str]]] = {effect: [] for effect in _EFFECTS}
    for key in dict.fromkeys(key for of in by_pair for key in of):
        known = [of[key] for of in by_pair if key in of]
        effect = min((each.effect for each in known), key=list(_EFFECTS).index)
        texts = [known[0].first, *(of[key].second if key in of else known[0].first for of in by_pair)]
        values = [Raw(f'<span class="wrap">{escape(text)}</span>') if len(text) > 40 else text for text in texts]
        differing[effect].append([key, *values, _EFFECTS[effect]])
    if any(differing.values()):
        headers = ["setting", *(kind.label for kind in result.kinds), "effect"]
        rows = [row for of in differing.values() for row in of]
        parts.append(html_table(headers, rows, caption="Every setting in which they differ", stack=True))
    return section("Is it fair?" if fair else "What differs", *parts, id="fair")


def _scores(result: Result) -> str:
    """The scores of each kind, their differences, and the tests."""
    several = any(len(kind.runs) > 1 for kind in result.kinds)
    charts = []
    for i in range(len(result.pairs[0].decide) if several else 1):
        charts += _charts(result, [pair.decide[i] for pair in result.pairs], several)
    rows = [
        [metric, *(_cell(each.text(digits(metric)), each.interval, digits(metric)) for each in of)]
        for metric, of in result.scores.items()
    ]
    said = "mean ± standard deviation over seeds" if several else "score"
    said += ", below it the 95 % interval over sentences" if result.task == "pairs" else ""
    names = [f"{kind.label}, seeds: {len(kind.runs)}" if several else kind.label for kind in result.kinds]
    parts = [f'<div class="charts">{"".join(charts)}</div>', _by_kind(result, "metric", names, rows, f"Scores: {said}")]
    if any(pair.sentences for pair in result.pairs):
        count = result.pairs[0].evidence.comparisons
        corrected = note("compare", "corrected", count=count) if count > 1 else ""
        caption = note("compare", "tests", trials=result.trials, metric=result.metric, corrected=corrected)
        parts.append(_tests(result, [pair.sentences for pair in result.pairs], caption))
    if any(pair.seeds for pair in result.pairs):
        seeds = [pair.seeds for pair in result.pairs]
        parts.append(_tests(result, seeds, note("compare", "seeds", count=result.pairs[0].evidence.comparisons)))
    return section("Scores", *parts)


def _charts(result: Result, evidence: Sequence[Evidence], several: bool) -> list[str]:
    """The values of a metric that decides, and the differences from the first kind with their intervals."""
    metric = evidence[0].metric
    scores = result.scores[metric]
    over = "; the line is the 95 % interval over sentences" if scores[0].interval else ""
    about = f"{'A dot for each seed, a bar for their mean' if several else 'A dot for each model'}{over}."
    dots = [
        Dots(kind.label, score.mean, _ends(score.interval), score.scores, colour, digits(metric))
        for colour, (kind, score) in enumerate(zip(result.kinds, scores, strict=True))
    ]
    charts = [dot_chart(dots, title=metric, x_label=metric, note=about)]
    dots = [
        Dots(f"{_minus(pair)}, over {over}", each.difference, _ends(test), (), i, each.digits, sign=True)
        for i, (pair, each) in enumerate(zip(result.pairs, evidence, strict=True), start=1)
        for over, test in each.tests.items()
    ]
    if dots:
        axis, about = f"difference in {metric}", "With 95 % intervals. One that contains 0 shows no difference."
        charts.append(dot_chart(dots, title=f"D{axis[1:]}", x_label=axis, zero=True, note=about))
    return charts


def _minus(pair: Pair) -> str:
    return f"{pair.second.label} − {pair.first.label}"


def _ends(interval: Interval | DifferenceTest | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.low, interval.high)


def _cell(text: str, interval: Interval | None, digits: int) -> Raw:
    ends = "" if interval is None else f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"
    return Raw(f'{text}<br><span class="muted">{ends}</span>' if ends else text)


def _by_kind(result: Result, what: str, names: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> str:
    numeric = range(1, len(names) + 1)
    return html_table([what, *names], rows, caption=caption, numeric=numeric, stack=len(result.kinds) > 2)


def _tests(result: Result, tests: Sequence[Mapping[str, DifferenceTest]], caption: str) -> str:
    """A row for each comparison and metric; ``tests`` are those of each comparison, by metric."""
    rows: list[dict[str, str]] = []
    for i, (pair, found) in enumerate(zip(result.pairs, tests, strict=True), start=1):
        for metric, test in found.items():
            first, second = (result.scores[metric][k].mean for k in (0, i))
            value, low, high = (signed(each, digits(metric)) for each in (second - first, test.low, test.high))
            row = {"difference": _minus(pair), "metric": metric, "value": value, "95 % interval": f"{low} to {high}"}
            row |= {name: f"{value:.2f}".replace("-", "−") for name, value in test.numbers.items()}
            row |= {f"p, {method}": p_text(p) for method, p in test.p_values.items()}
            decides = next((each.p_value for each in pair.decide if each.metric == metric), None)
            row["p that decides"] = Raw(f"<strong>{p_text(decides)}</strong>") if decides else "–"
            rows.append(row)
    cells = [list(row.values()) for row in rows]
    return html_table(list(rows[0]), cells, caption=caption, numeric=range(2, len(rows[0])), stack=True)


def _curves(result: Result) -> str:
    """The losses of training and validation against updates and seconds; BLEU if it was measured."""
    name, y_label = _LOSSES[result.task]
    losses = {f"valid_{name}": "validation", name: "training"}
    charts = []
    for against in ("updates", "seconds"):
        lines = []
        for i, kind in enumerate(result.kinds):
            lines += [_series(kind, metric, against, i, what) for metric, what in losses.items()]
        charts.append(line_chart(lines, title=f"Loss against {against}", x_label=against, y_label=y_label, log_y=True))
    for metric in ("valid_sacrebleu", "valid_sacrebleu_lc", "valid_tokenised_bleu"):
        if all(run.values(metric) for kind in result.kinds for run in kind.runs):
            lines = [_series(kind, metric, "updates", i, "validation") for i, kind in enumerate(result.kinds)]
            charts.append(line_chart(lines, title="BLEU against updates", x_label="updates", y_label=metric))
    about = f'<p class="note">{note("compare", "curves")}</p>'
    return section("Curves", about, f'<div class="charts">{"".join(charts)}</div>')


def _series(kind: Kind, metric: str, against: str, colour: int, what: str) -> Series:
    """The mean over seeds at the updates that all have; for validation, with a band from the lowest to the highest."""
    key = "update" if against == "updates" else against
    wanted = ("update", key, metric)
    records = [[each for each in run.curves if all(is_number(each.get(name)) for name in wanted)] for run in kind.runs]
    runs = [{each["update"]: (each[key], float(each[metric])) for each in own} for own in records]
    means, band = [], []
    for update in sorted(set.intersection(*map(set, runs))):
        xs, values = zip(*(points[update] for points in runs), strict=True)
        x = sum(xs) / len(xs)
        means.append((x, sum(values) / len(values)))
        band.append((x, min(values), max(values)))
    dashed = what == "training"
    return Series(f"{kind.label}, {what}", means, colour, band if len(runs) > 1 and not dashed else (), dashed)


def _parts(result: Result, parts: Sequence[Part], metric: str, unit: str, about: str) -> list[str]:
    """Scores by the length of the source, or F1 of words by frequency."""
    charts = []
    for number, pair in enumerate(result.pairs, start=1):
        rows = []
        for part in parts:
            if (interval := part.differences[number - 1]) is not None:
                name = part.name if unit == "sentences" else f"seen {part.name} times".replace("never times", "never")
                difference = part.scores[number] - part.scores[0]
                rows.append(Dots(name, difference, _ends(interval), colour=number, sign=True))
        if rows:
            title = f"{_minus(pair)} in {metric}"
            charts.append(dot_chart(rows, title=title, x_label=f"difference in {metric}", zero=True))
    cells = []
    for part in parts:
        scores = (_cell(f"{s:.1f}", i, 1) for s, i in zip(part.scores, part.intervals, strict=True))
        cells.append([part.name, f"{part.size:,}", *scores])
    caption = note("compare", "parts", metric=metric, least=LEAST, unit=unit)
    names = [unit, *(kind.label for kind in result.kinds)]
    table = _by_kind(result, "seen in training" if unit == "words" else "source", names, cells, caption)
    # Beside a single chart there is room for the table.
    beside, below = (table, "") if len(result.pairs) == 1 else ("", table)
    return [f'<p class="note">{about}</p>', f'<div class="charts">{"".join(charts)}{beside}</div>{below}']


def _examples(result: Result) -> str:
    parts = [f'<p class="note">{note("compare", "sentences")}</p>']
    for pair in result.pairs:
        reading, first, second = pair.reading, pair.first, pair.second
        assert reading is not None
        text = "A random sample."
        if reading.counts is not None:
            ahead, behind, equal = reading.counts
            folded = " (ignoring case)" if reading.caseless else ""
            names = {"first": first.label, "second": second.label, "folded": folded}
            sizes = {"ahead": ahead, "behind": behind, "equal": equal, "same": reading.same, "count": result.count}
            text = note("compare", "counts", **names, **sizes)
        if len(first.runs) + len(second.runs) > 2:
            text += f" These are the translations of {first.runs[0].name} and {second.runs[0].name}."
        heading = f"<h3>{escape(first.label)} and {escape(second.label)}</h3>" if len(result.pairs) > 1 else ""
        parts.append(f"{heading}<p>{escape(text)}</p>\n{_cards(reading, (first.label, second.label))}")
    return section("Sentences", *parts, id="sentences")


def _cards(reading: Reading, names: tuple[str, str]) -> str:
    """Sentences, with buttons to choose among them, which need compare.js."""
    labels = {"first": f"{names[0]} higher", "second": f"{names[1]} higher", "drawn": "random sample"}
    sorts = [sort for sort in labels if any(example.sort == sort for example in reading.examples)]
    buttons = "".join(
        f'<button type="button" data-sort="{sort}" aria-pressed="{str(sort == sorts[0]).lower()}">'
        f"{escape(labels[sort])}</button>"
        for sort in sorts
    )
    ranked = {} if reading.counts is None else {"difference": "largest difference"}
    orders = {**ranked, "line": "line number", "length": "length"}
    options = "".join(f'<option value="{value}">{name}</option>' for value, name in orders.items())
    cards = "\n".join(_card(example, names, reading.caseless) for example in reading.examples)
    return asset("compare-examples.html").format(buttons=buttons, options=options, cards=cards)


def _card(example: Example, names: tuple[str, str], caseless: bool) -> str:
    rows = [("source", escape(example.source)), ("reference", escape(example.reference))]
    for i, name in enumerate(names):
        line, other = example.translations[i], example.translations[1 - i]
        text = " ".join(
            escape(word) if mark == "same" else f'<mark class="{mark}">{escape(word)}</mark>'
            for word, mark in marked(line, other, example.reference, caseless)
        )
        chrf = f'{escape(name)} <span class="muted">chrF {example.chrf[i]:.1f}</span>'
        rows.append((chrf, text or '<span class="muted">(nothing)</span>'))
    lines = "".join(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in rows)
    difference = abs(example.chrf[1] - example.chrf[0])
    return (
        f'<li class="sentence" data-sort="{example.sort}" data-line="{example.line}" '
        f'data-length="{len(example.source.split())}" data-difference="{difference:.4f}">'
        f'<span class="muted">Sentence {example.line:,}</span><dl>{lines}</dl></li>'
    )


def _method(result: Result) -> str:
    parts = []
    if result.task == "pairs":
        searches = {str(made.search) for made in result.translated.values()}
        search = next(iter(result.translated.values())).search
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in search.items())
        said += "" if len(searches) == 1 else "; other runs with settings of their own, listed above"
        parts.append(note("compare", "method", search=escape(said)))
        reused = [name for name, made in result.translated.items() if made.reused]
        parts += [note("compare", "reused", runs=escape(", ".join(reused)))] if reused else []
    parts.append(_list(text if text.startswith(name) else f"{name} {text}" for name, text in result.metrics.items()))
    return section("How it was made", *parts, id="method")
