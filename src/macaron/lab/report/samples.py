"""What a trained model makes of a few validation sentences: translations, or the words behind masks."""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from macaron.data.prepared import PreparedData, PreparedText
from macaron.errors import MacaronError
from macaron.text.vocabulary import CLS, EOS, MASK, SPECIALS

if TYPE_CHECKING:
    from macaron.text.tokenizer import MacaronTokenizer

SAMPLES = 6
#: Tokens of a sentence that is worth looking at.
_SHORT, _LONG = 6, 40
_MASK_SHARE, _GUESSES = 0.15, 3


@dataclass(frozen=True)
class Translation:
    """A sentence, what the model made of it, and what a person did."""

    source: str
    output: str
    reference: str


@dataclass(frozen=True)
class Guess:
    """A masked piece of a sentence, the likeliest in its place with their probabilities, whether the first is it."""

    real: str
    likely: list[tuple[str, float]]
    right: bool


@dataclass(frozen=True)
class Filled:
    """A sentence in parts: plain text, or what was masked."""

    parts: list[str | Guess]


def translations(run: Path, data: Path, count: int = SAMPLES) -> list[Translation]:
    """Translate some validation sentences, spread over all of them, with a run's model."""
    from macaron.decode import Translator

    prepared = PreparedData.open(data)
    sources, references = (prepared.text("valid", language) for language in prepared.languages)
    lengths = prepared.pairs("valid").source.lengths
    chosen = _spread([i for i, n in enumerate(lengths) if _SHORT <= n <= _LONG] or range(len(sources)), count)
    state = prepared.text_state("valid")
    # On the CPU whatever else there is: the same page on every machine.
    outputs = Translator(run, device="cpu").translate([sources[i] for i in chosen], state=state)
    return [Translation(sources[i], output, references[i]) for i, output in zip(chosen, outputs, strict=True)]


def filled_masks(run: Path, data: Path, count: int = SAMPLES) -> list[Filled]:
    """Mask words of some validation sentences, always the same ones, and let a run's model say what they were."""
    prepared = PreparedText.open(data)
    sentences = prepared.sentences("valid")
    model, tokenizer = _load_encoder(run)
    if tokenizer.get_vocab() != prepared.tokenizer.get_vocab():
        raise MacaronError(f"{data}: prepared with another vocabulary than the model has")
    chosen = _spread(
        [i for i, n in enumerate(sentences.lengths) if _SHORT <= n <= _LONG] or range(len(sentences)), count
    )
    found = []
    for number, index in enumerate(chosen):
        ids = [int(token) for token in sentences[index]]
        pieces = _pieces(tokenizer, ids)
        known = len(SPECIALS["encoder"])
        words = [place for place, token in enumerate(ids) if token >= known and pieces[place].strip()]
        if words:
            size = min(len(words), max(2, round(_MASK_SHARE * len(words))))
            masked = np.random.default_rng(number).choice(words, size=size, replace=False)
            found.append(_fill(model, tokenizer, ids, pieces, {int(place) for place in masked}))
    return found


def _load_encoder(run: Path) -> tuple[Any, "MacaronTokenizer"]:
    import torch

    from macaron.models import EncoderConfig, EncoderForPreTraining
    from macaron.models.load import find_folder, load_model
    from macaron.text.load_tokenizer import model_tokenizer

    folder = find_folder(run, EncoderConfig.model_type)
    model, _ = load_model(folder, EncoderForPreTraining, torch.float32)
    return model, model_tokenizer(folder, "encoder", model.config)


def _fill(model: Any, tokenizer: "MacaronTokenizer", ids: list[int], pieces: list[str], masked: set[int]) -> Filled:
    import torch

    hidden = [MASK if place in masked else token for place, token in enumerate(ids)]
    with torch.no_grad():
        states = model.model.encode(torch.tensor([[CLS, *hidden, EOS]]))[0, 1:-1]
        chances = model.mlm_logits(states).softmax(-1)
    parts: list[str | Guess] = []
    for place, piece in enumerate(pieces):
        if place not in masked:
            parts.append(piece)
            continue
        best = chances[place].topk(_GUESSES)
        texts = [_pieces(tokenizer, [int(token)])[0].strip() for token in best.indices]
        likely = list(zip(texts, best.values.tolist(), strict=True))
        before, _, after = piece.partition(piece.strip())
        parts += [before, Guess(piece.strip(), likely, int(best.indices[0]) == ids[place]), after]
    return Filled([part for part in parts if part])


def _pieces(tokenizer: "MacaronTokenizer", ids: list[int]) -> list[str]:
    """The text of each token in its place: what it adds to the text of those before it."""
    # Moses would set words and signs together again, each token changing what stands before it; and it escapes signs.
    moses = tokenizer.pipeline == "moses"
    texts = tokenizer.decode_lines([ids[: i + 1] for i in range(len(ids))], state="moses" if moses else "raw")
    pieces, before = [], ""
    for text in map(html.unescape, texts) if moses else texts:
        # A token that completes a letter, in bytes, does change what stands before it: only the end is its own.
        pieces.append(text[len(before) :] if text.startswith(before) else text[len(text.rstrip()) - 1 :])
        before = text
    return pieces


def _spread(places: Sequence[int], count: int) -> list[int]:
    """Some of the places, from the first to the last, evenly."""
    count = min(count, len(places))
    return [places[i * len(places) // count] for i in range(count)]
