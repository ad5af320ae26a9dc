"""Documents in sentences and back: text, HTML, subtitles."""

import random
import re
from collections.abc import Callable
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from macaron.decode import Translator, translate_document
from macaron.decode.documents import Document, Format, split_document
from macaron.decode.place_tags import Alignment, Link, word_spans
from macaron.errors import MacaronError
from macaron.limits import MOST_TAGS

COMPATIBILITY = Path(__file__).parents[1] / "compatibility" / "fixtures"


def joined(document: Document, translate: Callable[[str], str], lang: str = "en") -> str:
    """The document translated word by word, so that words are aligned by their order; marked sentences only."""
    texts = [translate(sentence) for sentence in document.sentences]
    alignments = [
        tuple(map(Link, word_spans(sentence), word_spans(text))) if marked else None
        for sentence, text, marked in zip(document.sentences, texts, document.marked, strict=True)
    ]
    return document.join(texts, alignments, lang)


def upper(text: str, format: Format = "html") -> str:
    return joined(split_document(text, format, "de"), str.upper)


def swapped(sentence: str) -> tuple[str, Alignment]:
    """A sentence with its words in reverse order, and their alignment."""
    spans = word_spans(sentence)
    text = " ".join(sentence[start:end] for start, end in reversed(spans))
    return text, tuple(map(Link, reversed(spans), word_spans(text)))


# HTML


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>Guten Morgen!</p>", "<p>GUTEN MORGEN!</p>"),
        ("<p class='a>b'>Eins <b>zwei</b> drei.</p>", "<p class='a>b'>EINS <b>ZWEI</b> DREI.</p>"),
        ("<P>Ja<BR/>nein<hr>doch", "<P>JA<BR/>NEIN<hr>DOCH"),
        ("<b><i>Ja. Nein.</i></b> Gut.", "<b><i>JA. NEIN.</i></b> GUT."),
        ("<i>Eins <u>zwei</u></i> drei.", "<i>EINS <u>ZWEI</u></i> DREI."),
        ("ein<b>zwei</b>drei", "<b>EINZWEIDREI</b>"),
        ("Eins <img src=x>zwei<!-- a > b --> drei.", "EINS <img src=x>ZWEI <!-- a > b -->DREI."),
        ("Eins <b>zwei. Drei</b> vier.", "<b>EINS ZWEI. DREI VIER.</b>"),
        ("Eins <b>zwei", "<b>EINS ZWEI"),
        ("Eins</b> zwei", "EINS ZWEI</b>"),
        ("M&uuml;ller &amp; S&ouml;hne &lt;3", "MÜLLER &amp; SÖHNE &lt;3"),
        ("a &lt;b&gt; c", "A &lt;B&gt; C"),
        ("Fünf < sechs & sieben.", "FÜNF &lt; SECHS &amp; SIEBEN."),
        ("Ja.&nbsp; Nein.\n\n  Doch.", "JA.&nbsp; NEIN.\n\n  DOCH."),
        ("12 <b>34</b>&euro;", "12 <b>34</b>&euro;"),
        ("<title>Der <b> Titel</title>", "<title>DER &lt;B&gt; TITEL</title>"),
        ("<script>var a = 'Hallo <p>Welt</p>';</script>Ja", "<script>var a = 'Hallo <p>Welt</p>';</script>JA"),
        (
            "<script><!-- x('<script>ja</script>') --></script>Ja",
            "<script><!-- x('<script>ja</script>') --></script>JA",
        ),
        (
            "<style>b {}</style><textarea>Hallo <b>du</textarea>Ja",
            "<style>b {}</style><textarea>Hallo <b>du</textarea>JA",
        ),
        ("<pre>Hallo\nWelt</pre><p>Ja", "<pre>Hallo\nWelt</pre><p>JA"),
        ("<div translate=no>Hallo <div>Welt</div> du</div> Ja", "<div translate=no>Hallo <div>Welt</div> du</div> JA"),
        (
            "Die Firma <b class='x notranslate'>Gute Bank</b> zahlt.",
            "DIE FIRMA <b class='x notranslate'>Gute Bank</b> ZAHLT.",
        ),
        ("Nutze <code>foo&lt;<i>T</i>&gt;()</code> hier.", "NUTZE <code>foo&lt;<i>T</i>&gt;()</code> HIER."),
        ("Nutze <code>foo()</code>", "NUTZE <code>foo()</code>"),
        ("Drücke <kbd>Strg</kbd>+<kbd>C</kbd>.", "DRÜCKE <kbd>Strg</kbd>+<kbd>C</kbd>."),
        ("Das <svg><text>Hallo</text></svg> Bild", "DAS <svg><text>Hallo</text></svg> BILD"),
        ("Das <svg><path d='x'/></svg> Bild", "DAS <svg><path d='x'/></svg>BILD"),
        ("Siehe <a href=x>https://a.org/<b>b</b></a>, bitte.", "SIEHE <a href=x>https://a.org/<b>b</b></a>, BITTE."),
        ("Ja <!-- offen <p>Nein", "JA <!-- offen <p>Nein"),
        ("Ja <a href='offen>Nein</a>", "JA <a href='offen>Nein</a>"),
        ("Ja <p title=it's>nein</p>", "JA <p title=it's>NEIN</p>"),
        ("<!DOCTYPE html><?php echo 1 ?>Ja</>", "<!DOCTYPE html><?php echo 1 ?>JA</>"),
        ("<select><option>Ja<option>Nein</select>", "<select><option>JA<option>NEIN</select>"),
        ("&#" + "9" * 5000 + "; ja", "\ufffd" + "9" * 4990 + "; JA"),
    ],
)
def test_html(text: str, expected: str):
    assert upper(text) == expected


