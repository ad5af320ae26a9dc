"""Pre-training through the real command: it learns, resumes exactly, does not depend on the number of processes."""

import json
import math
import random
import re
import shutil
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from macaron.data.prepare import prepare
from macaron.data.prepared import PreparedText
from macaron.recipe import data_recipe, load_recipe
from macaron.seal import seal
from macaron.tasks.pretraining import PretrainingTask
from macaron.text import verify

RECIPE = """
[data]
out = "{data}"

[model]
preset = "macaron-bert-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 64
num_hidden_layers = 1

[train]
batch_tokens = 256
row_tokens = 32
learning_rate = 0.003
warmup = 10
max_updates = 23
log_every = 5
validate_every = 10
checkpoint_every = 8
accumulate = 2
device = "cpu"
"""
TOPICS = 6


def write_documents(path: Path, count: int, generator: random.Random) -> None:
    """Documents of one topic each; in a sentence the subject decides the verb, and both the object."""
    documents = []
    for number in range(count):
        topic = number % TOPICS
        lines = []
        for _ in range(generator.randint(3, 9)):
            who = generator.randrange(4)
            sentence = f"the {'abcd'[who]}man{topic} will {'efgh'[who]}see{topic} a {'abcd'[who]}dog{topic} today."
            lines.append(sentence.capitalize())
        documents.append(" ".join(lines[:2]) + "\n" + " ".join(lines[2:]) + "\n")
    path.write_text("\n".join(documents))


def prepared(folder: Path, documents: int, verb: str = "will", **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    write_documents(folder / "text.txt", documents, random.Random(7))
    (folder / "text.txt").write_text((folder / "text.txt").read_text().replace("will", verb))
    settings = {"kind": "text", "out": str(folder / "prepared"), "root": str(folder), "train": [{"path": "text.txt"}]}
    settings |= {"vocab_size": 320, "valid_every": 10, **changes}
    return prepare(data_recipe({"data": settings}), workers=1).data.folder


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("documents"), 80)


@pytest.fixture(scope="module")
def pretraining(documents: Path) -> Path:
    path = documents.parent / "recipe.toml"
    path.write_text(RECIPE.format(data=documents))
    return path


