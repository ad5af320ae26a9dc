"""Samples of a trained model on a few validation sentences: translations, or predictions of masked words."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from macaron.data.prepared import PreparedData, PreparedText
from macaron.errors import MacaronError
from macaron.lab.page import escape
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import CLS, EOS, MASK, SPECIALS

SAMPLES = 6
#: Sentences of 6 to 40 tokens are preferred.
_SHORT, _LONG = 6, 40
#: Characters of a sentence that are shown.
_LONGEST = 400
_MASK_SHARE, _GUESSES = 0.15, 3


@dataclass(frozen=True)
class Guess:
    """A masked token, the most probable predictions with their probabilities, and whether the first is right."""

    real: str
    likely: list[tuple[str, float]]
    right: bool


#: A sentence in parts: plain text, and the masked tokens.
Filled: TypeAlias = list[str | Guess]


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
    """Mask words of validation sentences, always the same ones, and let a run's model predict them."""
    import torch

    from macaron.tasks.mask_filler import MaskFiller

    prepared = PreparedText.open(data)
    sentences = prepared.sentences("valid")
    filler = MaskFiller(run, "cpu")
    model, tokenizer = filler.model, filler.tokenizer
    if tokenizer.get_vocab() != prepared.tokenizer.get_vocab():
        raise MacaronError(f"{data}: prepared with another vocabulary than the model has")
    found = []
    for number, index in enumerate(_chosen(sentences.lengths(), count)):
        ids = sentences[index].tolist()
        pieces = _pieces(tokenizer, ids)
        words = [i for i, token in enumerate(ids) if token >= len(SPECIALS["encoder"]) and pieces[i].strip()]
        if not words:
            continue
        size = min(len(words), max(2, round(_MASK_SHARE * len(words))))
        masked = set(np.random.default_rng(number).choice(words, size=size, replace=False).tolist())
        hidden = [MASK if i in masked else token for i, token in enumerate(ids)]
        with torch.no_grad():
            states = model.model(torch.tensor([[CLS, *hidden, EOS]]))[0, 1:-1]
            chances = model.mlm_logits(states).softmax(-1)
        parts: Filled = []
        for i, piece in enumerate(pieces):
            if i not in masked:
                parts.append(piece)
                continue
            best = chances[i].topk(_GUESSES)
            texts = [_pieces(tokenizer, [int(token)])[0].strip() for token in best.indices]
            likely = list(zip(texts, best.values.tolist(), strict=True))
            before, _, after = piece.partition(piece.strip())
            parts += [before, Guess(piece.strip(), likely, int(best.indices[0]) == ids[i]), after]
        found.append([part for part in parts if part])
    return found


def _pieces(tokenizer: MacaronTokenizer, ids: list[int]) -> list[str]:
    """The text of each token: what it adds to the text of those before it."""
    # Moses detokenisation would change the text before each token; its tokens are escaped.
    moses = tokenizer.pipeline == "moses"
    texts = tokenizer.decode_lines([ids[: i + 1] for i in range(len(ids))], state="moses" if moses else "raw")
    pieces, before = [], ""
    for text in map(html.unescape, texts) if moses else texts:
        # A byte token that completes a character changes the text before it: only the last character is its own.
        pieces.append(text[len(before) :] if text.startswith(before) else text[len(text.rstrip()) - 1 :])
        before = text
    return pieces


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
    for each in found:
        text = ""
        guesses: list[str] = []
        for part in each:
            if isinstance(part, Guess):
                number, kind = len(guesses) + 1, "right" if part.right else "wrong"
                text += f'<mark class="{kind}">{escape(part.real)}<sup>{number}</sup></mark>'
                likely = [f"<b>{escape(word or '(space)')}</b> {100 * chance:.0f} %" for word, chance in part.likely]
                tag = f'<span class="tag">{"right" if part.right else f"was: {escape(part.real)}"}</span>'
                guesses.append(f'<li><span class="muted">{number}</span> {" · ".join(likely)} {tag}</li>')
            else:
                text += escape(part)
        lines.append(f'<li><p>{text}</p><ul class="guesses">{"".join(guesses)}</ul></li>')
    return f'<ol class="samples">{"".join(lines)}</ol>'
