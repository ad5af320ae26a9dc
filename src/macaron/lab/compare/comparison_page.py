"""The page of a comparison: verdict, fairness, scores, training curves, breakdowns, example sentences."""

from collections.abc import Iterable

from macaron.lab.charts import duration
from macaron.lab.compare.examples import show_examples
from macaron.lab.compare.fairness import UNKNOWN, Effect
from macaron.lab.compare.result import Result
from macaron.lab.compare.score_sections import breakdown_sections, curves_section, scores_section
from macaron.lab.compare.verdict import ALPHA, LEAST_SEEDS, VerdictKind, signed
from macaron.lab.page import Raw, escape, html_table, note, render_page, section
from macaron.nn.budget import TOLERANCE

_OUTCOMES: dict[VerdictKind, str] = {
    "unfair": "Not a fair comparison",
    "untested": "Nothing could be tested",
    "none": "No difference could be shown",
    "first": "A difference was shown",
    "second": "A difference was shown",
}
_EFFECTS: dict[Effect, str] = {
    "unfair": "unfair",
    "compared": "compared",
    "harmless": "no effect",
}


def comparison_page(result: Result) -> str:
    """The whole page."""
    labels = [kind.label for kind in result.kinds]
    title = f"{', '.join(labels[:-1])} and {labels[-1]} compared"
    parts = [_verdict(result), _fairness(result), scores_section(result), curves_section(result)]
    lead = f"{sum(len(kind.runs) for kind in result.kinds)} trained models"
    if result.task == "pairs":
        split = "validation" if result.split == "valid" else "test"
        lead += f" on the {result.count:,} {split} sentences of {result.data}."
        parts += [breakdown_sections(result), _examples(result)]
    else:
        lead += ", pre-trained on plain text."
    parts.append(_method(result))
    return render_page(title, "\n".join(parts), lead=lead, styles=("compare.css",), scripts=("compare.js",))


def _verdict(result: Result) -> str:
    """The verdict. The page says nowhere else that a comparison is unfair."""
    ordered = sorted((pair.verdict for pair in result.pairs), key=lambda each: each.outcome != "unfair")
    outcomes = list(dict.fromkeys(each.outcome for each in ordered))
    heading = _OUTCOMES[outcomes[0]] if len(outcomes) == 1 else f"Compared with {result.kinds[0].label}"
    said = f"<p>{escape(result.sentence)}</p>"
    if len(ordered) > 1:
        said = _list(each.sentence for each in ordered)
    elif outcomes == ["unfair"]:
        said = f"<p>So nothing is concluded, and no difference is shown:</p>{_list(result.pairs[0].fairness.unfair)}"
    if "unfair" in outcomes:
        said += "<p>To compare such a setting on purpose, give <code>--vary section.key</code>.</p>"
    first = f'<div class="verdict {outcomes[0]}"><strong>{escape(heading)}.</strong> {said}</div>'
    tested = any(each.outcome != "unfair" for each in ordered)
    rule = note("compare", "rule", metric=result.metric, alpha=ALPHA, seeds=LEAST_SEEDS)
    rule += note("compare", "losses") if result.task == "text" else ""
    return section("Verdict", first, *([f'<p class="note">{escape(rule)}</p>'] if tested else []))


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>"


def _fairness(result: Result) -> str:
    parts, fair = [], [pair for pair in result.pairs if not pair.fairness.unfair]
    if fair:
        yes = "Yes, as far as could be verified"
        said = "Same recipe and same budget; whether the training data are the same is not known for all of them."
        if all(pair.fairness.same_data for pair in fair):
            yes, said = "Yes", "Same training data, same recipe, same budget: they differ only in what is compared."
        if len(fair) < len(result.pairs):
            yes += f" ({', '.join(pair.second.label for pair in fair)} and {result.kinds[0].label})"
        parts.append(f"<p><strong>{escape(yes)}.</strong> {said}</p>")
    cautions = [*(each for pair in result.pairs for each in pair.fairness.cautions), *result.cautions]
    if cautions:
        parts.append(f"<p>Note:</p>{_list(dict.fromkeys(cautions))}")
    heading = "Is it fair?" if fair else "What differs"
    return section(heading, *parts, _runs_table(result), _differences_table(result), id="fair")


