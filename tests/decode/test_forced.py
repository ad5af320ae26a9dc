"""Alignments of given translations. How good they are is measured in tests/system/test_digits.py."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.decode import Translator
from macaron.decode.place_tags import word_spans
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer

LINES = ["The cat sits on the mat.", "A dog, a cat and a mouse; all of them sleep.", "Where is the big house?"]
OTHERS = ["It's over there!", "Nobody knows.", "The big dog sits there, and a mouse sleeps."]


def test_all_words_of_a_translation_are_linked(folder: Path):
    translator = Translator(folder, device="cpu")
    found = translator.align(LINES, OTHERS)
    for source, text, alignment in zip(LINES, OTHERS, found, strict=True):
        assert alignment is not None
        assert [link.target for link in alignment] == word_spans(text)
        assert {link.source for link in alignment} <= set(word_spans(source))
    assert [translator.align([a], [b])[0] for a, b in zip(LINES, OTHERS, strict=True)] == found
    assert Translator(folder, device="cpu", dtype="float64").align(LINES, OTHERS) == found


@pytest.mark.parametrize(
    "changes",
    [
        {"scheme": "lie-fg"},
        {"scheme": "strang-gfg", "integrator": "rk4", "tying": "layer"},
        {"scheme": "parallel", "tying": "depth"},
        {"scheme": "strang-gfg", "num_attention_heads": 1},
    ],
)
def test_every_scheme_has_alignments(changes: dict, make_model: Callable[..., TranslationModel]):
    tokenizer = MacaronTokenizer.train([*LINES, *OTHERS], 300)
    translator = Translator(make_model(vocab_size=len(tokenizer), **changes), tokenizer)
    found = translator.align(LINES, OTHERS)
    assert [len(each) for each in found if each] == [len(word_spans(text)) for text in OTHERS]


def test_what_cannot_be_aligned(folder: Path):
    translator = Translator(folder, device="cpu")
    longest = translator.model.config.longest_input
    assert translator.align(["The cat.", "The cat.", " ", "cat " * longest], ["", " ", "A dog.", "dog"]) == [None] * 4
    assert translator.align([], []) == []


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_spans_of_tokens(text: str):
    [(ids, spans)] = RAW.token_spans([text])
    assert ids == RAW.encode_lines([text])[0]
    assert len(spans) == len(ids) - 1
    letters = [place for place, letter in enumerate(text) if not letter.isspace()]
    assert {place for start, end in spans for place in range(start, end)} >= set(letters)
    assert all(0 <= start <= end <= len(text) for start, end in spans)


RAW = MacaronTokenizer.train(LINES, 300)


def test_spans_of_words_that_moses_separates_and_escapes():
    tokenizer = MacaronTokenizer.train(LINES * 3, 1200, pipeline="moses", source_lang="en", target_lang="en")
    text = 'The cat\'s "dog" & [mouse], on  the mat.'
    [(ids, spans)] = tokenizer.token_spans([text])
    assert ids == tokenizer.encode_lines([text])[0]
    pieces = [text[start:end] for start, end in spans]
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
    assert [piece for piece in pieces if piece in ("mat", ".", "&", "[", '"')] == ['"', '"', "&", "[", "mat", "."]
