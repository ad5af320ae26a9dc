"""The page of ``macaron serve`` in a real browser, before a real server."""

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

pytestmark = pytest.mark.browser
SENTENCE, OTHER = "Martin hat eure Katze gewaschen.", "Gibt es keine große Flasche in eurem Büro?"
TRANSLATED = "Martin washed your cat."
SCREENS = [pytest.param(1280, 800, marks=pytest.mark.slow), (390, 844)]
#: Addresses are kept as they are, so these are in the translation, too; an image needs no space to be one.
HOSTILE = "http://<img/src=x/onerror=window.hit=1>\nhttp://<svg/onload=window.hit=2>\njavascript://%0Awindow.hit=3"
#: What the policy had to stop is counted.
WATCH = """window.stopped = [];
addEventListener("securitypolicyviolation", (event) => { window.stopped.push(event.effectiveDirective); });"""


@pytest.fixture
def visit(enter: Callable[..., Any], open_page: Callable[..., Any]) -> Callable[..., Any]:
    """Open the page; any error in it fails the test."""
    return partial(enter, open_page)


def asked(page: Any) -> list[Any]:
    """The requests for translations from now on."""
    found: list[Any] = []
    page.on("request", lambda request: found.append(request) if request.url.endswith("/translate") else None)
    return found


def focused(page: Any) -> str:
    return page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")


def test_typing_is_translated_after_a_pause(visit, shows):
    """The clock of the page is the test's: one request after a pause of 300 ms, not one per key."""
    page = visit()
    page.clock.install()
    page.clock.pause_at("2030-01-01")
    requests = asked(page)
    page.locator("#text").press_sequentially(SENTENCE)
    page.clock.run_for(299)
    assert requests == []
    page.clock.run_for(1)
    shows(page, TRANSLATED)
    assert [request.post_data_json["q"] for request in requests] == [SENTENCE]
    assert page.inner_text("#count") == f"{len(SENTENCE)} / 600"
    page.click("#clear")
    shows(page, "")
    assert page.input_value("#text") == ""
    assert len(requests) == 1


@pytest.mark.slow
def test_there_is_something_to_read_while_typing_goes_on(visit, shows):
    page = visit()
    page.clock.install()
    page.clock.pause_at("2030-01-01")
    requests = asked(page)
    for letter in SENTENCE:
        page.keyboard.insert_text(letter)
        page.clock.run_for(200)
    assert [request.post_data_json["q"] for request in requests] == [SENTENCE[:n] for n in range(5, len(SENTENCE), 5)]
    page.clock.run_for(300)
    shows(page, TRANSLATED)


def test_an_earlier_request_is_cancelled(visit, shows, until):
    """The first one is held back: it neither goes on nor shows its answer when it comes late."""
    page, held = visit(), []
    page.route("**/translate", lambda route: route.continue_() if held else held.append(route))
    failed: list[Any] = []
    page.on("requestfailed", lambda request: failed.append(request))  # noqa: PLW0108 - playwright needs a function
    page.fill("#text", OTHER)
    until(page, "document.querySelector('#desk').dataset.state === 'waiting'")
    for _ in range(500):
        if held:
            break
        page.wait_for_timeout(20)
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    assert [request.post_data_json["q"] for request in failed] == [OTHER]
    assert "ERR_ABORTED" in failed[0].failure
    assert page.get_attribute("#desk", "data-state") == ""


def test_languages_are_swapped_and_remembered(visit, shows, served):
    page = visit()
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    page.click("#swap")
    assert [page.input_value(name) for name in ("#source", "#target", "#text")] == ["en", "de", TRANSLATED]
    back = served.ask("/translate", {"q": TRANSLATED, "source": "en", "target": "de", "api_key": "good-key"})[1][
        "translatedText"
    ]
    shows(page, back)
    assert page.get_attribute("#translation", "lang") == "de"
    page.reload()
    page.wait_for_selector("#more:not([hidden])", state="attached")
    assert [page.input_value(name) for name in ("#source", "#target")] == ["en", "de"]


@pytest.mark.slow
def test_the_language_is_detected(visit, shows, until):
    page = visit()
    page.select_option("#source", "auto")
    page.select_option("#target", "en")
    assert page.is_disabled("#swap")
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    until(page, "document.querySelector('#source').selectedOptions[0].text === 'German'")
    assert page.inner_text("label[for=source]") == "Detected"
    page.click("#swap")
    assert [page.input_value(name) for name in ("#source", "#target")] == ["en", "de"]


def test_alternatives_take_the_place_of_the_translation(visit, shows, until):
    page = visit()
    page.click("#alternatives summary")
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    until(page, "document.querySelectorAll('.alternatives button').length > 0")
    first = page.locator(".alternatives button").first
    other = first.inner_text()
    assert other != TRANSLATED
    first.click()
    assert page.inner_text("#translation") == other
    assert first.inner_text() == TRANSLATED


def test_copying(visit, shows):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    assert page.is_disabled("#copy")
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    page.click("#copy")
    page.wait_for_selector("#copy:text('Copied')")
    assert page.evaluate("navigator.clipboard.readText()") == TRANSLATED
    assert page.inner_text("#status") == "Copied."


