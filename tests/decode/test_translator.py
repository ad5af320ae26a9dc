"""The Translator: folders, lines, batches."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from macaron.decode import PairScorer, Sampling, SearchSettings, Translator
from macaron.decode.cpu.linear import packed_products
from macaron.decode.text_pieces import longest_start, parts_that_fit
from macaron.decode.translator import batches
from macaron.errors import MacaronError
from macaron.models.encoder import EncoderForMaskedLM
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.seal import seal
from macaron.text import MacaronTokenizer
from sealing import unseal

LINES = ["The cat sits on the mat.", "", "Where is it?", "   ", "A dog and a cat; all of them sleep.", "The cat sits."]


@pytest.fixture(scope="module")
def translator(folder: Path) -> Translator:
    return Translator(folder, dtype="float64")


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A model folder to damage."""
    return Path(shutil.copytree(folder, tmp_path / "model"))


def test_line_for_line(translator: Translator):
    found = translator.translate(LINES, max_length=12)
    assert len(found) == len(LINES)
    assert (found[1], found[3]) == ("", "   ")
    assert len({found[i] for i in (0, 2, 4, 5)}) > 2
    alone = [translator.translate([line], max_length=12)[0] for line in LINES]
    assert alone == found
    assert translator.translate(LINES, max_length=12, batch_tokens=1) == found
    assert translator.translate(LINES[::-1], max_length=12, batch_tokens=40) == found[::-1]
    assert translator.translate([]) == []
    assert translator.translate(["", ""]) == ["", ""]


def test_texts(translator: Translator):
    """A text is its sentences, translated one by one; batches do not matter."""
    options: dict[str, Any] = {"max_length": 12}
    cat, where, dog = translator.translate(["The cat sits.", "Where is it?", "A dog."], one_per_line=True, **options)
    text = "  1. The cat\u00a0 sits.  Where is it?\n\n\t- A dog.\tThe cat sits. \n42\t--"
    expected = f"  1. {cat}  {where}\n\n\t- {dog}\t{cat} \n42\t--"
    assert translator.translate(text, **options) == expected
    assert translator.translate([text, "", "A dog."], **options) == [expected, "", dog]
    assert translator.translate(iter([text]), batch_tokens=1, nbest=1, **options) == [expected]
    assert translator.translate("\tA dog. ", one_per_line=True, **options) == dog
    lists = translator.translate_nbest(["The cat sits.", "Where is it?", "The cat sits. Where is it?"], **options)
    (best,) = translator.translate_nbest(["The cat sits. Where is it?"], one_per_line=False, **options)[0]
    assert best.text == f"{cat} {where}"
    assert best.tokens == lists[0][0].tokens + lists[1][0].tokens != lists[2][0].tokens
    assert best.score == pytest.approx(sum(best.token_scores) / len(best.tokens))


def test_degenerate_translations_are_cut(folder: Path, make_model: Callable[..., TranslationModel]):
    """A model that never ends, and one that repeats one token."""
    tokenizer = MacaronTokenizer.from_pretrained(folder)
    endless = make_model(vocab_size=len(tokenizer), ending=-3.0)
    line = "The cat sits. " + "x" * 50_000
    ((best,),) = Translator(endless, tokenizer).translate_nbest([line], one_per_line=False)
    words = len(tokenizer.encode_lines(["The cat sits."])[0])
    assert len(best.tokens) <= 25 + 3 * words + 1
    assert best.text.endswith(" " + "x" * 50_000)
    assert set(best.notes) > {"long word"}
    with torch.no_grad():
        endless.decoder.norm.weight.zero_()
        endless.decoder.norm.bias.copy_(endless.embedding.tokens.weight[40])
    ((best,),) = Translator(endless, tokenizer).translate_nbest(["The cat sits."], one_per_line=False)
    assert (best.tokens[:-1], best.notes) == ((best.tokens[0],), ("repetition",))
    whole = Translator(endless, tokenizer).translate_nbest(["The cat sits."], nbest=1)[0][0]
    assert (len(whole.tokens), whole.notes) == (201, ())


