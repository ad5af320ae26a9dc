"""Charts and scores of a run, as parts of its page.

All metrics are drawn over updates, epochs or time; well-known metrics come first and have titles.
"""

from typing import Literal, TypeAlias

from macaron.data.glue import METRICS, TASKS
from macaron.errors import MacaronError
from macaron.json_files import Record
from macaron.lab.charts import Dots, Series, dot_chart, line_chart
from macaron.lab.page import Raw, escape, html_table
from macaron.lab.run_folder import RunFolder, is_number, numbers_in

YAxis: TypeAlias = Literal["logarithmic", "linear", "from zero"]
#: Numbers that are not drawn: positions, times and sizes.
_NOT_DRAWN = {
    *("update", "epoch", "time", "seconds", "targets", "bleu_sentences", "tokens_per_second", "memory_gib"),
    *("parts", "validation_parts"),
}
#: Units of time: the first that the run has at least two of is used.
_CLOCKS = (("hour", 3600.0), ("minute", 60.0), ("second", 1.0))


def _train_valid(name: str) -> dict[str, str]:
    return {name: "training", f"valid_{name}": "validation"}


#: Well-known charts, as arguments of `_chart`: title, y label, legends by name of metric, and the y axis.
_CHARTS: tuple[tuple[str, str, dict[str, str], YAxis], ...] = (
    ("Negative log-likelihood", "nll per token (nats)", _train_valid("nll"), "logarithmic"),
    ("Masked words", "nll per masked word (nats)", _train_valid("mlm"), "logarithmic"),
    ("Next sentence", "nll per pair (nats)", _train_valid("nsp"), "linear"),
    ("Loss", "training objective per token (nats)", _train_valid("loss"), "logarithmic"),
    (
        "Validation BLEU",
        "BLEU",
        {"valid_sacrebleu": "sacreBLEU", "valid_tokenised_bleu": "tokenised BLEU"},
        "from zero",
    ),
    ("Validation chrF", "chrF2", {"valid_chrf": "chrF2"}, "from zero"),
    (
        "Validation accuracy",
        "accuracy",
        {"valid_mlm_accuracy": "masked words", "valid_nsp_accuracy": "next sentences"},
        "from zero",
    ),
    ("Learning rate", "learning rate", {"learning_rate": "learning rate"}, "from zero"),
    ("Gradient norm", "norm before clipping", {"gradient_norm": "gradient norm"}, "logarithmic"),
)


def training_curves(run: RunFolder) -> list[str]:
    """A chart for everything that was measured over the updates, or epochs, of a run."""
    if run.kind == "fine-tuning":
        return _epochs({"training": run.metrics})
    if run.kind == "GLUE":
        logs = {title: record.get("epoch_log") for title, record in _best_runs(run).items()}
        return _epochs({title: log for title, log in logs.items() if isinstance(log, list)})
    named = {name for _, _, lines, _ in _CHARTS for name in lines}
    measured = (name for record in run.metrics for name in record if is_number(record[name]))
    bases = dict.fromkeys(name.removeprefix("valid_") for name in measured if name not in named | _NOT_DRAWN)
    charts = [_chart(run, *known) for known in _CHARTS]
    charts += [_chart(run, base.replace("_", " "), base.replace("_", " "), _train_valid(base)) for base in bases]
    return [chart for chart in charts if chart]


def throughput(run: RunFolder) -> list[str]:
    """Speed and memory over the time of a run."""
    charts = []
    whole = max((seconds for seconds, _ in run.values("tokens_per_second", "seconds")), default=0.0)
    clock, length = next((each for each in _CLOCKS if whole >= 2 * each[1]), _CLOCKS[-1])
    counted = "target tokens per second" if run.kind == "translation" else "tokens per second"
    for name, title, legend, y_label, colour in (
        ("tokens_per_second", "Speed", "tokens/s", counted, 2),
        ("memory_gib", "Memory", "GiB", "peak reserved GPU memory (GiB)", 4),
    ):
        points = [(seconds / length, value) for seconds, value in run.values(name, "seconds")]
        if points:
            series = [Series(legend, points, colour=colour)]
            charts.append(line_chart(series, title=title, x_label=clock, y_label=y_label, from_zero=True, height=220))
    return charts


