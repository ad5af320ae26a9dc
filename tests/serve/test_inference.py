"""Hugging Face's tasks through its client, and OpenAI's embeddings through its client."""

from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError

from macaron.tasks.classifier import Predictor
from macaron.tasks.embedder import Embedder
from served import CLASSIFIER, FREE, Served

GERMAN, ENGLISH = "Ein Salat ist teuer.", "A salad is expensive."
TEXTS = ["Is there no big bottle in your office", "He sat on our chair", "A salad is expensive"]


def test_translation(server: Served):
    client = InferenceClient(model=server.url, provider="hf-inference")
    assert client.translation(GERMAN).translation_text == ENGLISH
    assert client.translation(GERMAN, src_lang="de", tgt_lang="en").translation_text == ENGLISH
    for path in ("/pipeline/translation", "/models/de-en", "/models/de-en/pipeline/translation"):
        assert InferenceClient(model=server.url + path).translation(GERMAN).translation_text == ENGLISH
    assert client.health_check()
    with pytest.raises(HfHubHTTPError, match="xx is not supported"):
        client.translation(GERMAN, src_lang="xx", tgt_lang="en")
    found = server.ask("/pipeline/translation", {"inputs": [GERMAN, GERMAN]})
    assert found == (200, [{"translation_text": ENGLISH}] * 2)


def test_text_classification(server: Served):
    expected = Predictor(CLASSIFIER, "cpu").predict([TEXTS])
    client = InferenceClient(model=f"{server.url}/models/classifier")
    for text, each in zip(TEXTS, expected, strict=True):
        found = client.text_classification(text)
        assert {one.label: one.score for one in found} == pytest.approx(each["probabilities"])
        assert found[0].label == each["label"]
        [best] = client.text_classification(text, top_k=1)
        assert best.label == each["label"]
    assert len(server.ask("/pipeline/text-classification", {"inputs": TEXTS})[1]) == 3
    with pytest.raises(HfHubHTTPError, match="function_to_apply"):
        client.text_classification("a", function_to_apply="sigmoid")


def test_fill_mask(guarded: Served):
    client = InferenceClient(model=f"{guarded.url}/pipeline/fill-mask", token=FREE)
    found = client.fill_mask("He <mask> on our chair")
    assert len(found) == 5
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert all("chair" in each.sequence for each in found)
    [one] = client.fill_mask("He <mask> on our chair", top_k=1, targets=["salad"])
    assert 0 < one.score < 1
    _, several = guarded.ask(
        "/pipeline/fill-mask", {"inputs": ["A <mask>"] * 2, "parameters": {"top_k": 3}, "api_key": FREE}
    )
    assert [len(each) for each in several] == [3, 3]
    with pytest.raises(HfHubHTTPError, match="must have one <mask>"):
        client.fill_mask("no mask")


def test_feature_extraction_and_similarity(guarded: Served, little: Path):
    expected = Embedder(little, "cpu").embed(TEXTS)
    client = InferenceClient(model=f"{guarded.url}/models/little/pipeline/feature-extraction", token=FREE)
    np.testing.assert_allclose(client.feature_extraction(TEXTS[0], normalize=True), expected[:1], atol=1e-5)
    np.testing.assert_allclose(client.feature_extraction(TEXTS), expected, atol=1e-5)
    longer = client.feature_extraction(TEXTS, normalize=False)
    lengths = np.linalg.norm(longer, axis=1, keepdims=True)
    assert (abs(lengths - 1) > 1e-3).all()
    np.testing.assert_allclose(longer / lengths, expected, atol=1e-5)
    client = InferenceClient(model=f"{guarded.url}/models/little/pipeline/sentence-similarity", token=FREE)
    found = client.sentence_similarity(TEXTS[1], TEXTS)
    np.testing.assert_allclose(found, expected @ expected[1], atol=1e-5)


@pytest.mark.parametrize("encoding", [{}, {"encoding_format": "float"}], ids=["base64", "float"])
def test_openai(guarded: Served, little: Path, encoding: dict[str, Any]):
    client = openai.OpenAI(base_url=f"{guarded.url}/v1", api_key=FREE, max_retries=0)
    found = client.embeddings.create(model="little", input=TEXTS, **encoding)
    expected = Embedder(little, "cpu").embed(TEXTS)
    np.testing.assert_allclose([each.embedding for each in found.data], expected, atol=1e-5)
    assert [each.index for each in found.data] == [0, 1, 2]
    with pytest.raises(openai.NotFoundError, match="unknown model 'big'"):
        client.embeddings.create(model="big", input="a", **encoding)
    with pytest.raises(openai.BadRequestError, match="dimensions must be 32"):
        client.embeddings.create(model="little", input="a", dimensions=16, **encoding)
    with pytest.raises(openai.BadRequestError, match="list of strings"):
        client.embeddings.create(model="little", input=[1, 2, 3], **encoding)


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/", {}, 400, "inputs is missing"),
        ("/", {"inputs": 7}, 400, "inputs must be"),
        ("/", {"inputs": "a", "parameters": 7}, 400, "parameters must be an object"),
        ("/pipeline/summarization", {"inputs": "a"}, 404, "no model here has the task 'summarization'"),
        ("/models/nothing", {"inputs": "a"}, 404, "unknown model 'nothing'"),
        ("/models/de-en/pipeline/fill-mask", {"inputs": "a"}, 404, "there is translation"),
        ("/models/classifier", {"inputs": "a", "parameters": {"top_k": 0}}, 400, "top_k must be"),
        ("/pipeline/sentence-similarity", {"inputs": "a"}, 400, "inputs must be an object"),
        ("/pipeline/sentence-similarity", {"inputs": {"source_sentence": "a"}}, 400, "sentences is missing"),
        ("/pipeline/feature-extraction", {"inputs": "a" * 20_001}, 413, "exceeds text limit"),
    ],
)
def test_errors(server: Served, path: str, body: dict[str, Any], status: int, words: str):
    found = server.ask(path, body)
    assert found[0] == status, found
    assert words in found[1]["error"]
