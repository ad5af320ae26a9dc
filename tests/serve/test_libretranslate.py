"""LibreTranslate's protocol: its clients as they are, and the requests that Mastodon, Discourse and n8n send."""

import json
import urllib.error
import urllib.parse
import urllib.request
import uuid
from typing import Any

import pytest
from deep_translator import LibreTranslator
from libretranslatepy import LibreTranslateAPI

from served import Served

GERMAN = ["Martin hat eure Katze gewaschen.", "Ein Salat ist teuer.", "Er saß auf unserem Stuhl."]
ENGLISH = ["Martin washed your cat.", "A salad is expensive.", "He sat on our chair."]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
PAIR = {"source": "de", "target": "en"}


def form(**fields: str) -> bytes:
    return urllib.parse.urlencode(fields).encode()


def test_libretranslatepy(server: Served):
    client = LibreTranslateAPI(server.url)
    assert [client.translate(text, "de", "en") for text in GERMAN] == ENGLISH
    assert client.detect(GERMAN[0]) == [{"confidence": 100.0, "language": "de"}]
    assert client.languages() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]


def test_deep_translator(server: Served):
    client = LibreTranslator(source="de", target="en", api_key="x", custom_url=f"{server.url}/")
    assert client.translate_batch(GERMAN) == ENGLISH
    client = LibreTranslator(source="German", target="English", api_key="x", custom_url=f"{server.url}/")
    assert client.translate(GERMAN[2]) == ENGLISH[2]


def test_mastodon(server: Served):
    """A list of HTML fragments as JSON; without a source language where the post names none."""
    body = {"q": ["<p>Ein Salat ist teuer.</p>", ""], "source": "auto", "target": "en", "format": "html", "api_key": ""}
    status, found = server.ask("/translate", body)
    assert status == 200
    assert found["translatedText"] == ["<p>A salad is expensive.</p>", ""]
    assert [each["language"] for each in found["detectedLanguage"]] == ["de", "de"]
    _, found = server.ask("/translate", body | {"source": "de"})
    assert list(found) == ["translatedText"]
    status, found = server.ask("/languages")
    assert {each["code"]: each["targets"] for each in found} == {"de": ["en"], "en": []}


def test_discourse(server: Served):
    """A form, of HTML; and the language of a post first."""
    status, found = server.ask("/detect", form(q=GERMAN[2]), FORM)
    assert (status, found[0]["language"]) == (200, "de")
    body = form(q="<p>Er saß auf unserem Stuhl.</p>", source="de", target="en", format="html", api_key="")
    status, found = server.ask("/translate", body, FORM)
    assert (status, found) == (200, {"translatedText": "<p>He sat on our chair.</p>"})


def test_n8n(server: Served):
    """The key is in the query, beside a body of JSON."""
    body = {"q": GERMAN[0], **PAIR, "format": "text", "alternatives": 0}
    assert server.ask("/translate?api_key=anything", body) == (200, {"translatedText": ENGLISH[0]})


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"q=Er sa\xc3\x9f auf unserem Stuhl.&source=de&target=en", FORM),
        (form(q=GERMAN[2], **PAIR), {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}),
        (b'\xef\xbb\xbf{"q": "Er sa\\u00df auf unserem Stuhl.", "source": "DE", "target": "en-GB"}', {}),
        (
            {"q": GERMAN[2], **PAIR, "api_key": None, "format": None},
            {"Content-Type": "application/json; charset=utf-8"},
        ),
        ({"q": GERMAN[2], **PAIR, "apiKey": "", "unknown": [1]}, {}),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nEr sa\xc3\x9f auf unserem Stuhl.\r\n'
            b'--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nde\r\n'
            b'--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nen\r\n--x--\r\n',
            {"Content-Type": "multipart/form-data; boundary=x"},
        ),
    ],
    ids=["raw UTF-8", "form", "byte order mark", "nulls", "unknown fields", "multipart"],
)
def test_bodies_that_clients_send(server: Served, body: Any, headers: dict[str, str]):
    assert server.ask("/translate", body, headers) == (200, {"translatedText": ENGLISH[2]})


def test_a_list_makes_lists(server: Served):
    status, found = server.ask("/translate", {"q": GERMAN, "source": "auto", "target": "en", "alternatives": 2})
    assert status == 200
    assert found["translatedText"] == ENGLISH
    assert found["detectedLanguage"] == [{"confidence": 100.0, "language": "de"}] * 3
    assert [len(each) for each in found["alternatives"]] == [2, 2, 2]
    status, found = server.ask("/translate", {"q": GERMAN[0], **PAIR, "alternatives": 2})
    assert found["translatedText"] == ENGLISH[0]
    assert len({ENGLISH[0], *found["alternatives"]}) == 3
    assert server.ask("/translate", {"q": [], **PAIR}) == (200, {"translatedText": []})


