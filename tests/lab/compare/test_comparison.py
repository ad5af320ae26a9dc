"""Comparisons of real runs: what is called fair, what is refused, what is used again, what is written."""

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macaron.data.prepare import prepare
from macaron.data.prepared import PreparedData
from macaron.decode import Translator
from macaron.errors import MacaronError, UsageError
from macaron.evaluate.model import evaluate_split
from macaron.lab.compare import comparison as module
from macaron.lab.compare.breakdowns import Words
from macaron.lab.compare.fairness import Fairness, Question, fairness
from macaron.lab.compare.finished_run import FinishedRun, folder_digests
from macaron.lab.compare.kinds import Kind, open_runs
from macaron.lab.compare.translations import Search
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
# Enough for what is tested here, which is not how precise a p-value is.
compare = partial(module.compare, trials=300)


def write_comparison(*arguments: Any, **options: Any) -> dict[str, Any]:
    return module.write_comparison(*arguments, trials=300, **options).to_dict()


def prepared(
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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("letters"))


@pytest.fixture(scope="module")
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


@pytest.fixture(scope="module")
def twins(train: Train) -> tuple[Path, Path]:
    """A Transformer that has learned its task, and a Macaron."""
    long = "train.max_updates=80"
    return train("transformer", "model.scheme=lie-fg", long), train("macaron", "model.scheme=strang-gfg", long)


def copy(source: Path, place: Path) -> Path:
    return Path(shutil.copytree(source, place))


def test_two_runs_on_the_test_sentences(twins: tuple[Path, Path], data: Path, tmp_path: Path):
    out, numbers = tmp_path / "new" / "page.html", tmp_path / "new" / "page.json"
    said: list[str] = []
    found = write_comparison(list(twins), data, "test", out, json_file=numbers, say=said.append)
    assert found == json.loads(numbers.read_text())
    assert [kind["label"] for kind in found["kinds"]] == ["lie-fg", "strang-gfg"]
    assert found["sentences"] == 60
    (pair,) = found["comparisons"]
    assert pair["fairness"]["fair"]
    differing = {each["key"]: each["effect"] for each in pair["fairness"]["differences"]}
    assert differing == {"model.scheme": "compared", "model.decoder_scheme": "compared"}
    assert abs(found["kinds"][1]["difference_in_size"]) < 0.005
    assert "for these two trained models" in found["verdict"]
    # The scores are those of `macaron evaluate`, and of nobody else.
    for path, kind in zip(twins, found["kinds"], strict=True):
        expected = evaluate_split(Translator(path), PreparedData.open(data), "test").evaluation
        for score, interval in zip(expected.scores, expected.intervals, strict=True):
            ours = kind["scores"][score.metric]
            assert ours["scores"] == [score.score]
            assert ours["interval_over_sentences"] == interval.to_dict()
    assert sum(part["size"] for part in found["by_length"]) == 60
    text = out.read_text()
    for words in ("Verdict", "Is it fair?", "Scores", "Curves", "By length", "By frequency", "Sentences"):
        assert words in text
    assert found["verdict"].split(":")[0] in text
    assert not list(tmp_path.rglob(".*"))
    # The same bytes every time; but for the sentence which says that translations were used again.
    pages = []
    for _ in range(2):
        write_comparison(list(twins), data, "test", out)
        pages.append(out.read_text())
    assert pages[0] == pages[1]
    assert "were made by an earlier comparison" in pages[0]


