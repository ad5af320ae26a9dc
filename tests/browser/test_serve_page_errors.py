"""What the page of ``macaron serve`` says when something goes wrong: keys, limits, a server that is busy or gone."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from served import TRANSLATION, start

pytestmark = pytest.mark.browser
SENTENCE, TRANSLATED = "Martin hat eure Katze gewaschen.", "Martin washed your cat."
LIMIT = 600
GONE = "The server cannot be reached. The page tries again in 5 seconds; the text stays here."


@pytest.fixture
def visit(enter: Callable[..., Any], visits: Any) -> Callable[..., Any]:
    """Open the page; errors in it are no failures: a browser complains about every status that is not 200."""
    return partial(enter, visits.open)


@pytest.fixture
def says(until: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    """Wait until the page tells of a problem, as a screen reader hears it; an empty text: of none."""

    def wait(page: Any, message: str, where: str = "text") -> None:
        box = f"document.querySelector('[data-problem={where}]')"
        told = f"!{box}.hidden && {box}.querySelector('[role=alert]').textContent === {json.dumps(message)}"
        until(page, told if message else f"{box}.hidden")

    return wait


def test_keys(visit, says, shows):
    page = visit(key="")
    page.fill("#text", SENTENCE)
    says(page, "This server asks for an API key. Enter it above.")
    assert page.is_visible("#key")
    page.fill("#key", "bad-key")
    page.press("#key", "Enter")
    says(page, "The API key is not valid.")
    assert page.is_hidden("[data-problem=text] button")
    page.fill("#key", "good-key")
    page.press("#key", "Enter")
    shows(page, TRANSLATED)
    says(page, "")
    assert page.is_hidden("#key")
    page.reload()
    page.wait_for_selector("#more:not([hidden])", state="attached")
    assert page.input_value("#key") == "good-key"
    assert page.evaluate("localStorage.getItem('macaron-key')") is None


def test_too_long(visit, says, shows):
    """Nothing is sent; what was translated stays, and the next text that fits is translated."""
    page = visit()
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.fill("#text", (LIMIT + 3) * "😀")  # characters, not units of UTF-16
    says(page, f"The text is too long: this server takes {LIMIT} characters. Remove 3.")
    assert page.inner_text("#count") == f"{LIMIT + 3} / {LIMIT}"
    assert asked == []
    assert page.inner_text("#translation") == TRANSLATED
    page.fill("#text", SENTENCE)
    says(page, "")


def test_too_many_requests(visit, says, shows):
    """The page waits as long as the server says, by its own clock, and asks again."""
    page = visit(key="slow-key")
    page.clock.install()
    page.clock.pause_at("2030-01-01")
    for text in (SENTENCE, SENTENCE[:-1]):
        page.fill("#text", text)
        page.clock.run_for(300)
        page.wait_for_selector("#desk[data-state='']")
    with page.expect_response("**/translate") as refused:
        page.fill("#text", SENTENCE[:-2])
        page.clock.run_for(300)
    assert refused.value.status == 429
    wait = int(refused.value.headers["retry-after"])
    assert 1 <= wait <= 60
    says(page, f"Too many requests. The page tries again in {wait} second{'s' if wait > 1 else ''}.")
    page.evaluate(
        "document.querySelector('#key').value = 'good-key'"
    )  # else the test would have to wait that long, too
    with page.expect_response("**/translate") as accepted:
        page.clock.run_for(1000 * wait)
    assert accepted.value.status == 200
    says(page, "")


@pytest.mark.slow
def test_busy(visit, says, shows):
    page = visit()
    page.route("**/translate", lambda route: route.fulfill(status=503, headers={"Retry-After": "9"}, body="{}"))
    page.fill("#text", SENTENCE)
    says(page, "The server is busy. The page tries again in 9 seconds.")
    page.unroute("**/translate")
    page.click("[data-problem=text] button")
    shows(page, TRANSLATED)
    says(page, "")


@pytest.mark.slow
def test_documents_that_are_refused(visit, says):
    page = visit()
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"\xff\xfe\xff"})
    says(page, "The file is not UTF-8 text.", "document")
    page.set_input_files("#file", {"name": "a.exe", "mimeType": "text/plain", "buffer": b"x"})
    says(page, "Files of this format are not supported: .txt, .html, .htm, .srt are.", "document")
    assert page.inner_text("#document") == ""


@pytest.mark.slow
def test_problems_of_looking_inside_are_pages(visit):
    """The new tab has a page that says what is wrong, and the same policy."""
    page = visit()
    page.fill("#text", SENTENCE)
    page.evaluate("document.querySelector('#key').value = '<script>window.hit = 1'")
    with page.context.expect_page() as opened:
        page.click("#inside button")
    opened.value.wait_for_selector("h1:text('Look inside')")
    assert "The API key is not valid" in opened.value.inner_text("main")
    assert opened.value.evaluate("[self.origin, window.hit]") == ["null", None]


@pytest.mark.slow
def test_a_server_without_translation(visits, says, served):
    """As a server of encoders answers."""
    page = visits.open("about:blank")
    page.route("**/languages", lambda route: route.fulfill(json=[]))
    page.goto(served.url + "/")
    says(page, "This server has no translation model, so there is nothing to type here.")
    assert page.is_disabled("#text")


def test_the_network_goes_and_comes_back(visit, says, shows):
    page = visit()
    page.context.set_offline(True)
    page.clock.install()
    page.clock.pause_at("2030-01-01")
    page.fill("#text", SENTENCE)
    page.clock.run_for(300)
    says(page, GONE)
    assert page.input_value("#text") == SENTENCE
    page.context.set_offline(False)
    page.clock.run_for(5000)
    shows(page, TRANSLATED)
    says(page, "")


@pytest.mark.slow
def test_the_server_ends(visits, says, shows):
    served = start(TRANSLATION)
    page = visits.open(served.url + "/")
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    assert served.stop()[0] == 0
    page.fill("#text", SENTENCE[:-1])
    says(page, GONE)
    assert page.inner_text("#translation") == TRANSLATED
