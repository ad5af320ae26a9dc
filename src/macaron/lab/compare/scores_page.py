"""The numbers of a comparison's page: scores, tests, curves, and the parts in which kinds may differ."""

from collections.abc import Sequence

from macaron.lab.compare.charts import Dots, curves, dot_chart
from macaron.lab.compare.result import KindScore, Pair, Result
from macaron.lab.compare.significance import SentenceTests
from macaron.lab.compare.verdict import p_text, signed
from macaron.lab.compare.words import CLASSES, LEAST, LENGTHS, Part
from macaron.lab.page import Raw, escape, html_table, section


def scores_section(result: Result) -> str:
    """What each kind scores, how much they differ, and what the tests say."""
    scores = result.scores[result.metric]
    several = any(len(each.scores) > 1 for each in scores)
    dots = [
        Dots(
            name=kind.label,
            value=score.mean,
            low=score.interval.low if score.interval else None,
            high=score.interval.high if score.interval else None,
            points=score.scores,
            colour=colour,
            digits=result.digits,
        )
        for colour, (kind, score) in enumerate(zip(result.kinds, scores, strict=True))
    ]
    interval = "; the line is the 95 % interval over sentences" if result.task == "pairs" else ""
    note = f"{'A dot for each seed, a bar for their mean' if several else 'A dot for each model'}{interval}."
    charts = [dot_chart(dots, title=result.metric, x_label=result.metric, note=note)]
    differences = [row for colour, pair in enumerate(result.pairs, start=1) for row in _difference_dots(pair, colour)]
    if differences:
        charts.append(
            dot_chart(
                differences,
                title=f"Difference in {result.metric}",
                x_label=f"difference in {result.metric}",
                zero=True,
                note="With 95 % intervals. One that crosses the line at 0 shows nothing.",
            )
        )
    parts = [f'<div class="charts">{"".join(charts)}</div>', _score_table(result)]
    withheld = [pair.second.label for pair in result.pairs if pair.fairness.unfair]
    if withheld:
        parts.append(
            f"<p>Tests of {escape(', '.join(withheld))} are withheld: a p-value would speak of what makes the "
            "comparison unfair.</p>"
        )
    if any(pair.sentences for pair in result.pairs):
        parts.append(_sentence_table(result))
    if any(pair.seeds for pair in result.pairs):
        parts.append(_seed_table(result))
    if several:
        parts.append(_run_scores(result))
    return section("Scores", *parts)


def _difference_dots(pair: Pair, colour: int) -> list[Dots]:
    evidence, rows = pair.evidence, []
    for over, test in evidence.tests.items() if not evidence.unfair else ():
        name, digits = f"{_minus(pair)}, over {over}", evidence.digits
        rows.append(Dots(name, evidence.difference, test.low, test.high, (), colour, digits=digits, sign=True))
    return rows


def _minus(pair: Pair) -> str:
    return f"{pair.second.label} − {pair.first.label}"


def _score_table(result: Result) -> str:
    def cell(score: KindScore) -> Raw:
        lines = [f"{score.mean:.{result.digits}f}"]
        if score.deviation is not None:
            lines[0] += f" ± {score.deviation:.{result.digits}f}"
        if score.interval is not None:
            lines.append(f'<span class="muted">{score.interval.low:.2f} to {score.interval.high:.2f}</span>')
        return Raw("<br>".join(lines))

    several = any(len(each.scores) > 1 for each in result.scores[result.metric])
    said = ["mean ± standard deviation over seeds" if several else "score"]
    said += ["below it the 95 % interval over sentences"] if result.task == "pairs" else []
    headers = ["metric", *(f"{kind.label}{_of(len(kind.runs)) if several else ''}" for kind in result.kinds)]
    rows = [[metric, *(cell(score) for score in scores)] for metric, scores in result.scores.items()]
    return html_table(headers, rows, caption=f"Scores: {', '.join(said)}", numeric=range(1, len(headers)))


def _of(seeds: int) -> str:
    return f" ({seeds} seed{'' if seeds == 1 else 's'})"


def _sentence_table(result: Result) -> str:
    several = len(result.pairs) > 1
    rows: list[Sequence[object]] = []
    for pair in result.pairs:
        for metric, tests in pair.sentences.items():
            rows.append([*([_minus(pair)] if several else []), metric, *_tested(tests), _decides(pair, metric, result)])
    trials = next(t.bootstrap.trials for pair in result.pairs for t in pair.sentences.values())
    headers = [*(["difference"] if several else []), "metric", "difference" if not several else "value"]
    headers += ["95 % interval", "p, paired bootstrap", "p, randomisation", "p that decides"]
    of = "" if several else f" of {_minus(result.pairs[0])}"
    tested = sum(bool(pair.sentences) for pair in result.pairs)
    corrected = f", corrected by Holm's method for {tested} comparisons" if tested > 1 else ""
    caption = (
        f"Tests{of} over sentences: two-sided, {trials:,} resamples, {trials:,} random exchanges. What decides is the "
        f"largest p of all tests in {result.metric}{corrected}."
    )
    first = 2 if several else 1
    return html_table(headers, rows, caption=caption, numeric=range(first, len(headers)))


