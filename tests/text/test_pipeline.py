"""Pipelines: exact for raw text, Moses as the IWSLT14 data was made, spaces as str.split."""

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.text.pipeline import Pipeline


@given(st.text())
def test_raw_is_exact(text: str) -> None:
    assert Pipeline("raw").decode(Pipeline("raw").encode(text)) == text


@given(st.text())
def test_spaces_keeps_the_words(text: str) -> None:
    assert Pipeline("spaces").encode(text).split() == text.split()
    assert Pipeline("spaces").encode(Pipeline("spaces").encode(text)) == Pipeline("spaces").encode(text)


def test_moses_escapes_and_lower_cases() -> None:
    moses = Pipeline("moses", "de", "en")
    assert moses.encode('Er sagte: "Na, geht\'s?"') == "er sagte : &quot; na , geht &apos; s ? &quot;"
    assert moses.encode("It's R&D, isn't it?", "target") == "it &apos;s r &amp; d , isn &apos;t it ?"
    assert moses.encode("a well-known one") == "a well-known one"
    assert Pipeline("moses", "de", "en", lower=False).encode("Das Haus") == "Das Haus"


def test_moses_normalizes_if_asked() -> None:
    text = "das „Haus“ – dort"
    assert Pipeline("moses", "de", "en").encode(text) == "das &quot; haus &quot; - dort"
    assert Pipeline("moses", "de", "en", normalize=False).encode(text) == "das „ haus “ – dort"


def test_moses_splits_the_last_full_stop_and_no_other() -> None:
    assert Pipeline("moses", "en", "en").encode("Dr. Smith left the U.S.") == "dr. smith left the u.s ."
    assert Pipeline("moses", "en", "en").encode("Wait...") == "wait ..."
    assert Pipeline("moses", "de", "de").encode("Drei von 10.") == "drei von 10 ."


def test_moses_comes_back_as_plain_text() -> None:
    moses = Pipeline("moses", "de", "en")
    for text in ("It's fine, isn't it?", 'She said: "Yes!"', "Peter & Paul (in 1999) paid 5% more.", "a < b > c"):
        assert moses.decode(moses.encode(text, "target")) == text.lower()


def test_moses_does_not_tokenise_twice() -> None:
    moses = Pipeline("moses", "de", "en")
    tokenised = "er sagte : &quot; geht &apos; s ? &quot;"
    assert moses.encode(tokenised, state="moses") == tokenised
    assert moses.encode("Er  SAGTE", state="moses") == "er sagte"
    assert moses.decode(tokenised, "source", "moses") == tokenised


@pytest.mark.parametrize("text", ["", " ", "\t\u00a0\u2003"])
def test_moses_of_nothing_is_nothing(text: str) -> None:
    assert Pipeline("moses", "de", "en").encode(text) == ""
    assert Pipeline("moses", "de", "en").decode(text) == ""


@given(st.text())
def test_moses_takes_any_text(text: str) -> None:
    prepared = Pipeline("moses", "de", "en").encode(text)
    assert prepared == " ".join(prepared.split())
    Pipeline("moses", "de", "en").decode(prepared)


@pytest.mark.parametrize("language", ["de", "en"])
def test_moses_makes_the_official_iwslt14_test_set(shared: Path, language: str) -> None:
    folder = shared / "data" / "translation" / "iwslt14"
    plain, tokenised = (list(read_lines(folder / f"{name}.{language}.xz")) for name in ("test.raw", "test"))
    # Lines 887-2051 are tokenised in the "raw" file, too; a few others have lost a double escape ("&amp;amp;").
    lines = [*range(880), *range(2060, 6750)]
    moses = Pipeline("moses", language, language, normalize=False)
    same = sum(moses.encode(plain[i]) == tokenised[i] for i in lines[::2])
    assert same >= len(lines[::2]) - 5


def test_a_missing_sacremoses_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    with pytest.raises(MacaronError, match="pip install sacremoses"):
        Pipeline("moses", "xx", "yy").encode("text")


def test_wrong_uses_are_refused() -> None:
    with pytest.raises(MacaronError, match="source_lang"):
        Pipeline("moses")
    with pytest.raises(MacaronError, match="raw, moses, spaces"):
        Pipeline("mosses")
    with pytest.raises(MacaronError, match="moses"):
        Pipeline("raw").encode("text", state="moses")