def _chart(run: RunFolder, title: str, y_label: str, lines: dict[str, str], scale: YAxis = "logarithmic") -> str:
    """A chart of metrics with their legends, or nothing if there are no values."""
    found = [(text, run.values(name)) for name, text in lines.items()]
    series = [Series(text, points, colour=i) for i, (text, points) in enumerate(found) if points]
    # With no label smoothing the objective is the likelihood: one chart is enough.
    if not series or (title == "Loss" and found[0][1] == run.values("nll")):
        return ""
    values = [y for each in series for _, y in each.points]
    log_y = scale == "logarithmic" and min(values) > 0 and max(values) / min(values) > 8
    zero = scale == "from zero"
    return line_chart(series, title=title, x_label="update", y_label=y_label, log_y=log_y, from_zero=zero, height=240)


def _best_runs(run: RunFolder) -> dict[str, Record]:
    """The run with the best score of each GLUE task."""
    best: dict[str, Record] = {}
    for record in run.results:
        task = TASKS.get(str(record.get("task")))
        if task is not None and is_number(record.get("score")) and not record.get("diverged"):
            best[task.title] = max(best.get(task.title, record), record, key=lambda each: each["score"])
    return best


def _epochs(logs: dict[str, list[Record]]) -> list[str]:
    """Charts of fine-tuning, which records a loss and scores by development set and metric for each epoch."""
    losses, scores = [], []
    for name, log in logs.items():
        whole = [each for each in log if isinstance(each, dict) and is_number(each.get("epoch"))]
        points = [(float(each["epoch"]), float(each["loss"])) for each in whole if is_number(each.get("loss"))]
        losses += [Series(name, points)] if points else []
        found: dict[str, list[tuple[float, float]]] = {}
        for each in whole:
            for part, metric, value in numbers_in(each.get("scores")):
                called = METRICS.get(metric, metric) + ("" if part == "dev" else f", {part}")
                label = called if name == "training" else f"{name} {called}"
                found.setdefault(label, []).append((float(each["epoch"]), float(value)))
        scores += [Series(label, points) for label, points in found.items()]
    if not losses and not scores:
        return []
    best = "" if list(logs) == ["training"] else ", the best run of each task"
    return [
        line_chart(losses, title=f"Training loss{best}", x_label="epoch", y_label="per example", height=240),
        line_chart(scores, title=f"Scores{best}", x_label="epoch", y_label="per cent", height=240),
    ]


def score_tables(run: RunFolder) -> list[str]:
    """All scores of the run: evaluations, the candidates for the final model, GLUE's medians."""
    parts = [_evaluation(each) for each in run.evaluations]
    if run.kind == "GLUE":
        parts += _glue(run)
    elif run.kind == "fine-tuning" and isinstance(run.summary.get("scores"), dict):
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
    rows, definitions = [], []
    for score in found["scores"]:
        given = score.get("interval")
        interval = [given.get("low"), given.get("high")] if isinstance(given, dict) else []
        ends = " to ".join(f"{end:.2f}" for end in interval if is_number(end)) or "–"
        rows.append((score["metric"], f"{score['score']:.2f}", ends))
        definitions += [str(score["definition"])] if score.get("definition") else []
    # Below the table: a definition is too long for a column on a phone.
    notes = f'<p class="note">{escape("; ".join(definitions))}.</p>' if definitions else ""
    headers = ["score", "value", "95 % interval"]
    return html_table(headers, rows, caption=f"{found['data']} ({found['file']})", numeric=[1, 2]) + notes


def _glue(run: RunFolder) -> list[str]:
    from macaron.tasks.glue.glue_results import GlueResults, averages, cell

    try:
        summary = GlueResults(run.path).summary()
    except MacaronError as error:
        return [f'<p class="note">{escape(error)}</p>']
    if not summary:
        return ['<p class="empty">No run is finished yet.</p>']
    scores = {TASKS[name].title: each["score"] for name, each in summary.items()}
    dots = [Dots(title, each["median"], (each["min"], each["max"]), digits=1) for title, each in scores.items()]
    rows = []
    for name, each in summary.items():
        cells = [cell(each[key], " / ") for key in ("median", "sd", "constant")]
        rows.append((TASKS[name].title, *cells, f"{each['setting']} ({len(each['seeds'])} seed(s))"))
    axis = "median over seeds, lowest to highest"
    headers = ["task", "median", "standard deviation", "majority baseline", "best setting"]
    return [
        dot_chart(dots, title="Scores on the development sets", x_label=axis),
        html_table(headers, rows, caption="Development sets, per cent", numeric=[1, 2, 3]),
        f'<p class="note">Medians: {escape(averages(summary)["median"])}.</p>',
    ]