def test_a_document_comes_back(visit, tmp_path):
    page = visit()
    name = "Brief <img src=x onerror=window.hit=4>.txt"
    content = f"{SENTENCE}\n\n- {SENTENCE}\n".encode()
    page.set_input_files("#file", {"name": name, "mimeType": "text/plain", "buffer": content})
    page.wait_for_selector("#document a")
    for _ in range(2):  # the page keeps what the server gives once
        with page.expect_download() as download:
            page.click("#document a")
        download.value.save_as(tmp_path / "saved.txt")
        assert (tmp_path / "saved.txt").read_text(encoding="utf-8") == f"{TRANSLATED}\n\n- {TRANSLATED}\n"
    assert page.inner_text("#document a") == f"Save {name[:-4]}.en.txt"
    assert page.evaluate("window.hit") is None


def test_by_keyboard_alone(visit, shows, until):
    """From the top of the page through all controls in the order of reading."""
    page = visit()
    page.reload()
    page.wait_for_selector("#more:not([hidden])", state="attached")
    assert focused(page) == "text"
    page.keyboard.type(SENTENCE)
    shows(page, TRANSLATED)
    page.focus(".skip")
    order = [focused(page)]
    for _ in range(11):
        page.keyboard.press("Tab")
        order.append(focused(page))
    assert order == [
        *(
            "Skip to the text",
            "Theme: auto",
            "API key",
            "source",
            "swap",
            "target",
            "text",
            "clear",
            "copy",
            "Look inside",
        ),
        *("Alternatives", "file"),
    ]
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    until(page, "document.querySelectorAll('.alternatives button').length > 0")
    page.keyboard.press("Tab")
    other = focused(page)
    page.keyboard.press("Enter")
    assert page.inner_text("#translation") == other
    page.focus("#swap")
    page.keyboard.press("Space")
    until(page, "document.querySelector('#source').value === 'en'")
    assert focused(page) == "text"


@pytest.mark.slow
def test_looking_inside(visit, shows, until):
    """The sentence at the cursor, as the lab's page, with an origin of its own."""
    page = visit()
    page.fill("#text", f"{OTHER} {SENTENCE} {OTHER}")
    page.evaluate(f"document.querySelector('#text').setSelectionRange({len(OTHER) + 5}, {len(OTHER) + 5})")
    with page.context.expect_page() as opened:
        page.click("#inside button")
    inside = opened.value
    inside.wait_for_selector("#particles.ready", timeout=60_000)
    assert SENTENCE in inside.inner_text(".lead")
    assert OTHER not in inside.inner_text(".lead")
    assert inside.evaluate("self.origin") == "null"
    assert inside.evaluate("window.opener") is None


def test_hostile_text_runs_nowhere(visit, until):
    """In the text, in the translation, in an alternative; and what a script in the page could do is stopped."""
    page = visit()
    page.evaluate(WATCH)
    page.click("#alternatives summary")
    page.fill("#text", f"{HOSTILE}\n{SENTENCE}")
    until(page, f"document.querySelector('#translation').textContent === {json.dumps(HOSTILE + chr(10) + TRANSLATED)}")
    until(page, "document.querySelectorAll('.alternatives button').length > 0")
    page.locator(".alternatives button").first.click()
    with page.context.expect_page() as opened:
        page.click("#inside button")
    opened.value.wait_for_selector("#particles.ready", timeout=60_000)
    page.click("#swap")
    until(page, "document.querySelector('#text').value.includes('<svg')")
    for each in (page, opened.value):
        each.wait_for_timeout(200)
        assert each.evaluate("window.hit") is None
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert page.evaluate("window.stopped") == []


@pytest.mark.slow
def test_the_policy_stops_what_is_not_ours(enter, visits, served, until):
    page = enter(visits.open)
    page.evaluate(WATCH)
    page.evaluate("""() => {
      const make = (tag, name, value) => {
        try {
          const element = document.createElement(tag);
          if (name in element && name !== "onclick") element[name] = value; else element.setAttribute(name, value);
          document.body.append(element);
          element.click();
        } catch { /* refused already */ }
      };
      make("script", "textContent", "window.hit = 1");
      make("b", "onclick", "window.hit = 2");
      make("b", "innerHTML", "<img src=x onerror='window.hit = 3'>");
      make("img", "src", "https://example.org/x.png");
      make("iframe", "src", "/languages");
      fetch("https://example.org/").catch(() => {});
    }""")
    wanted = ["connect-src", "frame-src", "img-src", "require-trusted-types-for"]
    until(page, f"{json.dumps(wanted)}.every((name) => window.stopped.includes(name))")
    assert page.evaluate("window.hit") is None
    assert served.ask("/assets/../page.py")[0] == 404


@pytest.mark.parametrize(("width", "height"), SCREENS, ids=["laptop", "phone"])
def test_readable(visit, shows, until, assert_readable, width, height):
    """Empty, with a translation and alternatives, with a word that is wider than the page, with an error."""
    page = visit(width=width, height=height)
    assert_readable(page)
    page.click("#alternatives summary")
    page.fill("#text", SENTENCE)
    shows(page, TRANSLATED)
    until(page, "document.querySelectorAll('.alternatives button').length > 0")
    assert_readable(page)
    page.fill("#text", "https://example.org/" + 400 * "x")
    until(page, "document.querySelector('#translation').textContent.length > 400")
    assert_readable(page)
    page.fill("#text", 601 * "x")
    page.wait_for_selector("[data-problem=text] p:text('too long')")
    assert_readable(page)