def test_translations_are_used_again_only_for_exactly_the_same(twins: tuple[Path, Path], data: Path, tmp_path: Path):
    one, other = (copy(each, tmp_path / each.name) for each in twins)
    shutil.rmtree(one / "translations", ignore_errors=True)
    shutil.rmtree(other / "translations", ignore_errors=True)
    first = compare([one, other], data)
    assert not any(made.reused for made in first.translated.values())
    kept = sorted(one.glob("translations/*.json"))
    assert len(kept) == 1
    said: list[str] = []
    again = compare([one, other], data, say=said.append)
    assert all(made.reused for made in again.translated.values())
    assert any("translations of an earlier comparison" in line for line in said)
    # Whoever reads the results finds which were used again, and else the same numbers.
    ours, theirs = first.to_dict(), again.to_dict()
    for result in (ours, theirs):
        for kind in result["kinds"]:
            assert [run_.pop("reused") for run_ in kind["runs"]] == [result is theirs]
    assert ours == theirs

    # Another search, other weights, a file that somebody has changed: translated again.
    wider = compare([one, other], data, search=Search(beam=2))
    assert not any(made.reused for made in wider.translated.values())
    content = json.loads(kept[0].read_text())
    content["translations"][0] = "better than it was"
    kept[0].write_text(json.dumps(content))
    mended = compare([one, other], data)
    assert [made.reused for made in mended.translated.values()] == [False, True]
    kept[0].write_text("{")
    assert not compare([one, other], data).translated["transformer"].reused
    generation = one / "model" / "generation_config.json"
    generation.write_text(generation.read_text().replace('"num_beams": 1', '"num_beams": 2'))
    assert not compare([one, other], data).translated["transformer"].reused


def test_where_translations_cannot_be_kept_nothing_is_lost(twins: tuple[Path, Path], data: Path, tmp_path: Path):
    one = copy(twins[0], tmp_path / "one")
    shutil.rmtree(one / "translations", ignore_errors=True)
    (one / "translations").write_text("in the way")
    made = compare([one, twins[1]], data).translated["one"]
    assert (made.kept, made.reused, len(made.translations)) == (None, False, 60)


def test_seeds_make_a_kind(train: Train, data: Path):
    runs = [
        train(f"{scheme}-{seed}", f"model.scheme={scheme}", f"train.seed={seed}", "train.log_every=8")
        for seed in (1, 2, 3)
        for scheme in ("lie-fg", "strang-gfg")
    ]
    result = compare(runs, data)
    assert [(kind.label, len(kind.runs)) for kind in result.kinds] == [("lie-fg", 3), ("strang-gfg", 3)]
    (pair,) = result.pairs
    assert not pair.fairness.unfair
    assert "train.seed" not in [each.key for each in pair.fairness.differences]
    assert pair.verdict.reach == "seeds"
    test = pair.seeds["chrF2"]
    first, second = result.scores["chrF2"]
    assert test.difference == pytest.approx(second.mean - first.mean)
    assert test.runs == (3, 3)
    assert 2 <= test.degrees <= 4
    assert pair.sentences["chrF2"].bootstrap.first == pytest.approx(first.mean)
    kind = result.to_dict()["kinds"][0]
    assert len(kind["scores"]["chrF2"]["scores"]) == 3
    assert kind["scores"]["chrF2"]["standard_deviation"] == pytest.approx(first.deviation)
    # Two of one kind and one of the other: nothing is said of seeds.
    few = compare([runs[0], runs[1], runs[2]], data)
    assert few.pairs[0].verdict.reach == "models"
    assert "for these 3 trained models" in few.sentence
    with pytest.raises(MacaronError, match="differ in nothing but the seed, so there is nothing to compare"):
        compare([runs[0], runs[2]], data)


def test_names_are_those_given(twins: tuple[Path, Path], data: Path):
    result = compare({"Transformer": twins[0], "Macaron": twins[1]}, data)
    assert [kind.label for kind in result.kinds] == ["Transformer", "Macaron"]
    assert "Macaron" in result.sentence


def test_three_kinds_are_corrected_for(twins: tuple[Path, Path], train: Train, data: Path):
    third = train("sws", "model.scheme=sws", "train.max_updates=80")
    result = compare([*twins, third], data)
    assert [pair.second.label for pair in result.pairs] == ["strang-gfg", "sws"]
    raw = [max(pair.sentences["sacreBLEU"].evidence.p_values) for pair in result.pairs]
    deciding = [pair.evidence.p_value for pair in result.pairs]
    assert min(deciding) == pytest.approx(min(1, 2 * min(raw)))
    assert all(q >= p for p, q in zip(raw, deciding, strict=True))
    assert "Holm's correction for 2 comparisons" in result.sentence


