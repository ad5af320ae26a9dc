"""What training shows of the data: both directions in one model, words split anew in each epoch."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from macaron.data import batching
from macaron.errors import MacaronError
from macaron.recipe import load_recipe
from macaron.tasks.translation import TranslationTask
from macaron.text.vocabulary import PAD
from macaron.train.settings import PretrainSettings, TrainSettings

CPU = torch.device("cpu")
BOTH, DROPOUT = "train.directions=both", "train.bpe_dropout=0.3"
Pair = tuple[tuple[int, ...], tuple[int, ...]]


def opened(recipe: Path, *settings: str) -> TranslationTask:
    return TranslationTask(load_recipe(recipe, ["train.row_tokens=24", *settings]))


def shown(task: TranslationTask, number: int, batches: int | None = None) -> Counter[Pair]:
    """The pairs of all batches of a section, or of the first ones, as a model sees them."""
    found: Counter[Pair] = Counter()
    for planned in task.plan_section(number)[:batches]:
        batch = planned.collate(CPU)
        sentences = [batch.source_sentence, batch.target_sentence]
        texts: list[list[tuple[int, ...]]] = [[], []]
        for side, (tokens, numbers) in enumerate(zip((batch.source, batch.target), sentences, strict=True)):
            for row in range(len(tokens)):
                ids = tokens[row]
                of = (ids != PAD).int() if numbers is None else numbers[row]
                texts[side] += [tuple(ids[of == i].tolist()) for i in range(1, int(of.max()) + 1)]
        found.update(zip(*texts, strict=True))
        assert planned.targets == sum(map(len, texts[1]))
    return found


def stored(task: TranslationTask) -> Counter[Pair]:
    sides = task.train_pairs.source, task.train_pairs.target
    return Counter((tuple(sides[0][i].tolist()), tuple(sides[1][i].tolist())) for i in range(len(task.train_pairs)))


def turned(pairs: Counter[Pair]) -> Counter[Pair]:
    return Counter({(target, source): count for (source, target), count in pairs.items()})


@pytest.mark.parametrize("batching_", ["bucket", "pack"])
@pytest.mark.parametrize("section", [100, 1 << 21])
def test_an_epoch_has_every_pair_in_both_directions(
    recipe: Path, batching_: str, section: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batching, "SECTION", section)
    task = opened(recipe, f"train.batching={batching_}", BOTH)
    for epoch in (0, 1):
        seen = sum((shown(task, epoch * task.sections + i + 1) for i in range(task.sections)), Counter[Pair]())
        assert seen == stored(task) + turned(stored(task))
    # Batches mix the directions.
    one, other = stored(task) - turned(stored(task)), turned(stored(task)) - stored(task)
    assert shown(task, 1, batches=1) & one
    assert shown(task, 1, batches=1) & other
    # Validation has the direction of the data.
    assert opened(recipe).valid_pairs.source[0].tolist() == task.valid_pairs.source[0].tolist()


@pytest.mark.parametrize("batching_", ["bucket", "pack"])
@pytest.mark.parametrize("section", [400, 1 << 21])
@pytest.mark.parametrize("both", [False, True])
def test_words_are_split_anew_in_each_epoch(
    recipe: Path, batching_: str, section: int, both: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(batching, "SECTION", section)
    task = opened(recipe, f"train.batching={batching_}", DROPOUT, *([BOTH] if both else []))
    assert task.sections == (4 if section == 400 else 1)

    def text(pairs: Counter[Pair]) -> Counter[tuple[str, str]]:
        found: Counter[tuple[str, str]] = Counter()
        for pair, count in pairs.items():
            source, target = task.tokenizer.decode_lines(pair)
            found[source, target] += count
        return found

    wanted = stored(task) + (turned(stored(task)) if both else Counter())
    epochs = []
    for epoch in (0, 1):
        numbers = range(epoch * task.sections + 1, (epoch + 1) * task.sections + 1)
        epochs.append(sum((shown(task, number) for number in numbers), Counter[Pair]()))
        assert text(epochs[-1]) == text(wanted)
        assert all(max(map(len, pair)) <= 24 for pair in epochs[-1])
    assert (epochs[0] & epochs[1]).total() < wanted.total() / 2
    assert (epochs[0] & wanted).total() < wanted.total() / 2
    # The same in another process, whatever was planned before.
    again = opened(recipe, f"train.batching={batching_}", DROPOUT, *([BOTH] if both else []))
    number = task.sections + 1
    assert shown(again, number) == shown(task, number)


def test_pairs_that_become_too_long_are_left_out_of_that_epoch(recipe: Path):
    limit = int(opened(recipe).train_pairs.source.lengths().max())
    settings = ["train.bpe_dropout=0.6", "train.batching=pack", f"train.row_tokens={limit}"]
    task = opened(recipe, *settings)
    assert task.kept == len(task.train_pairs)
    for epoch in (1, 2):
        pairs, kept = task._shown(epoch)
        lengths = np.maximum(pairs.source.lengths(), pairs.target.lengths())
        assert 0 < (lengths > limit).sum() < len(pairs) == task.kept
        assert kept.tolist() == np.flatnonzero(lengths <= limit).tolist()
        assert shown(task, epoch).total() == len(kept)


@pytest.mark.parametrize("batching_", ["bucket", "pack"])
@pytest.mark.parametrize("settings", [[BOTH], [DROPOUT], [BOTH, DROPOUT]], ids=["both", "dropout", "both and dropout"])
def test_resuming_is_exact(
    batching_: str, settings: list[str], recipe: Path, macaron: Any, same_run: Any, tmp_path: Path
):
    options = [f"--set={each}" for each in (*settings, f"train.batching={batching_}", "train.row_tokens=24")]
    options += ["--set=model.dropout=0.2"]
    for name, stops in (("whole", (31,)), ("parts", (5, 19, 31))):
        for updates in stops:
            limit = f"--set=train.max_updates={updates}"
            done = macaron("train", recipe, "--out", tmp_path / name, *options, limit, "--resume")
            assert done.returncode == 0, done.stderr
    same_run(tmp_path / "whole", tmp_path / "parts")
    done = macaron("train", recipe, "--out", tmp_path / "whole", "--resume", *options[len(settings) :])
    assert f"{settings[0].partition('=')[0]} was" in done.stderr


def test_two_processes_are_one(recipe: Path, server: Any, metrics: Any, tmp_path: Path):
    settings = [f"--set={each}" for each in (BOTH, DROPOUT, "train.max_updates=8", "train.epsilon=1e-3")]
    settings += ["--set=model.dropout=0", "--set=train.log_every=1"]
    server.run("train", recipe, "--out", tmp_path / "one", *settings)
    server.run_group(2, "train", recipe, "--out", tmp_path / "two", *settings)
    one, two = ([each["loss"] for each in metrics(tmp_path / name) if "loss" in each] for name in ("one", "two"))
    assert len(one) == 8
    assert one == pytest.approx(two, abs=1e-6)


def test_validation_has_whole_words(recipe: Path, macaron: Any, metrics: Any, tmp_path: Path):
    """A model that does not move has one validation loss, however its training data are shown."""
    losses = set()
    for name, settings in (("plain", []), ("dropout", [DROPOUT]), ("both", [BOTH])):
        still = ["train.max_updates=2", "train.validate_every=1", "train.learning_rate=1e-20", "train.warmup=0"]
        options = [f"--set={each}" for each in (*settings, *still, "train.weight_decay=0")]
        assert macaron("train", recipe, "--out", tmp_path / name, *options).returncode == 0
        losses |= {record["valid_loss"] for record in metrics(tmp_path / name) if "valid_loss" in record}
    assert len(losses) == 1


def test_first_both_directions_then_one(recipe: Path, macaron: Any, metrics: Any, tmp_path: Path):
    """Bi-SimCut's two stages."""
    first = ("--set", BOTH, "--set", "train.max_updates=60", "--set", "train.learning_rate=0.01")
    assert macaron("train", recipe, "--out", tmp_path / "both", *first).returncode == 0
    second = ("--from", tmp_path / "both", "--set", "train.max_updates=10", "--set", "train.learning_rate=0.001")
    done = macaron("train", recipe, "--out", tmp_path / "one", *second)
    assert done.returncode == 0, done.stderr
    assert "starts from" in done.stderr
    before = [each["valid_loss"] for each in metrics(tmp_path / "both") if "valid_loss" in each]
    after = [each["valid_loss"] for each in metrics(tmp_path / "one") if "valid_loss" in each]
    assert after[-1] < before[-1] < before[0]
    stored_recipe = (tmp_path / "one" / "recipe.toml").read_text()
    assert 'directions = "one"' in stored_recipe


@pytest.mark.parametrize(("key", "value"), [("directions", "both"), ("bpe_dropout", 0.1)])
def test_plain_text_has_neither(key: str, value: Any):
    with pytest.raises(MacaronError, match=rf"train.{key}.* is for translation: leave it out"):
        PretrainSettings().check(TrainSettings(max_updates=1, **{key: value}))


def test_impossible_values_are_refused(recipe: Path, macaron: Any, tmp_path: Path):
    for setting, words in (
        ("train.bpe_dropout=1.5", "train.bpe_dropout must be from 0 to 1, not 1.5"),
        ("train.directions=three", "train.directions"),
        ("train.optimiser=sgd", "train.optimiser"),
    ):
        done = macaron("train", recipe, "--out", tmp_path / "run", "--set", setting)
        assert done.returncode != 0
        assert words in done.stderr
