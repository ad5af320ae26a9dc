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
    "questions after an abbreviation": "It ended at 4 p.m. | Do you mind? | It ended at 4 p.m. | Let us go.",
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


GERMAN = {
    "plain": "Ich bin müde. | Wo ist Tom? | Er ist zu Hause!",
    "words that are English abbreviations": "Ich gehe mit dir. | Tom geht mit. | Das ist gen. | Oh no. | Maria lacht.",
    "titles": "Hr. Dr. Müller und Frau Prof. Dr. med. Schmidt kamen. | Fr. Meier nicht. | Das St. Galler Brot.",
    "a title that is a verb": "Mag. Huber kam. | Ich tue, was ich mag. | Tom auch.",
    "in mid-sentence": "Das ist z.B. bzgl. Herrn Dr. Müller so. | Er wog ca. Zehn Kilo bzw. Elf.",
    "with spaces": "Er hat z. B. Hunde, d. h. Tiere, u. a. Katzen. | I. d. R. Regnet es, m. E. Zu oft. | Gut.",
    "an end or not": "Hunde, Katzen usw. | Das ist gut. | Äpfel, Birnen etc. Kirschen sind da.",
    "before Christ": "Er lebte 50 v. Chr. | Das ist lange her. | Im Jahr 30 n. Chr. Geburt.",
    "dates": "Am 3. Mai kam er. | Am 3. 5. 2020 auch. | Vom 8.-10. August bleibt er bis zum 12. September.",
    "ordinals": "Der 2. Weltkrieg begann. | Im 19. Jahrhundert war es so. | Sein 1. Kind heißt Tom. | Jeden 2. Tag.",
    "numbers": "Ich bin 30. | Du bist 20. | Tom ist 8. | Maria ist 9. | Es war 1999. | Tom kam.",
    "kings": "Ludwig XIV. König von Frankreich war alt. | Es war Ludwig XIV. | Er war alt.",
    "references": "Siehe S. 5, Nr. 7, Abs. 3 und Bd. 2. | Vgl. Art. 5 dort.",
    "quotes": "»Nein.« | Er geht. | „Halt!“ | Tom blieb stehen. | ‚Ja.‘ | „Wer ist da?“, fragte er. | Gut.",
    "streets": "Er wohnt in der Berliner Str. 5. | Die Firma Meier & Co. KG ist da. | 5 Mio. Menschen leben dort.",
}


@pytest.mark.parametrize("name", GERMAN)
def test_german(name: str) -> None:
    expected = [sentence.strip() for sentence in GERMAN[name].split("|")]
    assert splitter(lang="de")(" ".join(expected)) == expected


def test_other_languages_have_abbreviations_of_their_own() -> None:
    french = ["Voir p.ex. MM. Dupont et Durand.", "Il est parti."]
    assert splitter(lang="fr")(" ".join(french)) == french
    assert splitter(lang="xx")("A b. C d.") == ["A b.", "C d."]
    assert splitter(lang="nl")("Ik ben 30. Jij bent 20.") == ["Ik ben 30.", "Jij bent 20."]
    assert splitter(lang="hi")("वह गया। वह आई।") == ["वह गया।", "वह आई।"]


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