def test_nbest(translator: Translator):
    lists = translator.translate_nbest(LINES, beam=3, length_penalty=0.6, max_length=12)
    assert [len(each) for each in lists] == [3, 1, 3, 1, 3, 3]
    for best in lists:
        assert [each.score for each in best] == sorted((each.score for each in best), reverse=True)
    assert lists[0][0].text == translator.tokenizer.decode_lines([lists[0][0].tokens])[0]
    assert translator.translate(LINES, beam=3, length_penalty=0.6, max_length=12, one_per_line=True) == [
        best[0].text for best in lists
    ]
    assert lists[1][0].text == ""
    assert len(translator.translate_nbest(LINES[:1], beam=4, nbest=2, max_length=5)[0]) == 2
    assert len(translator.translate_nbest(LINES[:1], nbest=7, max_length=5)[0]) == 7
    with pytest.raises(MacaronError, match="nbest"):
        translator.translate_nbest(LINES, beam=2, nbest=3)


def test_samples_belong_to_their_line(translator: Translator):
    options: dict[str, Any] = {"sampling": Sampling(seed=1), "nbest": 2, "max_length": 8}

    def drawn(lines: list[str], **changes: Any) -> list[list[str]]:
        return [[each.text for each in best] for best in translator.translate_nbest(lines, **(options | changes))]

    lists = drawn(LINES)
    assert drawn(LINES, batch_tokens=10) == lists
    assert drawn(LINES[2:], first_line=3) == lists[2:]
    assert drawn(LINES, sampling=Sampling(seed=2)) != lists


def test_settings_of_the_folder(copy: Path):
    generation = json.loads((copy / "generation_config.json").read_text())
    generation |= {"num_beams": 4, "length_penalty": 0.6, "max_length": 9}
    (copy / "generation_config.json").write_text(json.dumps(generation))
    seal(copy)
    translator = Translator(copy)
    assert translator.settings == SearchSettings(beam=4, length_penalty=0.6, max_length=7)
    best = translator.translate_nbest(LINES[:1])[0]
    assert len(best) == 4
    assert best[0].score == pytest.approx(sum(best[0].token_scores) / len(best[0].tokens) ** 0.6, abs=1e-5)
    assert max(len(each.tokens) for each in best) <= 8
    assert len(translator.translate_nbest(LINES[:1], beam=2, length_penalty=1.0)[0]) == 2


def test_a_model_whose_scores_are_not_finite_is_named(copy: Path):
    """Finite weights, whose products are not: the digests hold."""
    weights = load_file(copy / "model.safetensors")
    weights["decoder.norm.weight"][0] = weights["embedding.tokens.weight"][:, 0] = 1e30
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    seal(copy)
    said = re.escape(f"{copy}: the model gives scores that are not finite: its weights are damaged, or too large")
    for int8 in {False, packed_products()}:
        with pytest.raises(MacaronError, match=said):
            Translator(copy, int8=int8).translate(LINES)
    with pytest.raises(MacaronError, match=rf"{said}.*Check its folder with macaron verify"):
        PairScorer(copy).score(LINES[:1], LINES[:1])


def test_long_lines(translator: Translator):
    line = "The cat sits on the mat. Where is it? " * 6
    options: dict[str, Any] = {"max_source_length": 30, "max_length": 6}
    whole = translator.translate_nbest(["A dog.", line], **options)[1]
    parts = parts_that_fit(line.strip(), lambda text: len(translator.tokenizer.encode_lines([text])[0]) <= 31)
    sentences = [part.text for part in parts if not part.kept]
    assert len(sentences) > 3
    lists = translator.translate_nbest(sentences, **options)
    assert whole[0].text == " ".join(best[0].text for best in lists)
    assert whole[0].score == pytest.approx(sum(whole[0].token_scores) / len(whole[0].tokens))
    assert [each.score for each in whole] == sorted((each.score for each in whole), reverse=True)
    with pytest.raises(MacaronError, match=r"line 12 has a sentence of \d+ tokens, more than 30"):
        translator.translate_nbest(["A dog.", line], long_lines="refuse", first_line=11, **options)
    cut = translator.translate([line], long_lines="truncate", one_per_line=True, **options)
    (start,) = longest_start(line.strip(), lambda text: len(translator.tokenizer.encode_lines([text])[0]) <= 31)
    assert cut == translator.translate([start.text], one_per_line=True, **options)
    with pytest.raises(MacaronError, match="long_lines"):
        translator.translate([line], long_lines="drop")  # type: ignore[arg-type]


