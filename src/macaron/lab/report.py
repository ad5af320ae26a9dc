"""The page of a run: recipe, curves, throughput, scores, samples, environment."""

import json
from pathlib import Path
from shlex import quote
from statistics import median

from markupsafe import Markup

from macaron.data.prepared import PreparedData
from macaron.errors import MacaronError
from macaron.lab.charts import Series, duration, line_chart, number
from macaron.lab.page import asset, check_page_path, fill, html_table, write_page
from macaron.lab.run_folder import RunFolder, is_number

#: The first of these losses that a run has is shown at the top.
_LOSSES = {"valid_nll": "validation nll", "valid_mlm": "validation, masked words", "valid_loss": "validation loss"}
#: Numbers that get no chart of their own: positions, times and sizes.
_NOT_DRAWN = {"update", "epoch", "time", "seconds", "targets", "bleu_sentences", "parts", "validation_parts"}
SAMPLES = 6
#: Sentences of 6 to 40 tokens are preferred.
_SHORT, _LONG = 6, 40
#: Characters of a sentence that are shown: a model in early training may not end its sentences.
_LONGEST = 400


def write_report(run: Path, out: Path | None = None, *, samples: bool = True, data: Path | None = None) -> Path:
    """Write the page of a run, by default RUN/report.html, and return its path."""
    path = run / "report.html" if out is None else out
    check_page_path(path)
    found = RunFolder(run)
    values = {"run": found, "cards": _cards(found), "curves": _curves(found), "shortened": _shortened}
    values |= {"environment": _environment(found), "number": number, "quote": quote}
    values["samples"] = _samples(found, data) if samples and found.kind == "translation" else None
    evaluated = found.evaluations or found.kind != "translation" or not found.model_folder
    values["hint"] = "" if evaluated else f"macaron evaluate {quote(str(run))} --data DIR"
    write_page(path, fill("report.html", **values))
    return path


def _cards(run: RunFolder) -> list[tuple[str, str, str]]:
    entries = []
    if run.evaluations:
        first = run.evaluations[0]["scores"][0]
        entries.append((first["metric"], f"{first['score']:.2f}", run.evaluations[0]["data"]))
    if measured := [(label, points) for metric, label in _LOSSES.items() if (points := run.values(metric))]:
        label, points = measured[0]
        update, lowest = min(points, key=lambda point: point[1])
        entries.append((label, number(lowest), f"nats, lowest, at update {update:,.0f}"))
    if run.parameters is not None:
        entries.append(("parameters", f"{run.parameters:,}", ""))
    if run.update:
        epoch = max((int(record["epoch"]) for record in run.metrics if "epoch" in record), default=None)
        entries.append(("updates", f"{run.update:,}", "" if epoch is None else f"in epoch {epoch}"))
    if seconds := run.summary.get("seconds") or max((x for x, _ in run.values("seconds", "seconds")), default=None):
        gpus = [start.get("gpu") for start in run.starts]
        device = next((f"on {gpu}" for gpu in gpus if gpu), "on a CPU" if gpus else "")
        entries.append(("time", duration(seconds), device))
    return entries


def _curves(run: RunFolder) -> list[tuple[str, str, list[Markup]]]:
    """Headings, notes and charts of sections, see report-charts.json; numbers that nobody foresaw get charts, too."""
    known = json.loads(asset("report-charts.json"))
    named = {name for charts in known.values() for chart in charts for name in chart["lines"]}
    measured = (name for record in run.metrics for name in record if is_number(record[name]))
    for base in dict.fromkeys(name.removeprefix("valid_") for name in measured if name not in named | _NOT_DRAWN):
        title = base.replace("_", " ")
        lines = {base: "training", f"valid_{base}": "validation"}
        known["Curves"].append({"title": title, "y_label": title, "lines": lines})
    parts = []
    for heading, charts in known.items():
        drawn = [drawn for chart in charts if (drawn := _chart(run, **chart))]
        about = ""
        if heading == "Throughput" and (paces := run.values("tokens_per_second")):
            pace = number(median(pace for _, pace in paces))
            tokens = number(sum(targets for _, targets in run.values("targets")))
            about = f"Median {pace} tokens per second; {tokens} tokens in total, excluding padding."
        if drawn or heading == "Curves":
            parts.append((heading, about, drawn))
    return parts


def _chart(
    run: RunFolder, title: str, y_label: str, lines: dict[str, str], scale: str = "logarithmic", x: str = "update"
) -> Markup | None:
    """A chart of metrics, or nothing without values; ``scale`` is linear, from zero, or logarithmic where it helps."""
    found = [(text, run.values(name, x)) for name, text in lines.items()]
    series = [Series(text, points, colour=i) for i, (text, points) in enumerate(found) if points]
    # With no label smoothing the objective is the likelihood: one chart is enough.
    if not series or (title == "Loss" and found[0][1] == run.values("nll")):
        return None
    values = [y for each in series for _, y in each.points]
    log_y, zero = scale == "logarithmic" and min(values) > 0 and max(values) / min(values) > 8, scale == "from zero"
    x_label = x.removesuffix("s")
    return line_chart(series, title=title, x_label=x_label, y_label=y_label, log_y=log_y, from_zero=zero, height=240)


def _samples(run: RunFolder, data: Path | None) -> list[tuple[str, str, str]] | str:
    """Translations, or why there are none."""
    if run.model_folder is None:
        return "No model is in this folder." if run.finished else "No model and no checkpoint yet."
    told = run.settings.get("data", {}).get("out")
    folder = data or Path(str(told))
    if not (folder / "prepared.json").is_file():
        if data is not None:
            raise MacaronError(f"{data}: no prepared.json. Is it a folder that macaron prepare wrote?")
        return f"The data were not found ({told}): give their folder with --data DIR."
    try:
        return translations(run.path, folder)
    except MacaronError as error:  # the rest of the page is useful without samples
        return f"No samples: {error}"


def translations(run: Path, data: Path, count: int = SAMPLES) -> list[tuple[str, str, str]]:
    """Validation sentences of readable length, evenly spaced: source, translation by a run's model, reference."""
    from macaron.decode import Translator

    prepared = PreparedData.open(data)
    sources, references = (prepared.text("valid", language) for language in prepared.languages)
    lengths = prepared.pairs("valid").source.lengths()
    indices = [i for i, length in enumerate(lengths) if _SHORT <= length <= _LONG] or range(len(lengths))
    count = min(count, len(indices))
    chosen = [indices[i * len(indices) // count] for i in range(count)]
    state = prepared.text_state("valid")
    # Always on the CPU: the page is the same on every machine.
    outputs = Translator(run, device="cpu").translate([sources[i] for i in chosen], state=state, one_per_line=True)
    return [(sources[i], output, references[i]) for i, output in zip(chosen, outputs, strict=True)]


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()} …"


def _environment(run: RunFolder) -> str:
    if not run.starts:
        return ""
    starts = [{**start, **start.get("packages", {})} for start in run.starts]
    for start in starts:
        start |= {"packages": None, "command": " ".join(map(str, start.get("command") or ()))}
    names = dict.fromkeys(name for start in starts for name, value in start.items() if value)
    rows = [[name, *(start.get(name) or "–" for start in starts)] for name in names]
    headers = ["what", *(f"start {i}" for i in range(1, len(starts) + 1))]
    return html_table(headers, rows, caption="The environment at each start")
