"""Text in pieces: what is translated, what is kept, and how it comes together again."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.decode.settings import Hypothesis
from macaron.decode.text_pieces import (
    FittedText,
    LineRefused,
    Piece,
    fit_texts,
    join_pieces,
    longest_start,
    parts_that_fit,
    restore,
    text_pieces,
    whole_line,
)


def marked(text: str, lang: str = "de") -> str:
    """A text with its sentences in angle brackets."""
    return "".join(piece.text if piece.kept else f"⟨{piece.text}⟩" for piece in text_pieces(text, lang))


def no_alignment(sources: list[str], translations: list[str]) -> list[None]:
    return [None for _ in sources]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ich bin müde. Wo ist Tom?", "⟨Ich bin müde.⟩ ⟨Wo ist Tom?⟩"),
        ("Eins.  Zwei.\u00a0Drei.", "⟨Eins.⟩  ⟨Zwei.⟩\u00a0⟨Drei.⟩"),
        ("  Ich  bin\u00a0müde. ", "  ⟨Ich bin müde.⟩ "),
        ("", ""),
        (" \t ", " \t "),
        ("- Milch", "- ⟨Milch⟩"),
        ("  • Ja. Nein.", "  • ⟨Ja.⟩ ⟨Nein.⟩"),
        ("1. Die Küche\t2) Das Bad", "1. ⟨Die Küche⟩\t2) ⟨Das Bad⟩"),
        ("a) Der Hund", "a) ⟨Der Hund⟩"),
        ("(b) Der Hund", "(b) ⟨Der Hund⟩"),
        ("1.2.3. Der Hund", "1.2.3. ⟨Der Hund⟩"),
        ("> > ## iv. Der Hund", "> > ## iv. ⟨Der Hund⟩"),
        ("- 2. Der Hund", "- 2. ⟨Der Hund⟩"),
        ("1. Mai ist Feiertag.", "⟨1. Mai ist Feiertag.⟩"),
        ("- 3. und 4. Klasse", "- ⟨3. und 4. Klasse⟩"),
        ("-5 Grad", "⟨-5 Grad⟩"),
        ("A. Schmidt kommt.", "⟨A. Schmidt kommt.⟩"),
        ("(ja) Gut.", "⟨(ja) Gut.⟩"),
        ("– Ja? – Nein!", "– ⟨Ja?⟩ – ⟨Nein!⟩"),
        ("Name\t\t12,50 €\tRest", "⟨Name⟩\t\t12,50 €\t⟨Rest⟩"),
        ("-----", "-----"),
        ("- ", "- "),
        ("a)", "a)"),
        ("- - -", "- - -"),
        ("https://example.org/a?b=c", "https://example.org/a?b=c"),
        ("tom@example.org", "tom@example.org"),
        ("Siehe www.example.org dort.", "⟨Siehe X dort.⟩"),
        ("Xaver mag https://a.org/b?c=(d), oder?", "⟨Xaver mag Y, oder?⟩"),
        ("Das (siehe https://a.org/b) und www.c.de.", "⟨Das (siehe X) und Y.⟩"),
        ("Tom (tom@example.org, tel. 0123456789) kommt.", "⟨Tom (X, tel. 0123456789) kommt.⟩"),
        ("Ich liebe 😀 dich. 👩‍👩‍👧 ❤️ Ja! #berlin", "⟨Ich liebe dich.⟩ 👩‍👩‍👧 ❤️ ⟨Ja!⟩ #berlin"),
        ("@tom Was macht @anna@example.org?", "@tom ⟨Was macht X?⟩"),
        ("www.a.de, www.b.de", "www.a.de, www.b.de"),
        ("😀 5 €", "😀 5 €"),
        (
            "Es gibt " + " ".join(f"www.{n}.de" for n in "abcdefghi"),
            "⟨Es gibt⟩ " + " ".join(f"www.{n}.de" for n in "abcdefghi"),
        ),
        ("Eins.\r\n\n  Zwei\u2028Drei", "⟨Eins.⟩\r\n\n  ⟨Zwei⟩\u2028⟨Drei⟩"),
        ("他走了。她来了！完", "⟨他走了。⟩⟨她来了！⟩⟨完⟩"),
    ],
)
def test_what_is_translated(text: str, expected: str):
    assert marked(text) == expected


def test_tokenised_text():
    found = text_pieces("he came . she saw .", state="moses")
    assert [piece.text for piece in found if not piece.kept] == ["he came .", "she saw ."]


def test_whole_lines():
    assert whole_line("\tEins.  Zwei.\u00a0") == [Piece("Eins. Zwei.")]
    assert whole_line(" \t") == []


TEXTS = st.one_of(
    st.text(),
    st.lists(
        st.sampled_from(
            [
                "Ja.",
                "Nein!",
                "😀",
                "www.a.de",
                "a@b.org",
                "12345",
                "@tom",
                "X",
                "-",
                "•",
                "1.",
                "a)",
                " ",
                "  ",
                "\t",
                "\n",
                "\u00a0",
                "。",
                "5",
                "Mai",
                "...",
                "“",
            ]
        )
    ).map("".join),
)


@given(TEXTS)
def test_pieces_are_the_text(text: str):
    pieces = text_pieces(text, "de")
    joined = "".join(piece.original for piece in pieces)
    assert "".join(joined.split()) == "".join(text.split())
    assert all(piece.kept or " ".join(piece.text.split()) == piece.text for piece in pieces)
    # Outer space and breaks stay exactly.
    assert joined[: len(joined) - len(joined.lstrip())] == text[: len(text) - len(text.lstrip())]
    assert joined[len(joined.rstrip()) :] == text[len(text.rstrip()) :]
    assert [joined.count(mark) for mark in "\t\n"] == [text.count(mark) for mark in "\t\n"]


@given(TEXTS)
def test_white_space_does_not_change_what_is_translated(text: str):
    def sentences(given: str) -> list[str]:
        return [piece.text for piece in text_pieces(given, "de") if not piece.kept]

    assert sentences(f"\t {text} \u00a0\t") == sentences(text)
    assert sentences(text.replace(" ", "\u00a0  ")) == sentences(text)


# Putting together.


def hypothesis(text: str, *scores: float, notes: tuple = ()) -> Hypothesis:
    return Hypothesis(text, sum(scores) / len(scores), tuple(range(len(scores))), scores, notes)


def joined(text: str, translations: dict[str, str], lang: str = "en") -> str:
    pieces = text_pieces(text, "de")
    lists = [[hypothesis(translations[piece.text], -1.0)] for piece in pieces if not piece.kept]
    (best,) = join_pieces(FittedText(pieces, [], []), lists, 1.0, lang, no_alignment)
    return best.text


def test_texts_come_together_again():
    words = {"Ja.": "Yes.", "Nein.": "No.", "他走了。": "He went.", "她来了！": "She came!"}
    assert joined(" 1.  Ja.  Nein.\tNein. ", words) == " 1.  Yes.  No.\tNo. "
    assert joined("他走了。她来了！", words) == "He went. She came!"
    chinese = {"Ja.": "是。", "Nein.": "不。"}
    assert joined("- Ja. Nein.  Ja.", chinese, "zh") == "- 是。不。  是。"
    assert joined("Ja. Nein.", chinese, "ja") == "是。不。"
    assert joined("12 \t 7", {}) == "12 \t 7"


def test_scores_of_a_text_are_those_of_all_its_tokens():
    lists = [[hypothesis("a", -1.0, -2.0, notes=("length",))], [hypothesis("b", -4.0, notes=("length", "repetition"))]]
    text = FittedText([Piece("A."), Piece(" ", kept=True), Piece("B.")], [], ["long word"])
    (best,) = join_pieces(text, lists, 0.5, "en", no_alignment)
    assert (best.text, best.tokens, best.token_scores) == ("a b", (0, 1, 0), (-1.0, -2.0, -4.0))
    assert best.score == pytest.approx(-7 / 3**0.5)
    assert best.notes == ("long word", "length", "repetition")
    nothing = join_pieces(FittedText([Piece("--", kept=True)], [], []), [], 1.0, "en", no_alignment)
    assert nothing == [Hypothesis("--", 0.0)]


# Long sentences.


@dataclass
class Letters:
    """Encodes a text as its letters and an end."""

    calls: int = 0

    def __call__(self, texts: list[str]) -> list[list[int]]:
        self.calls += 1
        return [[*map(ord, text), 2] for text in texts]


def test_long_sentences_are_cut_and_noted():
    texts = [text_pieces(line) for line in ("Hi.", "one two three four", f"No. {'x' * 50_000} two.", "42")]
    encode = Letters()
    fitted = fit_texts(texts, encode, 10, "split")
    assert [text.notes for text in fitted] == [[], ["long sentence"], ["long word"], []]
    assert ["".join(piece.text for piece in text.pieces) for text in fitted] == [
        "Hi.",
        "one two three four",
        f"No. {'x' * 50_000} two.",
        "42",
    ]
    assert [["".join(map(chr, ids[:-1])) for ids in text.sources] for text in fitted] == [
        ["Hi."],
        ["one two", "three four"],
        ["No.", "two."],
        [],
    ]
    assert encode.calls < 20
    with pytest.raises(LineRefused, match="line 8 has a sentence of 18 tokens, more than 10"):
        fit_texts(texts, encode, 10, "refuse", first_line=7)
    (cut,) = fit_texts(texts[1:2], encode, 10, "truncate")
    assert cut.pieces == [Piece("one two three four", parts=(Piece("one two"),))]


@pytest.mark.parametrize(
    ("text", "longest", "expected"),
    [
        ("short", 10, ["short"]),
        ("One. Two. Three. Four.", 12, ["One. Two.", "Three. Four."]),
        ("He said “No!” And left.", 15, ["He said “No!”", "And left."]),
        ("first, second third", 13, ["first,", "second third"]),
        ("one two three four", 10, ["one two", "three four"]),
        ("a bcdefghij", 4, ["a", "bcdefghij"]),
        ("一二三四五六七", 4, ["一二三", "四五六七"]),
        ("一二三。四五六。", 4, ["一二三。", "四五六。"]),
        ("x", 0, ["x"]),
    ],
)
def test_parts(text: str, longest: int, expected: list[str]):
    parts = parts_that_fit(text, lambda part: len(part) <= longest)
    assert [part.text for part in parts if part.text != " "] == expected
    assert "".join(part.text for part in parts) == text


def test_parts_lose_nothing_and_fit():
    draw = random.Random(0)
    for _ in range(200):
        text = " ".join("".join(draw.choice("ab.,!。") for _ in range(draw.randint(1, 30))) for _ in range(20)).strip()
        parts = parts_that_fit(text, lambda part: len(part) <= 17)
        assert all(piece.kept or 0 < len(piece.text) <= 17 for piece in parts)
        assert all(" " not in piece.text.strip() for piece in parts if piece.kept)
        assert "".join(piece.text for piece in parts) == text


def test_longest_start():
    def start(text: str, longest: int) -> str:
        return longest_start(text, lambda part: len(part) <= longest)[0].text

    assert start("one two three", 13) == "one two three"
    assert start("one two three", 7) == "one two"
    assert start("one two three", 9) == "one two"
    assert start("abcdef", 3) == "abc"


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("Das kostet 1.234,56 Euro.", "That costs 1,234.56 euros.", "That costs 1,234.56 euros."),
        ("Es sind 12.000.000 Menschen.", "There are 12 000 000 people.", "There are 12 000 000 people."),
        ("Es sind 12.000.000 Menschen.", "There are 1,200,000 people.", "There are 12.000.000 people."),
        ("Im Jahr 1984 war es.", "In 1985 it was.", "In 1984 it was."),
        ("Es kamen 15000 Leute.", "There came 15,000 people.", "There came 15,000 people."),
        ("Am 3.10. um 10.30 Uhr.", "On October 3 at 10:30.", "On October 3 at 10:30."),
    ],
)
def test_long_numbers_keep_their_digits(text: str, translation: str, expected: str):
    [piece] = [piece for piece in text_pieces(text, "de") if not piece.kept]
    assert restore(piece, translation, None) == expected
