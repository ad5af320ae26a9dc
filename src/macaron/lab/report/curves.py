"""The curves of a run: whatever its metrics have, the known ones first and named."""

from collections.abc import Sequence
from dataclasses import dataclass

from macaron.lab.charts import Series, line_chart
from macaron.lab.report.run_folder import Record, RunFolder

#: Numbers that are no curves: where and when the others were written, and how many.
_PLACES = {"update", "epoch", "time", "seconds", "targets", "bleu_sentences"}
#: What a run's time is counted in, the first of which it has at least two.
_CLOCKS = (("hour", 3600.0), ("minute", 60.0), ("second", 1.0))
_SPEED = {"tokens_per_second", "memory_gib"}


@dataclass(frozen=True)
class _Known:
    """A chart that runs usually have: names of metrics and what they are called in it."""

    title: str
    y_label: str
    lines: dict[str, str]
    from_zero: bool = False
    may_log: bool = True


_TRAIN_VALID = ("training", "validation")
_CHARTS = (
    _Known(
        "Negative log-likelihood", "nll per token (nats)", dict(zip(("nll", "valid_nll"), _TRAIN_VALID, strict=True))
    ),
    _Known("Masked words", "nll per masked word (nats)", dict(zip(("mlm", "valid_mlm"), _TRAIN_VALID, strict=True))),
    _Known(
        "Next sentence",
        "nll per pair (nats)",
        dict(zip(("nsp", "valid_nsp"), _TRAIN_VALID, strict=True)),
        may_log=False,
    ),
    _Known("Loss", "the objective, per token (nats)", dict(zip(("loss", "valid_loss"), _TRAIN_VALID, strict=True))),
    _Known(
        "BLEU in validation",
        "BLEU",
        {"valid_sacrebleu": "sacreBLEU", "valid_tokenised_bleu": "tokenised BLEU"},
        from_zero=True,
        may_log=False,
    ),
    _Known(
        "Predicted right in validation",
        "share",
        {"valid_mlm_accuracy": "masked words", "valid_nsp_accuracy": "next sentences"},
        from_zero=True,
        may_log=False,
    ),
    _Known("Learning rate", "learning rate", {"learning_rate": "learning rate"}, from_zero=True, may_log=False),
    _Known("Gradient norm", "norm before clipping", {"gradient_norm": "gradient norm"}),
)


def curves(run: RunFolder) -> list[str]:
    """A chart for everything that was measured over the updates, or epochs, of a run."""
    if run.kind == "fine-tuning":
        return _epochs({"training": run.metrics})
    if run.kind == "GLUE":
        return _epochs({title: record.get("epoch_log", []) for title, record in _best_runs(run).items()})
    charts = [chart for known in _CHARTS if (chart := _chart(run, known)) is not None]
    named = {name for known in _CHARTS for name in known.lines}
    rest = [name for name in run.names() if name not in named | _PLACES | _SPEED]
    for base in dict.fromkeys(name.removeprefix("valid_") for name in rest):
        lines = {base: "training", f"valid_{base}": "validation"}
        title = base.replace("_", " ")
        chart = _chart(run, _Known(title, title, {name: text for name, text in lines.items() if name in rest}))
        charts += [] if chart is None else [chart]
    return charts


def metric_name(metric: str) -> str:
    """What people call a metric of classification."""
    return {"f1": "F1", "matthews": "Matthews", "pearson": "Pearson", "spearman": "Spearman"}.get(metric, metric)


def throughput(run: RunFolder) -> list[str]:
    """Speed and memory over the time of a run."""
    charts = []
    whole = max((seconds for seconds, _ in run.values("tokens_per_second", "seconds")), default=0.0)
    clock, length = next((each for each in _CLOCKS if whole >= 2 * each[1]), _CLOCKS[-1])
    counted = "target tokens per second" if run.kind == "translation" else "tokens per second"
    for name, title, legend, y_label, colour in (
        ("tokens_per_second", "Speed", "tokens/s", counted, 2),
        ("memory_gib", "Memory", "GiB", "GiB reserved on the GPU, highest so far", 4),
    ):
        points = [(seconds / length, value) for seconds, value in run.values(name, "seconds")]
        if points:
            series = [Series(legend, points, colour=colour)]
            chart = line_chart(series, title=title, x_label=clock, y_label=y_label, from_zero=True, height=220)
            charts.append(chart)
    return charts


def _chart(run: RunFolder, known: _Known) -> str | None:
    found = [(text, run.values(name)) for name, text in known.lines.items()]
    series = [Series(text, points, colour=i) for i, (text, points) in enumerate(found) if points]
    # With no label smoothing the objective is the likelihood: one chart is enough.
    if not series or (known.title == "Loss" and found[0][1] == run.values("nll")):
        return None
    return line_chart(
        series,
        title=known.title,
        x_label="update",
        y_label=known.y_label,
        log_y=known.may_log and _spans(series),
        from_zero=known.from_zero,
        height=240,
    )


def _spans(series: Sequence[Series]) -> bool:
    """Whether values differ so much that only a logarithmic axis shows all of them."""
    values = [y for each in series for _, y in each.points]
    return min(values) > 0 and max(values) / min(values) > 8


def _best_runs(run: RunFolder) -> dict[str, Record]:
    """Of each GLUE task the run with the best score."""
    from macaron.data.glue_tasks import TASKS

    best: dict[str, Record] = {}
    for record in run.results:
        task = record.get("task")
        if task in TASKS and not record.get("diverged"):
            title = TASKS[task].title
            if title not in best or record["score"] > best[title]["score"]:
                best[title] = record
    return best


def _epochs(logs: dict[str, list[Record]]) -> list[str]:
    """Fine-tuning writes a record for each epoch: a loss, and scores by development set and metric."""
    losses, scores = [], []
    for name, log in logs.items():
        points = [(float(each["epoch"]), float(each["loss"])) for each in log if each.get("loss") is not None]
        losses += [Series(name, points)] if points else []
        found: dict[str, list[tuple[float, float]]] = {}
        for each in log:
            for part, metrics in (each.get("scores") or {}).items():
                for metric, value in metrics.items():
                    where = "" if part == "dev" else f", {part}"
                    called = f"{metric_name(metric)}{where}"
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
