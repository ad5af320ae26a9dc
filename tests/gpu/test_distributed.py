"""A process group of one on a GPU: gradients summed by NCCL inside recorded steps, and FSDP. Needs a GPU."""

import json
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe, recipe_from
from macaron.tasks.run import run
from macaron.train.distributed import Processes

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
UPDATES = 12


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits and their reversals."""
    folder, draw = tmp_path_factory.mktemp("digits"), random.Random(1)
    for name, count in (("train", 8000), ("valid", 200)):
        lines = [[str(draw.randrange(10)) for _ in range(draw.randint(8, 12))] for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    settings = {"source_lang": "src", "target_lang": "tgt", "out": str(folder / "data"), "root": str(folder)}
    settings |= {"vocab_size": 280, "remove_overlap": "none", "remove_duplicates": False}
    splits = {name: [{"path": name}] for name in ("train", "valid")}
    return prepare(data_recipe({"data": {**settings, **splits}}), workers=1).data.folder


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun tells its processes, here this one alone."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    values = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in {**values, "TORCHELASTIC_RUN_ID": "test"}.items():
        monkeypatch.setenv(name, str(value))


def train(data: Path, out: Path, **settings: Any) -> list[float]:
    """The losses of a short run, two micro-batches an update."""
    model = {"preset": "macaron-small", "encoder_layers": 2, "decoder_layers": 2, "hidden_size": 256}
    common = {"batch_tokens": 4096, "row_tokens": 64, "accumulate": 2, "max_updates": UPDATES, "log_every": 1}
    common |= {"warmup": 4, "device": "cuda", "clip_norm": 1.0, "epsilon": 1e-3}
    recipe = {"data": {"out": str(data)}, "model": model, "train": {**common, **settings}}
    run(recipe_from(recipe, "recipe"), out, resume=False)
    records = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [record["loss"] for record in records if "loss" in record]


def test_gradients_are_summed_inside_a_recorded_step(
    data: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    alone = train(data, tmp_path / "alone")
    request.getfixturevalue("group")
    original, recorded = Processes.summing, []

    @contextmanager
    def summing(self: Processes, *arguments: Any) -> Iterator[None]:
        recorded.append(torch.cuda.is_current_stream_capturing())
        with original(self, *arguments):
            yield

    monkeypatch.setattr(Processes, "summing", summing)
    assert train(data, tmp_path / "group") == pytest.approx(alone, abs=1e-4)
    assert len(alone) == UPDATES
    assert recorded == [True]


def test_a_sharded_model(data: Path, tmp_path: Path, request: pytest.FixtureRequest):
    plain = {"compile": "off", "precision": "float32"}
    alone = train(data, tmp_path / "alone", **plain)
    request.getfixturevalue("group")
    assert train(data, tmp_path / "group", distributed="fsdp", **plain) == pytest.approx(alone, abs=1e-4)
