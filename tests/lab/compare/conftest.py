"""Runs to compare: a toy corpus of letters to be copied, and tiny models, trained once."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe, load_recipe
from macaron.tasks.run import run

RECIPE = """
[data]
out = "{data}"
[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 128
encoder_layers = 2
decoder_layers = 2
dropout = 0.0
attention_dropout = 0.0
activation_dropout = 0.0
[train]
batch_tokens = 512
learning_rate = 0.01
warmup = 10
max_updates = 16
log_every = 4
validate_every = 8
checkpoint_every = 8
label_smoothing = 0.0
device = "cpu"
[decode]
beam = 1
max_length = 12
"""
Train = Callable[..., Path]


def prepare_letters(
    folder: Path, *, letters: Sequence[str] = "abcdefgh", languages: tuple[str, str] = ("src", "tgt"), **other: Any
) -> Path:
    """Lines to be copied."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(1)
    for name, count in (("train", 300), ("valid", 20), ("test", 60)):
        lines = [" ".join(generator.choice(letters) for _ in range(generator.randint(4, 8))) for _ in range(count)]
        for language in languages:
            (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in lines))
    settings = {
        "source_lang": languages[0],
        "target_lang": languages[1],
        "out": str(folder / "prepared"),
        "root": str(folder),
        "vocab_size": 280,
        "remove_overlap": "none",
        "remove_duplicates": False,
        **{name: [{"path": name}] for name in ("train", "valid", "test")},
        **other,
    }
    return prepare(data_recipe({"data": settings}), workers=1).data.folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepare_letters(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="session")
def train(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Train a run of these settings, once."""
    recipe = data.parent / "recipe.toml"
    recipe.write_text(RECIPE.format(data=data))
    folder, trained = tmp_path_factory.mktemp("runs"), {}

    def train_(name: str, *settings: str) -> Path:
        if (name, settings) not in trained:
            run(load_recipe(recipe, list(settings)), folder / name, False)
            trained[name, settings] = folder / name
        return trained[name, settings]

    return train_


@pytest.fixture(scope="session")
def twins(train: Train) -> tuple[Path, Path]:
    """A Transformer that has learned its task, and a Macaron."""
    long = "train.max_updates=80"
    return train("transformer", "model.scheme=lie-fg", long), train("macaron", "model.scheme=strang-gfg", long)


@pytest.fixture(scope="session")
def prepared() -> Callable[..., Path]:
    """Prepares a corpus of letters, or of other words."""
    return prepare_letters


@pytest.fixture(scope="session")
def recipe_text() -> str:
    """The recipe of the runs."""
    return RECIPE
