"""The page of a run, of every kind and in every state a run can be in."""

import html
import json
import random
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.decode import Translator
from macaron.errors import MacaronError, UsageError
from macaron.lab.report import translations, write_report
from macaron.lab.run_folder import RunFolder
from macaron.recipe import data_recipe, recipe_from
from macaron.seal import fingerprint
from macaron.tasks.run import run as train

TRAIN = {"batch_tokens": 128, "warmup": 5, "max_updates": 12, "log_every": 4, "validate_every": 4, "device": "cpu"}
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def translation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run: digits to be reversed."""
    folder, generator = tmp_path_factory.mktemp("translation"), random.Random(1)
    for name, count in (("train", 80), ("valid", 20)):
        lines = [[str(generator.randrange(10)) for _ in range(generator.randint(5, 8))] for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    data: dict[str, Any] = {
        "source_lang": "src",
        "target_lang": "tgt",
        "out": str(folder / "prepared"),
        "root": str(folder),
    }
    data |= {"vocab_size": 280, "remove_duplicates": False, "remove_overlap": "none"}
    data |= {name: [{"path": name}] for name in ("train", "valid")}
    prepare(data_recipe({"data": data}), workers=1)
    model = {"preset": "macaron-tiny", "encoder_layers": 1, "decoder_layers": 1, **SMALL}
    decode = {"beam": 2, "max_length": 12}
    settings = {
        "data": {"out": str(folder / "prepared")},
        "model": model,
        "train": TRAIN | {"clip_norm": 1.0, "bleu_sentences": 4},
    }
    train(recipe_from({**settings, "decode": decode}, "test"), folder / "run", resume=False)
    return folder / "run"


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run: words behind masks."""
    folder, generator = tmp_path_factory.mktemp("pretraining"), random.Random(2)
    words = ["a", "cat", "dog", "bird", "sees", "hears", "the", "big", "small", "red", "house", "tree", "today"]
    documents = [[" ".join(generator.choices(words, k=9)) + "." for _ in range(6)] for _ in range(40)]
    (folder / "text.txt").write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n")
    data = {"kind": "text", "out": str(folder / "prepared"), "root": str(folder), "train": [{"path": "text.txt"}]}
    prepare(data_recipe({"data": {**data, "vocab_size": 320, "valid_every": 5}}), workers=1)
    model = {"preset": "macaron-bert-tiny", "num_hidden_layers": 1, **SMALL}
    settings = {"data": {"out": str(folder / "prepared")}, "model": model, "train": {**TRAIN, "row_tokens": 32}}
    train(recipe_from(settings, "test"), folder / "run", resume=False)
    return folder / "run"


@pytest.fixture
def copy(tmp_path: Path):
    def of(run: Path) -> Path:
        return Path(shutil.copytree(run, tmp_path / "copy"))

    return of


def sections(text: str) -> list[str]:
    return re.findall(r"<h2[^>]*>([^<]*)</h2>", text)


def charts(text: str) -> list[str]:
    return [html.unescape(name) for name in re.findall(r'<span class="name">([^<]*)</span>', text)]


ALL = ["Curves", "Throughput", "Scores", "Samples", "Recipe", "Environment"]


def test_a_translation_run(translation: Path):
    path = write_report(translation)
    assert path == translation / "report.html"
    text = path.read_text()
    assert sections(text) == ALL
    assert charts(text) == [
        "Negative log-likelihood",
        "Loss",
        "Validation BLEU",
        "Validation chrF",
        "Learning rate",
        "Gradient norm",
        "Speed",
    ]
    assert "A translation model, src to tgt: macaron-tiny, scheme strang-gfg." in text
    assert "Not finished" not in text
    recipe = (translation / "recipe.toml").read_text()
    assert recipe.strip() in html.unescape(text)
    update, loss = RunFolder(translation).values("valid_nll")[-1]
    assert update == 12
    assert f"<b>{loss:.4g}</b>" in text  # what the legend of the first chart ends with
    metrics = [json.loads(line) for line in (translation / "metrics.jsonl").read_text().splitlines()]
    assert {"update": 12, "valid_nll": loss}.items() <= {
        k: v for m in metrics for k, v in m.items() if k != "final"
    }.items()
    assert path.stat().st_size < 100_000


def test_samples_are_what_the_translator_says(translation: Path):
    found = translations(translation, translation.parent / "prepared", count=4)
    sources = (translation.parent / "valid.src").read_text().splitlines()
    references = (translation.parent / "valid.tgt").read_text().splitlines()
    given, outputs, wanted = (list(column) for column in zip(*found, strict=True))
    assert given == [sources[i] for i in (0, 5, 10, 15)]
    assert wanted == [references[i] for i in (0, 5, 10, 15)]
    assert outputs == Translator(translation, device="cpu").translate(given, one_per_line=True)
    text = write_report(translation).read_text()
    assert f'<dd lang="src">{sources[0]}</dd>' in text


def test_a_pretraining_run(pretraining: Path):
    text = write_report(pretraining).read_text()
    assert sections(text) == [name for name in ALL if name != "Samples"]
    assert charts(text) == [
        "Masked words",
        "Next sentence",
        "Loss",
        "Validation accuracy",
        "Learning rate",
        "Speed",
    ]
    assert "An encoder in pre-training: macaron-bert-tiny" in text


def test_a_page_is_the_same_every_time(translation: Path, tmp_path: Path):
    first, second = tmp_path / "a.html", tmp_path / "b.html"
    write_report(translation, first)
    write_report(translation, second)
    assert first.read_bytes() == second.read_bytes()


