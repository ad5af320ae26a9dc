"""Sentence embeddings: the command, the class, and the folder for sentence-transformers."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoProcessor, AutoTokenizer

import macaron
from forked import macaron_text
from macaron import Embedder
from macaron.models import EncoderModel

TEXTS = ["the cat sat on the mat", "", "good", "it was a house and it was a good house " * 3, " bad\t"]


@pytest.fixture(scope="module")
def embedder(encoder_folder: Path) -> Embedder:
    return Embedder(encoder_folder, device="cpu")


def test_the_mean_over_tokens_of_length_one(embedder: Embedder, encoder_folder: Path):
    """Against transformers' own classes, text by text, without padding."""
    tokenizer, model = AutoTokenizer.from_pretrained(encoder_folder), AutoModel.from_pretrained(encoder_folder)
    found = embedder.embed(TEXTS)
    assert (found.shape, found.dtype) == ((5, 64), np.float32)
    for text, vector in zip(TEXTS, found, strict=True):
        with torch.no_grad():
            states = model(**tokenizer(text.strip(), return_tensors="pt")).last_hidden_state[0]
        mean = states.mean(dim=0)
        np.testing.assert_allclose(vector, mean / mean.norm(), atol=1e-6)


def test_a_vector_does_not_depend_on_the_others(embedder: Embedder):
    together = embedder.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        np.testing.assert_allclose(embedder.embed(text), vector, atol=1e-6)
    np.testing.assert_allclose(embedder.embed(TEXTS[::-1])[::-1], together, atol=1e-6)
    np.testing.assert_allclose(embedder.embed(["bad"])[0], together[4], atol=1e-6)  # white space around it
    assert embedder.embed([]).shape == (0, 64)
    embedder.fixed_shapes = True  # as on a GPU
    np.testing.assert_allclose(embedder.embed(TEXTS), together, atol=1e-6)
    embedder.fixed_shapes = False


def test_long_texts_are_cut(encoder_folder: Path):
    assert Embedder(encoder_folder, device="cpu").max_length == 512
    short = Embedder(encoder_folder, device="cpu", max_length=8)
    long, cut = "the cat sat on mat it was and run away", short.tokenizer.encode_lines(["the cat sat on mat it"])
    assert len(cut[0]) == 8
    np.testing.assert_allclose(short.embed(long), short.embed("the cat sat on mat it"), atol=1e-6)


def test_the_command(encoder_folder: Path, embedder: Embedder, tmp_path: Path):
    expected = embedder.embed(TEXTS)
    (tmp_path / "in").write_text("".join(text + "\n" for text in TEXTS))
    command = ("embed", encoder_folder, "--device", "cpu")
    done = macaron_text(*command, text=(tmp_path / "in").read_text())
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.loadtxt(done.stdout.splitlines()), expected, atol=1e-6)
    done = macaron_text(*command, "--json", "--input", tmp_path / "in")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["line"], row["text"]) for row in rows] == list(enumerate(TEXTS, 1))
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=1e-6)
    done = macaron_text(*command, "--input", tmp_path / "in", "--output", tmp_path / "out.npy")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    stored = np.load(tmp_path / "out.npy")
    assert (stored.shape, stored.dtype) == ((5, 64), np.float32)
    np.testing.assert_allclose(stored, expected, atol=1e-6)
    empty = macaron_text(*command, "--output", tmp_path / "none.npy")
    assert empty.returncode == 0, empty.stderr
    assert np.load(tmp_path / "none.npy").shape == (0, 64)


def test_refusals(macaron, encoder_folder: Path, tmp_path: Path):
    (tmp_path / "taken").mkdir()
    translation = Path(__file__).parent.parent / "compatibility" / "fixtures" / "translation"
    for arguments, code, words in (
        ((encoder_folder, "--json", "--output", tmp_path / "x.npy"), 2, "--json writes text"),
        ((encoder_folder, "--export", tmp_path / "x", "--json"), 2, "embeds nothing"),
        ((encoder_folder, "--export", tmp_path / "taken"), 2, "exists already"),
        ((encoder_folder, "--input", tmp_path / "none"), 1, "none: No such file"),
        ((translation, "--device", "cpu"), 1, "is not a text encoder"),
    ):
        done = macaron("embed", *arguments)
        assert done.returncode == code, done.stderr
        assert words in done.stderr
    assert not (tmp_path / "x").exists()


def sentence_transformer(folder: Path, texts: list[str]) -> np.ndarray:
    """What sentence-transformers does with a folder, as of its versions 2 to 5: modules.json names its modules in
    order, each configured by the file in its folder; unknown classes and settings are errors."""
    states: torch.Tensor
    modules = json.loads((folder / "modules.json").read_text())
    assert [module["idx"] for module in modules] == list(range(len(modules)))
    for module in modules:
        assert set(module) == {"idx", "name", "path", "type"}
        path = folder / module["path"]
        assert path.is_dir()
        kind = module["type"].removeprefix("sentence_transformers.models.")
        if kind == "Transformer":
            config = json.loads((path / "sentence_bert_config.json").read_text())
            assert set(config) <= {"max_seq_length", "do_lower_case"}
            limit = config["max_seq_length"]
            processor = AutoProcessor.from_pretrained(path, model_max_length=limit)
            model = AutoModel.from_pretrained(path)
            assert not config["do_lower_case"]
            batch = processor(
                [text.strip() for text in texts],
                padding=True,
                truncation="longest_first",
                return_tensors="pt",
                max_length=limit,
            )
            with torch.no_grad():
                states = model(**batch, return_dict=False)[0]
        elif kind == "Pooling":
            config = json.loads((path / "config.json").read_text())
            assert config.pop("word_embedding_dimension") == states.shape[-1]
            assert config.pop("include_prompt")
            assert [name for name, on in config.items() if on] == ["pooling_mode_mean_tokens"]
            known = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens")
            assert set(config) == {f"pooling_mode_{name}" for name in (*known, "lasttoken")}
            mask = batch["attention_mask"].unsqueeze(-1).float()
            states = (states * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        else:
            assert kind == "Normalize"
            states = torch.nn.functional.normalize(states, p=2, dim=1)
    more = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert (more["prompts"], more["default_prompt_name"], more["similarity_fn_name"]) == ({}, None, "cosine")
    return states.numpy()


def test_sentence_transformers_reads_an_exported_folder(encoder_folder: Path, embedder: Embedder, tmp_path: Path):
    done = macaron_text("embed", encoder_folder, "--device", "cpu", "--export", tmp_path / "st")
    assert done.returncode == 0, done.stderr
    assert "64 numbers a text, up to 512 tokens" in done.stdout
    np.testing.assert_allclose(sentence_transformer(tmp_path / "st", TEXTS), embedder.embed(TEXTS), atol=1e-6)
    # The folder is a plain model folder as well: the encoder without a head.
    again = Embedder(tmp_path / "st", device="cpu")
    np.testing.assert_array_equal(again.embed(TEXTS), embedder.embed(TEXTS))
    EncoderModel.from_pretrained(tmp_path / "st")
    Embedder(encoder_folder, device="cpu", max_length=8).export(tmp_path / "short")
    short = Embedder(encoder_folder, device="cpu", max_length=8)
    np.testing.assert_allclose(sentence_transformer(tmp_path / "short", TEXTS), short.embed(TEXTS), atol=1e-6)


def test_the_name_at_the_top():
    assert macaron.Embedder is Embedder