def test_inline_tags_follow_their_words():
    document = split_document("Das <a href=x><b>rote</b> Haus</a> <i>steht</i> dort.", "html", "de")
    text, alignment = swapped(document.sentences[0])
    assert text == ". dort steht Haus rote Das"
    expected = ". dort <i>steht</i> <a href=x>Haus <b>rote</b></a> Das"
    assert document.join([text], [alignment]) == expected
    # Words of an element that are apart: the larger part has the tags.
    document = split_document("<b>eins zwei drei</b> vier <i>fünf</i>", "html", "de")
    spans = word_spans(document.sentences[0])
    order = [0, 4, 1, 2]
    words = ["one", "five", "two", "three"]
    text = " ".join(words)
    links = tuple(Link(spans[k], span) for k, span in zip(order, word_spans(text), strict=True))
    assert document.join([text], [links]) == "one <i>five</i> <b>two three</b>"
    # An element that no word renders takes the nearest word; a word between two of an element belongs to it.
    links = tuple(Link(spans[k], span) for k, span in zip([0, 3, 1, 2], word_spans(text), strict=True))
    assert document.join([text], [links]) == "one <i>five</i> <b>two three</b>"
    document = split_document("<b>eins zwei drei</b> vier fünf", "html", "de")
    assert document.join([text], [links]) == "<b>one five two three</b>"


def test_without_an_alignment_an_element_takes_the_sentence():
    def put(text: str) -> str:
        document = split_document(text, "html", "de")
        return document.join(["One two three four."], [None])

    assert put("Eins <b>zwei</b> drei vier.") == "<b>One two three four.</b>"
    assert put("<i>Eins</i> zwei drei <b>vier</b>.") == "<i>One</i> two three <b>four</b>."


def test_a_translation_is_never_markup():
    evil = "</p><script>alert(1)</script>&lt;b&gt; \"'<!--"
    document = split_document("<p>Eins <b>zwei</b> <code>x</code> drei.</p>", "html", "de")
    made = document.join([evil], [None])
    tags = re.findall(r"<[^>]*>", made)
    assert sorted(tags) == sorted(["<p>", "<b>", "</b>", "<code>", "</code>", "</p>"])
    text = "".join(re.split(r"<code>x</code>|<[^>]*>", made))
    assert "".join(unescape(text).split()) == "".join(evil.split())