def _runs_table(result: Result) -> str:
    rows = []
    for kind in result.kinds:
        share = kind.parameters / result.kinds[0].parameters - 1
        size = "–" if kind is result.kinds[0] else f"{signed(100 * share)} %{' (!)' if abs(share) > TOLERANCE else ''}"
        for run in kind.runs:
            row = [kind.label, run.name, run.seed, f"{kind.parameters:,}", size, f"{run.progress.update:,}"]
            rows.append([*row, duration(run.summary["seconds"]), run.summary["final_model"], f"{run.final_loss:.4f}"])
    headers = ["kind", "run", "seed", "parameters", "size vs. first", "updates", "time", "final model", "valid loss"]
    caption = f"The runs. Sizes count as equal within {100 * TOLERANCE:g} % of the first kind's."
    return html_table(headers, rows, caption=caption, numeric=(2, 3, 4, 5, 6, 8), stack=True)


def _differences_table(result: Result) -> str:
    by_pair = [{each.key: each for each in pair.fairness.differences} for pair in result.pairs]
    rows, order = [], list(_EFFECTS)
    for key in dict.fromkeys(key for of in by_pair for key in of):
        known = [of[key] for of in by_pair if key in of]
        effect = min((each.effect for each in known), key=order.index)
        texts = [known[0].first, *(of[key].second if key in of else known[0].first for of in by_pair)]
        values = [Raw(f'<span class="wrap">{escape(text)}</span>') if len(text) > 40 else text for text in texts]
        rows.append((order.index(effect), [key, *values, _EFFECTS[effect]]))
    if not rows:
        return ""
    headers = ["setting", *(kind.label for kind in result.kinds), "effect"]
    shown = [row for _, row in sorted(rows, key=lambda each: each[0])]
    return html_table(headers, shown, caption="Every setting in which they differ", stack=True)


def _examples(result: Result) -> str:
    parts = [f'<p class="note">{note("compare", "sentences")}</p>']
    for pair in result.pairs:
        reading, first, second = pair.reading, pair.first.label, pair.second.label
        assert reading is not None
        text = "A random sample."
        if reading.counts is not None:
            ahead, behind, equal = reading.counts
            folded = " (ignoring case)" if reading.caseless else ""
            text = (
                f"Of {result.count:,} sentences {first} has the higher chrF{folded} in {ahead:,}, {second} in "
                f"{behind:,}, and {equal:,} are even ({reading.same:,} identical)."
            )
        if len(pair.first.runs) + len(pair.second.runs) > 2:
            text += f" These are the translations of {pair.read_runs[0]} and {pair.read_runs[1]}."
        heading = f"<h3>{escape(first)} and {escape(second)}</h3>" if len(result.pairs) > 1 else ""
        parts.append(f"{heading}<p>{escape(text)}</p>\n{show_examples(reading, (first, second))}")
    return section("Sentences", *parts, id="sentences")


def _method(result: Result) -> str:
    parts = []
    if result.task == "pairs":
        searches = {str(made.search) for made in result.translated.values()}
        search = next(iter(result.translated.values())).search
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in search.items())
        said += "" if len(searches) == 1 else "; other runs with settings of their own, listed above"
        parts.append(note("compare", "method", search=escape(said)))
        reused = [name for name, made in result.translated.items() if made.reused]
        parts += [note("compare", "reused", runs=escape(", ".join(reused)))] if reused else []
    parts.append(_list(text if text.startswith(name) else f"{name} {text}" for name, text in result.metrics.items()))
    runs = [run for kind in result.kinds for run in kind.runs]
    data = ", ".join(sorted({run.data_digest or UNKNOWN for run in runs}))
    tokenizers = ", ".join(sorted({str(run.model_config.tokenizer_fingerprint)[:12] for run in runs}))
    parts.append(f"<p>Training data (digest): {escape(data)}. Tokenizer: {escape(tokenizers)}.</p>")
    return section("How it was made", *parts, id="method")
