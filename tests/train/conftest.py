"""A toy corpus (digits to be reversed), a tiny recipe, and the comparison of runs."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe

RECIPE = """
[data]
out = "{data}"

[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 64
encoder_layers = 1
decoder_layers = 1

[train]
batch_tokens = 256
learning_rate = 0.003
warmup = 10
max_updates = 31
log_every = 7
validate_every = 10
checkpoint_every = 8
accumulate = 2
device = "cpu"

[decode]
beam = 2
max_length = 12
"""


def write_pairs(prefix: Path, count: int, generator: random.Random) -> None:
    digits = [[str(generator.randrange(10)) for _ in range(generator.randint(2, 8))] for _ in range(count)]
    prefix.with_suffix(".src").write_text("".join(" ".join(line) + "\n" for line in digits))
    prefix.with_suffix(".tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in digits))


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared folder of digit sequences and their reversals."""
    folder = tmp_path_factory.mktemp("toy")
    generator = random.Random(1)
    for name, count in (("train", 400), ("valid", 40), ("test", 40)):
        write_pairs(folder / name, count, generator)
    splits: dict[str, Any] = {name: [{"path": name}] for name in ("train", "valid", "test")}
    settings = {
        "source_lang": "src",
        "target_lang": "tgt",
        "out": str(folder / "prepared"),
        "root": str(folder),
        "vocab_size": 280,
        "remove_overlap": "none",
        "remove_duplicates": False,
        **splits,
    }
    return prepare(data_recipe({"data": settings}), workers=1).data.folder


@pytest.fixture(scope="session")
def recipe(toy: Path) -> Path:
    """A recipe of which an update takes some milliseconds."""
    path = toy.parent / "recipe.toml"
    path.write_text(RECIPE.format(data=toy))
    return path


def read_metrics(run: Path) -> list[dict[str, Any]]:
    """metrics.jsonl without what depends on the clock."""
    clocks = ("time", "seconds", "tokens_per_second", "time_left")

    def timeless(record: dict[str, Any]) -> dict[str, Any]:
        return {k: timeless(v) if isinstance(v, dict) else v for k, v in record.items() if k not in clocks}

    return [timeless(json.loads(line)) for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(one: Path, other: Path) -> None:
    """Two runs ended with the same bits, and logged the same."""
    files = ["model/model.safetensors"]
    for path in sorted((one / "checkpoints").iterdir()):
        files += [f"checkpoints/{path.name}/{name}.safetensors" for name in ("weights", "optimiser")]
    assert sorted(p.name for p in (one / "checkpoints").iterdir()) == sorted(
        p.name for p in (other / "checkpoints").iterdir()
    )
    for name in files:
        ours, theirs = load_file(one / name), load_file(other / name)
        assert ours.keys() == theirs.keys()
        for key, tensor in ours.items():
            assert tensor.equal(theirs[key]), f"{name}: {key} differs"
    assert read_metrics(one) == read_metrics(other)


@pytest.fixture(scope="session")
def metrics() -> Callable[[Path], list[dict[str, Any]]]:
    return read_metrics


@pytest.fixture(scope="session")
def same_run() -> Callable[[Path, Path], None]:
    return assert_same_run