def test_an_unfair_comparison_is_found_and_ranks_nothing(
    twins: tuple[Path, Path], train: Train, data: Path, tmp_path: Path
):
    other = train("rate", "model.scheme=strang-gfg", "train.learning_rate=0.001", "train.max_updates=80")
    found = write_comparison([twins[0], other], data, "test", tmp_path / "page.html")
    (pair,) = found["comparisons"]
    assert pair["fairness"]["unfair"] == ["train.learning_rate is 0.01 for lie-fg and 0.001 for strang-gfg"]
    assert found["verdict"].startswith("This is not a fair comparison, so nothing is concluded: train.learning_rate")
    assert pair["deciding_p_value"] is None
    assert pair["tests_over_sentences"] == {}
    text = (tmp_path / "page.html").read_text()
    assert "Differences and tests of strang-gfg are not shown: the comparison is not fair." in text
    assert "makes it unfair" in text
    assert "Difference in sacreBLEU" not in text

    # If the rate is what somebody wants to compare, it is no flaw.
    meant = compare([twins[1], other], data, vary=["train.learning_rate"])
    assert meant.pairs[0].verdict.outcome == "first"
    assert [kind.label for kind in meant.kinds] == ["macaron", "rate"]
    with pytest.raises(UsageError, match=r"--vary train.learning_rat: no such setting; did you mean 'train.learning_r"):
        compare([twins[1], other], data, vary=["train.learning_rat"])


def test_runs_that_were_stopped_are_named(train: Train, data: Path):
    cap = ("train.max_updates=100000", "train.max_minutes=0.02", "train.schedule=cosine")
    runs = [train(f"capped-{scheme}", f"model.scheme={scheme}", *cap) for scheme in ("lie-fg", "strang-gfg")]
    (pair,) = compare(runs, data).pairs
    updates = [json.loads((each / "summary.json").read_text())["update"] for each in runs]
    if updates[0] != updates[1]:  # the clock decides
        assert pair.verdict.outcome == "unfair"
        assert len(pair.fairness.unfair) == 2
        said = pair.fairness.unfair[0]
    else:
        said = pair.fairness.cautions[0]
    assert said == (
        f"capped-lie-fg was stopped after {updates[0]:,} of 100,000 updates, before its schedule ended (max_minutes)"
    )


def test_other_updates_batches_data_and_dropout_are_unfair_but_not_what_changes_nothing(train: Train, data: Path):
    one = train("base", "model.scheme=lie-fg")
    changed = {
        "train.max_updates": "12",
        "train.batch_tokens": "256",
        "model.dropout": "0.1",
        "train.warmup": "2",
        "decode.beam": "2",
    }
    other = train("changed", *(f"{key}={value}" for key, value in changed.items()), "train.log_every=2", "train.keep=1")
    (pair,) = compare([one, other], data).pairs
    effects = {each.key: each.effect for each in pair.fairness.differences}
    assert {key for key, effect in effects.items() if effect == "unfair"} == set(changed)
    assert {key for key, effect in effects.items() if effect == "harmless"} == {"train.log_every", "train.keep"}
    # The search can be the same for all, whatever the models would do.
    (pair,) = compare([one, other], data, search=Search(beam=2)).pairs
    assert {each.key: each.effect for each in pair.fairness.differences}["decode.beam"] == "harmless"


