"""The page of a run: recipe, curves, throughput, scores, samples, environment."""

import json
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Literal, TypeAlias

from macaron.errors import MacaronError
from macaron.json_files import Record
from macaron.lab.charts import Series, line_chart
from macaron.lab.page import Raw, asset, check_page_path, escape, html_table, render_page, section, write_page
from macaron.lab.run_folder import RunFolder, is_number
from macaron.lab.scales import duration, number

#: The first of these losses that a run has is shown at the top.
_LOSSES = {
    "valid_nll": "validation nll",
    "valid_mlm": "validation, masked words",
    "valid_loss": "validation loss",
}

YAxis: TypeAlias = Literal["logarithmic", "linear", "from zero"]
#: Numbers that are not drawn: positions, times and sizes.
_NOT_DRAWN = {
    *("update", "epoch", "time", "seconds", "targets", "bleu_sentences", "tokens_per_second", "memory_gib"),
    *("parts", "validation_parts"),
}


def write_report(run: Path, out: Path | None = None, *, samples: bool = True, data: Path | None = None) -> Path:
    """Write the page of a run, by default RUN/report.html, and return its path."""
    path = run / "report.html" if out is None else out
    check_page_path(path)
    found = RunFolder(run)
    charts = _training_curves(found) or ['<p class="empty">No values yet.</p>']
    parts = [_cards(found), section("Curves", '<div class="charts">', *charts, "</div>")]
    speed = _throughput(found)
    if speed:
        pace = median(value for _, value in found.values("tokens_per_second"))
        tokens = _large(sum(value for _, value in found.values("targets")))
        note = f"Median {number(pace)} tokens per second; {tokens} tokens in total, excluding padding."
        shown = [f'<p class="note">{escape(note)}</p>', '<div class="charts">', *speed, "</div>"]
        parts.append(section("Throughput", *shown))
    parts.append(section("Scores", *_scores(found)))
    if samples and found.kind != "language-model":
        parts.append(section("Samples", *_samples(found, data)))
    recipe = '<p class="note">Resolved: all settings, defaults included.</p>\n'
    recipe += f'<pre class="recipe">{escape(found.origin.text.strip())}</pre>'
    parts += [section("Recipe", recipe), section("Environment", _environment(found))]
    parts.insert(0, _status(found))  # at the top, but made last: it says what could not be read
    body = "\n".join(part for part in parts if part)
    write_page(path, render_page(found.name, body, lead=_lead(found), styles=["report.css"]))
    return path


def _lead(run: RunFolder) -> str:
    languages = " to ".join(run.languages)
    what = {
        "translation": f"A translation model{f', {languages}' if languages else ''}",
        "pre-training": "An encoder in pre-training",
        "language-model": "A language model",
    }[run.kind]
    model, scheme = run.settings.get("model"), run.config.get("scheme")
    if isinstance(model, dict) and model.get("preset"):
        what += f": {model['preset']}"
    scheme = scheme.get("name") if isinstance(scheme, dict) else scheme
    if scheme:
        what += f", scheme {scheme}"
    return f"{what}."


def _status(run: RunFolder) -> str:
    notes = []
    if not run.update and not run.finished:
        notes.append("No metrics yet: the run has just begun, or was stopped before the first line of its log.")
    elif not run.finished:
        limit = run.settings.get("train", {}).get("max_updates")
        of = f" of {limit:,}" if isinstance(limit, int) else ""
        left = next((record["time_left"] for record in reversed(run.metrics) if record.get("time_left")), None)
        ahead = f", with about {left} left" if left else ""
        again = " It had finished before and was resumed." if run.summary else ""
        notes.append(
            f"Not finished: update {run.update:,}{of}{ahead}. It is still training, or was stopped; macaron train "
            f"--resume --out {quote(str(run.path))} continues it.{again}"
        )
    if run.finished and not run.has_model:
        notes.append("There is no model in this folder.")
    return "".join(f'<p class="status">{escape(note)}</p>' for note in (*notes, *run.remarks))


def _cards(run: RunFolder) -> str:
    entries = []
    if run.evaluations:
        first = run.evaluations[0]["scores"][0]
        entries.append((str(first["metric"]), f"{first['score']:.2f}", run.evaluations[0]["data"]))
    for metric, label in _LOSSES.items():
        if points := run.values(metric):
            update, lowest = min(points, key=lambda point: point[1])
            entries.append((label, number(lowest), f"nats, lowest, at update {update:,.0f}"))
            break
    if run.parameters is not None:
        exact, short = f"{run.parameters:,}", _large(run.parameters)
        entries.append(("parameters", short, "" if short == exact else exact))
    if updates := run.update:
        epoch = max((int(record["epoch"]) for record in run.metrics if "epoch" in record), default=None)
        entries.append(("updates", f"{updates:,}", "" if epoch is None else f"in epoch {epoch}"))
    seconds = run.summary.get("seconds") or max((x for x, _ in run.values("seconds", "seconds")), default=None)
    if seconds:
        gpus = [start.get("gpu") for start in run.starts]
        device = next((f"on {gpu}" for gpu in gpus if gpu), "on a CPU" if gpus else "")
        entries.append(("time", duration(seconds), device))
    cards = ""
    for label, value, hint in entries:
        shown = {"label": label, "value": value, **({"hint": hint} if hint else {})}
        spans = "".join(f'<span class="{kind}">{escape(text)}</span>' for kind, text in shown.items())
        cards += f'<li class="card">{spans}</li>'
    return f'<ul class="cards">{cards}</ul>'


