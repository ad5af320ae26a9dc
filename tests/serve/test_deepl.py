"""DeepL's protocol: its official client as it is."""

from typing import Any

import deepl
import pytest

from served import Served

GERMAN = ["Martin hat eure Katze gewaschen.", "Ein Salat ist teuer."]
ENGLISH = ["Martin washed your cat.", "A salad is expensive."]


@pytest.fixture
def client(server: Served) -> deepl.DeepLClient:
    deepl.http_client.max_network_retries = 0
    return deepl.DeepLClient("any key", server_url=server.url)


def test_texts(client: deepl.DeepLClient):
    found = client.translate_text(GERMAN[0], target_lang="EN-US")
    assert (found.text, found.detected_source_lang, found.billed_characters) == (ENGLISH[0], "DE", len(GERMAN[0]))
    several = client.translate_text(GERMAN, source_lang="DE", target_lang="EN-GB", formality="prefer_less", context="x")
    assert [each.text for each in several] == ENGLISH
    found = client.translate_text("<p>Ein Salat ist teuer.</p>", target_lang="EN-US", tag_handling="html")
    assert found.text == "<p>A salad is expensive.</p>"


def test_languages_and_usage(client: deepl.DeepLClient):
    assert [(each.code, each.name) for each in client.get_source_languages()] == [("DE", "German")]
    targets = client.get_target_languages()
    assert [each.code for each in targets] == ["EN-US", "EN-GB"]
    assert [each.supports_formality for each in targets] == [False, False]
    before = client.get_usage().character
    client.translate_text(GERMAN, target_lang="EN-US")
    after = client.get_usage().character
    assert after.count - before.count == sum(map(len, GERMAN))
    assert not after.limit_reached


def test_a_form_with_repeated_texts(server: Served):
    body = b"text=Ein+Salat+ist+teuer.&text=Martin+hat+eure+Katze+gewaschen.&target_lang=EN&source_lang=DE"
    status, found = server.ask("/v2/translate", body, {"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 200
    assert [each["text"] for each in found["translations"]] == ENGLISH[::-1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_lang": "FR"}, "FR is not supported"),
        ({"target_lang": "DE", "source_lang": "EN"}, "en to de is not supported"),
        ({"target_lang": "EN-US", "formality": "more"}, "formality is not supported"),
        ({"target_lang": "EN-US", "source_lang": "DE", "glossary": "some-id"}, "glossary_id is not supported"),
    ],
)
def test_errors_of_the_client(client: deepl.DeepLClient, options: dict[str, Any], words: str):
    with pytest.raises(deepl.DeepLException, match=words) as error:
        client.translate_text("Hallo", **options)
    assert error.value.http_status_code == 400


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"text": ["a"]}, 400, "target_lang"),
        ({"target_lang": "EN"}, 400, "text"),
        ({"text": ["a"], "target_lang": "EN", "tag_handling": "pdf"}, 400, "tag_handling"),
        ({"text": ["a" * 20_001], "target_lang": "EN"}, 413, "exceeds text limit"),
        (b"{", 400, "not valid JSON"),
        (None, 405, "Method Not Allowed"),
    ],
)
def test_errors(server: Served, body: Any, status: int, words: str):
    found = server.ask("/v2/translate", body)
    assert (found[0], list(found[1])) == (status, ["message"])
    assert words in found[1]["message"]
