"""Weights and tags through the real commands: exact resume, several processes, two languages in one model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forked import macaron_text
from macaron.data.prepared import PreparedData
from macaron.decode import Translator
from macaron.errors import MacaronError
from macaron.recipe import load_recipe
from macaron.tasks.translation import TranslationTask

NUMBERS = {
    "src": ["eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"],
    "<en>": ["one", "two", "three", "four", "five", "six", "seven", "eight"],
    "<fr>": ["un", "deux", "trois", "quatre", "cinq", "six", "sept", "huit"],
}
RECIPE = """
[data]
source_lang = "src"
target_lang = "tgt"
out = "{root}/prepared"
root = "{root}"
vocab_size = 340
remove_duplicates = false
remove_overlap = "none"

[[data.train]]
path = "en"
tag = "<en>"
weight = 2

[[data.train]]
path = "fr"
tag = "<fr>"
weight = 0.5

[[data.valid]]
path = "fr"
tag = "<fr>"

[[data.test]]
path = "en"
tag = "<en>"

[[data.test]]
path = "fr"
tag = "<fr>"

[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 64
encoder_layers = 1
decoder_layers = 1
dropout = 0.1

[train]
batch_tokens = 128
row_tokens = 32
learning_rate = 0.005
warmup = 10
max_updates = 30
log_every = 1
validate_every = 10
checkpoint_every = 13
accumulate = 2
epsilon = 1e-3  # rounding differs with the number of processes
device = "cpu"

[decode]
beam = 2
max_length = 12
"""


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, server: Any) -> Path:
    """Numbers into English and French: the same sources, and only the tag tells which is wanted."""
    root = tmp_path_factory.mktemp("languages")
    for tag in ("<en>", "<fr>"):
        pairs = [(i, j) for i in range(8) for j in range(8)]
        for side, words in (("src", NUMBERS["src"]), ("tgt", NUMBERS[tag])):
            text = "".join(f"{words[i]} {words[j]}\n" for i, j in pairs)
            (root / f"{tag[1:-1]}.{side}").write_text(text)
    path = root / "recipe.toml"
    path.write_text(RECIPE.format(root=root))
    server.run("prepare", path, "--workers", 1)
    return path


@pytest.mark.parametrize("batching", ["bucket", "pack"])
def test_an_epoch_sees_each_corpus_by_its_weight(recipe: Path, batching: str):
    task = TranslationTask(load_recipe(recipe, [f"train.batching={batching}"]))
    targets = sum(int(length) for length in task.train_pairs.target.lengths(0, 64)) * 2
    halves = [task.mixture.epoch(epoch)[128:].tolist() for epoch in (1, 2)]
    assert sorted(halves[0] + halves[1]) == list(range(64, 128))
    for epoch, half in enumerate(halves, start=1):
        planned = task.plan_section(epoch)
        assert sum(each.targets for each in planned) == targets + int(
            task.train_pairs.target.lengths_of(np.array(half)).sum()
        )
        assert [each.targets for each in task.plan_section(epoch)] == [each.targets for each in planned]
    assert task.identity()["weights"] == [2.0, 0.5]
    even = TranslationTask(load_recipe(recipe, ["data.train=[{path='en'}, {path='fr'}]"]))
    assert even.mixture.epoch(5).tolist() == list(range(128))
    assert "weights" not in even.identity()


@pytest.mark.slow
@pytest.mark.parametrize("batching", ["bucket", "pack"])
def test_resumed_and_in_two_processes(
    batching: str, recipe: Path, server: Any, same_run: Any, metrics: Any, tmp_path: Path
):
    settings = ("--set", f"train.batching={batching}")
    said = server.run("train", recipe, "--out", tmp_path / "whole", *settings)
    assert "corpus en: 64 pairs, weight 2, tag <en>\ncorpus fr: 64 pairs, weight 0.5, tag <fr>" in said
    server.run("train", recipe, "--out", tmp_path / "parts", *settings, "--set", "train.max_updates=17")
    other = ("--set", "data.train=[{path='en', weight=3}, {path='fr'}]")
    said = server.run("train", recipe, "--out", tmp_path / "parts", *settings, *other, "--resume", code=1)
    assert "weights was [2.0, 0.5], is [3.0, 1.0]" in said
    server.run("train", recipe, "--out", tmp_path / "parts", *settings, "--resume")
    records = [each for each in metrics(tmp_path / "parts") if "final" not in each]
    whole = {each["update"]: each for each in metrics(tmp_path / "whole") if "loss" in each}
    assert max(each["epoch"] for each in whole.values()) > 2
    assert all(each["loss"] == whole[each["update"]]["loss"] for each in records if "loss" in each)
    still = ("model.dropout=0", "model.attention_dropout=0", "model.activation_dropout=0")
    still = tuple(part for each in still for part in ("--set", each))
    server.run("train", recipe, "--out", tmp_path / "one", *settings, *still)
    server.run_group(2, "train", recipe, "--out", tmp_path / "two", *settings, *still)
    losses = [[each["loss"] for each in metrics(tmp_path / name) if "loss" in each] for name in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


@pytest.mark.slow
def test_one_model_for_two_languages(recipe: Path, server: Any, tmp_path: Path):
    changes = ("--set", "data.train=[{path='en'}, {path='fr'}]", "--set", "train.max_updates=160")
    changes += ("--set", "train.log_every=50", "--set", "train.validate_every=0", "--set", "model.dropout=0")
    changes += ("--set", "train.epsilon=1e-8", "--set", "train.label_smoothing=0")
    run = tmp_path / "run"
    server.run("train", recipe, "--out", run, *changes)
    translator = Translator(run)
    for tag in ("<en>", "<fr>"):
        found = Translator(run, tag=tag).translate(["drei acht", "eins fünf"])
        words = NUMBERS[tag]
        assert found == [f"{words[2]} {words[7]}", f"{words[0]} {words[4]}"]
    # A tag in the text is text: it commands nothing.
    assert translator.tokenizer.encode_lines(["<fr> drei"])[0] != translator.tokenizer.encode_lines(["<en> drei"])[0]
    data = PreparedData.open(recipe.parent / "prepared")
    assert data.tags("test") == ["<en>"] * 64 + ["<fr>"] * 64
    scored = json.loads(macaron_text("evaluate", run, "--data", data.folder, "--split", "test", "--json").stdout)
    assert scored["scores"][1]["metric"] == "chrF2"
    assert scored["scores"][1]["score"] > 95
    wrong = json.loads(macaron_text("evaluate", run, "--data", data.folder, "--tag", "<en>", "--json").stdout)
    assert wrong["scores"][1]["score"] < 75
    assert "unknown tag '<de>': this model knows <en>, <fr>" in server.run(
        "translate", run, "--tag", "<de>", "--input", recipe, code=1
    )


def test_tags_have_one_direction(recipe: Path):
    with pytest.raises(MacaronError, match=r"train.directions = 'both' does not fit tags"):
        TranslationTask(load_recipe(recipe, ["train.directions=both"]))


@pytest.mark.parametrize("batching", ["bucket", "pack"])
def test_words_of_weighted_corpora_are_split_anew(recipe: Path, batching: str):
    """Each epoch has its own pairs; a pair that it sees twice is split twice, its tag stays."""
    settings = [f"train.batching={batching}", "train.bpe_dropout=0.5"]
    task = TranslationTask(load_recipe(recipe, settings))
    for epoch in (1, 2):
        seen = task.mixture.epoch(epoch)
        pairs, indices = task._shown(epoch)
        assert indices.tolist() == list(range(len(seen)))
        for shown, stored in ((pairs.source, task.train_pairs.source), (pairs.target, task.train_pairs.target)):
            found = [shown[i].tolist() for i in indices]
            wanted = [stored[i].tolist() for i in seen]
            assert task.tokenizer.decode_lines(found) == task.tokenizer.decode_lines(wanted)
            if shown is pairs.source:
                assert [ids[0] for ids in found] == [ids[0] for ids in wanted]
            assert any(found[i] != found[i + 1] for i in range(0, 128, 2))
        assert sum(each.targets for each in task.plan_section(epoch)) == pairs.target.tokens
