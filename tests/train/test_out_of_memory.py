"""Too little memory for a micro-batch: it is computed in parts, the same numbers come out, and the run goes on."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from macaron.data.prepare import prepare
from macaron.decode.search import Scorer
from macaron.recipe import data_recipe, load_recipe
from macaron.tasks.pretraining import PretrainingTask
from macaron.tasks.run import run as train
from macaron.tasks.translation import TranslationTask
from macaron.train.distributed import Processes
from macaron.train.loop import Trainer
from macaron.train.pace import measure
from small_device import small_device

# Without dropout parts are the whole; see test_distributed.py for epsilon.
EXACT = [
    *("model.dropout=0", "model.attention_dropout=0", "model.activation_dropout=0", "train.epsilon=1e-3"),
    *("train.log_every=1", "train.max_updates=5", "train.validate_every=3", "train.clip_norm=1"),
]
PACKED = ["train.batching=pack", "train.row_tokens=24"]
DROPOUT = ["train.ema=0.9", "train.checkpoint_every=4", "model.dropout=0.2", "train.max_updates=10"]


def sets(assignments: list[str]) -> list[str]:
    return [part for each in assignments for part in ("--set", each)]


def parts_of(records: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """At which updates micro-batches were cut, and into how many parts."""
    return [(record["update"], record["parts"]) for record in records if "parts" in record]


def last_state(run: Path) -> dict[str, Any]:
    path = max((run / "checkpoints").glob("update-*")) / "state.json"
    found: dict[str, Any] = json.loads(path.read_text())["progress"]
    return found


def assert_same_numbers(one: Path, other: Path, metrics: Any) -> None:
    ours, theirs = ([r for r in metrics(run) if "parts" not in r and "final" not in r] for run in (one, other))
    assert [record["update"] for record in ours] == [record["update"] for record in theirs]
    for record, expected in zip(ours, theirs, strict=True):
        for key, value in expected.items():
            assert record[key] == pytest.approx(value, abs=1e-6), (record["update"], key)
    first, second = (load_file(run / "model" / "model.safetensors") for run in (one, other))
    assert max(float((first[key] - second[key]).abs().max()) for key in first) < 1e-5


@pytest.fixture(scope="module")
def whole(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with memory enough."""
    out = tmp_path_factory.mktemp("whole") / "run"
    train(load_recipe(recipe, EXACT), out, False)
    return out


@pytest.mark.parametrize(
    ("where", "positions", "parts"), [pytest.param("forward", 130, 2, marks=pytest.mark.slow), ("backward", 40, 8)]
)
def test_parts_are_the_whole(
    where: Any, positions: int, parts: int, recipe: Path, whole: Path, metrics: Any, tmp_path: Path
):
    """In the backward pass of the encoder the decoder's gradients are there already: they must not count twice."""
    device = small_device(positions, where)
    try:
        train(load_recipe(recipe, EXACT), tmp_path / "run", False)
    finally:
        device.remove()
    assert parts_of(metrics(tmp_path / "run")) == [(1, parts)]
    assert last_state(tmp_path / "run")["parts"] == parts
    assert_same_numbers(tmp_path / "run", whole, metrics)


def test_packed_rows(recipe: Path, metrics: Any, tmp_path: Path):
    settings = load_recipe(recipe, [*EXACT, *PACKED])
    train(settings, tmp_path / "whole", False)
    device = small_device(3 * 24)
    try:
        train(settings, tmp_path / "run", False)
    finally:
        device.remove()
    assert parts_of(metrics(tmp_path / "run")) == [(1, 4)]
    assert_same_numbers(tmp_path / "run", tmp_path / "whole", metrics)


def test_the_run_says_so_once_and_resumes_exactly(
    recipe: Path, server: Any, same_run: Any, metrics: Any, tmp_path: Path
):
    """Memory runs out at update 4; whoever goes on, with more memory or not, goes on in parts."""
    one, other = tmp_path / "one", tmp_path / "other"
    commands = {run: ("train", recipe, "--out", run, *sets(DROPOUT)) for run in (one, other)}
    for command in commands.values():
        server.run(*command, "--set", "train.max_updates=3")
    text = server.run(*commands[one], "--resume", memory=[130])
    assert text.count("update 4 | epoch 1 | out of memory: micro-batches are computed in 2 parts from now on") == 1
    assert parts_of(metrics(one)) == [(4, 2)]
    server.run(*commands[other], "--resume", "--set", "train.max_updates=6", memory=[130])
    text = server.run(*commands[other], "--resume")
    assert "micro-batches in 2 parts, resumed at update 6" in text
    same_run(one, other)
    assert last_state(other)["parts"] == 2


