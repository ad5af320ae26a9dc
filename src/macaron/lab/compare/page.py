"""The page of a comparison: the verdict first, then whether it is fair, the scores, the curves, where kinds differ."""

from macaron.lab.compare.examples_page import examples_section
from macaron.lab.compare.fairness import UNKNOWN, Difference, Effect
from macaron.lab.compare.result import Pair, Result, final_loss
from macaron.lab.compare.scores_page import curves_section, frequencies_section, lengths_section, scores_section
from macaron.lab.compare.training_data import unseen
from macaron.lab.compare.verdict import ALPHA, LEAST_SEEDS, Outcome, signed
from macaron.lab.page import Raw, escape, html_table, render_page, section
from macaron.nn.budget import TOLERANCE

_OUTCOMES: dict[Outcome, str] = {
    "unfair": "Not a fair comparison",
    "untested": "Nothing could be tested",
    "none": "No difference could be shown",
    "first": "A difference was shown",
    "second": "A difference was shown",
}
_EFFECTS: dict[Effect, str] = {
    "unfair": "makes it unfair",
    "compared": "is what is compared",
    "harmless": "changes nothing here",
}
_SPLITS = {"test": "test", "valid": "validation"}


def comparison_page(result: Result) -> str:
    """The whole page."""
    labels = [kind.label for kind in result.kinds]
    title = f"{', '.join(labels[:-1])} and {labels[-1]} compared"
    runs = sum(len(kind.runs) for kind in result.kinds)
    what = f"{runs} trained models"
    if result.task == "pairs":
        assert result.split is not None
        what += f" on the {result.count:,} {_SPLITS[result.split]} sentences of {result.data}"
    else:
        what += ", pre-trained on plain text"
    parts = [
        _verdict(result),
        _fairness(result),
        scores_section(result),
        curves_section(result),
    ]
    if result.task == "pairs":
        parts += [lengths_section(result), frequencies_section(result), examples_section(result)]
    parts.append(_method(result))
    return render_page(title, "\n".join(parts), lead=f"{what}.", styles=("compare.css",), scripts=("compare.js",))


def _verdict(result: Result) -> str:
    ordered = sorted((pair.verdict for pair in result.pairs), key=lambda each: each.outcome != "unfair")
    outcomes = list(dict.fromkeys(each.outcome for each in ordered))
    heading = _OUTCOMES[outcomes[0]] if len(outcomes) == 1 else f"Compared with {result.kinds[0].label}"
    if len(ordered) == 1:
        said = f"<p>{escape(result.sentence)}</p>"
    else:
        said = f"<ul>{''.join(f'<li>{escape(each.sentence)}</li>' for each in ordered)}</ul>"
    first = f'<div class="verdict {outcomes[0]}"><strong>{escape(heading)}.</strong> {said}</div>'
    return section("Verdict", first, f'<p class="note">{escape(_rule(result))}</p>')


def _rule(result: Result) -> str:
    if result.task == "text":
        return (
            "Pre-training leaves one number for each model, its validation loss, and no sentences that could be drawn "
            f"again. So only seeds can be tested, with {LEAST_SEEDS} or more of each kind; and a lower loss does not "
            "yet say that a task will be solved better: that is what fine-tuning measures."
        )
    seeds = (
        "and the test over seeds "
        if any(pair.seeds for pair in result.pairs)
        else f"(a test over seeds, which would speak of models not yet trained, needs {LEAST_SEEDS} of each kind) "
    )
    tested = sum(not pair.fairness.unfair for pair in result.pairs)
    several = f" For {tested} comparisons, p-values are corrected by Holm's method." if tested > 1 else ""
    return (
        f"A difference counts as shown only if both tests over sentences {seeds}give p < {ALPHA:g} in "
        f"{result.metric} and no 95 % interval contains 0.{several} {result.metric} decides, whatever the others say."
    )


def _fairness(result: Result) -> str:
    parts = [_unfair(pair, len(result.pairs) > 1) for pair in result.pairs if pair.fairness.unfair]
    fair = [pair for pair in result.pairs if not pair.fairness.unfair]
    if fair:
        of = ""
        if len(fair) < len(result.pairs):
            of = f" ({', '.join(pair.second.label for pair in fair)} and {result.kinds[0].label})"
        if all(_verified(pair) for pair in fair):
            said = "Same training data, same recipe, same budget: they differ in nothing but what is compared."
            parts.append(f"<p><strong>Yes{escape(of)}.</strong> {said}</p>")
        else:
            said = "Same recipe and same budget; whether the training data are the same is not known for all of them."
            parts.append(f"<p><strong>Yes, as far as could be verified{escape(of)}.</strong> {said}</p>")
    cautions = list(
        dict.fromkeys([*(each for pair in result.pairs for each in pair.fairness.cautions), *result.cautions])
    )
    if cautions:
        lines = "".join(f"<li>{escape(each)}</li>" for each in cautions)
        parts.append(f"<p>What you should know besides:</p><ul>{lines}</ul>")
    parts.append(_runs_table(result))
    parts.append(_differences_table(result))
    return section("Is it fair?", *parts, id="fair")


