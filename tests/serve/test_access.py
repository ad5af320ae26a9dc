"""Keys, limits and CORS: alone, and in front of a real server with two models."""

import asyncio
import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import deepl
import pytest
from deep_translator import LibreTranslator
from deep_translator.exceptions import AuthorizationException, ServerException
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.testclient import TestClient

from forked import macaron_text
from macaron.errors import MacaronError
from macaron.models.catalogue import Catalogue
from macaron.serve.app import make_app
from macaron.serve.engine import Engine, ServeSettings
from macaron.serve.protocols import TranslatedFiles
from macaron.serve.requests import Access, Fields, read_keys
from served import ENVIRONMENT, FREE, SLOW, TRANSLATION, Served, finished

SENTENCE, TRANSLATED = "Ein Salat ist teuer.", "A salad is expensive."
BODY = {"q": SENTENCE, "source": "de", "target": "en"}


def test_keys_are_needed_for_work(guarded: Served):
    assert guarded.ask("/health")[0] == 200
    assert guarded.ask("/languages")[0] == 200
    assert guarded.ask("/frontend/settings")[1]["keyRequired"]
    for path in ("/translate", "/detect", "/translate_file"):
        assert guarded.ask(path, BODY)[0] == 400, path
        assert guarded.ask(path, BODY | {"api_key": "wrong"})[0] == 403, path
    for path in ("/", "/pipeline/translation", "/models/de-en", "/v1/embeddings"):
        assert guarded.ask(path, {"inputs": "a"})[0] == 401, path
        assert guarded.ask(path, {"inputs": "a"}, {"Authorization": "Bearer wrong"})[0] == 401, path
    for path in ("/v2/translate", "/v2/usage", "/v2/languages"):
        assert guarded.ask(path, {"text": "a", "target_lang": "EN"})[0] == 403, path


def test_each_protocol_has_its_place_for_the_key(guarded: Served):
    assert guarded.ask("/translate", BODY | {"api_key": FREE}) == (200, {"translatedText": TRANSLATED})
    assert guarded.ask(f"/translate?api_key={FREE}", BODY) == (200, {"translatedText": TRANSLATED})
    client = LibreTranslator(source="de", target="en", api_key=FREE, custom_url=f"{guarded.url}/")
    assert client.translate(SENTENCE) == TRANSLATED
    with pytest.raises(AuthorizationException):
        LibreTranslator(source="de", target="en", api_key="wrong", custom_url=f"{guarded.url}/").translate(SENTENCE)
    with pytest.raises(deepl.AuthorizationException, match="not valid"):
        deepl.DeepLClient("wrong", server_url=guarded.url).get_usage()
    found = deepl.DeepLClient(FREE, server_url=guarded.url).translate_text(SENTENCE, target_lang="EN-US")
    assert (found.text, found.detected_source_lang) == (TRANSLATED, "DE")
    url = f"{guarded.url}/models/de-en"
    assert InferenceClient(url, token=FREE).translation(SENTENCE).translation_text == TRANSLATED
    with pytest.raises(HfHubHTTPError, match="API key"):
        InferenceClient(url, token="wrong").translation(SENTENCE)


