"""The Auto classes read folders of ``macaron quantise``: the same numbers as our own loading, in float32 or less."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import macaron
from macaron.errors import MacaronError
from macaron.models import EncoderForMaskedLM, EncoderForSequenceClassification, LanguageModel, TranslationModel, preset
from macaron.models.load import QUANTISATION, load_model, save_model
from macaron.models.quantise import quantise
from macaron.text import MacaronTokenizer
from sealing import unseal
from served import CLASSIFIER, TRANSLATION

#: Presets, or a folder; our class; theirs.
KINDS: dict[str, tuple[Any, Any, Any]] = {
    "translation": (TRANSLATION, TranslationModel, AutoModelForSeq2SeqLM),
    "classifier": (CLASSIFIER, EncoderForSequenceClassification, AutoModelForSequenceClassification),
    "language": ("macaron-gpt-tiny", LanguageModel, AutoModelForCausalLM),
    "encoder": ("macaron-bert-tiny", EncoderForMaskedLM, AutoModelForMaskedLM),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any, Any]:
    """A folder in int8, our class, and theirs."""
    source, ours, theirs = KINDS[request.param]
    if isinstance(source, str):
        tokenizer = MacaronTokenizer.train(["the cat sat on the mat"], 280, kind=request.param)
        torch.manual_seed(0)
        model = ours(preset(source, vocab_size=len(tokenizer)))
        save_model(tmp_path / "model", model, None, tokenizer)
        source = tmp_path / "model"
    quantise(source, tmp_path / "small")
    return tmp_path / "small", ours, theirs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_numbers_and_a_usual_folder_again(kind: tuple[Path, Any, Any], dtype: torch.dtype, tmp_path: Path):
    folder, ours, theirs = kind
    found, info = theirs.from_pretrained(folder, dtype=dtype, output_loading_info=True)
    assert not any(info.values()), info
    expected = load_model(folder, ours, dtype)[0].state_dict()
    assert found.state_dict().keys() == expected.keys()
    for name, each in found.state_dict().items():
        assert each.dtype == dtype
        assert torch.equal(each, expected[name]), name
    found.save_pretrained(tmp_path / "again")
    assert QUANTISATION not in json.loads((tmp_path / "again" / "config.json").read_text())
    assert {each.dtype for each in load_file(tmp_path / "again" / "model.safetensors").values()} == {dtype}
    again = load_model(tmp_path / "again", ours)[0].state_dict()
    assert all(torch.equal(each, expected[name]) for name, each in again.items())


@pytest.mark.parametrize("lost", ["weight", "weight_scale"])
def test_half_a_matrix(lost: str, tmp_path: Path):
    quantise(TRANSLATION, tmp_path / "small")
    weights = load_file(tmp_path / "small" / "model.safetensors")
    del weights[f"embedding.tokens.{lost}"]
    save_file(weights, tmp_path / "small" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(MacaronError, match=r"model\.safetensors: damaged"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small")
    unseal(tmp_path / "small")
    with pytest.raises(Exception, match=r"embedding\.tokens\.weight|conversion"):
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small")


def test_translations_and_training(tmp_path: Path):
    quantise(TRANSLATION, tmp_path / "small")
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "small")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "small")
    line = "Martin hat eure Katze gewaschen."
    made = model.generate(**tokenizer(line, return_tensors="pt"), num_beams=5)
    expected = macaron.Translator(tmp_path / "small", device="cpu", dtype="float32").translate(line, one_per_line=True)
    assert tokenizer.decode(made[0], skip_special_tokens=True) == expected == "Martin washed your cat."
    assert all(parameter.requires_grad for parameter in model.parameters())
    labels = tokenizer(text_target=line, return_tensors="pt")["input_ids"]
    model(**tokenizer(line, return_tensors="pt"), labels=labels).loss.backward()
    assert bool(model.embedding.tokens.weight.grad.any())
    encoder = AutoModel.from_pretrained(tmp_path / "small")
    assert torch.equal(encoder.embedding.tokens.weight, model.embedding.tokens.weight)
