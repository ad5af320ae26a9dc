"""Comparisons of real runs: what is scored, tested, reused, refused and written."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.data.prepared import PreparedData
from macaron.decode import Translator
from macaron.errors import MacaronError, UsageError
from macaron.evaluate import stored
from macaron.evaluate.evaluation import evaluate_split
from macaron.evaluate.stored import Search
from macaron.lab.compare import comparison_page as module
from macaron.lab.compare.kind_statistics import Words
from macaron.recipe import data_recipe, load_recipe
from macaron.seal import seal
from macaron.tasks.run import run

Train = Callable[..., Path]
# Enough for what is tested here, which is not how precise a p-value is.
compare = partial(module.compare, trials=300)


def write_comparison(*arguments: Any, **options: Any) -> dict[str, Any]:
    return json.loads(json.dumps(module.write_comparison(*arguments, trials=300, **options).to_dict()))


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
        expected = evaluate_split(Translator(path), PreparedData.open(data), "test")
        for score, interval in zip(expected.scores, expected.intervals, strict=True):
            ours = kind["scores"][score.metric]
            assert ours["scores"] == [score.score]
            assert ours["interval_over_sentences"] == asdict(interval)
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
    assert "are those that an earlier command stored" in pages[0]


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
    assert any(": stored translations (" in line for line in said)
    # Whoever reads the results finds which were used again, and else the same numbers.
    ours, theirs = first.to_dict(), again.to_dict()
    for result in (ours, theirs):
        for kind in result["kinds"]:
            assert [run_.pop("reused") for run_ in kind["runs"]] == [result is theirs]
    assert ours == theirs

    # Another search, other weights, a file that somebody has changed: translated again.
    good = kept[0].read_text()
    for change in ("scores", "rows", "metric"):
        content = json.loads(good)
        if change == "scores":
            content["scores"] = []
        elif change == "rows":
            content["scores"][0]["rows"] = [row[:-1] for row in content["scores"][0]["rows"]]
        else:
            content["scores"][0]["metric"] = content["scores"][1]["metric"]
        content["digest"] = stored._digest({name: content[name] for name in ("translations", "search", "scores")})
        kept[0].write_text(json.dumps(content))
        assert not compare([one, other], data).translated[one.name].reused
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
    seal(one / "model")
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
    test = pair.tests("seeds")["chrF2"]
    first, second = result.scores["chrF2"]
    assert test.low + test.high == pytest.approx(2 * (second.mean - first.mean))
    assert 2 <= test.numbers["degrees of freedom"] <= 4
    sentences = pair.tests("sentences")
    assert sentences["chrF2"].low <= second.mean - first.mean <= sentences["chrF2"].high
    # The validation loss has a test over seeds alone; both metrics are tested, so both are corrected for.
    assert [each.metric for each in pair.decide] == ["sacreBLEU", "validation nll"]
    assert "validation nll" not in sentences
    raw = [max(p for test in each.tests.values() for p in test.p_values.values()) for each in pair.decide]
    expected = [min(1, 2 * p) if p == min(raw) else max(p, min(1, 2 * min(raw))) for p in raw]
    assert [each.p_value for each in pair.decide] == pytest.approx(expected)
    assert {each.comparisons for each in pair.decide} == {2}
    for run_, loss in zip(runs[::2], result.scores["validation nll"][0].scores, strict=True):
        summary = json.loads((run_ / "summary.json").read_text())
        assert loss == summary["candidate_nll"][summary["final_model"]]
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


def test_three_kinds_are_corrected_for(train: Train, data: Path):
    runs = [
        train(f"{scheme}-1", f"model.scheme={scheme}", "train.seed=1", "train.log_every=8")
        for scheme in ("lie-fg", "strang-gfg", "sws")
    ]
    result = compare(runs, data)
    assert [pair.second.label for pair in result.pairs] == ["strang-gfg", "sws"]
    raw = [max(pair.tests("sentences")["sacreBLEU"].p_values.values()) for pair in result.pairs]
    deciding = [pair.decide[0].p_value for pair in result.pairs]
    assert min(deciding) == pytest.approx(min(1, 2 * min(raw)))
    assert all(q >= p for p, q in zip(raw, deciding, strict=True))
    assert "Holm's correction for 2 comparisons" in result.sentence


def test_validation_sentences_have_chosen_the_models(twins: tuple[Path, Path], data: Path):
    result = compare(list(twins), data, "valid")
    assert result.count == 20
    assert any("selected by their loss on these sentences" in each for each in result.cautions)


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


@pytest.mark.parametrize("state", ["moses", "raw"])
def test_models_without_case(state: str, tmp_path: Path, prepared: Callable[..., Path], recipe_text: str):
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
    recipe.write_text(recipe_text.format(data=data))
    runs = []
    for scheme in ("lie-fg", "strang-gfg"):
        runs.append(tmp_path / scheme)
        run(load_recipe(recipe, [f"model.scheme={scheme}", "train.bleu_sentences=9"]), runs[-1], False)
    # Validations score as evaluations do.
    records = list(map(json.loads, (runs[0] / "metrics.jsonl").read_text().splitlines()))
    metric = "valid_tokenised_bleu" if state == "moses" else "valid_sacrebleu_lc"
    definitions = {record["bleu_definition"] for record in records if metric in record}
    assert len(definitions) == 1
    assert ("case-insensitive" if state == "moses" else "|case:lc|") in definitions.pop()
    result = compare(runs)
    assert result.metric == "tokenised BLEU"
    assert "case-insensitive" in result.metrics["tokenised BLEU"]
    assert list(result.metrics) == (
        ["tokenised BLEU", "validation nll"]
        if state == "moses"
        else ["sacreBLEU (lc)", "chrF2", "tokenised BLEU", "validation nll"]
    )
    assert all("case:lc" in text for name, text in result.metrics.items() if "sacreBLEU" in name)
    reused = compare(runs)
    assert all(made.reused for made in reused.translated.values())
    assert {name: [each.scores for each in found] for name, found in reused.scores.items()} == {
        name: [each.scores for each in found] for name, found in result.scores.items()
    }
    for path, kind in zip(runs, result.kinds, strict=True):
        expected = evaluate_split(Translator(path), PreparedData.open(data), "test").scores[-1]
        assert result.scores["tokenised BLEU"][result.kinds.index(kind)].scores == (expected.score,)
    # Words are the tokens that the training data has.
    words = Words(PreparedData.open(data), "test")
    counts = words.counts(PreparedData.open(data).pairs("train").target)
    assert set(counts) == {"haus", "und", "rot", "&apos;s" if state == "moses" else "hund", "."}
    assert sum(counts.values()) == sum(len(line.split()) for line in (tmp_path / "train.en").read_text().splitlines())
    assert {part.name for part in result.frequencies} <= {"100 to 999", "25 to 99"}
    assert result.pairs[0].reading is not None
    assert result.pairs[0].reading.caseless


def test_refusals(twins: tuple[Path, Path], train: Train, data: Path, tmp_path: Path, prepared: Callable[..., Path]):
    page = tmp_path / "page.html"

    def refused(words: str, runs: list[Path], folder: Path | None = data, out: Path = page) -> None:
        with pytest.raises(MacaronError, match=words):
            write_comparison(runs, folder, "test", out)
        assert not page.exists()

    refused("no such folder. Give the folder of a run", [twins[0], tmp_path / "nowhere"])
    refused("is given twice", [twins[0], twins[0]])
    refused("at least two runs", [twins[0]])
    refused("is a model folder: give the folder of its run", [twins[0], twins[1] / "model"])
    refused("not the folder of a run", [twins[0], data])
    refused("a page is FILE.html", [*twins], out=tmp_path / "page.pdf")
    refused("Is .* a folder that 'macaron prepare' wrote", [*twins], tmp_path)
    foreign = prepared(tmp_path / "foreign", languages=("de", "en"))
    unfinished = copy(twins[1], tmp_path / "unfinished")
    shutil.rmtree(unfinished / "model")
    refused(
        "not finished, it has no final model yet: continue with macaron train --resume --out ", [twins[0], unfinished]
    )
    gone_on = copy(twins[1], tmp_path / "on")
    shutil.copytree(gone_on / "checkpoints" / "update-00000080", gone_on / "checkpoints" / "update-00000090")
    state = gone_on / "checkpoints" / "update-00000090" / "state.json"
    state.write_text(state.read_text().replace('"update": 80', '"update": 90'))
    seal(state.parent)
    refused("its model is of update 80, but the run has gone on to 90", [twins[0], gone_on])
    again = train("again", "model.scheme=lie-fg", "train.max_updates=80")
    refused(r"have the same recipe and the same seed \(1\)", [twins[0], again, twins[1]])
    torn_lines = copy(twins[1], tmp_path / "torn lines")
    (torn_lines / "environment.json").write_text("[3]")
    with (torn_lines / "metrics.jsonl").open("a") as file:
        file.write("3\n")
    cautions = compare([twins[0], torn_lines], data).pairs[0].fairness.cautions
    assert "torn lines: metrics.jsonl: 1 damaged line(s) are left out." in cautions
    assert any("environment.json could not be read" in each for each in cautions)
    disguised = copy(twins[0], tmp_path / "disguised")
    recipe = disguised / "recipe.toml"
    recipe.write_text(recipe.read_text().replace("seed = 1", "seed = 2"))
    refused(r"hold the same model, though their seeds differ \(1 and 2\)", [twins[0], disguised, twins[1]])
    # Sides of the test set that have come apart.
    torn = copy(data, tmp_path / "torn")
    (torn / "test.tgt").write_text("a b\n")
    refused(r"test\.tgt: damaged \(4 bytes instead of", [*twins], torn)
    refused("translates from src to tgt, but .* holds de and en", [*twins], foreign)


def test_numbers_have_a_file_of_their_own(twins: tuple[Path, Path], data: Path, tmp_path: Path):
    """Known before any work is done: nothing is written."""
    with pytest.raises(UsageError, match="is the page"):
        write_comparison(list(twins), data, "test", tmp_path / "page.html", json_file=tmp_path / "." / "page.html")
    assert not list(tmp_path.iterdir())


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
    assert pair.tests("sentences") == {}
    assert set(pair.tests("seeds")) == {"validation loss"}
    # With another objective the loss is another quantity: nothing is concluded from it.
    other = tmp_path / "masked"
    run(load_recipe(recipe, ["model.scheme=lie-fg", "pretrain.mask_ratio=0.5"]), other, False)
    found = write_comparison([runs[0], other], None, "test", tmp_path / "page.html", vary=["pretrain.mask_ratio"])
    assert "nothing is concluded: pretrain.mask_ratio changes what the validation loss measures" in found["verdict"]
    assert "To compare such a setting on purpose" not in (tmp_path / "page.html").read_text()
    with pytest.raises(
        MacaronError, match=r"runs of different tasks cannot be compared: .*\(pre-training\).*translation"
    ):
        compare([runs[0], twins[0]])
    with pytest.raises(MacaronError, match=r"holds pairs of sentences, for translation; expected documents"):
        compare(runs, data)