def test_a_text_in_the_target_language_stays(server: Served):
    text = "One.\n\n  Two! "
    assert server.ask("/translate", {"q": text, "source": "en", "target": "en"}) == (200, {"translatedText": text})


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"source": "de", "target": "en"}, 400, "q is missing"),
        ({"q": "a", "target": "en"}, 400, "source is missing"),
        ({"q": "a", "source": "de"}, 400, "target is missing"),
        ({"q": "a", "source": "xx", "target": "en"}, 400, "xx is not supported: this server has de, en"),
        ({"q": "a", "source": "en", "target": "de"}, 400, "en to de is not supported: this server has de-en"),
        ({"q": "a", "source": "auto", "target": "de"}, 200, ""),
        ({"q": "a", **PAIR, "format": "pdf"}, 400, "format must be one of 'text', 'html', not 'pdf'"),
        ({"q": "a", **PAIR, "alternatives": 11}, 400, "alternatives must be at most 10, not 11"),
        ({"q": "a", **PAIR, "alternatives": True}, 400, "alternatives must be a whole number, not True"),
        ({"q": 7, **PAIR}, 400, "q must be a string or a list of strings"),
        ({"q": ["a", None], **PAIR}, 400, "q must be a string or a list of strings"),
        ({"q": "a", "source": ["de"], "target": "en"}, 400, "source must be a string"),
        ({"q": "a" * 20_001, **PAIR}, 400, "request (20001) exceeds text limit (20000)"),
        ({"q": [""] * 1001, **PAIR}, 413, "1,001 texts"),
        ([1], 400, "must be a JSON object"),
        (b"{", 400, "not valid JSON"),
        (b'{"q": "\\ud800"}', 400, "surrogates not allowed"),
        (b'{"q": "\xff"}', 400, "not UTF-8"),
        (b"[" * 100_000, 400, "levels of nesting"),
        (b'{"q": ' + b"[" * 49 + b"]" * 49 + b"}", 400, "q must be a string"),
        (b'{"q": "' + b"a" * 100_000 + b'"}', 400, "source is missing"),
    ],
)
def test_errors(server: Served, body: Any, status: int, words: str):
    found = server.ask("/translate", body)
    assert found[0] == status, found
    if status != 200:
        assert list(found[1]) == ["error"]
        assert words in found[1]["error"]


def test_damaged_forms(server: Served):
    for body in (b"q=%ff&source=de&target=en", b"q=\xff", b"&".join(b"q%d=" % i for i in range(3000)), b"q=%00"):
        status, found = server.ask("/translate", body, FORM)
        assert (status, list(found)) == (400, ["error"])
    status, found = server.ask("/translate", b"--", {"Content-Type": "multipart/form-data"})
    assert (status, list(found)) == (400, ["error"])


def test_methods_and_paths(server: Served):
    assert server.ask("/translate") == (405, {"error": "Method Not Allowed"})
    assert server.ask("/no/such/path", {"q": "a"}) == (404, {"error": "Not Found"})


def test_frontend_settings(server: Served):
    status, found = server.ask("/frontend/settings")
    assert status == 200
    assert found["language"] == {
        "source": {"code": "de", "name": "German"},
        "target": {"code": "en", "name": "English"},
    }
    assert found["charLimit"] == 20_000
    assert not found["keyRequired"]
    assert found["filesTranslation"]
    assert ".srt" in found["supportedFilesFormat"]


def upload(server: Served, name: str, content: bytes, **fields: str) -> tuple[int, Any]:
    boundary = uuid.uuid4().hex
    parts = [f'Content-Disposition: form-data; name="{key}"\r\n\r\n{value}'.encode() for key, value in fields.items()]
    parts.append(f'Content-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'.encode() + content)
    body = b"".join(b"--%s\r\n%s\r\n" % (boundary.encode(), part) for part in parts)
    kind = f"multipart/form-data; boundary={boundary}"
    return server.ask("/translate_file", body + b"--%s--\r\n" % boundary.encode(), {"Content-Type": kind})


def test_a_translated_file_is_fetched_once(server: Served):
    text = "\n\n".join(GERMAN).encode()
    status, found = upload(server, "../Über uns.txt", text, **PAIR)
    assert (status, list(found)) == (200, ["translatedFileUrl"])
    url = found["translatedFileUrl"]
    assert url.startswith(server.url)
    head = urllib.request.Request(url, method="HEAD")
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(head, timeout=60)  # looking does not use the file up
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.read().decode() == "\n\n".join(ENGLISH)
        assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''%C3%9Cber%20uns.en.txt"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(url, timeout=60)
    assert error.value.code == 404
    assert "fetched already" in json.loads(error.value.read())["error"]


def test_subtitles_and_pages(server: Served):
    documents = {
        "a.SRT": "1\n00:00:01,000 --> 00:00:02,500\n{}\n\n2\n00:00:03,000 --> 00:00:04,000\n{}\n",
        "a.html": "<!doctype html>\n<title>{}</title>\n<script>if (a < b) Ein()</script>\n<p id='x'>{}</p>\n",
    }
    for name, document in documents.items():
        status, found = upload(server, name, document.format(*GERMAN[:2]).encode(), **PAIR)
        assert status == 200
        with urllib.request.urlopen(found["translatedFileUrl"], timeout=60) as answer:
            assert answer.read().decode() == document.format(*ENGLISH[:2])
            assert answer.headers.get_content_type() == "application/octet-stream"


@pytest.mark.parametrize(
    ("name", "content", "fields", "words"),
    [
        ("a.pdf", b"a", PAIR, ".txt, .html, .htm, .srt are"),
        ("a.txt", b"\xff", PAIR, "not UTF-8"),
        ("a.txt", b"a", {"source": "de"}, "target is missing"),
        ("a.txt", b"a", {"source": "de", "target": "fr"}, "fr is not supported"),
    ],
)
def test_files_that_are_refused(server: Served, name: str, content: bytes, fields: dict[str, str], words: str):
    status, found = upload(server, name, content, **fields)
    assert status == 400
    assert words in found["error"]
    status, found = server.ask("/translate_file", {"file": "text", **PAIR})
    assert status == 400
    assert "multipart/form-data" in found["error"]


@pytest.mark.parametrize(("name", "part"), [("a.txt", "ja\n"), ("a.txt", "Ja. "), ("a.html", "<p>a"), ("a.srt", "1\n")])
def test_files_of_too_many_parts(server: Served, name: str, part: str):
    status, found = upload(server, name, part.encode() * 200_001, **PAIR)
    assert status == 413
    assert found == {"error": "the file has more than 200,000 lines, tags and sentences: send it in parts"}