def _unfair(pair: Pair, several: bool) -> str:
    of = f" ({escape(pair.second.label)} and {escape(pair.first.label)})" if several else ""
    reasons = "".join(f"<li>{escape(reason)}</li>" for reason in pair.fairness.unfair)
    remedy = "If such a setting is what you want to compare, say so: <code>--vary section.key</code>."
    return f'<div class="no"><p><strong>No{of}.</strong></p><ul>{reasons}</ul><p>{remedy}</p></div>'


def _verified(pair: Pair) -> bool:
    runs = [run for kind in (pair.first, pair.second) for run in kind.runs]
    return all(run.identity is not None for run in runs) and not unseen(runs)


def _runs_table(result: Result) -> str:
    first = result.kinds[0].parameters
    rows = []
    for kind in result.kinds:
        share = kind.parameters / first - 1
        size = "–" if kind is result.kinds[0] else f"{signed(100 * share)} %{' (!)' if abs(share) > TOLERANCE else ''}"
        for run in kind.runs:
            rows.append(
                [
                    kind.label,
                    run.name,
                    run.seed,
                    f"{kind.parameters:,}",
                    size,
                    f"{run.updates:,}",
                    _time(run.summary["seconds"]),
                    run.summary["final_model"],
                    f"{final_loss(run):.4f}",
                ]
            )
    headers = ["kind", "run", "seed", "parameters", "difference", "updates", "time", "final model", "valid loss"]
    caption = f"The runs. Sizes are called equal within {100 * TOLERANCE:g} % of the first kind's."
    return html_table(headers, rows, caption=caption, numeric=(2, 3, 4, 5, 6, 8))


def _differences_table(result: Result) -> str:
    """All settings that are not the same for all kinds, those that matter first."""
    found: dict[str, list[Difference | None]] = {}
    for number, pair in enumerate(result.pairs):
        for each in pair.fairness.differences:
            found.setdefault(each.key, [None] * len(result.pairs))[number] = each
    if not found:
        return ""
    rows = []
    for key, of_pairs in found.items():
        there = [each for each in of_pairs if each is not None]
        first = there[0].first
        effect = min((each.effect for each in there), key=list(_EFFECTS).index)
        values = [first, *(first if each is None else each.second for each in of_pairs)]
        rows.append((list(_EFFECTS).index(effect), [key, *map(_wrapped, values), _EFFECTS[effect]]))
    headers = ["setting", *(kind.label for kind in result.kinds), "this difference"]
    shown = [row for _, row in sorted(rows, key=lambda each: each[0])]
    return html_table(headers, shown, caption="Every setting in which they differ")


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds / 60:.1f} min"


def _wrapped(text: str) -> str:
    return Raw(f'<span class="wrap">{escape(text)}</span>') if len(text) > 40 else text


def _method(result: Result) -> str:
    parts = []
    if result.task == "pairs":
        searches = {str(made.search) for made in result.translated.values()}
        search = next(iter(result.translated.values())).search
        said = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in search.items())
        parts.append(
            f"<p>Translated and scored as <code>macaron evaluate</code> does it: {escape(said)}"
            + ("" if len(searches) == 1 else "; other runs with settings of their own, listed above")
            + ". Where a kind has several models, its score is their mean, and all translations of a sentence are "
            "drawn or exchanged together.</p>"
        )
        reused = [name for name, made in result.translated.items() if made.reused]
        if reused:
            parts.append(
                f"<p>The translations of {escape(', '.join(reused))} were made by an earlier comparison and kept with "
                "the run, with a digest of the model, the sentences, the search and the versions; all of that is the "
                "same now. Remove the run's folder <code>translations</code> to make them again.</p>"
            )
    definitions = "".join(
        f"<li>{escape(text if text.startswith(name) else f'{name} {text}')}</li>"
        for name, text in result.metrics.items()
    )
    parts.append(f"<ul>{definitions}</ul>")
    data = {(run.identity or {}).get("training data", UNKNOWN) for kind in result.kinds for run in kind.runs}
    tokenizers = {str(run.config.tokenizer_fingerprint)[:12] for kind in result.kinds for run in kind.runs}
    parts.append(
        f"<p>Training data (digest of its sentences' lengths): {escape(', '.join(sorted(data)))}. "
        f"Tokenizer: {escape(', '.join(sorted(tokenizers)))}.</p>"
    )
    return section("How it was made", *parts, id="method")
