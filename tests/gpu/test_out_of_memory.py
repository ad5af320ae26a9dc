"""Training within a real limit of a GPU's memory: micro-batches are cut, and the numbers stay. Needs a GPU."""

import gc
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from macaron.data.prepare import prepare
from macaron.errors import MacaronError
from macaron.recipe import data_recipe, recipe_from
from macaron.tasks.run import run
from macaron.train import step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
UPDATES = 10
#: How a step is run, as settings: eagerly, compiled, or compiled and recorded.
STEPS: dict[str, dict[str, Any]] = {
    "eager": {"compile": "off", "batching": "bucket"},
    "compiled": {"compile": "on", "batching": "bucket"},
    "recorded": {"compile": "on", "batching": "pack", "row_tokens": 64},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits and their reversals."""
    folder, draw = tmp_path_factory.mktemp("digits"), random.Random(1)
    for name, count in (("train", 20_000), ("valid", 500)):
        lines = [[str(draw.randrange(10)) for _ in range(draw.randint(8, 12))] for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    settings = {"source_lang": "src", "target_lang": "tgt", "out": str(folder / "data"), "root": str(folder)}
    settings |= {"vocab_size": 280, "remove_overlap": "none", "remove_duplicates": False}
    splits = {name: [{"path": name}] for name in ("train", "valid")}
    return prepare(data_recipe({"data": {**settings, **splits}}), workers=1).data.folder


@pytest.fixture(autouse=True)
def all_memory() -> Iterator[None]:
    """Each test begins and ends with the whole device."""
    free()
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    free()


def free() -> None:
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def limit(size: float) -> None:
    """Let this process have so many bytes of the device."""
    torch.cuda.set_per_process_memory_fraction(size / torch.cuda.mem_get_info()[1])


def train(data: Path, out: Path, settings: dict[str, Any]) -> list[dict[str, Any]]:
    model = {"preset": "macaron-small", "encoder_layers": 2, "decoder_layers": 2, "hidden_size": 256}
    model |= {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    common = {"batch_tokens": 16_384, "max_updates": UPDATES, "log_every": 1, "precision": "float32", "warmup": 4}
    common |= {"epsilon": 1e-3, "device": "cuda"}
    recipe = {"data": {"out": str(data)}, "model": model, "train": {**common, **settings}}
    run(recipe_from(recipe, "recipe"), out, resume=False)
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses(records: list[dict[str, Any]]) -> list[float]:
    return [record["loss"] for record in records if "loss" in record]


def parts(records: list[dict[str, Any]]) -> list[int]:
    return [record["parts"] for record in records if "parts" in record]


@pytest.mark.parametrize("how", STEPS)
def test_a_limit_from_the_start(how: str, data: Path, tmp_path: Path):
    whole = train(data, tmp_path / "whole", STEPS[how])
    needed = torch.cuda.max_memory_allocated()
    assert needed > 400 << 20, "too small to be limited"
    assert parts(whole) == []
    free()
    limit(0.65 * needed)
    cut = train(data, tmp_path / "cut", STEPS[how])
    assert parts(cut)
    assert max(parts(cut)) in (2, 4)
    assert losses(cut) == pytest.approx(losses(whole), abs=1e-4)
    assert torch.cuda.max_memory_reserved() <= 0.65 * needed + (2 << 20)


def test_memory_runs_out_while_a_step_is_recorded(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Eager steps fit; from the first recording on, there is less memory."""
    whole = train(data, tmp_path / "whole", STEPS["recorded"])
    needed = torch.cuda.max_memory_allocated()
    free()
    original, failures = step.Recording, []

    def record(*args: Any, **kwargs: Any) -> Any:
        limit(0.65 * needed)
        try:
            return original(*args, **kwargs)
        except torch.OutOfMemoryError:
            failures.append(1)
            raise

    monkeypatch.setattr(step, "Recording", record)
    cut = train(data, tmp_path / "cut", STEPS["recorded"])
    assert failures
    assert next(record["update"] for record in cut if "parts" in record) == step.WARM_UP + 1
    assert losses(cut) == pytest.approx(losses(whole), abs=1e-4)


def test_a_model_that_does_not_fit(data: Path, tmp_path: Path):
    limit(32 << 20)
    with pytest.raises(MacaronError, match="out of memory with"):
        train(data, tmp_path / "run", STEPS["eager"] | {"batch_tokens": 1024})
