"""The sections of a comparison's page with numbers: scores, tests, training curves, breakdowns."""

from collections.abc import Mapping, Sequence

from macaron.data.manifest import DataKind
from macaron.evaluate.significance import Interval
from macaron.lab.charts import Dots, Series, dot_chart, line_chart
from macaron.lab.compare.finished_run import Kind
from macaron.lab.compare.kind_statistics import CLASSES, LEAST, LENGTHS, Part
from macaron.lab.compare.result import Pair, Result
from macaron.lab.compare.verdict import DifferenceTest, p_text, signed
from macaron.lab.page import Raw, html_table, note, section
from macaron.lab.run_folder import is_number

#: Metrics drawn against updates and seconds: name in metrics.jsonl for training, and the axis label.
_LOSSES: dict[DataKind, tuple[str, str]] = {"pairs": ("nll", "nll per token (nats)"), "text": ("loss", "loss (nats)")}


def scores_section(result: Result) -> str:
    """The scores of each kind, their differences, and the tests."""
    scores = result.scores[result.metric]
    several = any(len(each.scores) > 1 for each in scores)
    dots = []
    for colour, (kind, score) in enumerate(zip(result.kinds, scores, strict=True)):
        ends = (score.interval.low, score.interval.high) if score.interval else None
        dots.append(Dots(kind.label, score.mean, ends, score.scores, colour, result.digits))
    interval = "; the line is the 95 % interval over sentences" if result.task == "pairs" else ""
    about = f"{'A dot for each seed, a bar for their mean' if several else 'A dot for each model'}{interval}."
    charts = [dot_chart(dots, title=result.metric, x_label=result.metric, note=about)]
    differences = []
    for colour, pair in enumerate(result.pairs, start=1):
        found = pair.evidence
        for over, test in found.tests.items() if not found.unfair else ():
            name, ends = f"{_minus(pair)}, over {over}", (test.low, test.high)
            differences.append(Dots(name, found.difference, ends, (), colour, found.digits, sign=True))
    if differences:
        axis, about = f"difference in {result.metric}", "With 95 % intervals. One that contains 0 shows no difference."
        charts.append(dot_chart(differences, title=f"D{axis[1:]}", x_label=axis, zero=True, note=about))
    parts = [f'<div class="charts">{"".join(charts)}</div>', _score_table(result)]
    tested = sum(bool(pair.sentences) for pair in result.pairs)
    if tested:
        corrected = f", corrected by Holm's method for {tested} comparisons" if tested > 1 else ""
        caption = (
            f"Tests of differences over sentences: two-sided, {result.trials:,} resamples, {result.trials:,} random "
            f"exchanges. The largest p of all tests in {result.metric} decides{corrected}."
        )
        parts.append(_test_table(result, [pair.sentences for pair in result.pairs], caption))
    if any(pair.seeds for pair in result.pairs):
        caption = "Tests of differences over seeds: two-sided"
        parts.append(_test_table(result, [pair.seeds for pair in result.pairs], caption))
    return section("Scores", *parts)


def _minus(pair: Pair) -> str:
    return f"{pair.second.label} − {pair.first.label}"


def _score_cell(text: str, interval: Interval | None, digits: int) -> Raw:
    ends = "" if interval is None else f"{interval.low:.{digits}f} to {interval.high:.{digits}f}"
    return Raw(f'{text}<br><span class="muted">{ends}</span>' if ends else text)


def _score_table(result: Result) -> str:
    several = any(len(each.scores) > 1 for each in result.scores[result.metric])
    rows = [
        [metric, *(_score_cell(each.text(result.digits), each.interval, result.digits) for each in scores)]
        for metric, scores in result.scores.items()
    ]
    said = "mean ± standard deviation over seeds" if several else "score"
    said += ", below it the 95 % interval over sentences" if result.task == "pairs" else ""
    headers = ["metric", *(f"{kind.label}{f', seeds: {len(kind.runs)}' if several else ''}" for kind in result.kinds)]
    caption, many = f"Scores: {said}", len(result.kinds) > 2
    return html_table(headers, rows, caption=caption, numeric=range(1, len(headers)), stack=many)