def test_too_many_requests(guarded: Served):
    for _ in range(3):
        assert guarded.ask("/detect", {"q": "a", "api_key": SLOW})[0] == 200
    request = urllib.request.Request(
        f"{guarded.url}/v2/translate", b"{}", {"Authorization": f"DeepL-Auth-Key {SLOW}", "Content-Type": "text/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=60)
    assert error.value.code == 429
    assert 1 <= int(error.value.headers["Retry-After"]) <= 20
    assert "3 per minute" in json.loads(error.value.read())["message"]
    with pytest.raises(ServerException):
        LibreTranslator(source="de", target="en", api_key=SLOW, custom_url=f"{guarded.url}/").translate(SENTENCE)
    assert guarded.ask("/translate", BODY | {"api_key": FREE})[0] == 200  # another key is another client


def test_two_models(guarded: Served):
    def ask(text: str | list[str], source: str, target: str) -> dict[str, Any]:
        status, found = guarded.ask("/translate", {"q": text, "source": source, "target": target, "api_key": FREE})
        assert status == 200, found
        return found

    assert ask(SENTENCE, "auto", "en")["translatedText"] == TRANSLATED
    assert ask(SENTENCE, "de", "en") == {"translatedText": TRANSLATED}
    assert ask(SENTENCE, "en", "de") == {"translatedText": TRANSLATED}  # the other model, which is the same
    english = "The weather is very nice today, isn't it?"
    found = ask(english, "auto", "en")
    assert found["translatedText"] == english
    assert found["detectedLanguage"]["language"] == "en"
    assert found["detectedLanguage"]["confidence"] > 50
    found = ask([english, SENTENCE], "auto", "en")  # each by its own language
    assert found["translatedText"] == [english, TRANSLATED]
    assert [each["language"] for each in found["detectedLanguage"]] == ["en", "de"]
    _, found = guarded.ask("/detect", {"q": SENTENCE, "api_key": FREE})
    assert [each["language"] for each in found] == ["de", "en"]
    parameters = {"src_lang": "de_DE", "tgt_lang": "en_XX"}
    body = {"inputs": [SENTENCE, SENTENCE], "parameters": parameters}
    found = guarded.ask("/pipeline/translation", body, {"Authorization": f"Bearer {FREE}"})
    assert found == (200, [{"translation_text": TRANSLATED}] * 2)


def test_sizes(guarded: Served):
    status, found = guarded.ask("/translate", BODY | {"q": "a" * 101, "api_key": FREE})
    assert (status, found) == (400, {"error": "request (101) exceeds text limit (100)"})
    status, found = guarded.ask(
        "/v2/translate", {"text": ["a" * 101], "target_lang": "EN"}, {"Authorization": f"Bearer {FREE}"}
    )
    assert status == 413
    large = b"q=" + b"a" * (5 << 20)
    assert guarded.ask("/translate", large, {"Content-Type": "application/x-www-form-urlencoded"})[0] == 413
    assert guarded.ask("/v2/translate", large)[0] == 413
    assert guarded.ask("/pipeline/translation", large)[0] == 413


def test_a_client_that_goes_while_it_sends(guarded: Served):
    """It is counted, and nothing is logged: the server's fixture looks at that."""
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=60) as client:
        client.sendall(b"POST /translate HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nq=Ein")
    deadline = time.monotonic() + 60
    while 'path="/translate",status="499"' not in guarded.ask("/metrics")[1]:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def preflight(url: str, origin: str) -> dict[str, str]:
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers, method="OPTIONS"), timeout=60
        ) as found:
            return dict(found.headers)
    except urllib.error.HTTPError as error:
        return dict(error.headers)


def test_cors(guarded: Served, server: Served):
    name = "access-control-allow-origin"
    assert preflight(f"{guarded.url}/translate", "https://page.example")[name] == "https://page.example"
    assert name not in preflight(f"{guarded.url}/translate", "https://other.example")
    assert preflight(f"{server.url}/translate", "https://other.example")[name] == "*"
    # Errors, too, can be read by the page.
    request = urllib.request.Request(f"{server.url}/translate", b"{", {"Origin": "https://other.example"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=60)
    assert error.value.headers[name] == "*"
    assert error.value.headers["access-control-expose-headers"] == "Retry-After"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no key in this file"),
        ("# nothing\n", "no key in this file"),
        ("alfa\nbravo 7 8\n", "line 2: write a key"),
        ("alfa x\n", "line 1"),
        ("alfa 0\n", "line 1"),
        ("alfa ²\n", "line 1"),
        (f"alfa {'7' * 5000}\n", "line 1: write a key"),
        ("alfa 1000001\n", "1 to 1000000"),
        ("alfa\nalfa\n", "line 2: this key is there twice"),
        ("schlüssel\n", "line 1: write a key of ASCII characters"),
    ],
)
def test_files_of_keys(tmp_path: Path, text: str, words: str):
    file = tmp_path / "keys.txt"
    file.write_text(text)
    with pytest.raises(MacaronError, match=words) as error:
        read_keys(file)
    assert str(file) in str(error.value)
    assert not any(secret in str(error.value).partition(": ")[2] for secret in ("alfa", "bravo", "schl"))


