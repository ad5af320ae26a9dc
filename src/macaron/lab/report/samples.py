"""Samples of a trained model on a few validation sentences: translations, or predictions of a masked word."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from macaron.data.prepared import PreparedData, PreparedText
from macaron.lab.page import escape
from macaron.text.vocabulary import MASK

SAMPLES = 6
#: Sentences of 6 to 40 tokens are preferred.
_SHORT, _LONG = 6, 40
#: Characters of a sentence that are shown.
_LONGEST = 400
_GUESSES = 3


#: A sentence around its masked word (before it, the word, after it), and the most probable words with probabilities.
Filled = tuple[str, str, str, list[tuple[str, float]]]


def translations(run: Path, data: Path, count: int = SAMPLES) -> list[tuple[str, str, str]]:
    """Validation sentences, spread evenly over the split: source, translation by a run's model, reference."""
    from macaron.decode import Translator

    prepared = PreparedData.open(data)
    sources, references = (prepared.text("valid", language) for language in prepared.languages)
    chosen = _chosen(prepared.pairs("valid").source.lengths(), count)
    state = prepared.text_state("valid")
    # Always on the CPU: the page is the same on every machine.
    outputs = Translator(run, device="cpu").translate([sources[i] for i in chosen], state=state, one_per_line=True)
    return [(sources[i], output, references[i]) for i, output in zip(chosen, outputs, strict=True)]


def filled_masks(run: Path, data: Path, count: int = SAMPLES) -> list[Filled]:
    """Mask a word of each of some validation sentences, always the same ones, and let a run's model predict it."""
    from macaron.tasks.mask_filler import MaskFiller

    prepared = PreparedText.open(data)
    sentences, filler = prepared.sentences("valid"), MaskFiller(run, "cpu")
    mask, found = filler.tokenizer.special_names[MASK], []
    chosen = [sentences[index].tolist() for index in _chosen(sentences.lengths(), count)]
    for number, text in enumerate(prepared.tokenizer.decode_lines(chosen)):
        words = text.split()
        # A mask is one token: words of one token come first.
        pieces = filler.tokenizer.encode_lines(words, add_special_tokens=False)
        whole = [i for i, ids in enumerate(pieces) if len(ids) == 1] or range(len(words))
        place = int(np.random.default_rng(number).choice(whole))
        before, after = " ".join([*words[:place], ""]), " ".join(["", *words[place + 1 :]])
        [likely] = filler.fill([f"{before}{mask}{after}"], _GUESSES)
        guesses = [(str(each["token_str"]).strip(), float(each["score"])) for each in likely]
        found.append((before, words[place], after, guesses))
    return found


def _chosen(lengths: NDArray[np.int32], count: int) -> list[int]:
    """Evenly spaced indices of sentences of a readable length, or of all if there are none."""
    indices = [i for i, n in enumerate(lengths) if _SHORT <= n <= _LONG] or range(len(lengths))
    count = min(count, len(indices))
    return [indices[i * len(indices) // count] for i in range(count)]


def show_translations(found: Sequence[tuple[str, str, str]], source_lang: str, target_lang: str) -> str:
    """Sentences with their translations, one below the other."""
    lines = []
    for source, output, reference in found:
        same = ' <span class="tag">matches the reference</span>' if output == reference else ""
        lines.append(
            f'<li><dl><div><dt>source</dt><dd lang="{escape(source_lang)}">{_short(source)}</dd></div>'
            f'<div class="made"><dt>model</dt><dd lang="{escape(target_lang)}">{_short(output)}{same}</dd></div>'
            f'<div><dt>reference</dt><dd lang="{escape(target_lang)}">{_short(reference)}</dd></div></dl></li>'
        )
    return f'<ol class="samples">{"".join(lines)}</ol>'


def _short(text: str) -> str:
    """A text cut to a readable length: a model in early training may not end its sentences."""
    return escape(text if len(text) <= _LONGEST else f"{text[:_LONGEST].rstrip()} …")


def show_filled(found: Sequence[Filled]) -> str:
    """Sentences with their masked words marked, and the predictions below each."""
    lines = []
    for before, word, after, likely in found:
        right = likely[0][0] == word
        text = f'{escape(before)}<mark class="{"right" if right else "wrong"}">{escape(word)}</mark>{escape(after)}'
        guesses = " · ".join(f"<b>{escape(guess or '(space)')}</b> {100 * chance:.0f} %" for guess, chance in likely)
        tag = f'<span class="tag">{"right" if right else f"was: {escape(word)}"}</span>'
        lines.append(f'<li><p>{text}</p><ul class="guesses"><li>{guesses} {tag}</li></ul></li>')
    return f'<ol class="samples">{"".join(lines)}</ol>'
