"""The page's files and their headers; which sentence is looked into. What the page does is in tests/browser."""

import re
import urllib.request
from importlib.resources import files
from urllib.parse import urlencode

import pytest

from macaron.decode.text_pieces import sentence_at
from macaron.serve.app import INSIDE_POLICY, POLICY
from served import Served

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXT = "Dr. Meyer kam am 3. Mai.\n\n- Er blieb.  Wie lange?\nhttps://example.org 17"


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ("", "Dr. Meyer kam am 3. Mai."),
        ("Dr. Meyer kam am 3.", "Dr. Meyer kam am 3. Mai."),
        ("Dr. Meyer kam am 3. Mai.", "Dr. Meyer kam am 3. Mai."),
        ("Dr. Meyer kam am 3. Mai.\n\n- E", "Er blieb."),
        ("Dr. Meyer kam am 3. Mai.\n\n- Er blieb.", "Er blieb."),
        ("Dr. Meyer kam am 3. Mai.\n\n- Er blieb.  W", "Wie lange?"),
        (TEXT, "Wie lange?"),  # nothing behind it has words
        (TEXT + 99 * "x", "Wie lange?"),
    ],
)
def test_the_sentence_at_the_cursor(before: str, sentence: str):
    assert sentence_at(TEXT, len("".join(before.split())), "de") == sentence


def test_a_text_without_words_is_taken_whole():
    assert sentence_at(" 17 \n 4 ", 0, "de") == "17 4"


def test_the_files_name_nothing_outside_and_have_nothing_inline():
    for asset in (files("macaron.serve") / "assets").iterdir():
        text = asset.read_text(encoding="utf-8")
        assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}, asset.name
        assert not re.search(r"\bstyle=|\bon\w+=\"|innerHTML|outerHTML|insertAdjacentHTML|\beval\b", text), asset.name


def test_headers(server: Served):
    for path, kind in (("/", "text/html"), ("/assets/page.js", "text/javascript"), ("/assets/base.css", "text/css")):
        with urllib.request.urlopen(server.url + path) as answer:
            assert answer.headers["Content-Security-Policy"] == POLICY
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers.get_content_type() == kind
    assert "unsafe" not in POLICY
    for path in ("/assets/index.htm", "/assets/..%2fpage.py", "/assets/", "/assets"):
        assert server.ask(path)[0] == 404, path


def test_looking_inside(server: Served):
    """A page for one sentence, with an origin of its own; and pages for mistakes, which quote nothing as HTML."""
    fields = {"q": "Martin hat eure Katze gewaschen. Ja.", "at": "5", "source": "de", "target": "en"}
    request = urllib.request.Request(server.url + "/inside", urlencode(fields).encode(), FORM)
    with urllib.request.urlopen(request) as answer:
        assert answer.headers["Content-Security-Policy"] == INSIDE_POLICY
        assert answer.headers["Cache-Control"] == "no-store"
        page = answer.read().decode()
    assert "“Martin hat eure Katze gewaschen.”" in page
    for wrong, message in (
        ({"source": "<i>"}, "&lt;i&gt; is not supported"),
        ({"target": "de"}, " to de is not supported"),
        ({"q": " "}, "There is no text"),
        ({"at": "-1"}, "At must be a whole number"),
        ({"q": 300 * "Katze "}, "200"),  # tokens that a picture can show
    ):
        status, page = server.ask("/inside", urlencode({**fields, **wrong}).encode(), FORM)
        assert status == 400, wrong
        assert "<h1>Look inside</h1>" in page
        assert message in page, wrong