def _tested(tests: SentenceTests) -> list[str]:
    interval = tests.bootstrap.interval
    assert interval is not None
    return [
        signed(tests.bootstrap.difference),
        f"{signed(interval.low)} to {signed(interval.high)}",
        p_text(tests.bootstrap.p_value),
        p_text(tests.randomisation.p_value),
    ]


def _decides(pair: Pair, metric: str, result: Result) -> str:
    p_value = pair.evidence.p_value
    return Raw(f"<strong>{p_text(p_value)}</strong>") if metric == result.metric and p_value is not None else "–"


def _seed_table(result: Result) -> str:
    digits = result.digits
    rows = [
        [
            _minus(pair),
            metric,
            signed(test.difference, digits),
            f"{signed(test.low, digits)} to {signed(test.high, digits)}",
            f"{test.t:.2f}".replace("-", "−"),
            f"{test.degrees:.1f}",
            p_text(test.p_value),
        ]
        for pair in result.pairs
        for metric, test in pair.seeds.items()
    ]
    headers = ["difference", "metric", "value", "95 % interval", "t", "degrees of freedom", "p"]
    return html_table(headers, rows, caption="Welch's t-test over seeds: two-sided", numeric=range(2, len(headers)))


def _run_scores(result: Result) -> str:
    rows = [
        [kind.label, run.seed, *(f"{scores[i].scores[k]:.{result.digits}f}" for scores in result.scores.values())]
        for i, kind in enumerate(result.kinds)
        for k, run in enumerate(kind.runs)
    ]
    headers = ["kind", "seed", *result.scores]
    table = html_table(headers, rows, caption="Scores of every run", numeric=range(1, len(headers)))
    return f"<details><summary>Scores of every run</summary>{table}</details>"


def curves_section(result: Result) -> str:
    """The losses of training and validation."""
    text = "Solid: on the validation data; dashed: in training, where dropout and the like make it harder."
    if any(len(kind.runs) > 1 for kind in result.kinds):
        text += " Lines are means over seeds; the band goes from the lowest to the highest seed."
    text += " Seconds depend on the machine, and on what else it did at the time."
    return section("Curves", f'<p class="note">{text}</p>', '<div class="charts">', *curves(result.kinds), "</div>")


_LOOKING = (
    "This is for looking, not for concluding. The intervals of the differences are wide enough to hold for all classes "
    "together (Bonferroni); still, nobody said beforehand which class would matter."
)


def lengths_section(result: Result) -> str:
    """Scores by the length of the source."""
    note = f"Up to {LENGTHS} classes of about equally many sentences, by the words of the source. {_LOOKING}"
    return section("By length of the sentence", *_parts(result, result.lengths, result.metric, "sentences", note))


def frequencies_section(result: Result) -> str:
    """F1 of words by how often they were seen."""
    classes = ", ".join(f"{first:,}" for first in CLASSES)
    note = (
        "How well words are translated, by how often the target side of the training data has them: F1 of the "
        f"references' words, those found and those found rightly, in classes from {classes} occurrences. Again for "
        "looking only."
    )
    return section("By frequency of the word", *_parts(result, result.frequencies, "F1", "words", note))


def _parts(result: Result, parts: Sequence[Part], metric: str, unit: str, note: str) -> list[str]:
    charts = []
    for number, pair in enumerate(result.pairs, start=1):
        rows = [
            Dots(
                name=part.name
                if unit == "sentences"
                else f"seen {part.name}{'' if part.name == 'never' else ' times'}",
                value=part.scores[number] - part.scores[0],
                low=interval.low,
                high=interval.high,
                colour=number,
                sign=True,
            )
            for part in parts
            if (interval := part.differences[number - 1]) is not None and not pair.fairness.unfair
        ]
        if rows:
            title = f"{_minus(pair)} in {metric}"
            charts.append(dot_chart(rows, title=title, x_label=f"difference in {metric}", zero=True))
    table_rows = [
        [part.name, f"{part.size:,}", *(_with_interval(part, i) for i in range(len(result.kinds)))] for part in parts
    ]
    headers = ["seen in training" if unit == "words" else "source", unit, *(kind.label for kind in result.kinds)]
    few = f"; of fewer than {LEAST} {unit} nothing more is said" if any(part.size < LEAST for part in parts) else ""
    caption = f"{metric}, below it the 95 % interval over sentences, of each by itself{few}"
    table = html_table(headers, table_rows, caption=caption, numeric=range(1, len(headers)))
    # Beside a single chart there is room for the table.
    beside, below = (table, "") if len(result.pairs) == 1 else ("", table)
    return [f'<p class="note">{note}</p>', f'<div class="charts">{"".join(charts)}{beside}</div>{below}']


def _with_interval(part: Part, kind: int) -> Raw:
    interval = part.intervals[kind]
    return Raw(f'{part.scores[kind]:.1f}<br><span class="muted">{interval.low:.1f} to {interval.high:.1f}</span>')
