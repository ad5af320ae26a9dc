"""Small models to decode with."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from macaron.convert import convert_fairseq
from macaron.decode.forced import load_folder
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer

GOLDEN = Path(__file__).resolve().parent.parent / "golden"

LINES = [
    "The cat sits on the mat.",
    "A dog, a cat and a mouse; all of them sleep.",
    "Where is the big house? It is over there!",
    "Nobody knows the trouble I have seen.",
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Models this small lose time to threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def golden_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], TranslationModel]:
    """A recorded model, converted once."""
    models: dict[str, TranslationModel] = {}

    def load(name: str) -> TranslationModel:
        if name not in models:
            folder = tmp_path_factory.mktemp("converted") / name
            convert_fairseq(GOLDEN / name / "checkpoint_min.pt", GOLDEN / "dict.txt", folder)
            models[name] = load_folder(folder)[0]
        return models[name]

    return load


@pytest.fixture(scope="session")
def make_model() -> Callable[..., TranslationModel]:
    """A random model that says different things about different sources, and ends at different lengths.

    Fresh weights would not do: with one table for input and output such a model repeats its last token.
    """

    def make(seed: int = 0, ending: float = 2.0, biases: float = 0.0, **changes: Any) -> TranslationModel:
        torch.manual_seed(seed)
        settings: dict[str, Any] = {
            "vocab_size": 30,
            "hidden_size": 16,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "activation": "relu",
        }
        model = TranslationModel(preset("macaron-tiny", **(settings | changes))).eval()
        with torch.no_grad():
            for parameter in model.decoder.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(3.0)
                elif biases:  # fresh ones are zero
                    parameter.add_(biases * torch.randn_like(parameter))
            model.decoder.norm.bias.copy_(model.embedding.tokens.weight[2] * ending)
        return model

    return make


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, make_model: Callable[..., TranslationModel]) -> Path:
    """A model folder: random weights, a tokenizer trained on a few lines."""
    path = tmp_path_factory.mktemp("folder") / "model"
    tokenizer = MacaronTokenizer.train(LINES, 300)
    model = make_model(vocab_size=len(tokenizer), ending=3.0)
    model.config = replace(model.config, tokenizer_fingerprint=tokenizer.fingerprint())
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