def test_a_damaged_file_of_keys_ends_the_command(tmp_path: Path):
    file = tmp_path / "keys.txt"
    file.write_text("# nothing\n")
    done = macaron_text("serve", TRANSLATION, "--port", 0, "--api-keys", file)
    assert (done.returncode, done.stdout) == (1, "")
    assert "no key in this file" in done.stderr
    done = macaron_text("serve", TRANSLATION, "--port", 0, "--api-keys", tmp_path / "none.txt")
    assert done.returncode == 1
    assert "none.txt" in done.stderr


def test_a_warning_where_everybody_may_ask():
    command = [sys.executable, "-m", "macaron", "serve", str(TRANSLATION), "--host", "0.0.0.0", "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as run:
        assert run.stderr is not None
        assert "anyone who can reach 0.0.0.0 may use this server. Give --api-keys" in run.stderr.readline()
        run.kill()


def test_keys_and_their_limits(tmp_path: Path):
    file = tmp_path / "keys.txt"
    file.write_text("one 60 # a comment\n\ntwo\n")
    assert read_keys(file) == {"one": 60, "two": None}


def test_rates():
    now = 1000.0
    rates = Access({}, 3, lambda: now)
    assert [rates.take("a", 3) for _ in range(5)] == [0, 0, 0, 20, 20]
    assert rates.take("b", 3) == 0
    now += 19
    assert rates.take("a", 3) == 1
    now += 1
    assert [rates.take("a", 3) for _ in range(2)] == [0, 20]
    now += 1000
    assert [rates.take("a", 3) for _ in range(4)] == [0, 0, 0, 20]


def test_without_keys_each_address_has_its_limit():
    access = Access({}, 1, lambda: 0.0)

    def ask(host: str) -> str:
        scope = {"type": "http", "path": "/translate", "headers": [], "client": (host, 1), "query_string": b""}
        return access.admit(Request(scope), Fields(api_key="ignored"), work=True)

    assert [ask("192.0.2.1"), ask("192.0.2.2")] == ["", ""]
    with pytest.raises(HTTPException) as error:
        ask("192.0.2.1")
    assert (error.value.status_code, error.value.headers) == (429, {"Retry-After": "60"})


def test_failures_of_the_server_itself_are_logged_without_keys_and_texts(capsys: pytest.CaptureFixture[str]):
    """And answered in the shape of the protocol."""
    access = Access({FREE: None}, 0)
    access.characters = {}  # type: ignore[assignment]  # KeyError, whose message is the key
    app = make_app(Engine(ServeSettings(), Catalogue([str(TRANSLATION)])), access)
    client = TestClient(app, raise_server_exceptions=False)
    answer = client.get("/v2/usage", headers={"Authorization": f"DeepL-Auth-Key {FREE}"})
    assert (answer.status_code, answer.json()) == (500, {"message": "something went wrong inside the server"})
    _, errors = capsys.readouterr()
    assert "macaron: a request failed: KeyError" in errors
    assert "protocols.py" in errors
    assert FREE not in errors
    assert client.get("/health").status_code == 503  # no worker was started


def test_files_that_nobody_fetches_are_gone():
    async def scenario() -> None:
        files = TranslatedFiles(seconds=0.01, most=10)
        tokens = [files.keep("name", content) for content in (b"12345", b"67890", b"1")]
        assert [files.fetch(token) for token in tokens] == [None, ("name", b"67890"), ("name", b"1")]
        token = files.keep("name", b"1")
        await asyncio.sleep(0.1)
        assert files.fetch(token) is None

    finished(scenario())
