"""``macaron particles`` through the real command, in this process."""

import io
import json
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
import torch

from macaron.cli import main
from macaron.models.encoder import EncoderForPreTraining
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer

LINES = ["the cat sits on the mat .", "where is it ? a dog and a cat ."] * 5
SENTENCE = "the cat and a dog ."
TINY = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def run() -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
        code = 0
        with (
            mock.patch.object(sys, "argv", ["macaron", "particles", *map(str, arguments)]),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        return code, *(stream.buffer.getvalue().decode() for stream in (out, err))  # type: ignore[attr-defined]

    return call


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "model"
    tokenizer = MacaronTokenizer.train(LINES, 290)
    torch.manual_seed(0)
    config = preset("macaron-tiny", vocab_size=len(tokenizer), **TINY)
    made = TranslationModel(config)
    made.generation_config.max_length = 10
    made.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    tokenizer = MacaronTokenizer.train(LINES, 290, kind="encoder")
    torch.manual_seed(0)
    EncoderForPreTraining(preset("bert-tiny", vocab_size=len(tokenizer), **TINY)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_all_kinds_of_files(run: Run, model: Path, tmp_path: Path):
    beginnings = {"html": b"<!doctype html>", "json": b'{"format":"macaron-particles-1"', "png": b"\x89PNG"}
    for kind, beginning in beginnings.items():
        out = tmp_path / "new" / f"page.{kind}"
        code, said, written = run(model, SENTENCE, "--out", out)
        assert (code, said, written) == (0, "", f"wrote {out}\n")
        assert out.read_bytes().startswith(beginning)
    out = tmp_path / "new" / "film.GIF"
    assert run(model, SENTENCE, "--out", out, "--part", "encoder", "--view", "normalised")[0] == 0
    assert out.read_bytes().startswith(b"GIF89a")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert names == ["film.GIF", "page.html", "page.json", "page.png"]


def test_two_models_and_a_target(run: Run, model: Path, bert: Path, tmp_path: Path):
    out = tmp_path / "two.json"
    arguments = (model.parent, SENTENCE, "--model2", model, "--target", "a dog .", "--part", "both", "--out", out)
    assert run(*arguments)[0] == 0
    data = json.loads(out.read_text())
    assert data["aligned"]
    assert [each["target"] for each in data["models"]] == ["a dog ."] * 2
    assert run(bert, SENTENCE, "--model2", model, "--out", out)[0] == 0
    data = json.loads(out.read_text())
    assert [each["kind"] for each in data["models"]] == ["encoder", "translation"]


def test_mistakes_of_usage_come_before_any_work(run: Run, tmp_path: Path):
    """There is no model at all: it is not even looked for."""
    nowhere = tmp_path / "nowhere"
    for arguments, words in (
        ([SENTENCE, "--out", tmp_path / "page.pdf"], "must end in one of .html, .json, .png, .gif"),
        ([SENTENCE, "--out", tmp_path / "page"], "must end in one of"),
        (["  \n ", "--out", tmp_path / "page.html"], "the sentence is empty"),
        ([SENTENCE, "--target", " ", "--out", tmp_path / "page.html"], "--target is empty"),
        (
            [SENTENCE, "--target", "a", "--part", "encoder", "--out", tmp_path / "page.html"],
            "--target is for the decoder",
        ),
        ([SENTENCE, "--part", "head", "--out", tmp_path / "page.html"], "head"),
        ([SENTENCE, "--view", "raw", "--out", tmp_path / "page.html"], "--view is for .png and .gif"),
        ([SENTENCE], "--out"),
    ):
        code, _, said = run(nowhere, *arguments)
        assert code == 2, said
        assert words in said
    (tmp_path / "a.html").mkdir()
    code, _, said = run(nowhere, SENTENCE, "--out", tmp_path / "a.html")
    assert code == 2
    assert "is a folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]


def test_what_is_wrong_with_a_model_is_named(run: Run, model: Path, bert: Path, tmp_path: Path):
    out = tmp_path / "page.html"
    foreign, broken, empty = tmp_path / "foreign", tmp_path / "broken", tmp_path / "empty"
    for folder, text in ((foreign, '{"model_type": "bert"}'), (broken, "{"), (empty, None)):
        folder.mkdir()
        if text is not None:
            (folder / "config.json").write_text(text)
    (tmp_path / "weightless").mkdir()
    (tmp_path / "weightless" / "config.json").write_text((bert / "config.json").read_text())
    for arguments, words in (
        ([tmp_path / "nowhere", SENTENCE], "nowhere: no such folder"),
        ([model / "config.json", SENTENCE], "is a file; give its folder"),
        ([empty, SENTENCE], "no config.json"),
        ([foreign, SENTENCE], "a model of type 'bert'"),
        ([broken, SENTENCE], "not valid JSON"),
        ([tmp_path / "weightless", SENTENCE], "the weights are missing"),
        ([model, SENTENCE, "--model2", foreign], "foreign: a model of type 'bert'"),
        ([model, "cat " * 300], "200 are allowed"),
        ([bert, "cat " * 300], "200 are allowed"),
    ):
        code, _, said = run(*arguments, "--out", out)
        assert code == 1, said
        assert said.startswith("macaron: ")
        assert words in said
    code, _, said = run(bert, SENTENCE, "--part", "decoder", "--out", out)
    assert code == 2
    assert "has only an encoder" in said
    assert not out.exists()


def test_a_place_that_cannot_be_written(run: Run, model: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    code, _, said = run(model, SENTENCE, "--part", "encoder", "--out", tmp_path / "file" / "page.json")
    assert code == 1
    assert "Choose another path" in said
