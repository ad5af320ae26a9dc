"""A recipe of tiny twins, and the letters that they copy."""

import random
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe

RECIPE = """
[data]
out = "{data}"
[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 128
dropout = 0.1
[train]
batch_tokens = 512
learning_rate = 0.01
warmup = 2
max_updates = 6
log_every = 2
validate_every = 3
checkpoint_every = 3
device = "cpu"
[decode]
beam = 1
max_length = 10
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    generator = random.Random(1)
    for name, lines in (("train", 200), ("valid", 12), ("test", 30)):
        text = "".join(" ".join(generator.choices("abcdef", k=generator.randint(3, 6))) + "\n" for _ in range(lines))
        for language in ("src", "tgt"):
            (folder / f"{name}.{language}").write_text(text)
    splits: dict[str, Any] = {name: [{"path": name}] for name in ("train", "valid", "test")}
    settings = {"source_lang": "src", "target_lang": "tgt", "out": str(folder / "prepared"), "root": str(folder)}
    settings |= {"vocab_size": 280, "remove_overlap": "none", "remove_duplicates": False, **splits}
    data = prepare(data_recipe({"data": settings}), workers=1).data.folder
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(data=data))
    return path