def test_a_trial_of_the_pace_finds_the_parts(recipe: Path, whole: Path, metrics: Any, tmp_path: Path):
    settings = load_recipe(recipe, EXACT)
    trainer = Trainer(TranslationTask(settings), settings.train, tmp_path / "run", Processes())
    (tmp_path / "run").mkdir()
    device = small_device(130)
    try:
        measure(trainer, 0.01)
    finally:
        device.remove()
    assert (trainer.state.update, trainer.state.parts) == (0, 2)
    trainer.fit(resume=False)
    assert parts_of(metrics(tmp_path / "run")) == [(1, 2)]
    assert_same_numbers(tmp_path / "run", whole, metrics)


@pytest.mark.parametrize("where", [pytest.param("forward", marks=pytest.mark.slow), "backward"])
def test_one_process_lacks_memory_and_both_cut(
    where: str, recipe: Path, whole: Path, server: Any, metrics: Any, tmp_path: Path
):
    run = tmp_path / "run"
    text = server.run_group(2, "train", recipe, "--out", run, *sets(EXACT), last={"memory": [130, where]})
    assert text.count("out of memory: micro-batches are computed in 2 parts") == 1
    assert parts_of(metrics(run)) == [(1, 2)]
    assert_same_numbers(run, whole, metrics)


def test_one_process_lacks_memory_where_the_other_could_sum_gradients(
    recipe: Path, server: Any, metrics: Any, tmp_path: Path
):
    arguments = ("train", recipe, *sets([*EXACT, *PACKED, "train.accumulate=4"]), "--out")
    server.run(*arguments, tmp_path / "whole")
    server.run_group(2, *arguments, tmp_path / "run", recorded="yes", last={"recorded": "lacking"})
    assert parts_of(metrics(tmp_path / "run")) == [(2, 2)]
    assert_same_numbers(tmp_path / "run", tmp_path / "whole", metrics)


@pytest.mark.slow
def test_sharded_processes_take_equally_many_parts(recipe: Path, server: Any, metrics: Any, tmp_path: Path):
    """Cut by one process without sharding, continued by two with it; batches of few rows have fewer parts."""
    settings = sets([*EXACT, "train.batch_tokens=48"])
    for name, memory in (("one", [9]), ("whole", [1000])):
        server.run("train", recipe, "--out", tmp_path / name, *settings, "--set=train.max_updates=2", memory=memory)
    assert last_state(tmp_path / "one")["parts"] >= 8
    fsdp = ("--resume", "--set", "train.distributed=fsdp")
    server.run_group(2, "train", recipe, "--out", tmp_path / "one", *settings, *fsdp)
    server.run("train", recipe, "--out", tmp_path / "whole", *settings, "--resume")
    assert_same_numbers(tmp_path / "one", tmp_path / "whole", metrics)


def test_a_row_that_does_not_fit_alone(recipe: Path, server: Any, tmp_path: Path):
    text = server.run("train", recipe, "--out", tmp_path / "run", memory=[4], code=1)
    assert "out of memory with a single row of" in text
    assert "train.max_length with train.batching = 'bucket'" in text
    assert "Traceback" not in text


def test_validation_in_parts(recipe: Path, whole: Path, metrics: Any, tmp_path: Path):
    device = small_device(100, "validation")
    try:
        train(load_recipe(recipe, EXACT), tmp_path / "run", False)
    finally:
        device.remove()
    assert last_state(tmp_path / "run")["parts"] == 1
    assert last_state(tmp_path / "run")["validation_parts"] == 4
    valid = [record for record in metrics(tmp_path / "run") if "valid_loss" in record]
    assert [record["validation_parts"] for record in valid] == [4, 4]
    assert_same_numbers(tmp_path / "run", whole, metrics)