def test_other_training_data_are_unfair(twins: tuple[Path, Path], train: Train, data: Path, tmp_path: Path):
    elsewhere = prepared(tmp_path / "other", letters="abcdefghi")
    other = train("elsewhere", f"data.out={elsewhere}", "train.max_updates=80")
    result = compare([twins[0], other], data)
    (pair,) = result.pairs
    assert any(each.startswith("data.tokenizer is") for each in pair.fairness.unfair)
    assert any(each.startswith("data.training data is") for each in pair.fairness.unfair)
    assert any("not all runs were trained on the training data of" in each for each in result.cautions)
    # Without checkpoints nobody knows, and that is said.
    kept = copy(twins[1], tmp_path / "bare")
    shutil.rmtree(kept / "checkpoints")
    (pair,) = compare([twins[0], kept], data).pairs
    assert not pair.fairness.unfair
    assert "cannot be verified for bare" in pair.fairness.cautions[0]


def recorded_as_before(source: Path, place: Path) -> Path:
    """A copy of a run whose checkpoints record the lengths of its training data alone, as those of version 0.1.0."""
    run_ = copy(source, place)
    (folder,) = {each.recipe.data for each in open_runs([source, run_])}
    legacy = PreparedData.open(folder).legacy_lengths_digest()
    for path in run_.glob("checkpoints/*/state.json"):
        state = json.loads(path.read_text())
        assert state["identity"]["training data"] == PreparedData.open(folder).digest()
        state["identity"]["training data"] = legacy
        path.write_text(json.dumps(state))
    return run_


def test_the_same_lengths_are_not_the_same_data(twins: tuple[Path, Path], train: Train, data: Path, tmp_path: Path):
    mixed = copy(data, tmp_path / "mixed")
    store = PreparedData.open(data).pairs("train").target
    sentences = [store[i] for i in range(len(store))]
    ids = [token for sentence in sentences for token in (*sentence[-2::-1], sentence[-1])]  # backwards, the end last
    np.array(ids, dtype=store.dtype).tofile(mixed / "train.tgt.ids")
    moved = copy(data, tmp_path / "moved")
    settings = ("model.scheme=strang-gfg", "train.max_updates=80")
    other, same = (train(each.name, f"data.out={each}", *settings) for each in (mixed, moved))
    # Old checkpoints know lengths alone; the words are in the data folders.
    old, old_other, old_same = (
        recorded_as_before(each, tmp_path / f"old-{each.name}") for each in (twins[0], other, same)
    )
    for first in (twins[0], old):
        for second in (other, old_other):
            (pair,) = compare([first, second], data).pairs
            assert pair.verdict.outcome == "unfair"
            assert [reason.split(" is ")[0] for reason in pair.fairness.unfair] == ["data.training data"]
        for second in (same, old_same):
            found = compare([first, second], data).pairs[0].fairness
            assert (found.unfair, found.cautions) == ((), ())
    # Where a folder is gone, new checkpoints still know the tokens. Old ones know lengths only, which is a caution.
    shutil.rmtree(mixed)
    folder_digests.cache_clear()
    assert compare([twins[0], other], data).pairs[0].verdict.outcome == "unfair"
    for first in (twins[0], old):
        found = compare([first, old_other], data).pairs[0].fairness
        assert found.unfair == ()
        assert (
            "only the tokenizer and the lengths of all sentences could be compared for old-mixed" in found.cautions[0]
        )


def test_the_digest_of_the_data_is_the_runs_own(twins: tuple[Path, Path], data: Path):
    state = max((twins[0] / "checkpoints").glob("update-*")) / "state.json"
    assert json.loads(state.read_text())["identity"]["training data"] in folder_digests(data)


def test_networks_of_unequal_size_are_remarked_upon(twins: tuple[Path, Path], train: Train, data: Path):
    wide = train("wide", "model.intermediate_size=256", "train.max_updates=80")
    (pair,) = compare([twins[0], wide], data).pairs
    assert not pair.fairness.unfair
    assert "% more parameters than lie-fg" in pair.verdict.sentence


def test_validation_sentences_have_chosen_the_models(twins: tuple[Path, Path], data: Path):
    result = compare(list(twins), data, "valid")
    assert result.count == 20
    assert any("chosen by their loss on these very sentences" in each for each in result.cautions)


