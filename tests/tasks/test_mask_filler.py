"""Masked words, against transformers' pipeline for the same folder."""

from pathlib import Path

import pytest
import torch

from macaron.errors import MacaronError
from macaron.models import preset
from macaron.models.encoder import EncoderForPreTraining
from macaron.tasks.mask_filler import MaskFiller
from macaron.text import MacaronTokenizer

LINES = ["The cat sits on the mat.", "A dog, a cat and a mouse; all of them sleep.", "Where is the big house?"] * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("encoder") / "model"
    torch.manual_seed(0)
    tokenizer = MacaronTokenizer.train(LINES, 300, kind="encoder")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 40}
    model = EncoderForPreTraining(preset("macaron-bert-tiny", vocab_size=len(tokenizer), **sizes))
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def test_words_as_in_transformers(folder: Path):
    from transformers import pipeline

    text = "The cat <mask> on the mat."
    theirs = pipeline("fill-mask", model=str(folder), device="cpu")(text, top_k=4)
    [ours] = MaskFiller(folder, "cpu").fill([text], top_k=4)
    assert [each["token"] for each in ours] == [each["token"] for each in theirs]
    assert [each["score"] for each in ours] == pytest.approx([each["score"] for each in theirs], rel=1e-4)
    assert [each["sequence"] for each in ours] == [each["sequence"] for each in theirs]


def test_targets(folder: Path):
    [found] = MaskFiller(folder, "cpu").fill(["A <mask>."], targets=["cat", "dog", "cat"])
    tokens = [each["token"] for each in found]
    assert len(tokens) == len(set(tokens)) <= 2
    assert found[0]["score"] >= found[-1]["score"]


def test_refusals(folder: Path):
    filler = MaskFiller(folder, "cpu")
    for text, message in (
        ("No gap.", "one <mask>, this one has 0"),
        ("<mask> <mask>", "has 2"),
        ("<mask>" + " cat" * 60, "the model takes 40"),
    ):
        with pytest.raises(MacaronError, match=message):
            filler.fill([text])
    with pytest.raises(MacaronError, match="no token"):
        filler.fill(["A <mask>."], targets=[""])
