"""The page of a comparison: verdict, fairness, scores, training curves, breakdowns, example sentences."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from markupsafe import Markup, escape

from macaron.data.prepared import DataKind
from macaron.errors import UsageError
from macaron.evaluate.significance import Interval
from macaron.files import write_json
from macaron.lab.charts import Dots, Series, dot_chart, duration, line_chart
from macaron.lab.compare.comparison import Pair, Result, compare, digits
from macaron.lab.compare.examples import marked
from macaron.lab.compare.fairness import Effect
from macaron.lab.compare.finished_run import Kind
from macaron.lab.compare.kind_statistics import CLASSES, LEAST, LENGTHS, Part
from macaron.lab.compare.verdict import ALPHA, LEAST_SEEDS, DifferenceTest, Evidence, p_text, signed
from macaron.lab.page import check_page_path, fill, html_table, note, write_page
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
    """The whole page. It says nowhere but in its verdict that a comparison is unfair."""
    several = any(len(kind.runs) > 1 for kind in result.kinds)
    verdicts = sorted((pair.verdict for pair in result.pairs), key=lambda each: each.outcome != "unfair")
    count = result.pairs[0].decide[0].comparisons
    corrected = note("compare", "corrected", count=count) if count > 1 else ""
    caption = note("compare", "tests", trials=result.trials, metric=result.metric, corrected=corrected)
    charts = []
    for i in range(len(result.pairs[0].decide) if several else 1):
        charts += _charts(result, [pair.decide[i] for pair in result.pairs], several)
    return fill(
        "compare.html",
        result=result,
        verdicts=verdicts,
        alpha=ALPHA,
        seeds=LEAST_SEEDS,
        seeded=several,
        least=LEAST,
        tolerance=TOLERANCE,
        signed=signed,
        duration=duration,
        digits=digits,
        differing=_differing(result),
        charts=charts,
        tests=[_tests(result, "sentences", caption), _tests(result, "seeds", note("compare", "seeds", count=count))],
        curves=_curves(result),
        most=LENGTHS,
        classes=CLASSES,
        part_charts=_part_charts,
        marked=marked,
    )


def _differing(result: Result) -> str:
    by_pair = [{each.key: each for each in pair.fairness.differences} for pair in result.pairs]
    differing: dict[Effect, list[list[str]]] = {effect: [] for effect in _EFFECTS}
    for key in dict.fromkeys(key for of in by_pair for key in of):
        known = [of[key] for of in by_pair if key in of]
        effect = min((each.effect for each in known), key=list(_EFFECTS).index)
        texts = [known[0].first, *(of[key].second if key in of else known[0].first for of in by_pair)]
        values = [Markup(f'<span class="wrap">{escape(text)}</span>') if len(text) > 40 else text for text in texts]
        differing[effect].append([key, *values, _EFFECTS[effect]])
    headers = ["setting", *(kind.label for kind in result.kinds), "effect"]
    rows = [row for of in differing.values() for row in of]
    return html_table(headers, rows, caption="Every setting in which they differ", stack=True) if rows else ""


def _charts(result: Result, evidence: Sequence[Evidence], several: bool) -> list[Markup]:
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


def _tests(result: Result, over: Literal["sentences", "seeds"], caption: str) -> str:
    """A row for each comparison and metric with such a test, if there are any."""
    rows: list[dict[str, str]] = []
    for pair in result.pairs:
        for metric, test in pair.tests(over).items():
            evidence = pair.evidence[metric]
            value, low, high = (signed(each, evidence.digits) for each in (evidence.difference, test.low, test.high))
            row = {"difference": _minus(pair), "metric": metric, "value": value, "95 % interval": f"{low} to {high}"}
            row |= {name: f"{value:.2f}".replace("-", "−") for name, value in test.numbers.items()}
            row |= {f"p, {method}": p_text(p) for method, p in test.p_values.items()}
            decides = evidence.p_value if metric in pair.deciding else None
            row["p that decides"] = Markup(f"<strong>{p_text(decides)}</strong>") if decides else "–"
            rows.append(row)
    if not rows:
        return ""
    cells = [list(row.values()) for row in rows]
    return html_table(list(rows[0]), cells, caption=caption, numeric=range(2, len(rows[0])), stack=True)


def _curves(result: Result) -> list[Markup]:
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
    return charts


def _series(kind: Kind, metric: str, against: str, colour: int, what: str) -> Series:
    """The mean over seeds at the updates that all have; for validation, with a band from the lowest to the highest."""
    key = "update" if against == "updates" else against
    wanted = ("update", key, metric)
    records = [[each for each in run.metrics if all(is_number(each.get(name)) for name in wanted)] for run in kind.runs]
    runs = [{each["update"]: (each[key], float(each[metric])) for each in own} for own in records]
    means, band = [], []
    for update in sorted(set.intersection(*map(set, runs))):
        xs, values = zip(*(points[update] for points in runs), strict=True)
        x = sum(xs) / len(xs)
        means.append((x, sum(values) / len(values)))
        band.append((x, min(values), max(values)))
    dashed = what == "training"
    return Series(f"{kind.label}, {what}", means, colour, band if len(runs) > 1 and not dashed else (), dashed)


def _part_charts(pairs: Sequence[Pair], parts: Sequence[Part], metric: str, unit: str) -> list[Markup]:
    """Differences by the length of the source, or by the frequency of words: a chart for each pair."""
    charts = []
    for number, pair in enumerate(pairs, start=1):
        rows = []
        for part in parts:
            if (interval := part.differences[number - 1]) is not None:
                difference = part.scores[number] - part.scores[0]
                name = part.name
                if unit == "words":
                    name = "never seen" if name == "never" else f"seen {name} times"
                rows.append(Dots(name, difference, _ends(interval), colour=number, sign=True))
        if rows:
            title, axis = f"{_minus(pair)} in {metric}", f"difference in {metric}"
            charts.append(dot_chart(rows, title=title, x_label=axis, zero=True))
    return charts