def test_words_are_counted_as_the_text_has_them(data: Path):
    prepared_ = PreparedData.open(data)
    words = Words(prepared_, "test")
    lines = (data.parent / "train.tgt").read_text().splitlines()
    expected: dict[str, int] = {}
    for line in lines:
        for word in line.split():
            expected[word] = expected.get(word, 0) + 1
    assert dict(words.counts(prepared_.pairs("train").target)) == expected
    assert words.of(["It's a well-known dog, isn't it?"]) == [
        ["It's", "a", "well-known", "dog", ",", "isn't", "it", "?"]
    ]


def test_how_runs_ended(twins: tuple[Path, Path]):
    """Every way a run can end, from a real one whose records are changed."""
    first, second = open_runs(list(twins))

    def ended(run_: FinishedRun, updates: int, seconds: float = 5.0, **limits: Any) -> FinishedRun:
        none = {"max_updates": None, "max_epochs": None, "max_minutes": None}
        settings = replace(run_.recipe.train, **{**none, **limits})
        progress = replace(run_.progress, update=updates, seconds=seconds)
        progress.validations_without_gain = 3
        summary = {**run_.summary, "update": updates}
        recipe = replace(run_.recipe, train=settings)
        return replace(run_, recipe=recipe, progress=progress, summary=summary)

    def judged(one: FinishedRun, other: FinishedRun) -> Fairness:
        return fairness(Kind("one", (one,)), Kind("other", (other,)), Question())

    # Both came to the end of their schedule.
    found = judged(ended(first, 80, max_updates=80), ended(second, 80, max_updates=80))
    assert (found.unfair, found.cautions) == ((), ())
    # A cap stopped them, at different places or at the same one.
    capped = {"max_updates": 100, "max_minutes": 0.05}
    found = judged(ended(first, 60, **capped), ended(second, 70, **capped))
    assert len(found.unfair) == 2
    assert "macaron was stopped after 70 of 100 updates, before its schedule ended (max_minutes)" in found.unfair
    found = judged(ended(first, 60, **capped), ended(second, 60, **capped))
    assert (len(found.unfair), len(found.cautions)) == (0, 2)
    # One was stopped, the other was not: the cap mattered, so it is not harmless that it differs.
    found = judged(
        ended(first, 80, max_updates=80, max_minutes=60), ended(second, 70, max_updates=80, max_minutes=0.05)
    )
    assert any(each.startswith("train.max_minutes is") for each in found.unfair)
    found = judged(ended(first, 80, max_updates=80, max_minutes=60), ended(second, 80, max_updates=80, max_minutes=9))
    assert not found.unfair
    assert [each.effect for each in found.differences if each.key == "train.max_minutes"] == ["harmless"]
    # Patience is a rule that both follow, wherever it ends them.
    patient = {"max_updates": 100, "patience": 3}
    found = judged(ended(first, 50, **patient), ended(second, 70, **patient))
    assert not found.unfair
    assert "transformer was stopped after 50 of 100 updates, before its schedule ended (patience)" in found.cautions
    # A budget of time compares machines, too.
    timed = [ended(each, updates, max_minutes=0.05) for each, updates in ((first, 60), (second, 70))]
    found = judged(*timed)
    assert not found.unfair
    assert "the budget is time, not updates" in found.cautions[0]
    elsewhere = replace(timed[1], starts=[{**each, "machine": "abacus"} for each in timed[1].starts])
    assert "the runs had different machines" in judged(timed[0], elsewhere).unfair[0]
    # What else a reader should know.
    packages = {**second.starts[0]["packages"], "torch": "1.0"}
    other = replace(second, starts=[{**second.starts[0], "packages": packages}])
    assert "different versions: torch 1.0 / " in judged(first, other).cautions[0]
    other = replace(second, summary={**second.summary, "final_model": "best"})
    assert "final models were chosen differently" in judged(first, other).cautions[0]


