"""One loader for all model folders: what is wrong with one is said in the same words, whatever it is wanted for."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from macaron.decode.forced import load_folder
from macaron.errors import MacaronError
from macaron.models import EncoderForPreTraining, EncoderForSequenceClassification, TranslationModel, preset
from macaron.models.load import save_model
from macaron.tasks.classifier import EncoderOnDevice
from macaron.text.tokenizer import MacaronTokenizer
from sealing import unseal


def load_classifier(path: Path, new_head: bool = False) -> tuple[Any, MacaronTokenizer]:
    found = EncoderOnDevice(path, "cpu", new_head=new_head)
    return found.model, found.tokenizer


load_pretrained = partial(load_classifier, new_head=True)
LINES = ["the cat sat on the mat", "it was good and it ran away"]
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
MODELS = {
    "translation": ("macaron-tiny", TranslationModel, load_folder),
    "pre-trained": ("macaron-bert-tiny", EncoderForPreTraining, load_pretrained),
    "classifier": ("macaron-bert-tiny", EncoderForSequenceClassification, load_classifier),
    "classifier again": ("macaron-bert-tiny", EncoderForSequenceClassification, load_pretrained),
}


@pytest.fixture(params=MODELS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Callable[[Path], object]]:
    """A model folder, and what opens it."""
    name, model, load = MODELS[request.param]
    kind = "translation" if model is TranslationModel else "encoder"
    tokenizer = MacaronTokenizer.train(LINES, 280, kind=kind)
    config = preset(name, vocab_size=len(tokenizer), tokenizer_fingerprint=tokenizer.fingerprint(), **SMALL)
    torch.manual_seed(1)
    model(config).save_pretrained(tmp_path / "run" / "model")
    tokenizer.save_pretrained(tmp_path / "run" / "model")
    return tmp_path / "run" / "model", load


def test_a_run_stands_for_its_model(folder: tuple[Path, Callable]):
    path, load = folder
    for given in (path, path.parent):
        model, tokenizer = load(given)
        assert len(tokenizer) == model.config.vocab_size


@pytest.mark.parametrize("name", ["macaron-tiny", "macaron-bert-tiny"])
def test_a_saved_tokenizer_knows_the_longest_input(name: str, tmp_path: Path):
    kind, network = ("encoder", EncoderForPreTraining) if "bert" in name else ("translation", TranslationModel)
    tokenizer = MacaronTokenizer.train(LINES, 280, kind=kind)
    model = network(preset(name, vocab_size=len(tokenizer), max_position_embeddings=40, **SMALL))
    save_model(tmp_path / "model", model, None, tokenizer)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "model")
    ids = theirs("the cat " * 50, truncation=True)["input_ids"]
    assert (theirs.model_max_length, len(ids), ids[-1]) == (40, 40, theirs.eos_token_id)
    assert len(theirs("the cat " * 50)["input_ids"]) > 40
    again = MacaronTokenizer.from_pretrained(tmp_path / "model")
    assert again.fingerprint() == tokenizer.fingerprint()
    assert len(again.encode_lines(["the cat " * 50])[0]) > 40


def test_what_is_wrong_is_said_in_the_same_words(folder: tuple[Path, Callable], tmp_path: Path):
    path, load = folder
    unseal(path)
    good = tmp_path / "good"
    shutil.copytree(path, good)
    tensors = load_file(path / "model.safetensors")
    name = next(key for key in tensors if "encoder.layers.0" in key)
    rest = {key: tensor for key, tensor in tensors.items() if key != name}

    def save(changed: dict[str, torch.Tensor]) -> None:
        save_file(changed, path / "model.safetensors", metadata={"format": "pt"})

    def refused(words: str, given: Path = path) -> None:
        with pytest.raises(MacaronError, match=words) as caught:
            load(given)
        assert str(given) in str(caught.value)

    refused(r"no such folder\. Give a model folder, such as RUN/model", tmp_path / "nothing")
    refused("is a file; give its folder", path / "config.json")
    (tmp_path / "empty").mkdir()
    refused(r"not a model folder, it has no config\.json\. `macaron train` writes one", tmp_path / "empty")
    (tmp_path / "empty" / "config.json").write_text('{"model_type": "bert"}')
    refused("a model of type 'bert' .*; expected 'macaron-", tmp_path / "empty")

    save(rest)
    refused(f"the weights lack {name!r}")
    save({**tensors, "stranger": torch.zeros(2)})
    refused("the weights contain 'stranger', which the model does not have")
    save({**rest, name: tensors[name] * torch.nan})
    refused("non-finite values in")
    save({**rest, name: tensors[name].view(torch.int32)})  # a damaged header
    refused(f"the weights have {name!r} in another shape or type")
    save({**rest, name: torch.zeros(2, 3)})  # must not be drawn anew, whatever head may be
    refused(f"the weights cannot be read|the weights have {name!r} in another shape")
    (path / "model.safetensors").write_bytes((good / "model.safetensors").read_bytes()[:-100])
    refused("the weights cannot be read; the file is damaged or does not fit config.json")
    (path / "model.safetensors").unlink()
    refused("the weights are missing")
    shutil.copy(good / "model.safetensors", path)

    kind = load(path)[1].kind
    MacaronTokenizer.train(["another text altogether"], 280, kind=kind).save_pretrained(path)
    refused("not the one that this model was trained with")
    other = "encoder" if kind == "translation" else "translation"
    MacaronTokenizer.train(LINES, 280, kind=other).save_pretrained(path)
    refused("the tokenizer is not one for")
    unseal(path)
    (path / "tokenizer.json").write_text("{")
    refused("the tokenizer cannot be read")
    if kind == "translation":
        (path / "generation_config.json").unlink()
        (path / "generation_config.json").mkdir()
        refused("generation_config.json: Is a directory")
    (path / "tokenizer.json").unlink()
    refused(r"the tokenizer is missing \(tokenizer\.json")
    (path / "config.json").write_text("{")
    refused("not valid JSON")


def test_a_pre_trained_model_is_no_classifier_yet(tmp_path: Path):
    tokenizer = MacaronTokenizer.train(LINES, 280, kind="encoder")
    EncoderForPreTraining(preset("macaron-bert-tiny", vocab_size=len(tokenizer), **SMALL)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(MacaronError, match="not fine-tuned yet, it has no classifier"):
        load_classifier(tmp_path)