def test_a_run_that_still_trains(translation: Path, copy):
    """No model, no summary, half a line at the end: what is there is shown, and what is missing is said."""
    run = copy(translation)
    shutil.rmtree(run / "model")
    (run / "summary.json").unlink()
    lines = (run / "metrics.jsonl").read_text().splitlines()
    young = [line for line in lines if json.loads(line)["update"] <= 8]
    (run / "metrics.jsonl").write_text("\n".join(young) + '\n{"update": 9, "lo')
    text = write_report(run).read_text()
    assert "Not finished: update 8 of 12" in text
    assert f"macaron train --resume --out {run} continues it" in text
    assert "damaged line" not in text
    assert "There is no final model yet: this is best-00000012." in text  # samples of the best checkpoint
    assert '<dd lang="src">' in text
    assert "parameters" in text  # counted in the checkpoint
    assert "scheme" in text.partition("<main")[0]


def test_a_run_that_has_only_begun(translation: Path, tmp_path: Path):
    shutil.copy(translation / "recipe.toml", tmp_path / "recipe.toml")
    text = write_report(tmp_path).read_text()
    assert "No metrics yet" in text
    assert sections(text) == ["Curves", "Scores", "Samples", "Recipe", "Environment"]


def test_a_run_that_goes_on_after_its_end(translation: Path, copy):
    run = copy(translation)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"update": 40, "nll": 1.0, "loss": 1.0}\n')
    assert "It had finished before and was resumed." in write_report(run).read_text()


def test_damaged_files_are_named_and_the_rest_is_shown(translation: Path, copy):
    run = copy(translation)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\n".join(["not JSON", "[1]", *lines]) + "\n")
    (run / "environment.json").write_text("{")
    text = write_report(run, samples=False).read_text()
    assert "metrics.jsonl: 2 damaged line(s) are left out." in text
    assert "environment.json could not be read" in text
    assert "Negative log-likelihood" in charts(text)
    assert "Samples" not in sections(text)
    # JSON, but not what it should be: no line of it ends in a traceback.
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"update": "x"}\n{"update": 1, "epoch": null}\n\xff\n{"update": 1, "nll": NaN}\n{"nll": \xff')
    (run / "summary.json").write_text('{"update": "soon", "candidates": {"last": "low"}}')
    (run / "environment.json").write_text('{"packages": [1], "machine": {"a": 1}}')
    text = write_report(run, samples=False).read_text()
    assert "metrics.jsonl: 6 damaged line(s) are left out." in text
    assert "summary.json: candidates.last must be a number" in text
    assert "environment.json: " in text


def test_data_that_are_elsewhere(translation: Path, copy):
    run = copy(translation)
    recipe = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(recipe.replace(str(translation.parent / "prepared"), "gone/away"))
    assert "The data were not found (gone/away): give their folder with --data DIR." in write_report(run).read_text()
    assert '<dd lang="src">' in write_report(run, data=translation.parent / "prepared").read_text()
    with pytest.raises(MacaronError, match=r"nowhere: no prepared\.json"):
        write_report(run, data=Path("nowhere"))


def test_evaluations_in_the_folder_are_shown(translation: Path, copy):
    run = copy(translation)
    hint = f"macaron evaluate {run} --data DIR"
    assert hint in write_report(run, samples=False).read_text()  # a validation loss is no score of translations
    found = stored(run, {"low": 30.1, "high": 32.9})
    text = write_report(run, samples=False).read_text()
    assert f"prepared (test), 2 sentences (translations/{found.name})" in text
    assert '<td class="number">31.46</td><td class="number">30.10 to 32.90</td>' in text
    assert "nrefs:1|case:mixed" in text
    assert '<span class="label">sacreBLEU</span><span class="value">31.46</span>' in text
    assert hint not in text
    # Of another kind: it is named, and the rest is shown.
    stored(run, {"low": "30", "high": 32.9})
    text = write_report(run, samples=False).read_text()
    assert "test-0.json could not be read" in text
    assert hint in text


def stored(run: Path, interval: dict[str, Any]) -> Path:
    """An evaluation as `macaron evaluate` keeps it."""
    score = {
        "metric": "sacreBLEU",
        "score": 31.456,
        "definition": "nrefs:1|case:mixed",
        "interval": interval,
        "rows": [],
    }
    key = {"model": fingerprint(run / "model")}
    content = {
        "format": 1,
        "data": "prepared (test)",
        "key": key,
        "digest": "",
        "translations": ["a", "b"],
        "search": {},
    }
    path = run / "translations" / "test-0.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({**content, "scores": [score]}))
    return path


def test_metrics_that_nobody_foresaw_get_charts(tmp_path: Path):
    lines = [{"update": u, "surprise": u / 7, "valid_surprise": u / 5, "flag": True, "note": "x"} for u in (1, 2, 3)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "recipe.toml").touch()
    text = write_report(tmp_path).read_text()
    assert charts(text) == ["surprise"]
    assert "training <b>0.4286</b>" in text
    assert "validation <b>0.6</b>" in text


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ((), "is not the folder of a run"),
        (("config.json",), "is a model folder: give the folder of its run"),
        (("run.json",), "is a folder of macaron glue or finetune: its scores are in results.json"),
        (("settings.json", "metrics.jsonl"), "is a folder of macaron glue or finetune: its scores are in results.json"),
    ],
)
def test_other_folders_are_refused(tmp_path: Path, files: tuple[str, ...], words: str):
    for name in files:
        (tmp_path / name).write_text("{}")
    with pytest.raises(MacaronError, match=words):
        write_report(tmp_path)
    assert not (tmp_path / "report.html").exists()


def test_a_folder_that_is_not_there_and_a_page_that_is_none(tmp_path: Path, translation: Path):
    with pytest.raises(MacaronError, match="no such folder"):
        write_report(tmp_path / "none")
    with pytest.raises(UsageError, match=r"a page is FILE\.html"):
        write_report(translation, tmp_path / "report.pdf")