@pytest.mark.parametrize("state", ["moses", "raw"])
def test_models_without_case(state: str, tmp_path: Path):
    """Models of lower-cased Moses tokens are judged by those; text that was given as tokens has no other score."""
    data = prepared(
        tmp_path,
        letters=["Haus", "und", "rot", "&apos;s" if state == "moses" else "Hund", "."],
        languages=("de", "en"),
        pipeline="moses",
        vocab_size=120,
        **{name: [{"path": name, "state": state}] for name in ("train", "valid", "test")},
    )
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE.format(data=data))
    runs = []
    for scheme in ("lie-fg", "strang-gfg"):
        runs.append(tmp_path / scheme)
        run(load_recipe(recipe, [f"model.scheme={scheme}"]), runs[-1], False)
    result = compare(runs)
    assert result.metric == "tokenised BLEU"
    assert "case-insensitive" in result.metrics["tokenised BLEU"]
    assert list(result.metrics) == (
        ["tokenised BLEU"] if state == "moses" else ["sacreBLEU", "chrF2", "tokenised BLEU"]
    )
    for path, kind in zip(runs, result.kinds, strict=True):
        expected = evaluate_split(Translator(path), PreparedData.open(data), "test").evaluation.scores[-1]
        assert result.scores["tokenised BLEU"][result.kinds.index(kind)].scores == (expected.score,)
    # Words are the tokens that the training data has.
    words = Words(PreparedData.open(data), "test")
    counts = words.counts(PreparedData.open(data).pairs("train").target)
    assert set(counts) == {"haus", "und", "rot", "&apos;s" if state == "moses" else "hund", "."}
    assert sum(counts.values()) == sum(len(line.split()) for line in (tmp_path / "train.en").read_text().splitlines())
    assert {part.name for part in result.frequencies} <= {"100 to 999", "25 to 99"}
    assert result.pairs[0].reading is not None
    assert result.pairs[0].reading.caseless


def test_refusals(twins: tuple[Path, Path], train: Train, data: Path, tmp_path: Path):
    page = tmp_path / "page.html"

    def refused(
        words: str, runs: list[Path], folder: Path | None = data, split: str = "test", out: Path = page
    ) -> None:
        with pytest.raises(MacaronError, match=words):
            write_comparison(runs, folder, split, out)
        assert not page.exists()

    refused("no such folder. Give the folder of a run", [twins[0], tmp_path / "nowhere"])
    refused("is given twice", [twins[0], twins[0]])
    refused("at least two runs", [twins[0]])
    refused("is a model folder: give the folder of its run", [twins[0], twins[1] / "model"])
    refused("not the folder of a run", [twins[0], data])
    refused("split is valid or test, not 'train'", [*twins], split="train")
    refused("a page is FILE.html", [*twins], out=tmp_path / "page.pdf")
    refused("Is .* a folder that 'macaron prepare' wrote", [*twins], tmp_path)
    foreign = prepared(tmp_path / "foreign", languages=("de", "en"))
    unfinished = copy(twins[1], tmp_path / "unfinished")
    shutil.rmtree(unfinished / "model")
    refused("not finished, it has no model yet: go on with macaron train", [twins[0], unfinished])
    gone_on = copy(twins[1], tmp_path / "on")
    shutil.copytree(gone_on / "checkpoints" / "update-00000080", gone_on / "checkpoints" / "update-00000090")
    state = gone_on / "checkpoints" / "update-00000090" / "state.json"
    state.write_text(state.read_text().replace('"update": 80', '"update": 90'))
    refused("its model is of update 80, but the run has gone on to 90", [twins[0], gone_on])
    again = train("again", "model.scheme=lie-fg", "train.max_updates=80")
    refused(r"have the same recipe and the same seed \(1\)", [twins[0], again, twins[1]])
    torn_lines = copy(twins[1], tmp_path / "torn lines")
    (torn_lines / "environment.json").write_text("[3]")
    lines = len((torn_lines / "metrics.jsonl").read_text().splitlines())
    with (torn_lines / "metrics.jsonl").open("a") as file:
        file.write("3\n")
    refused(rf"metrics\.jsonl:{lines + 1}: damaged", [twins[0], torn_lines])
    disguised = copy(twins[0], tmp_path / "disguised")
    recipe = disguised / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("seed = 1", "seed = 2"))
    refused(r"hold the same model, though their seeds differ \(1 and 2\)", [twins[0], disguised, twins[1]])
    # Sides of the test set that have come apart.
    torn = copy(data, tmp_path / "torn")
    (torn / "test.tgt").write_text("a b\n")
    refused("1 lines instead of 60", [*twins], torn)
    refused("translates from src to tgt, but .* holds de and en", [*twins], foreign)


