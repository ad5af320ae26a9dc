"""Charts and scores of a run, as parts of its page.

All metrics are drawn over updates, epochs or seconds; well-known metrics come first and have titles.
"""

import json
from itertools import starmap
from typing import Literal, TypeAlias

from macaron.data.glue import METRICS
from macaron.json_files import Record
from macaron.lab.charts import Series, line_chart
from macaron.lab.page import Raw, asset, escape, html_table
from macaron.lab.run_folder import RunFolder, is_number, numbers_in

YAxis: TypeAlias = Literal["logarithmic", "linear", "from zero"]
#: Numbers that are not drawn: positions, times and sizes.
_NOT_DRAWN = {
    *("update", "epoch", "time", "seconds", "targets", "bleu_sentences", "tokens_per_second", "memory_gib"),
    *("parts", "validation_parts"),
}


def training_curves(run: RunFolder) -> list[str]:
    """A chart for everything that was measured over the updates, or epochs, of a run."""
    if run.kind == "fine-tuning":
        return _epochs(run) if run.metrics else []
    known = json.loads(asset("report-charts.json"))  # the arguments of `_chart`
    named = {name for _, _, lines, _ in known for name in lines}
    measured = (name for record in run.metrics for name in record if is_number(record[name]))
    bases = dict.fromkeys(name.removeprefix("valid_") for name in measured if name not in named | _NOT_DRAWN)
    for base in bases:
        title = base.replace("_", " ")
        known.append([title, title, {base: "training", f"valid_{base}": "validation"}])
    charts = [_chart(run, *each) for each in known]
    return [chart for chart in charts if chart]


def throughput(run: RunFolder) -> list[str]:
    """Speed and memory over the time of a run."""
    speed = _chart(run, "Speed", "tokens per second", {"tokens_per_second": "tokens/s"}, "from zero", "seconds")
    memory = _chart(run, "Memory", "peak reserved GPU memory (GiB)", {"memory_gib": "GiB"}, "from zero", "seconds")
    return [chart for chart in (speed, memory) if chart]


def _chart(
    run: RunFolder, title: str, y_label: str, lines: dict[str, str], scale: YAxis = "logarithmic", over: str = "update"
) -> str:
    """A chart of metrics with their legends, or nothing if there are no values."""
    found = [(text, run.values(name, over)) for name, text in lines.items()]
    series = [Series(text, points, colour=i) for i, (text, points) in enumerate(found) if points]
    # With no label smoothing the objective is the likelihood: one chart is enough.
    if not series or (title == "Loss" and found[0][1] == run.values("nll")):
        return ""
    values = [y for each in series for _, y in each.points]
    log_y = scale == "logarithmic" and min(values) > 0 and max(values) / min(values) > 8
    zero, x_label = scale == "from zero", over.removesuffix("s")
    return line_chart(series, title=title, x_label=x_label, y_label=y_label, log_y=log_y, from_zero=zero, height=240)


def _epochs(run: RunFolder) -> list[str]:
    """Charts of a fine-tuning, which records a loss and scores by development set and metric for each epoch."""
    scores: dict[str, list[tuple[float, float]]] = {}
    for each in run.metrics:
        for part, metric, value in numbers_in(each.get("scores")) if "epoch" in each else ():
            label = METRICS.get(metric, metric) + ("" if part == "dev" else f", {part}")
            scores.setdefault(label, []).append((float(each["epoch"]), float(value)))
    found = {
        ("Training loss", "per example"): {"training": run.values("loss", "epoch")},
        ("Scores", "per cent"): scores,
    }
    return [
        line_chart(list(starmap(Series, lines.items())), title=title, x_label="epoch", y_label=y_label, height=240)
        for (title, y_label), lines in found.items()
    ]


def score_tables(run: RunFolder) -> list[str]:
    """All scores of the run: evaluations, the last epoch's, the candidates for the final model."""
    parts = [_evaluation(each) for each in run.evaluations]
    if run.kind == "fine-tuning" and isinstance(run.summary.get("scores"), dict):
        found = numbers_in(run.summary["scores"])
        rows = [(f"{METRICS.get(metric, metric)}, {part}", f"{value:.2f}") for part, metric, value in found]
        parts.append(html_table(["metric", "per cent"], rows, caption="After the last epoch", numeric=[1]))
    if candidates := run.summary.get("candidates"):
        chosen = run.summary.get("final_model")
        scores = run.summary.get("candidate_scores", {})
        scores = scores if all(map(is_number, scores.values())) else {}
        metric = {"bleu": "BLEU", "chrf": "chrF2"}.get(str(run.settings.get("train", {}).get("best_metric")), "score")
        weights: list[list[str]] = []
        for name, loss in candidates.items():
            marked = Raw(f"<b>{escape(name)}</b>, chosen") if name == chosen else name
            weights.append([marked, "–" if loss is None else f"{loss:.4f}"])
            weights[-1] += [f"{scores[name]:.2f}" if name in scores else "–"] if scores else []
        decides = f"highest validation {metric}" if scores else "lowest validation loss"
        caption = f"Candidates for the final model: the one with the {decides} is chosen"
        headers = ["weights", "validation loss", *([metric] if scores else [])]
        parts.append(html_table(headers, weights, caption=caption, numeric=[1, 2]))
    return parts


def _evaluation(found: Record) -> str:
    rows = [
        (each["metric"], f"{each['score']:.2f}", f"{each['interval']['low']:.2f} to {each['interval']['high']:.2f}")
        for each in found["scores"]
    ]
    # Below the table: a definition is too long for a column on a phone.
    notes = f'<p class="note">{escape("; ".join(each["definition"] for each in found["scores"]))}.</p>'
    headers, caption = ["score", "value", "95 % interval"], f"{found['data']} ({found['file']})"
    return html_table(headers, rows, caption=caption, numeric=[1, 2]) + notes