def _scores(run: RunFolder) -> list[str]:
    """The scores; a translation model that was not evaluated gets a hint, since a loss is no score."""
    found = _score_tables(run)
    if found and (run.evaluations or run.kind != "translation" or not run.model_folder):
        return found
    hint = f"macaron evaluate {quote(str(run.path))} --data DIR"
    more = f" <code>{escape(hint)}</code> adds them." if run.kind == "translation" and run.model_folder else ""
    said = "No scores of translations yet." if found else "No scores yet."
    return [f'<p class="empty">{said}{more}</p>', *found]


def _samples(run: RunFolder, data: Path | None) -> list[str]:
    if run.model_folder is None:
        why = "No model is in this folder." if run.finished else "No model and no checkpoint yet."
        return [f'<p class="empty">{why}</p>']
    told = run.settings.get("data", {}).get("out")
    folder = data or (None if told is None else Path(str(told)))
    if folder is None or not (folder / "prepared.json").is_file():
        if data is not None:
            raise MacaronError(f"{data}: no prepared.json. Is it a folder that macaron prepare wrote?")
        where = "" if told is None else f" ({escape(told)})"
        return [f'<p class="empty">The data were not found{where}: give their folder with --data DIR.</p>']
    from macaron.data.manifest import read_manifest
    from macaron.lab.report.samples import filled_masks, show_filled, show_translations, translations

    try:
        manifest = read_manifest(folder, "pairs" if run.kind == "translation" else "text")
        if run.kind == "translation":
            note = "Validation sentences, evenly spaced; none was chosen by its result."
            shown = show_translations(translations(run.path, folder), manifest["source_lang"], manifest["target_lang"])
        else:
            note = "Validation sentences with one word masked, and the model's predictions."
            shown = show_filled(filled_masks(run.path, folder))
    except MacaronError as error:
        # The rest of the page is useful without samples.
        return [f'<p class="status">No samples: {escape(error)}</p>']
    note += "" if run.has_model else f" There is no final model yet: this is {run.model_folder.name}."
    return [f'<p class="note">{escape(note)}</p>', shown]


def _environment(run: RunFolder) -> str:
    if not run.starts:
        return '<p class="empty">Not recorded.</p>'
    rows: dict[str, list[object]] = {}
    for i, start in enumerate(run.starts):
        command, packages = start.get("command"), start.get("packages")
        known = {
            "from update": start.get("update"),
            "Python": start.get("python"),
            "system": " ".join(str(start[key]) for key in ("system", "machine") if start.get(key)),
            "GPU": start.get("gpu") or "none",
            "processes": start.get("processes"),
            **(packages if packages else {"torch": start.get("torch")}),
            "command": " ".join(["macaron", *map(str, command)]) if isinstance(command, list) and command else None,
        }
        for name, value in known.items():
            if value not in (None, ""):
                rows.setdefault(name, ["–"] * len(run.starts))[i] = value
    several = len(run.starts) > 1
    headers = ["what", *(f"start {i}" if several else "value" for i in range(1, len(run.starts) + 1))]
    caption = "The environment at each start" if several else "The environment"
    return html_table(headers, [[name, *values] for name, values in rows.items()], caption=caption)


def _large(value: float) -> str:
    for unit, letter in ((1e9, "G"), (1e6, "M")):
        if value >= unit:
            return f"{value / unit:.3g} {letter}"
    return f"{value:,.0f}"


def _training_curves(run: RunFolder) -> list[str]:
    known = json.loads(asset("report-charts.json"))  # the arguments of `_chart`
    named = {name for _, _, lines, _ in known for name in lines}
    measured = (name for record in run.metrics for name in record if is_number(record[name]))
    bases = dict.fromkeys(name.removeprefix("valid_") for name in measured if name not in named | _NOT_DRAWN)
    for base in bases:
        title = base.replace("_", " ")
        known.append([title, title, {base: "training", f"valid_{base}": "validation"}])
    charts = [_chart(run, *each) for each in known]
    return [chart for chart in charts if chart]


def _throughput(run: RunFolder) -> list[str]:
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


def _score_tables(run: RunFolder) -> list[str]:
    parts = [_evaluation(each) for each in run.evaluations]
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