def test_numbers_have_a_file_of_their_own(twins: tuple[Path, Path], data: Path, tmp_path: Path):
    """Known before any work is done: nothing is written."""
    page, folder = tmp_path / "page.html", tmp_path / "folder"
    folder.mkdir()
    for numbers, said in ((folder, "is a folder"), (tmp_path / "." / "page.html", "is the page")):
        with pytest.raises(UsageError, match=said):
            write_comparison(list(twins), data, "test", page, json_file=numbers)
        assert [each.name for each in tmp_path.iterdir()] == ["folder"]


def test_pretraining_runs_have_losses_alone(twins: tuple[Path, Path], data: Path, tmp_path: Path):
    text = tmp_path / "text.txt"
    generator = random.Random(1)
    sentence = lambda: "The " + " ".join(generator.choice(["cat", "dog", "sees", "a", "red"]) for _ in range(5)) + "."  # noqa: E731
    text.write_text("\n".join(" ".join(sentence() for _ in range(5)) + "\n" for _ in range(60)))
    settings = {"kind": "text", "out": str(tmp_path / "data"), "root": str(tmp_path), "train": [{"path": "text.txt"}]}
    folder = prepare(data_recipe({"data": {**settings, "vocab_size": 300, "valid_every": 10}}), workers=1).data.folder
    recipe = tmp_path / "recipe.toml"
    model = 'preset = "macaron-bert-tiny"\nhidden_size = 32\nnum_attention_heads = 2\nintermediate_size = 64'
    recipe.write_text(
        f'[data]\nout = "{folder}"\n[model]\n{model}\n[train]\nbatch_tokens = 128\nrow_tokens = 32\nmax_updates = 4\n'
        'warmup = 1\nlog_every = 1\ndevice = "cpu"\n'
    )
    runs = []
    for seed in (1, 2, 3):
        for scheme in ("lie-fg", "strang-gfg"):
            runs.append(tmp_path / f"{scheme}-{seed}")
            run(load_recipe(recipe, [f"model.scheme={scheme}", f"train.seed={seed}"]), runs[-1], False)
    single = write_comparison(runs[:2], None, "test", tmp_path / "page.html")
    assert "nothing could be tested (one seed each)" in single["verdict"]
    losses = [json.loads((each / "summary.json").read_text())["candidates"] for each in runs]
    assert single["kinds"][0]["scores"]["validation loss"]["scores"] == [min(losses[0].values())]
    page = (tmp_path / "page.html").read_text()
    assert "no sentences to resample" in page
    assert "Loss against updates" in page
    several = compare(runs, folder)
    (pair,) = several.pairs
    assert pair.verdict.reach == "seeds"
    assert pair.sentences == {}
    assert set(pair.seeds) == {"validation loss"}
    with pytest.raises(
        MacaronError, match=r"runs of different tasks cannot be compared: .*\(pre-training\).*translation"
    ):
        compare([runs[0], twins[0]])
    with pytest.raises(MacaronError, match=r"holds pairs of sentences, for translation; wanted are documents"):
        compare(runs, data)
