"""The scores and samples of a run, as parts of its page."""

from collections.abc import Sequence
from typing import Any

from macaron.errors import MacaronError
from macaron.lab.charts import Bar, bar_chart
from macaron.lab.page import Raw, escape, html_table
from macaron.lab.report.curves import metric_name
from macaron.lab.report.run_folder import Evaluation, RunFolder
from macaron.lab.report.samples import Filled, Guess, Translation
from macaron.lab.scales import number

#: Characters of a sentence that are shown.
_LONGEST = 400


def scores(run: RunFolder) -> list[str]:
    """Everything the run was scored with: evaluations, the choice of the final model, GLUE's medians."""
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
        caption = "Weights that were tried for the final model: the lowest loss in validation wins"
        parts.append(html_table(["weights", "validation loss"], rows, caption=caption, numeric=[1]))
    return parts


def _evaluation(found: Evaluation) -> str:
    rows, definitions = [], []
    for score in found.scores:
        interval = score.get("interval") or {}
        ends = f"{interval['low']:.2f} to {interval['high']:.2f}" if {"low", "high"} <= interval.keys() else "–"
        rows.append((score["metric"], f"{score['score']:.2f}", ends))
        definitions += [str(score["definition"])] if score.get("definition") else []
    # Below the table, not in it: a definition is long, and a phone is narrow.
    notes = f'<p class="note">{escape("; ".join(definitions))}.</p>' if definitions else ""
    headers = ["score", "value", "95 % interval"]
    return html_table(headers, rows, caption=f"{found.data} ({found.file})", numeric=[1, 2]) + notes


def _glue(run: RunFolder) -> list[str]:
    from macaron.data.glue_tasks import TASKS
    from macaron.tasks.glue.glue_results import GlueResults, averages

    try:
        summary = GlueResults(run.path).summary()
    except MacaronError as error:
        return [f'<p class="note">{escape(error)}</p>']
    if not summary:
        return ['<p class="empty">No run is finished yet.</p>']
    groups, rows = [], []
    for name, each in summary.items():
        score = each["score"]
        groups.append(Bar(TASKS[name].title, score["median"], score["min"], score["max"], colour=0))
        setting = f"{each['setting']} ({len(each['seeds'])} seed(s))"
        rows.append((TASKS[name].title, _cell(each["median"]), _cell(each["sd"]), _cell(each["constant"]), setting))
    chart = bar_chart(
        [("", groups)], title="Scores on the development sets", y_label="median over seeds, lowest to highest"
    )
    headers = ["task", "median", "standard deviation", "most frequent answer", "best setting"]
    return [
        chart,
        html_table(headers, rows, caption="Development sets, per cent", numeric=[1, 2, 3]),
        f'<p class="note">Medians: {escape(averages(summary)["median"])}.</p>',
    ]


def _cell(scores: Any) -> str:
    values = [value for metrics in (scores or {}).values() for value in metrics.values()]
    return "–" if not values or None in values else " / ".join(f"{value:.1f}" for value in values)


def show_translations(found: Sequence[Translation], source: str, target: str) -> str:
    """Sentences with their translations, one below the other, so that the eye can compare."""
    lines = []
    for each in found:
        same = ' <span class="tag">as the reference</span>' if each.output == each.reference else ""
        lines.append(
            f'<li><dl><div><dt>source</dt><dd lang="{escape(source)}">{_short(each.source)}</dd></div>'
            f'<div class="made"><dt>model</dt><dd lang="{escape(target)}">{_short(each.output)}{same}</dd></div>'
            f'<div><dt>reference</dt><dd lang="{escape(target)}">{_short(each.reference)}</dd></div></dl></li>'
        )
    return f'<ol class="samples">{"".join(lines)}</ol>'


def _short(text: str) -> str:
    """A young model may not find an end."""
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()} …")


def show_filled(found: Sequence[Filled]) -> str:
    """Sentences with their masked words marked, and below each what the model thought was there."""
    lines = []
    for each in found:
        guesses = [part for part in each.parts if isinstance(part, Guess)]
        text, count = "", 0
        for part in each.parts:
            if isinstance(part, Guess):
                count += 1
                text += (
                    f'<mark class="{"right" if part.right else "wrong"}">{escape(part.real)}<sup>{count}</sup></mark>'
                )
            else:
                text += escape(part)
        rows = "".join(_guess(i, guess) for i, guess in enumerate(guesses, start=1))
        lines.append(f'<li><p>{text}</p><ul class="guesses">{rows}</ul></li>')
    return f'<ol class="samples">{"".join(lines)}</ol>'


def _guess(place: int, guess: Guess) -> str:
    likely = " · ".join(f"<b>{escape(text or '(space)')}</b> {100 * chance:.0f} %" for text, chance in guess.likely)
    verdict = "right" if guess.right else f"was: {escape(guess.real)}"
    return f'<li><span class="muted">{place}</span> {likely} <span class="tag">{verdict}</span></li>'


def cards(entries: Sequence[tuple[str, str, str]]) -> str:
    """A row of cards: label, value, hint (may be empty)."""
    items = []
    for label, value, hint in entries:
        below = f'<span class="hint">{escape(hint)}</span>' if hint else ""
        said = f'<span class="label">{escape(label)}</span><span class="value">{escape(value)}</span>{below}'
        items.append(f'<li class="card">{said}</li>')
    return f'<ul class="cards">{"".join(items)}</ul>'


def best_validation(run: RunFolder) -> tuple[str, str, str] | None:
    """The lowest validation loss as a card."""
    for name, label in (
        ("valid_nll", "validation nll"),
        ("valid_mlm", "validation, masked words"),
        ("valid_loss", "validation loss"),
    ):
        points = run.values(name)
        if points:
            update, value = min(points, key=lambda point: point[1])
            return label, number(value), f"nats, lowest, at update {update:,.0f}"
    return None
