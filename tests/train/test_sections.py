"""A corpus in sections: each pair or document once in an epoch, exact resume, and the plan of one section in memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macaron.data import batching
from macaron.data.batching import section_blocks
from macaron.data.pretraining_texts import Corpus, sentence_pairs, single_spans, span_pairs
from macaron.recipe import load_recipe
from macaron.tasks.translation import TranslationTask


@pytest.fixture(autouse=True)
def small_sections(monkeypatch: pytest.MonkeyPatch) -> None:
    """400 pairs are four sections."""
    monkeypatch.setattr(batching, "SECTION", 100)


@pytest.mark.parametrize(("size", "count"), [(1, 1), (7, 3), (640, 5), (10_007, 4)])
def test_sections_divide_a_corpus(size: int, count: int):
    blocks = [section_blocks(size, section, count, seed=3) for section in range(count)]
    found = sorted(item for section in blocks for start, stop in section for item in range(start, stop))
    assert found == list(range(size))
    assert all(section == sorted(section) for section in blocks)
    assert blocks == [section_blocks(size, section, count, seed=3) for section in range(count)]


def test_a_section_has_blocks_from_all_over_the_corpus():
    for section in range(4):
        middles = np.array(section_blocks(1_000_000, section, 4, seed=1)).mean(1)
        assert np.histogram(middles, bins=4, range=(0, 1_000_000))[0].min() >= 6  # 16 are expected


@pytest.mark.parametrize("batching", ["bucket", "pack"])
def test_an_epoch_sees_every_pair_once(recipe: Path, batching: str):
    task = TranslationTask(load_recipe(recipe, [f"train.batching={batching}", "train.max_length=7"]))
    assert task.sections == 4
    kept = int((np.maximum(task.train_pairs.source.lengths(), task.train_pairs.target.lengths()) <= 7).sum())
    assert 0 < kept < 400
    plans = [[task.plan_section(4 * epoch + section) for section in (1, 2, 3, 4)] for epoch in (0, 1)]
    targets = [sum(each.targets for plan in plans[epoch] for each in plan) for epoch in (0, 1)]
    chosen = np.concatenate([task._section(section) for section in range(4)])
    assert sorted(chosen) == sorted(set(chosen))
    assert task.kept == len(chosen) == kept
    assert targets == [int(task.train_pairs.target.lengths_of(chosen).sum())] * 2
    assert [[each.targets for each in plan] for plan in plans[0]] != [
        [each.targets for each in plan] for plan in plans[1]
    ]


def test_resuming_is_exact(recipe: Path, macaron: Any, same_run: Any, tmp_path: Path):
    options = ("--set", "train.max_updates=40", "--set", "train.checkpoint_every=0", "--set", "train.validate_every=0")
    assert macaron("train", recipe, "--out", tmp_path / "whole", *options).returncode == 0
    for updates in (3, 9, 22, 40):
        done = macaron(
            "train", recipe, "--out", tmp_path / "parts", *options, "--set", f"train.max_updates={updates}", "--resume"
        )
        assert done.returncode == 0, done.stderr
    same_run(tmp_path / "whole", tmp_path / "parts")
    state = json.loads(next((tmp_path / "parts" / "checkpoints").glob("update-00000040/state.json")).read_text())
    assert state["progress"]["sections"] == state["identity"]["sections"] == 4
    # An epoch ends with its last section: validation, and a checkpoint.
    records = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    ends = [record["update"] for record in records if "valid_loss" in record]
    assert ends == [8, 16, 24, 32, 40]


def test_a_number_of_epochs_is_the_same_data_in_sections(recipe: Path, macaron: Any, tmp_path: Path):
    """The schedule ends with the last section of the last epoch."""
    options = ("--set", "train.max_updates=", "--set", "train.max_epochs=2", "--set", "train.schedule=linear")
    done = macaron("train", recipe, "--out", tmp_path / "run", *options, "--set", "train.log_every=1")
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    logged = [record for record in records if "loss" in record]
    assert sum(record["targets"] for record in logged) == 2 * int(
        TranslationTask(load_recipe(recipe, [])).train_pairs.target.tokens
    )
    rates = [record["learning_rate"] for record in logged[12:]]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(0.003 / len(logged))


@pytest.mark.parametrize("cut", ["single", "spans", "sentences"])
def test_texts_of_a_section_are_of_its_documents(cut: str):
    """As if the section were a corpus of its own: the same spans of the same documents."""
    random = np.random.default_rng(5)
    offsets = np.concatenate([[0], np.cumsum(random.integers(1, 12, 300))])
    documents = np.concatenate([[0], np.sort(random.choice(np.arange(1, 300), 29, replace=False)), [300]])
    chosen = np.array([1, 2, 3, 11, 17, 28, 29])
    section = Corpus(offsets, documents, chosen)

    def spans(corpus: Corpus) -> Any:
        drawn = np.random.default_rng(9)
        if cut == "single":
            return single_spans(corpus, 16, drawn)
        if cut == "spans":
            return span_pairs(corpus, 32, 0.1, 0.5, drawn)
        return sentence_pairs(corpus, 32, 0.5, drawn)

    found = spans(section)
    of_token = np.searchsorted(offsets[documents], found.a_start, side="right") - 1
    assert set(of_token) == set(chosen.tolist())
    both = found.follows >= 0
    assert set(np.searchsorted(offsets[documents], found.b_start[both], side="right") - 1) <= set(chosen.tolist())
    assert np.array_equal(
        spans(Corpus(offsets, documents)).a_start, spans(Corpus(offsets, documents, np.arange(30))).a_start
    )
    if cut == "single":  # every token once
        tokens = np.concatenate([np.arange(a, a + n) for a, n in zip(found.a_start, found.a_length, strict=True)])
        wanted = [np.arange(offsets[documents[d]], offsets[documents[d + 1]]) for d in chosen]
        assert sorted(tokens) == np.concatenate(wanted).tolist()