def _test_table(result: Result, tests: Sequence[Mapping[str, DifferenceTest]], caption: str) -> str:
    """A row for each comparison and metric; ``tests`` are those of each comparison, by metric."""
    rows: list[dict[str, str]] = []
    for i, (pair, found) in enumerate(zip(result.pairs, tests, strict=True), start=1):
        for metric, test in found.items():
            first, second = (result.scores[metric][k].mean for k in (0, i))
            value, low, high = (signed(each, result.digits) for each in (second - first, test.low, test.high))
            row = {"difference": _minus(pair), "metric": metric, "value": value, "95 % interval": f"{low} to {high}"}
            row |= {name: f"{value:.2f}".replace("-", "−") for name, value in test.numbers.items()}
            row |= {f"p, {method}": p_text(p) for method, p in test.p_values.items()}
            decides = pair.evidence.p_value if metric == result.metric else None
            row["p that decides"] = Raw(f"<strong>{p_text(decides)}</strong>") if decides else "–"
            rows.append(row)
    cells = [list(row.values()) for row in rows]
    return html_table(list(rows[0]), cells, caption=caption, numeric=range(2, len(rows[0])), stack=True)


def curves_section(result: Result) -> str:
    """The losses of training and validation against updates and seconds; BLEU if it was measured."""
    name, y_label = _LOSSES[result.task]
    losses = {f"valid_{name}": "validation", name: "training"}
    charts = []
    for against in ("updates", "seconds"):
        lines = []
        for i, kind in enumerate(result.kinds):
            lines += [_series(kind, metric, against, i, what) for metric, what in losses.items()]
        charts.append(line_chart(lines, title=f"Loss against {against}", x_label=against, y_label=y_label, log_y=True))
    for metric in ("valid_sacrebleu", "valid_tokenised_bleu"):
        if all(run.values(metric) for kind in result.kinds for run in kind.runs):
            lines = [_series(kind, metric, "updates", i, "validation") for i, kind in enumerate(result.kinds)]
            charts.append(line_chart(lines, title="BLEU against updates", x_label="updates", y_label=metric))
    return section(
        "Curves", f'<p class="note">{note("compare", "curves")}</p>', '<div class="charts">', *charts, "</div>"
    )


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


def breakdown_sections(result: Result) -> str:
    """Scores by the length of the source, and F1 of words by frequency."""
    length_note = note("compare", "lengths", classes=LENGTHS)
    frequency_note = note("compare", "frequencies", classes=", ".join(f"{first:,}" for first in CLASSES))
    lengths = _breakdown(result, result.lengths, result.metric, "sentences", length_note)
    frequencies = _breakdown(result, result.frequencies, "F1", "words", frequency_note)
    sections = [section("By length of the sentence", *lengths), section("By frequency of the word", *frequencies)]
    return "\n".join(sections)


def _breakdown(result: Result, parts: Sequence[Part], metric: str, unit: str, about: str) -> list[str]:
    charts = []
    for number, pair in enumerate(result.pairs, start=1):
        rows = []
        for part in parts:
            if (interval := part.differences[number - 1]) is not None:
                name = part.name if unit == "sentences" else f"seen {part.name} times".replace("never times", "never")
                ends = (interval.low, interval.high)
                rows.append(Dots(name, part.scores[number] - part.scores[0], ends, colour=number, sign=True))
        if rows:
            title = f"{_minus(pair)} in {metric}"
            charts.append(dot_chart(rows, title=title, x_label=f"difference in {metric}", zero=True))
    table_rows = []
    for part in parts:
        cells = [_score_cell(f"{s:.1f}", i, 1) for s, i in zip(part.scores, part.intervals, strict=True)]
        table_rows.append([part.name, f"{part.size:,}", *cells])
    headers = ["seen in training" if unit == "words" else "source", unit, *(kind.label for kind in result.kinds)]
    few = f"classes of fewer than {LEAST} {unit} are not tested"
    caption = f"{metric}, below it the 95 % interval over sentences, of each class separately; {few}"
    many = len(result.kinds) > 2
    table = html_table(headers, table_rows, caption=caption, numeric=range(1, len(headers)), stack=many)
    # Beside a single chart there is room for the table.
    beside, below = (table, "") if len(result.pairs) == 1 else ("", table)
    return [f'<p class="note">{about}</p>', f'<div class="charts">{"".join(charts)}{beside}</div>{below}']
