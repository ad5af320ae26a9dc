"""Data prepared with the tokenizer of a model, as it is or extended."""

import random
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.data.prepared import PreparedData
from macaron.errors import MacaronError
from macaron.recipe import data_recipe
from macaron.text import MacaronTokenizer


def settings(folder: Path, out: str, **changes: Any) -> Any:
    content = {
        **{"source_lang": "de", "target_lang": "en", "root": str(folder), "out": str(folder / out)},
        **{"train": [{"path": "train"}], "valid_every": 10, "remove_duplicates": False, **changes},
    }
    return data_recipe({"data": content})


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    generator = random.Random(2)
    for ending in ("de", "en"):
        rows = [generator.choices(["banana", "korishu", "bakori", "Naba", "zezeze,"], k=6) for _ in range(60)]
        (tmp_path / f"train.{ending}").write_text("".join(" ".join(row) + "\n" for row in rows))
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The tokenizer of a lower-casing model of other text, as a model folder holds it."""
    text = ["ba ko ri na shu ze ban kor nan , ."] * 9
    tokenizer = MacaronTokenizer.train(text, 60, pipeline="moses", source_lang="de", target_lang="en")
    tokenizer.save_pretrained(tmp_path / "run" / "model")
    return tmp_path / "run"


def check_ids(data: PreparedData, corpus: Path) -> None:
    """The stores hold what the tokenizer makes of the text."""
    lines = (corpus / "train.de").read_text().splitlines()
    expected = data.tokenizer.encode_lines(lines, "source")
    store = [*(data.pairs("train").source[i].tolist() for i in range(len(data.pairs("train"))))]
    held = [*(data.pairs("valid").source[i].tolist() for i in range(len(data.pairs("valid"))))]
    assert sorted([*store, *held]) == sorted(expected)


def test_the_tokenizer_is_kept_with_its_pipeline(corpus: Path, model: Path):
    made = prepare(settings(corpus, "data", tokenizer=str(model)), workers=1)
    assert isinstance(made.data, PreparedData)
    given = MacaronTokenizer.from_pretrained(model / "model")
    assert made.data.tokenizer_fingerprint == given.fingerprint()
    assert (made.data.pipeline, made.data.vocab_size) == ("moses", len(given))
    check_ids(made.data, corpus)
    # The same tokenizer elsewhere is the same: a prepared folder has one, too.
    again = prepare(settings(corpus, "data", tokenizer=str(corpus / "data")), workers=1)
    assert again.reason is None


def test_the_tokenizer_is_extended(corpus: Path, model: Path):
    first = prepare(settings(corpus, "data", tokenizer=str(model)), workers=1)
    made = prepare(settings(corpus, "data", tokenizer=str(model), extend_vocab=8), workers=1)
    assert made.reason == "changed: extend_vocab"
    assert isinstance(made.data, PreparedData)
    assert made.data.vocab_size == -(-(first.data.vocab_size + 8) // 8) * 8
    check_ids(made.data, corpus)


def test_pieces_that_a_dictionary_lacks(corpus: Path):
    """The codes make pieces that are unknown to the model."""
    (corpus / "codes").write_text("#version: 0.2\nb a\nn a\nba na\nk o\n")
    letters = "".join(f"{letter}@@ 1\n{letter} 1\n" for letter in "bankorishuze,")
    (corpus / "dict.txt").write_text("ba@@ 3\n" + letters)
    tokenizer = MacaronTokenizer.from_fairseq_dict(
        corpus / "dict.txt", corpus / "codes", pipeline="moses", source_lang="de", target_lang="en"
    )
    tokenizer.save_pretrained(corpus / "fairseq")
    for extend in ({}, {"extend_vocab": 5}):
        made = prepare(settings(corpus, "data", tokenizer=str(corpus / "fairseq"), **extend), workers=1)
        assert isinstance(made.data, PreparedData)
        check_ids(made.data, corpus)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"extend_vocab": 5}, "adds subwords to data.tokenizer"),
        ({"tokenizer": "nowhere"}, "no tokenizer there"),
        ({"pipeline": "spaces"}, "give data.tokenizer"),
    ],
)
def test_mistakes(changes: dict[str, Any], message: str, corpus: Path):
    with pytest.raises(MacaronError, match=message):
        prepare(settings(corpus, "data", **changes), workers=1)
    assert not (corpus / "data").exists()


def test_a_tokenizer_of_the_other_kind_is_refused(corpus: Path):
    MacaronTokenizer.train(["a b c"] * 5, 280, kind="encoder").save_pretrained(corpus / "bert")
    with pytest.raises(MacaronError, match="not one for translation"):
        prepare(settings(corpus, "data", tokenizer=str(corpus / "bert")), workers=1)
