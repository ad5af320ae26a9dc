"""The part of a comparison's page that is for reading: sentences, and what the models made of them."""

from macaron.lab.compare.examples import Example, Mark, marked
from macaron.lab.compare.result import Pair, Result
from macaron.lab.page import escape, section

_MARKS: dict[Mark, str] = {
    "same": "{}",
    "right": '<mark class="right">{}</mark>',
    "other": '<mark class="other">{}</mark>',
}


def examples_section(result: Result) -> str:
    """Sentences where the models differ most, with buttons to choose among them (which need the script)."""
    legend = (
        'Words that only one of the two translations has: <mark class="right">underlined</mark> where the reference '
        'has them too, <mark class="other">with a wavy line</mark> where it has not. Sentences are ordered by chrF, '
        "which judges a single sentence better than BLEU does; but extremes are chosen for being extreme. The "
        "sentences drawn by lot are what the models usually do."
    )
    lists = [_list(result, number, pair) for number, pair in enumerate(result.pairs)]
    return section("Sentences", f'<p class="note">{legend}</p>', *lists, id="sentences")


def _list(result: Result, number: int, pair: Pair) -> str:
    reading = pair.reading
    assert reading is not None
    first, second = pair.first.label, pair.second.label
    ahead, behind, equal = reading.counts
    seeds = ""
    if len(pair.first.runs) + len(pair.second.runs) > 2:
        seeds = f" These are the translations of {pair.read_runs[0]} and {pair.read_runs[1]}."
    folded = " (upper and lower case taken as one)" if reading.caseless else ""
    counted = (
        f"Of {result.count:,} sentences {first} has the higher chrF{folded} in {ahead:,}, {second} in {behind:,}, and "
        f"{equal:,} are even ({reading.same:,} in the very same words).{seeds}"
    )
    sorts = [("first", f"{first} higher"), ("second", f"{second} higher"), ("drawn", "drawn by lot")]
    buttons = "".join(
        f'<button type="button" data-sort="{sort}" aria-pressed="{"true" if sort == "first" else "false"}">'
        f"{escape(name)}</button>"
        for sort, name in sorts
    )
    orders = "".join(
        f'<option value="{value}">{name}</option>'
        for value, name in (("difference", "largest difference"), ("line", "place in the text"), ("length", "length"))
    )
    controls = (
        f'<div class="choose" hidden><div role="group" aria-label="Which sentences">{buttons}</div>'
        f'<label>Order <select>{orders}</select></label><output class="muted"></output></div>'
    )
    cards = "\n".join(_card(example, (first, second), reading.caseless) for example in reading.examples)
    heading = f"<h3>{escape(first)} and {escape(second)}</h3>" if len(result.pairs) > 1 else ""
    return (
        f'{heading}<p>{escape(counted)}</p>\n<div class="examples" data-pair="{number}">{controls}\n'
        f'<ol class="sentences">\n{cards}\n</ol></div>'
    )


def _card(example: Example, names: tuple[str, str], caseless: bool) -> str:
    one, other = example.translations
    rows = [
        ("source", escape(example.source)),
        ("reference", escape(example.reference)),
        (names[0], _words(one, other, example.reference, caseless)),
        (names[1], _words(other, one, example.reference, caseless)),
    ]
    scores = ("", "", *(f' <span class="muted">chrF {score:.1f}</span>' for score in example.scores))
    lines = "".join(
        f"<dt>{escape(name)}{score}</dt><dd>{text}</dd>" for (name, text), score in zip(rows, scores, strict=True)
    )
    difference = abs(example.scores[1] - example.scores[0])
    return (
        f'<li class="sentence" data-sort="{example.sort}" data-line="{example.number}" '
        f'data-length="{len(example.source.split())}" data-difference="{difference:.4f}">'
        f'<span class="muted">Sentence {example.number:,}</span><dl>{lines}</dl></li>'
    )


def _words(line: str, other: str, reference: str, caseless: bool) -> str:
    if not line.strip():
        return '<span class="muted">(nothing)</span>'
    return " ".join(_MARKS[mark].format(escape(word)) for word, mark in marked(line, other, reference, caseless))
