"""Folders in int8 on a CPU: their matrices are packed as they are, and all that reads them agrees."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from macaron.decode import SearchSettings, Translator, translate_document, translate_ids
from macaron.decode.cpu.linear import Int8Linear, PackedLinear, packed_products
from macaron.decode.cpu.model import CpuTranslationModel
from macaron.decode.forced import PairScorer
from macaron.decode.generator import Generator
from macaron.models import LanguageModel, TranslationModel, preset
from macaron.models.load import load_model, save_model
from macaron.models.quantise import quantise
from macaron.nn.linear import round_rows
from macaron.serve.worker import Models
from macaron.text import MacaronTokenizer
from operators import OPERATORS, tiny
from served import FIXTURES, TRANSLATION

needs_int8 = pytest.mark.skipif(not packed_products(), reason="int8 needs oneDNN")
SOURCES = [[7, 9, 11, 4, 5, 2], [12, 2], [20, 21, 22, 2]]
LINES = (FIXTURES / "corpus" / "train.de").read_text(encoding="utf-8").splitlines()[:60]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained translation model in int8."""
    folder = tmp_path_factory.mktemp("small") / "model"
    quantise(TRANSLATION, folder)
    return folder


@pytest.fixture(scope="module")
def restored(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same matrices in float32."""
    folder = Path(shutil.copytree(TRANSLATION, tmp_path_factory.mktemp("restored") / "model"))
    TranslationModel.from_pretrained(small).save_pretrained(folder)
    return folder


def found(translator: Translator, **options: Any) -> tuple[list[str], list[float]]:
    best = [each[0] for each in translator.translate_nbest(LINES, **options)]
    return [each.text for each in best], [each.score for each in best]


@needs_int8
@pytest.mark.parametrize("name", [name for name in OPERATORS if not name.startswith("weighted")])
def test_packed_as_they_are(name: str, tmp_path: Path):
    """With every operator: the numbers are those of float32 matrices that are rounded when they are packed."""
    tokenizer = MacaronTokenizer.train(["the cat sat on the mat"], 280)
    save_model(tmp_path / "model", tiny(OPERATORS[name], len(tokenizer), scale=2.0), None, tokenizer)
    quantise(tmp_path / "model", tmp_path / "small")
    direct, plain = (load_model(tmp_path / "small", TranslationModel, int8=each)[0] for each in (True, False))
    source, target = torch.tensor([SOURCES[0]]), torch.tensor([[2, 5, 6, 7]])
    with torch.inference_mode():
        one, other = (CpuTranslationModel(model, int8=True)(source, target) for model in (direct, plain))
    torch.testing.assert_close(one, other, atol=1e-3, rtol=1e-3)
    settings = SearchSettings(beam=3, max_length=12)
    same = [translate_ids(CpuTranslationModel(model, int8=True), SOURCES, settings) for model in (direct, plain)]
    for mine, theirs in zip(*same, strict=True):
        assert [each.tokens for each in mine] == [each.tokens for each in theirs]


@needs_int8
def test_int8_is_the_default(small: Path, restored: Path):
    translator = Translator(small, device="cpu")
    assert translator.precision == Translator(restored, int8=True).precision
    assert translator.precision.startswith("int8, activations with ")
    # No matrix is kept in float32.
    matrices = {each.dtype for each in translator.model.state_dict().values() if each.dim() == 2}
    assert matrices == {torch.int8}
    packed = [module for module in translator.searched.modules() if isinstance(module, PackedLinear)]
    assert packed
    assert all(isinstance(module, Int8Linear) for module in packed)
    texts, scores = found(translator)
    for other in (Translator(restored, int8=True), Translator(small, int8=True)):
        assert found(other)[0] == texts
        assert found(other)[1] == pytest.approx(scores, abs=1e-4)
    alone = [translator.translate_nbest([line])[0][0].text for line in LINES]
    assert alone == texts


@needs_int8
def test_it_is_int8_of_the_source_but_for_the_vectors_of_words(small: Path, tmp_path: Path):
    """``--int8`` rounds the table of the output alone; as vectors of words it leaves it in float32."""
    source = Path(shutil.copytree(TRANSLATION, tmp_path / "source"))
    weights = load_file(source / "model.safetensors")
    rounded, scales = round_rows(weights["embedding.tokens.weight"])
    save_file({**weights, "embedding.tokens.weight": rounded * scales[:, None]}, source / "model.safetensors")
    texts, scores = found(Translator(small))
    theirs, their_scores = found(Translator(source, int8=True))
    assert texts == theirs
    assert scores == pytest.approx(their_scores, abs=1e-4)
    # Of the source itself the same translations have nearly the same scores.
    plain, inexact = (PairScorer(folder, device="cpu").score(LINES, texts) for folder in (TRANSLATION, small))
    gaps = [abs(a.per_token - b.per_token) for a, b in zip(plain, inexact, strict=True)]
    assert 0 < sorted(gaps)[len(gaps) // 2] < 0.02


def test_float32_where_it_is_asked_for_or_int8_is_not_there(
    small: Path, restored: Path, monkeypatch: pytest.MonkeyPatch
):
    expected = found(Translator(restored, device="cpu"))
    for given in ({"dtype": "float32"}, {}):
        if not given:
            monkeypatch.setenv("MACARON_PACKED", "off")
        translator = Translator(small, device="cpu", **given)
        assert (translator.precision, translator.int8) == ("float32", False)
        texts, scores = found(translator)
        assert texts == expected[0]
        assert scores == pytest.approx(expected[1], abs=1e-5)


def test_what_else_reads_them(small: Path, restored: Path):
    sources = LINES[:8]
    targets = Translator(restored, device="cpu").translate(sources, one_per_line=True)
    one, other = (PairScorer(folder, device="cpu").score(sources, targets) for folder in (small, restored))
    assert one == other
    made, theirs = (Translator(folder, device="cpu").align(sources, targets) for folder in (small, restored))
    links = [(set(mine or ()), set(each or ())) for mine, each in zip(made, theirs, strict=True)]
    assert sum(len(mine & each) for mine, each in links) >= 0.9 * sum(len(each) for _, each in links) > 10
    html = f"<p>{sources[3].replace(' ', ' <b>', 1)}</b></p>"
    assert translate_document(Translator(small), html, "html")[0].count("<b>") == 1
    served: list[Any] = []
    settings = {"device": "cpu", "int8": False, "threads": 1, "models": {"de-en": [str(small), "translation"]}}
    models = Models(settings)
    models.run("de-en", "translate", sources, {"nbest": 1}, lambda _, result: served.append(result[0][0]))
    assert sorted(served) == sorted(Translator(small).translate(sources, one_per_line=True))


@needs_int8
def test_on_the_command_line(small: Path, tmp_path: Path, macaron: Callable[..., Any]):
    corpus = FIXTURES / "corpus"
    command = ("evaluate", small, "--source", corpus / "test.de", "--reference", corpus / "test.en", "--device", "cpu")
    done = macaron(*command)
    assert done.returncode == 0, done.stderr
    assert "length penalty 1.0, int8, activations with " in done.stdout
    assert json.loads(macaron(*command, "--json").stdout)["precision"].startswith("int8, ")
    assert "length penalty 1.0, float32\n" in macaron(*command, "--dtype", "float32").stdout
    # In a run's folder the scores are kept, with the precision.
    shutil.copytree(small, tmp_path / "run" / "model")
    (tmp_path / "run" / "recipe.toml").touch()
    assert macaron(command[0], tmp_path / "run" / "model", *command[2:]).returncode == 0
    (kept,) = (tmp_path / "run" / "translations").iterdir()
    assert json.loads(kept.read_text())["key"]["search"]["int8"] is True


@needs_int8
def test_a_language_model(tmp_path: Path):
    tokenizer = MacaronTokenizer.train(["the cat sat on the mat"], 280, kind="language")
    torch.manual_seed(0)
    model = LanguageModel(preset("macaron-gpt-tiny", vocab_size=len(tokenizer)))
    save_model(tmp_path / "model", model, None, tokenizer)
    quantise(tmp_path / "model", tmp_path / "small")
    generator = Generator(tmp_path / "small", device="cpu")
    assert any(isinstance(module, Int8Linear) for module in generator.model.modules())
    LanguageModel.from_pretrained(tmp_path / "small").save_pretrained(tmp_path / "model")
    prompts = ["the cat", ""]
    expected = Generator(tmp_path / "model", int8=True).generate(prompts, max_length=9)
    assert generator.generate(prompts, max_length=9) == expected
    plain = Generator(tmp_path / "small", device="cpu", dtype="float32")
    assert not any(isinstance(module, Int8Linear) for module in plain.model.modules())