def test_a_model_in_memory(folder: Path):
    loaded = Translator(folder)
    model, tokenizer = loaded.model, loaded.tokenizer
    assert Translator(model, tokenizer).translate(["The cat"], max_length=5) == loaded.translate(
        ["The cat"], max_length=5
    )
    with pytest.raises(MacaronError, match="needs its tokenizer"):
        Translator(model)


def test_the_folder_of_a_run_stands_for_its_model(copy: Path):
    assert Translator(copy.parent).translate(["The cat"], max_length=4)


def test_mistakes(translator: Translator, folder: Path):
    with pytest.raises(MacaronError, match="translate_nbest"):
        translator.translate("The cat", nbest=3)
    with pytest.raises(MacaronError, match="one_per_line"):
        translator.translate_nbest(["The cat"], nbest=3, one_per_line=False)
    for options in ({"device": "tpu:x"}, {"device": "cuda:99"}, {"dtype": "int3"}, {"threads": 0}):
        with pytest.raises(MacaronError):
            Translator(folder, **options)  # type: ignore[arg-type]


def test_what_is_no_model_folder(copy: Path, tmp_path: Path):
    def refused(words: str, path: Path = copy) -> None:
        with pytest.raises(MacaronError, match=words) as caught:
            Translator(path)
        assert str(path) in str(caught.value)

    refused("no such folder", tmp_path / "nothing")
    refused("a file", copy / "config.json")
    (tmp_path / "empty").mkdir()
    refused("no config.json", tmp_path / "empty")

    EncoderForMaskedLM(preset("macaron-bert-tiny", vocab_size=20)).save_pretrained(tmp_path / "encoder")
    refused("cannot translate", tmp_path / "encoder")

    unseal(copy)
    weights = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    refused("weights cannot be read")
    (copy / "model.safetensors").unlink()
    refused("weights are missing")
    (copy / "model.safetensors").write_bytes(weights)

    tensors = load_file(copy / "model.safetensors")
    name = next(iter(tensors))
    rest = {key: tensor for key, tensor in tensors.items() if key != name}
    save_file(rest, copy / "model.safetensors", metadata={"format": "pt"})
    refused(f"lack '{name}'")
    save_file(tensors | {"stranger": torch.zeros(2)}, copy / "model.safetensors", metadata={"format": "pt"})
    refused("stranger")
    save_file(rest | {name: tensors[name] * torch.nan}, copy / "model.safetensors", metadata={"format": "pt"})
    refused("finite")
    save_file(rest | {name: torch.zeros(2)}, copy / "model.safetensors", metadata={"format": "pt"})
    refused("in another shape")
    (copy / "model.safetensors").write_bytes(weights)

    MacaronTokenizer.train(["another text altogether"], 280).save_pretrained(copy)
    refused("not the one that this model was trained with")
    unseal(copy)
    (copy / "tokenizer.json").write_text("{")
    refused("tokenizer cannot be read")
    (copy / "tokenizer.json").unlink()
    refused("tokenizer is missing")
    (copy / "config.json").write_text("{")
    refused("not valid JSON")


def test_batches():
    lengths = [3, 9, 1, 4, 4, 20, 2]
    groups = batches(lengths, 10)
    assert sorted(i for group in groups for i in group) == list(range(7))
    assert all(len(group) == 1 or len(group) * max(lengths[i] for i in group) <= 10 for group in groups)
    assert groups[0] == [5]
    assert batches([], 10) == []
    # The memory of a sentence grows with the square of the beams.
    assert [len(batches([5] * 8, 40, beam)) for beam in (1, 32, 64, 1024)] == [1, 1, 4, 8]


@pytest.mark.parametrize("lines", ["one string", None, 7, [1], ["good", None], b"bytes"])
def test_what_is_no_list_of_lines_is_named(translator: Translator, lines: Any):
    for method in (translator.translate, translator.translate_nbest):
        if method == translator.translate and isinstance(lines, str):
            continue  # a text
        with pytest.raises(MacaronError, match=r"give a list of (lines|strings)"):
            method(lines)