PARTS = (  # a tab is a space in them
    "<b> </b> <i\tclass='x'> </i> <p> </p> <br> <img\talt='Ja'> <!--\tJa\t--> <a\thref=x> </a> <code>ja()</code> "
    "<code> <span\ttranslate=no>Nein\tdanke</span> <script>a</script> < > &amp; & &nbsp; Ja. Nein! zwei drei \n "
    "1234567 www.a.de 😀 12 X \0 。 ' \" = \t \u00a0"
)
PAGES = st.lists(st.sampled_from(PARTS.split(" ")), max_size=25).map(lambda parts: "".join(parts).replace("\t", " "))


@given(st.one_of(PAGES, st.text()), st.sampled_from(["text", "html", "srt"]))
def test_unchanged_sentences_give_the_document(text: str, format: Format):
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        with pytest.raises(MacaronError, match="lone surrogate"):
            split_document(text, format)
        return
    document = split_document(text, format, "de")
    made = joined(document, str)
    assume(format == "text" or not re.search("[。！？]", text))  # between Chinese sentences English has a space
    if format == "text":  # white space inside sentences is normalised
        made, text = "".join(made.split()), "".join(text.split())
    assert made == text
    assert all(sentence and " ".join(sentence.split()) == sentence for sentence in document.sentences)


