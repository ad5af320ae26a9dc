"""``macaron evaluate`` through the real command."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
import torch

from forked import macaron_text
from macaron.data.prepare import prepare
from macaron.models import TranslationModel, preset
from macaron.recipe import data_recipe

COMMAND = [sys.executable, "-m", "macaron", "evaluate"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
WORDS = ["the", "cat", "sat", "mat", "on", "dog", "ran", "home", "well-known", "It's", "fine."]


def corpus(folder: Path, state: str, **changes: Any) -> Path:
    """A prepared folder; the second test sentence is empty."""
    folder.mkdir()
    generator = random.Random(2)
    for name, count in (("train", 80), ("valid", 5), ("test", 15)):
        for language in ("xx", "en"):
            lines = [" ".join(generator.choices(WORDS, k=generator.randint(2, 7))) for _ in range(count)]
            if name == "test" and language == "xx":
                lines[1] = ""
            (folder / f"{name}.{language}").write_text("".join(line + "\n" for line in lines))
    splits: dict[str, Any] = {name: [{"path": name, "state": state}] for name in ("train", "valid", "test")}
    settings = {"source_lang": "xx", "target_lang": "en", "out": str(folder / "prepared"), "root": str(folder)}
    settings |= {"pipeline": state, "vocab_size": 290 if state == "raw" else 60, "remove_overlap": "none"}
    settings |= changes
    return prepare(data_recipe({"data": {**settings, **splits}}), workers=1).data.folder


def model_for(data_folder: Path, folder: Path) -> Path:
    from macaron.data.prepared import PreparedData

    data = PreparedData.open(data_folder)
    torch.manual_seed(0)
    config = preset(
        "macaron-tiny",
        vocab_size=data.vocab_size,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=32,
        tokenizer_fingerprint=data.tokenizer_fingerprint,
    )
    model = TranslationModel(config)
    with torch.no_grad():  # away from fresh weights, which only repeat their last token
        for parameter in model.decoder.parameters():
            parameter.mul_(3.0)
    model.generation_config.num_beams, model.generation_config.max_length = 2, 8
    model.save_pretrained(folder)
    data.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("evaluate") / "raw"
    data = corpus(folder, "raw")
    return model_for(data, folder / "model"), data


@pytest.fixture(scope="module")
def moses(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("evaluate") / "moses"
    data = corpus(folder, "moses", lower=False)
    return model_for(data, folder / "model"), data


@pytest.fixture(scope="module")
def lowered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("evaluate") / "lowered"
    data = corpus(folder, "moses")
    return model_for(data, folder / "model"), data


def evaluate(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = macaron_text("evaluate", *arguments)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_plain_text(raw: tuple[Path, Path], tmp_path: Path):
    model, data = raw
    output = tmp_path / "out.txt"
    done = evaluate(model, "--data", data, "--split", "test", "--json", "--output", output, "--device", "cpu")
    found = json.loads(done.stdout)
    assert found["search"] == {"beam": 2, "length_penalty": 1.0, "max_length": 6}
    assert found["sentences"] == 15
    scores = {score["metric"]: score for score in found["scores"]}
    assert list(scores) == ["sacreBLEU", "chrF2", "tokenised BLEU"]
    assert all(score["definition"] and score["interval"] for score in scores.values())
    hypotheses = output.read_text().split("\n")[:-1]
    assert len(hypotheses) == 15
    assert hypotheses[1] == ""
    references = (data / "test.en").read_text().split("\n")[:-1]
    assert scores["sacreBLEU"]["score"] == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert scores["chrF2"]["score"] == sacrebleu.corpus_chrf(hypotheses, [references]).score
    # The same from files, which only differ in where they lie.
    files = ("--source", data / "test.xx", "--reference", data / "test.en")
    again = json.loads(evaluate(model, *files, "--json", "--device", "cpu").stdout)
    assert again["scores"] == found["scores"]


def test_moses_tokens_and_words_for_people(moses: tuple[Path, Path], tmp_path: Path):
    model, data = moses
    output = tmp_path / "out.txt"
    arguments = ("--data", data, "--output", output, "--beam", 1, "--cased", "--compound-split", "--device", "cpu")
    lines = evaluate(model, *arguments).stdout.splitlines()
    assert lines[0] == f"{model} on {data} (test): 15 sentences"
    assert lines[1] == "beam 1, length penalty 1.0, float32"
    assert len(lines) == 4  # sacreBLEU and chrF are not defined on tokens
    assert lines[2].startswith("tokenised BLEU")
    assert lines[2].endswith("tokenised BLEU (cased, moses tokens as given, compound-split yes)")
    assert lines[3] == "in brackets: 95% bootstrap intervals, 1000 resamples"
    assert len(output.read_text().split("\n")) == 16


def test_a_model_without_case_is_never_called_cased(lowered: tuple[Path, Path], raw: tuple[Path, Path]):
    model, data = lowered
    found = json.loads(evaluate(model, "--data", data, "--json", "--device", "cpu").stdout)
    definition = "tokenised BLEU (case-insensitive, moses tokens as given, compound-split no)"
    assert [score["definition"] for score in found["scores"]] == [definition]
    done = evaluate(model, "--data", data, "--cased", "--device", "cpu", code=1)
    assert done.stdout == ""
    assert "works on lower-cased tokens, so its tokenised BLEU cannot be cased: leave out --cased" in done.stderr
    files = ("--source", raw[1] / "test.xx", "--reference", raw[1] / "test.en")
    found = json.loads(evaluate(model, *files, "--json", "--lower", "--device", "cpu").stdout)
    own = "the model's moses tokens of normalised text"
    definitions = {score["metric"]: score["definition"] for score in found["scores"]}
    assert definitions["tokenised BLEU"] == f"tokenised BLEU (case-insensitive, {own}, compound-split no)"
    # sacreBLEU, too; the name says so, wherever a score is shown.
    assert list(definitions) == ["sacreBLEU (lc)", "chrF2", "tokenised BLEU"]
    assert "case:lc" in definitions["sacreBLEU (lc)"]
    printed = evaluate(model, *files, "--device", "cpu").stdout.splitlines()
    assert printed[2].startswith("sacreBLEU (lc) ")
    assert "|case:lc|" in printed[2]


def test_refusals(raw: tuple[Path, Path], moses: tuple[Path, Path], tmp_path: Path):
    from typer.testing import CliRunner

    from macaron.cli import app
    from macaron.errors import MacaronError, UsageError

    (model, data), (_, other) = raw, moses
    short = tmp_path / "short.txt"
    short.write_text("one line\n")
    for arguments, kind, words in (
        ([], UsageError, "give either --data DIR, or --source FILE and --reference FILE"),
        (["--data", data, "--source", short, "--reference", short], UsageError, "give either"),
        (["--source", short], UsageError, "give either"),
        (["--data", data, "--split", "train"], UsageError, "--split is valid or test, not 'train'"),
        (["--data", data, "--output", tmp_path / "no" / "x"], UsageError, "there is no folder"),
        (["--data", other], MacaronError, "is Moses tokens, which this model does not read"),
        (["--data", tmp_path], MacaronError, "prepared.json: no such file"),
        (["--source", short, "--reference", data / "test.en"], MacaronError, "1 lines, .* 15: they are not aligned"),
    ):
        found = CliRunner().invoke(app, ["evaluate", str(model), *map(str, arguments)])
        with pytest.raises(kind, match=words):
            raise found.exception or AssertionError(found.output)


@pytest.mark.slow
def test_exit_codes(raw: tuple[Path, Path], tmp_path: Path):
    done = evaluate(raw[0], "--data", tmp_path / "nothing", code=1)
    assert done.stderr.startswith("macaron: ")
    assert evaluate(raw[0], code=2).stdout == ""
