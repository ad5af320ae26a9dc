"""Sentence splitting: the stops that end no sentence, and that nothing is ever lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.text.sentence_splitter import split_tokenised, splitter

# A bar stands where a sentence ends.
TRICKY = {
    "plain": "He came. | She saw! | Did they win? | They did.",
    "titles": "Mr. Darcy and Mrs. Bennet met Dr. Jones. | Prof. Smith of St. Ives knew Lt. Col. Moore.",
    "initials": "J. R. R. Tolkien met C. S. Lewis. | George W. Bush and John F. Kennedy Jr. were there.",
    "initial before a starter": "This is plan B. | It works. | Vitamin C. | The end.",
    "decimals": "It cost 3.14 dollars, or 1,000.50. | About 0.5 of it is gone. | In 1829. | Then 1830.",
    "numbers": "See No. 5 and pp. 3-4, vol. 2, fig. 7. | Born c. 1870, he left.",
    "no": "He said no. | Nobody heard.",
    "acronyms": "The U.S. Army came to the U.S. | They left at 5 p.m. | It was late, i.e. dark, e.g. Monday.",
    "companies": "He worked for Acme Inc. | The firm failed. | Smith et al. (2010) and so on, etc. | However, no.",
    "months": "On Sept. 5 it rained. | On Jan. 6 it snowed. | He was ill. | Under the sun. | Yes.",
    "cases and dates": "In Roe v. Wade it was so. | Ptolemy (c. AD 90) was. | In 5 BC. | Athens fell.",
    "money": "He paid 3s. 6d. for it.",
    "quotes": '"Why?" she asked. | "Go!" | He went. | He said "stop." | Then “no.” | ‘Yes.’ | Done.',
    "quotes of others": "«Non.» | Il part. | „Nein.“ | Er geht.",
    "brackets": "He went (slowly.) | Then he came [at last.] | (It was late. | Very late.) | Good.",
    "ellipsis": "Well... maybe. | And then... | Nothing… | The end… or not. | ... and so on.",
    "cries": 'Yahoo! is a company. | What?! | Really?? | Yes!!! | "Stop!" cried he.',
    "lists": "1. The first rule. | 2. The second.",
    "stops that stand alone": 'He said : " Stop . " | Then he left . | Good .',
    "late brackets": "He went ( slowly. ) | Then he came.",
    "a stop without a space": "Look at example.com and main.py. | See v1.2.3 there.",
    "without capitals": "he came. | she saw e.g. him. | all went at 5 p.m. home. | yes!",
    "chinese": "他走了。|她来了！|“好。”|完",
    "hebrew": "הוא הלך. | היא באה.",
    "one": "No stop at all",
    "heading": "Background.",
    "only stops": "...",
}


@pytest.mark.parametrize("name", TRICKY)
def test_tricky(name: str) -> None:
    expected = [sentence.strip() for sentence in TRICKY[name].split("|")]
    paragraph = "".join(TRICKY[name].split("|")) if name == "chinese" else " ".join(expected)
    assert splitter()(paragraph) == expected


def test_other_languages_have_abbreviations_of_their_own() -> None:
    text = "Das ist z.B. bzgl. Herrn Dr. Müller so. Er geht."
    assert splitter(lang="de")(text) == ["Das ist z.B. bzgl. Herrn Dr. Müller so.", "Er geht."]
    assert splitter(lang="xx")("A b. C d.") == ["A b.", "C d."]


def test_tokenised_text() -> None:
    text = "he said . &quot; no &quot; . mr. smith left . &quot; go ! &quot; ( well . ) so ... yes ? ! end"
    assert split_tokenised(text) == [
        "he said .",
        "&quot; no &quot; .",
        "mr. smith left .",
        "&quot; go ! &quot;",
        "( well . )",
        "so ...",
        "yes ? !",
        "end",
    ]
    assert splitter("moses")("a . b") == ["a .", "b"]
    assert splitter("raw")("A b. C d.") == ["A b.", "C d."]


WORDS = st.sampled_from(
    [
        *"\"'()[]{}.!?…。“”‘’«»-—",
        "...",
        "Mr.",
        "The",
        "he",
        "U.S.",
        "No.",
        "5",
        "3.5",
        "J.",
        "etc.",
        "end.",
        "end.”",
        "。",
        "a。b",
    ]
)
PARAGRAPHS = st.one_of(
    st.text(),
    st.lists(WORDS).map(" ".join),
    st.text(alphabet="aB.!?\"') \t\u00a0\u2028。…1"),
    st.lists(st.text()).map(". ".join),
)


@given(PARAGRAPHS)
def test_nothing_is_lost_or_moved(paragraph: str) -> None:
    for split in (splitter(), split_tokenised):
        sentences = split(paragraph)
        assert "".join("".join(sentences).split()) == "".join(paragraph.split())
        assert all(sentence.strip() for sentence in sentences)


@given(PARAGRAPHS)
def test_spaces_stay_inside_sentences(paragraph: str) -> None:
    clean = " ".join(paragraph.split())
    joined = " ".join(splitter()(clean))
    # Chinese stops need no space behind them; where there is one, it is kept.
    assert joined == clean or "。" in clean or "！" in clean or "？" in clean


@pytest.mark.parametrize("piece", [".", ". ", '." ', 'x. " ', "a.", "Mr. ", "。", "...) ", "' "])
def test_time_is_linear(piece: str) -> None:
    splitter()(piece * 50_000)  # minutes, if it were not