class Tags(HTMLParser):
    """Tags, comments and declarations in their order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append(f"{tag} {attrs}")

    def handle_endtag(self, tag: str) -> None:
        self.found.append(f"/{tag}")


def balanced(tags: list[str]) -> bool:
    opened: list[str] = []
    for tag in tags:
        name = tag.split()[0]
        if name in ("br", "img"):
            continue
        if not name.startswith("/"):
            opened.append(name)
        elif not opened or opened.pop() != name[1:]:
            return False
    return not opened


UNTOUCHED = [
    "<code>x(&amp;<b>y</b>)</code> ",
    "<pre>ja <i>nein</i></pre>",
    "<a translate='no'>Die Bank</a> ",
    "<!-- ja -->",
]
TREES = st.recursive(
    st.sampled_from(["ja ", "zwei drei ", "Ja. ", "Vier! ", "www.a.de ", "&lt;5 ", "<br>", "<img>", "😀 ", *UNTOUCHED]),
    lambda inner: st.tuples(st.sampled_from(["b", "i", "p", "a", "u"]), st.lists(inner, max_size=4)).map(
        lambda pair: f"<{pair[0]}>{''.join(pair[1])}</{pair[0]}>"
    ),
    max_leaves=15,
)


@given(st.lists(TREES, max_size=4).map("".join), st.integers(0, 9))
def test_tags_stay_balanced(text: str, seed: int):
    """With translations of any length and alignments that are noise."""
    draw = random.Random(seed)
    document = split_document(text, "html", "de")
    translations = [
        " ".join(draw.choices(["a", "<b>", "X", "it's,"], k=draw.randint(1, 6))) for _ in document.sentences
    ]
    alignments = [
        tuple(Link(draw.choice(word_spans(source)), span) for span in word_spans(text))
        for source, text in zip(document.sentences, translations, strict=True)
    ]
    made = document.join(translations, alignments)
    assert sorted(Tags(made).found) == sorted(Tags(text).found)
    assert balanced(Tags(made).found)
    assert all(made.count(part) == text.count(part) for part in ("www.a.de", "😀", *map(str.strip, UNTOUCHED)))


# Subtitles

SUBTITLES = (
    "\ufeff1\r\n00:00:01,000 --> 00:00:02,500 X1:1\r\n<i>Ich weiß nicht,\r\nwas du meinst.</i>\r\n\r\n"
    "2\r\n00:00:03,000 --> 00:00:04,000\r\n- Ja.\r\n- Nein, das ist\r\nviel zu teuer.\r\n\r\n"
    "3\r\n00:00:05,000 --> 00:00:06,000\r\n{\\an8}♪ La la ♪\r\n42\r\n\r\n\r\n4\r\n00:00:07,000 --> 00:00:08,000\r\n"
)


def test_subtitles():
    document = split_document(SUBTITLES, "srt", "de")
    assert document.sentences == ["Ich weiß nicht, was du meinst.", "Ja.", "Nein, das ist viel zu teuer.", "La la"]
    english = ["I really do not know what you mean by that.", "Yes.", "No.", "La di da"]
    assert document.join(english, [None] * 4) == (
        "\ufeff1\r\n00:00:01,000 --> 00:00:02,500 X1:1\r\n<i>I really do not know\r\nwhat you mean by that.</i>\r\n\r\n"
        "2\r\n00:00:03,000 --> 00:00:04,000\r\n- Yes.\r\n- No.\r\n\r\n"
        "3\r\n00:00:05,000 --> 00:00:06,000\r\n{\\an8}♪ La di\r\nda ♪ 42\r\n"
        "\r\n\r\n4\r\n00:00:07,000 --> 00:00:08,000\r\n"
    )
    assert split_document("Kein Untertitel\n\n12\n", "srt").sentences == []


# Hostile input

N = 4_000


@pytest.mark.parametrize(
    "text",
    [
        "<b>" * N + "ja" + "</b>" * N,
        "<b>ja " * N,
        "ja </b>" * N,
        "<div>" * N + "ja",
        "ja <a href='" + "x" * N * 10 + "'>nein</a>",
        "<!--" * N,
        "<a '" * N,
        '<a b="' * N,
        "<" * N,
        "</" * N,
        "<![CDATA[" * N,
        "<script>" * N,
        "<script><!--<script>" * N,
        "<title>" * N,
        "<code>" * N + "ja",
        "<span translate=no>ja</span> nein " * N,
        "&" * N + "&nbsp;" * N + "&amp" * N,
        "ja " + "😀 " * N + "nein",
        "a@" * N,
        "@" * N + "a.b",
        "www." * N,
        "a." * N,
        "x://" * N,
        "#a" * N,
        "1234 " * N + "ja",
        "1.000." * N + "ja",
        "- " * N + "ja",
        "{" * N + "ja" + "}" * N,
        "00:00:01,000 --> 00:00:02,000\n" + "ja\n" * N,
        "00:00:01,000 --> 00:00:02,000\n" + "<i" * N + "{" * N + " ja\nnein",
        "ja\0nein\0" * N,
    ],
)
def test_hostile_documents(text: str):
    """No depth or number of anything is too much."""
    formats: tuple[Format, ...] = ("text", "html", "srt")
    for format in formats:
        document = split_document(text, format, "de")
        made = document.join([sentence.upper() for sentence in document.sentences], [None] * len(document.sentences))
        assert made.count("<b>") == text.count("<b>") or format == "text"


def test_many_tags_in_a_sentence_go_in_front():
    text = "Eins " + "<b>x</b> " * (MOST_TAGS // 2 + 1)
    made = upper(text.strip())
    assert made == "<b></b>" * (MOST_TAGS // 2 + 1) + "EINS" + " X" * (MOST_TAGS // 2 + 1)


def test_lone_surrogates_and_unknown_formats_are_refused():
    with pytest.raises(MacaronError, match="character 3 is a lone surrogate"):
        split_document("ja\ud800", "html")
    with pytest.raises(MacaronError, match="one of text, html, srt, not 'pdf'"):
        split_document("ja", "pdf")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 sentences, but 0 translations"):
        split_document("ja").join([], [])


# With a model


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(COMPATIBILITY / "translation", device="cpu")


def test_text_is_translated_as_by_the_translator(translator: Translator):
    lines = (COMPATIBILITY / "corpus" / "train.de").read_text(encoding="utf-8").splitlines()[:6]
    text = (
        f"- {lines[0]} {lines[1]}\n\n{lines[2][:-1]} (www.a.de, 20145) 😀 {lines[3]} a@b.org!\n{' und '.join(lines)}\n"
    )
    made, notes = translate_document(translator, text, max_source_length=20)
    assert made == translator.translate(text, max_source_length=20)
    assert all(made.count(each) == 1 for each in ("www.a.de", "20145", "😀", "a@b.org", "\n\n"))
    assert any("long sentence" in each for each in notes)
    assert made != text


def test_a_page_is_translated(translator: Translator):
    page = "<p><b>Martin hat eure Katze gewaschen.</b></p><pre>Martin</pre> Gibt es <i>keine</i> große Flasche?"
    made, _ = translate_document(translator, page, "html")
    assert made.startswith("<p><b>Martin washed your cat.</b></p><pre>Martin</pre> ")
    assert made.count("<i>") == made.count("</i>") == 1