@pytest.fixture(scope="module")
def whole(pretraining: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    server.run("train", pretraining, "--out", run)
    return run


def test_it_goes_on_from_a_model(pretraining: Path, documents: Path, whole: Path, server: Any, tmp_path: Path):
    """Before training it is the model; new subwords and a frozen part; a classifier lends its encoder."""
    still = ("--set", "train.max_updates=1", "--set", "train.warmup_rate=0")
    more = prepared(tmp_path / "text", 40, "certainly shall", tokenizer=str(whole), extend_vocab=12)
    for name, data, model in (("same", documents, whole), ("more", more, whole)):
        run = tmp_path / name
        server.run("train", pretraining, "--from", model, "--out", run, *still, "--set", f"data.out={data}")
        ours, theirs = (load_file(each / "model" / "model.safetensors") for each in (run, whole))
        assert all(ours[key][: len(theirs[key])].equal(theirs[key]) for key in theirs)
        assert (len(ours["model.embedding.tokens.weight"]) > len(theirs["model.embedding.tokens.weight"])) == (
            data == more
        )
    classifier = tmp_path / "classifier"
    network = AutoModelForSequenceClassification.from_pretrained(whole / "model", num_labels=3)
    network.save_pretrained(classifier)
    AutoTokenizer.from_pretrained(whole / "model").save_pretrained(classifier)
    freeze = ("--set", 'train.freeze=["model.encoder"]', "--set", "train.max_updates=3")
    text = server.run("train", pretraining, "--from", classifier, "--out", tmp_path / "lent", *freeze)
    assert "drawn anew: head.dense.bias" in text
    ours = load_file(tmp_path / "lent" / "model" / "model.safetensors")
    assert all(ours[key].equal(theirs[key]) == ("encoder" in key) for key in theirs)


def test_the_run_itself(whole: Path, metrics: Any):
    records = metrics(whole)
    logged = [record for record in records if "loss" in record]
    assert {"loss", "mlm", "nsp", "targets", "learning_rate", "epoch"} <= set(logged[0])
    for record in logged:
        assert record["loss"] == pytest.approx(record["mlm"] + record["nsp"], rel=1e-6)
    assert (logged[0]["epoch"], logged[-1]["epoch"]) == (1, 2)
    valid = [record for record in records if "valid_loss" in record]
    assert [record["update"] for record in valid] == [10, 20, 23]
    for record in valid:
        assert record["valid_loss"] == pytest.approx(record["valid_mlm"] + record["valid_nsp"], rel=1e-6)
        assert 0 <= record["valid_mlm_accuracy"] <= 1
        assert 0 <= record["valid_nsp_accuracy"] <= 1
    assert valid[-1]["valid_mlm"] < valid[0]["valid_mlm"]
    # Real tokens are what is counted: nearly all of 8 rows of 32, twice.
    assert 0.8 < logged[0]["targets"] / (5 * 2 * 256) <= 1
    # Always on the same texts under the same masks: what the end gives is what it gives again.
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["candidates"]["last"] == valid[-1]["valid_loss"]
    stored = (whole / "recipe.toml").read_text()
    assert "[pretrain]" in stored
    assert "[decode]" not in stored


def test_every_epoch_has_texts_and_masks_of_its_own(pretraining: Path):
    """The same ones whenever it comes: a run that is resumed meets what it would have met."""
    tasks = [PretrainingTask(load_recipe(pretraining, [])) for _ in range(2)]
    device = torch.device("cpu")
    first, second = (tasks[0].plan(epoch)[0].collate(device) for epoch in (1, 2))
    resumed = tasks[1].plan(2)[0].collate(device)
    assert not first.ids.equal(second.ids)
    assert not first.masked.equal(second.masked)
    assert second.ids.equal(resumed.ids)
    assert second.masked.equal(resumed.masked)


def test_positions_reach_as_far_as_the_longest_text(pretraining: Path):
    long = ["train.row_tokens=800", "train.batch_tokens=800", "pretrain.max_tokens=700"]
    assert PretrainingTask(load_recipe(pretraining, long)).model.config.max_position_embeddings == 700
    assert PretrainingTask(load_recipe(pretraining, [])).model.config.max_position_embeddings == 512


def test_the_same_sentences_in_other_documents_are_other_data(pretraining: Path, documents: Path, tmp_path: Path):
    lines = (documents.parent / "text.txt").read_text().split("\n")
    border = lines.index("")
    lines[border - 1 : border + 1] = ["", lines[border - 1]]  # the first document's last paragraph is the second's now
    (tmp_path / "text.txt").write_text("\n".join(lines))
    settings = {"kind": "text", "out": str(tmp_path / "data"), "root": str(tmp_path), "train": [{"path": "text.txt"}]}
    prepare(data_recipe({"data": {**settings, "vocab_size": 320, "valid_every": 10}}), workers=1)
    here, there = (
        PretrainingTask(load_recipe(pretraining, [f"data.out={folder}"])) for folder in (documents, tmp_path / "data")
    )
    assert here.sentences["train"].lengths().tolist() == there.sentences["train"].lengths().tolist()
    assert here.identity() != there.identity()


@pytest.mark.parametrize("moments", [(8,), (8, 16), (16,)])
def test_killed_and_resumed_is_the_same(
    moments: tuple[int, ...], pretraining: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path
):
    """With kill -9 somewhere behind these updates; the epoch ends in between."""
    run = tmp_path / "run"
    for update in moments:
        command = server.start("train", pretraining, "--out", run, "--resume")
        deadline = time.monotonic() + 60
        while not (run / "checkpoints" / f"update-{update:08d}").exists():
            assert time.monotonic() < deadline, command.text
            time.sleep(0.002)
        command.send(signal.SIGKILL)
        assert command.wait() == -signal.SIGKILL, command.text
    text = server.run("train", pretraining, "--out", run, "--resume")
    assert f"resumed at update {moments[-1]}" in text
    same_run(whole, run)


@pytest.mark.parametrize("place", ["macaron.files._sync", "macaron.train.task.save_model"])
def test_killed_at_the_worst_moments(
    place: str, pretraining: Path, whole: Path, server: Any, same_run: Any, tmp_path: Path
):
    run = tmp_path / "run"
    assert server.start("train", pretraining, "--out", run, kill_at=[place, 1]).wait() == -signal.SIGKILL
    server.run("train", pretraining, "--out", run, "--resume")
    same_run(whole, run)


EXACT = [
    *("--set", "train.accumulate=3", "--set", "train.log_every=1", "--set", "train.max_updates=12"),
    *("--set", "model.dropout=0", "--set", "model.attention_dropout=0", "--set", "train.epsilon=1e-3"),
]


@pytest.fixture(scope="module")
def alone(pretraining: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    server.run("train", pretraining, "--out", run, *EXACT)
    return run


@pytest.mark.parametrize("how", [(), ("--set", "train.distributed=fsdp")], ids=["ddp", "fsdp"])
def test_two_processes_are_one(how: Any, pretraining: Path, alone: Path, server: Any, metrics: Any, tmp_path: Path):
    run = tmp_path / "run"
    server.run_group(2, "train", pretraining, "--out", run, *EXACT, *how)
    ours, theirs = metrics(alone), metrics(run)
    assert [record["update"] for record in ours] == [record["update"] for record in theirs]
    worst = 0.0
    for record, other in zip(ours, theirs, strict=True):
        numbers = [key for key, value in record.items() if isinstance(value, float)]
        worst = max([worst, *(abs(record[key] - other[key]) for key in numbers)])
    print(f"largest difference between one process and two: {worst:.2e}")
    assert worst < 1e-6
    one, two = (load_file(folder / "model" / "model.safetensors") for folder in (alone, run))
    assert max(float((one[key] - two[key]).abs().max()) for key in one) < 1e-5


@pytest.mark.parametrize("off", ["mlm", "nsp"])
def test_each_objective_can_be_turned_off(off: str, pretraining: Path, server: Any, metrics: Any, tmp_path: Path):
    """Resumed and with two processes, too: weights that nothing trains are in the way of neither."""
    arguments = ("train", pretraining, "--out", tmp_path / "run", *EXACT, "--set", f"pretrain.{off}=false")
    server.run(*arguments, "--set", "train.max_updates=3")
    server.run_group(2, *arguments, "--set", "train.max_updates=6", "--resume")
    on = "nsp" if off == "mlm" else "mlm"
    records = metrics(tmp_path / "run")
    for record in records:
        assert off not in record
        assert f"valid_{off}_accuracy" not in record
    assert all(record["loss"] == record[on] for record in records if "loss" in record)
    assert f"valid_{on}_accuracy" in records[-2]


def test_a_folder_for_transformers(whole: Path, documents: Path):
    folder = whole / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("The aman1 will esee1 a <mask> today.", "The bman1.", return_tensors="pt")
    assert inputs["token_type_ids"].unique().tolist() == [0, 1]
    model = AutoModelForMaskedLM.from_pretrained(folder).eval()
    verify(tokenizer, model.config)
    assert model(**inputs).logits.shape[-1] == PreparedText.open(documents).vocab_size
    both = AutoModelForPreTraining.from_pretrained(folder).eval()
    torch.testing.assert_close(both(**inputs).prediction_logits, model(**inputs).logits)
    states = AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state
    torch.testing.assert_close(both.mlm_logits(states), model(**inputs).logits)
    classifier = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3).eval()
    assert classifier(**inputs).logits.tolist() == [[0, 0, 0]]
    stored = load_file(folder / "model.safetensors")
    assert {"next_sentence.weight", "head.dense.weight", "model.embedding.tokens.weight"} <= set(stored)


def test_the_authors_segments_travel_with_the_tokenizer(pretraining: Path, server: Any, tmp_path: Path):
    """As the released encoders: the first sentence is segment 1, its vector zero and never trained."""
    changes = ["model.first_segment=1", "model.freeze_first_segment=true", "model.norm_affine=false"]
    changes += ['model.activation=["relu", "gelu"]', "pretrain.cls_target=true", "pretrain.pairs=sentences"]
    settings = [part for each in changes for part in ("--set", each)]
    server.run("train", pretraining, "--out", tmp_path / "run", "--set", "train.max_updates=2", *settings)
    folder = tmp_path / "run" / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer("The aman1.", "The bman1.")
    border = inputs["input_ids"].index(2) + 1
    types = inputs["token_type_ids"]
    assert types == [1] * border + [0] * (len(types) - border)
    model = AutoModelForPreTraining.from_pretrained(folder)
    verify(tokenizer, model.config)
    second, first = model.model.embedding.segments.weight.detach().abs().max(dim=1).values.tolist()
    assert first == 0 < second


@pytest.mark.slow
def test_words_are_learned(pretraining: Path, server: Any, metrics: Any, tmp_path: Path):
    """The loss on masked words falls well below what the frequencies of words give, and pairs are told apart."""
    data = prepared(tmp_path / "more", 600)
    store = PreparedText.open(data).sentences("train")
    counts = np.array(list(Counter(store.ids.tolist()).values()), float)
    entropy = -sum(p * math.log(p) for p in counts / counts.sum())
    longer = [f"data.out={data}", "train.max_updates=600", "train.accumulate=1", "train.batch_tokens=1024"]
    longer += ["train.row_tokens=64", "train.validate_every=200", "train.warmup=50", "model.num_hidden_layers=2"]
    longer += ["model.hidden_size=64", "model.intermediate_size=256", "model.dropout=0", "model.attention_dropout=0"]
    settings = [part for each in longer for part in ("--set", each)]
    server.run("train", pretraining, "--out", tmp_path / "run", *settings)
    last = [record for record in metrics(tmp_path / "run") if "valid_loss" in record][-1]
    print(f"unigram entropy {entropy:.3f}, {last}")
    assert last["valid_mlm"] < 0.5 * entropy
    assert last["valid_nsp_accuracy"] > 0.8


# Bad input.


def test_one_document_has_no_other(server: Any, pretraining: Path, tmp_path: Path):
    data = prepared(tmp_path / "few", 3)
    text = server.run("train", pretraining, "--out", tmp_path / "run", "--set", f"data.out={data}", code=1)
    assert f"{data}: next-sentence prediction needs at least two validation documents" in text
    assert "Set pretrain.nsp = false, or prepare at least four documents" in text
    assert not (tmp_path / "run").exists()
    off = ("--set", "pretrain.nsp=false", "--set", "train.max_updates=2")
    server.run("train", pretraining, "--out", tmp_path / "run", "--set", f"data.out={data}", *off)


def test_an_empty_corpus(server: Any, pretraining: Path, documents: Path, tmp_path: Path):
    data = tmp_path / "prepared"
    shutil.copytree(documents, data)
    manifest = json.loads((data / "prepared.json").read_text())
    manifest["splits"]["train"] |= {"documents": 0, "sentences": 0, "tokens": 0}
    (data / "prepared.json").write_text(json.dumps(manifest))
    (data / "train.ids").write_bytes(b"")
    for name in ("offsets", "documents"):
        (data / f"train.{name}").write_bytes(bytes(8))
    seal(data)
    text = server.run("train", pretraining, "--out", tmp_path / "run", "--set", f"data.out={data}", code=1)
    assert f"{data}: no training text in these data" in text


def test_data_of_another_kind(server: Any, pretraining: Path, recipe: Path, toy: Path, documents: Path, tmp_path: Path):
    run = tmp_path / "run"
    text = server.run("train", pretraining, "--out", run, "--set", f"data.out={toy}", code=1)
    assert (
        f"{toy} holds data for translation, but the recipe (model.preset = 'macaron-bert-tiny') is for pre-training"
        in text
    )
    text = server.run("train", recipe, "--out", run, "--set", f"data.out={documents}", code=1)
    assert (
        f"{documents} holds data for pre-training, but the recipe (model.preset = 'macaron-tiny') is for translation"
        in text
    )
    assert "take model.preset = 'macaron-bert-base'" in text
    encoder = tmp_path / "encoder.toml"
    encoder.write_text(re.sub(r"(en|de)coder_layers = 1\n", "", recipe.read_text()))
    text = server.run("train", encoder, "--out", run, "--set", "model.preset=bert-tiny", code=1)
    assert "[decode] is for translation" in text
    text = server.run("train", pretraining, "--out", run, "--set", "pretrain.mask_ration=0.2", code=1)
    assert "unknown key 'pretrain.mask_ration'; did you mean 'mask_ratio'" in text
    assert not run.exists()
