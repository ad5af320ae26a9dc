"""The scores of a run, as parts of its page."""

from typing import Any

from macaron.errors import MacaronError
from macaron.lab.charts import Dots, dot_chart
from macaron.lab.page import Raw, escape, html_table
from macaron.lab.report.training_curves import metric_name
from macaron.lab.run_folder import Record, RunFolder


def score_tables(run: RunFolder) -> list[str]:
    """All scores of the run: evaluations, the candidates for the final model, GLUE's medians."""
    parts = [_evaluation(each) for each in run.evaluations]
    if run.kind == "GLUE":
        parts += _glue(run)
    elif run.kind == "fine-tuning" and isinstance(run.summary.get("scores"), dict):
        rows = [
            (f"{metric_name(metric)}, {part}", f"{value:.2f}")
            for part, m in run.summary["scores"].items()
            for metric, value in m.items()
        ]
        parts.append(html_table(["metric", "per cent"], rows, caption="After the last epoch", numeric=[1]))
    candidates = run.summary.get("candidates")
    if isinstance(candidates, dict) and candidates:
        chosen = run.summary.get("final_model")
        rows = [
            (Raw(f"<b>{escape(name)}</b>, chosen") if name == chosen else name, "–" if loss is None else f"{loss:.4f}")
            for name, loss in candidates.items()
        ]
        caption = "Candidates for the final model: the one with the lowest validation loss is chosen"
        parts.append(html_table(["weights", "validation loss"], rows, caption=caption, numeric=[1]))
    return parts


def _evaluation(found: Record) -> str:
    rows, definitions = [], []
    for score in found["scores"]:
        interval = score.get("interval") or {}
        ends = f"{interval['low']:.2f} to {interval['high']:.2f}" if {"low", "high"} <= interval.keys() else "–"
        rows.append((score["metric"], f"{score['score']:.2f}", ends))
        definitions += [str(score["definition"])] if score.get("definition") else []
    # Below the table: a definition is too long for a column on a phone.
    notes = f'<p class="note">{escape("; ".join(definitions))}.</p>' if definitions else ""
    headers = ["score", "value", "95 % interval"]
    return html_table(headers, rows, caption=f"{found['data']} ({found['file']})", numeric=[1, 2]) + notes


def _glue(run: RunFolder) -> list[str]:
    from macaron.data.glue_tasks import TASKS
    from macaron.tasks.glue.glue_results import GlueResults, averages

    try:
        summary = GlueResults(run.path).summary()
    except MacaronError as error:
        return [f'<p class="note">{escape(error)}</p>']
    if not summary:
        return ['<p class="empty">No run is finished yet.</p>']
    dots, rows = [], []
    for name, each in summary.items():
        score = each["score"]
        dots.append(Dots(TASKS[name].title, score["median"], score["min"], score["max"], digits=1))
        setting = f"{each['setting']} ({len(each['seeds'])} seed(s))"
        rows.append((TASKS[name].title, _cell(each["median"]), _cell(each["sd"]), _cell(each["constant"]), setting))
    axis = "median over seeds, lowest to highest"
    headers = ["task", "median", "standard deviation", "most frequent answer", "best setting"]
    return [
        dot_chart(dots, title="Scores on the development sets", x_label=axis),
        html_table(headers, rows, caption="Development sets, per cent", numeric=[1, 2, 3]),
        f'<p class="note">Medians: {escape(averages(summary)["median"])}.</p>',
    ]


def _cell(scores: Any) -> str:
    values = [value for metrics in (scores or {}).values() for value in metrics.values()]
    return "–" if not values or None in values else " / ".join(f"{value:.1f}" for value in values)