def test_translating_in_smaller_batches(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: Any):
    settings = load_recipe(recipe, [*EXACT, "train.bleu_sentences=40"])
    train(settings, tmp_path / "whole", False)
    original, most = Scorer.__init__, [0]

    def limited(self: Scorer, model: Any, sources: Any, *rest: Any) -> None:
        most[0] = max(most[0], sum(map(len, sources)))
        if sum(map(len, sources)) > 70:
            raise torch.OutOfMemoryError("translating takes too much")
        original(self, model, sources, *rest)

    monkeypatch.setattr(Scorer, "__init__", limited)
    train(settings, tmp_path / "run", False)
    assert most[0] > 140
    assert_same_numbers(tmp_path / "run", tmp_path / "whole", metrics)


def test_parts_of_a_batch(recipe: Path):
    task = TranslationTask(load_recipe(recipe, ["train.batching=bucket"]))
    planned = max(task.plan_section(1), key=lambda each: each.targets)
    batch = planned.collate(torch.device("cpu"))
    rows = len(batch.source)
    for count in (1, 2, 3, rows, rows + 3):
        parts = task.parts(batch, count)
        assert len(parts) == count
        assert torch.cat([part.source for part, real in parts if real]).equal(batch.source)
        assert max(len(part.source) for part, _ in parts) == math.ceil(rows / min(count, rows))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe for pre-training."""
    folder, draw = tmp_path_factory.mktemp("documents"), random.Random(5)
    texts = (
        "\n".join(" ".join(f"w{draw.randrange(40)}" for _ in range(draw.randint(3, 12))) + "." for _ in range(5))
        for _ in range(60)
    )
    (folder / "text.txt").write_text("\n\n".join(texts) + "\n")
    data = {"kind": "text", "out": str(folder / "prepared"), "root": str(folder), "train": [{"path": "text.txt"}]}
    made = prepare(data_recipe({"data": data | {"vocab_size": 320, "valid_every": 10}}), workers=1).data.folder
    path = folder / "recipe.toml"
    path.write_text(
        f'[data]\nout = "{made}"\n[model]\npreset = "macaron-bert-tiny"\nhidden_size = 32\nnum_attention_heads = 2\n'
        "intermediate_size = 64\nnum_hidden_layers = 1\n[train]\nbatch_tokens = 256\nrow_tokens = 32\nwarmup = 5\n"
        'learning_rate = 0.003\naccumulate = 2\nvalidate_every = 10\ndevice = "cpu"\n'
    )
    return path


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param([], id="nsp"),
        pytest.param(["pretrain.nsp=false", "pretrain.cls_target=true"], id="mlm", marks=pytest.mark.slow),
    ],
)
def test_pre_training_in_parts(changes: list[str], documents: Path, metrics: Any, tmp_path: Path):
    settings = load_recipe(documents, [*EXACT, *changes, "train.max_updates=3"])
    train(settings, tmp_path / "whole", False)
    for where in ("forward", "validation"):
        device = small_device(3 * 32, where)
        try:
            train(settings, tmp_path / where, False)
        finally:
            device.remove()
        assert parts_of(metrics(tmp_path / where)) == ([(1, 4)] if where == "forward" else [])
        assert last_state(tmp_path / where)["validation_parts"] == (4 if where == "validation" else 1)
        assert_same_numbers(tmp_path / where, tmp_path / "whole", metrics)


def test_cut_rows_have_their_own_words_and_texts(documents: Path):
    task = PretrainingTask(load_recipe(documents, EXACT))
    batch = task.plan_section(1)[0].collate(torch.device("cpu"))
    width, found, texts = batch.ids.shape[1], [], []
    for (part, real), first in zip(task.parts(batch, 4), range(0, 8, 2), strict=True):
        assert real
        assert part.ids.equal(batch.ids[first : first + 2])
        kept = part.targets != task.module.criterion.losses.ignored
        places = (part.masked[kept] + first * width).tolist()
        found += zip(places, part.targets[kept].tolist(), strict=True)
        assert int(part.masked.max()) < part.ids.numel()
        assert len(part.masked) < len(batch.masked) / 2
        assert part.starts.diff().min() >= 0
        assert (int(part.starts[0]), int(part.starts[-1])) == (0, part.ids.numel())
        texts += [int(start) + first * width for start in part.starts.unique()[:-1]]
    kept = batch.targets != task.module.criterion.losses.ignored
    assert sorted(found) == sorted(zip(batch.masked[kept].tolist(), batch.targets[kept].tolist(), strict=True))
    assert texts == batch.starts.unique()[:-1].tolist()
