"""Several corpora: their tags and pairs, weights that need no preparing, splits that are kept or held out."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from macaron.data.prepare import prepare
from macaron.data.prepare.job import CHUNKS
from macaron.data.prepare.roles import choose_pairs
from macaron.data.prepared import PreparedData
from macaron.data.settings import CorpusSettings, PairsSettings
from macaron.errors import MacaronError
from macaron.recipe import data_recipe
from sealing import unseal

LAW = CorpusSettings("law", tag="<law>", weight=2)
WORDS = ["Haus", "Baum", "Hund", "Katze", "Kind", "Tür", "Buch", "Vogel"]


def write(prefix: Path, count: int, word: str) -> None:
    lines = [f"{word} {WORDS[i % 8]} {WORDS[i // 8 % 8]} {i}" for i in range(count)]
    for side in ("de", "en"):
        text = "".join(f"{line} {side}\n" for line in lines)
        prefix.with_name(f"{prefix.name}.{side}").write_text(text, encoding="utf-8")


@pytest.fixture
def recipe(tmp_path: Path) -> PairsSettings:
    for name, count in (("law", 60), ("news", 100), ("valid", 10), ("test", 6)):
        write(tmp_path / name, count, name)
    (tmp_path / "law.de").write_text((tmp_path / "law.de").read_text().replace("law Hund", "<law> Hund"))
    # The first pair of the news is the second of the law; its sixth is broken.
    news = (tmp_path / "news.de").read_text().split("\n"), (tmp_path / "news.en").read_text().split("\n")
    news[0][0], news[1][0] = "law Baum Haus 1 de", "law Baum Haus 1 en"
    news[0][5] = ""
    for side, lines in zip(("de", "en"), news, strict=True):
        (tmp_path / f"news.{side}").write_text("\n".join(lines))
    return PairsSettings(
        source_lang="de",
        target_lang="en",
        out=tmp_path / "out",
        root=tmp_path,
        train=(LAW, CorpusSettings("news")),
        valid=(CorpusSettings("valid"),),
        test=(CorpusSettings("valid"), CorpusSettings("test", tag="<law>")),
        vocab_size=400,
        remove_overlap="none",
    )


@pytest.mark.parametrize("pipeline", ["raw", "moses"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_tag_is_one_token_in_front_of_every_source_of_its_corpus(
    recipe: PairsSettings, pipeline: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHUNKS, "pairs", (7, 1 << 20))
    data = prepare(replace(recipe, pipeline=pipeline), workers=workers).data
    tokenizer = data.tokenizer
    tag = tokenizer.backend_tokenizer.token_to_id("<law>")
    assert tokenizer.tags == ["<law>"]
    assert data.vocab_size % 8 == 0
    assert [(each.path, each.pairs, each.tag, each.weight) for each in data.corpora("train")] == [
        ("law", 60, "<law>", 2.0),
        ("news", 98, None, 1.0),
    ]
    train = data.pairs("train")
    plain = tokenizer.encode_lines((recipe.root / "law.de").read_text().splitlines())
    assert [train.source[i].tolist() for i in range(60)] == [[tag, *ids] for ids in plain]
    assert not any(tag in ids for ids in plain)  # "<law>" in a text is text
    assert not any(tag in train.source[i] for i in range(60, 158))
    assert not np.isin(train.target.ids, [tag]).any()
    assert data.tags("test") == [None] * 10 + ["<law>"] * 6
    test = data.pairs("test")
    assert [int(test.source[i][0]) == tag for i in range(16)] == [False] * 10 + [True] * 6
    assert "<law>" not in data.text("test", "de")[12]


def test_a_weight_can_be_changed_without_preparing(recipe: PairsSettings) -> None:
    prepare(recipe, workers=1)
    ids = recipe.out / "train.de.ids"
    written = ids.stat().st_ino
    outcome = prepare(replace(recipe, train=(replace(LAW, weight=0.5), *recipe.train[1:])), workers=1)
    assert outcome.reason is None
    assert PreparedData.open(recipe.out).corpora("train")[0].weight == 0.5
    assert ids.stat().st_ino == written
    tagged = prepare(
        replace(recipe, train=(replace(LAW, tag="<Recht>"), *recipe.train[1:]), test=recipe.valid), workers=1
    )
    assert tagged.reason == "changed: test, train"
    assert tagged.data.tokenizer.tags == ["<Recht>"]


def test_a_folder_of_an_earlier_version(recipe: PairsSettings) -> None:
    plain = replace(recipe, train=(CorpusSettings("law"), CorpusSettings("news")), test=recipe.valid)
    prepare(plain, workers=1)
    path = recipe.out / "prepared.json"
    manifest = json.loads(path.read_text())
    for split in manifest["splits"].values():
        del split["corpora"]
    for split in ("train", "valid", "test"):
        for corpus in manifest["settings"][split]:
            del corpus["weight"]
    manifest["settings"]["valid_every"] = 0
    path.write_text(json.dumps(manifest))
    unseal(recipe.out)
    data = PreparedData.open(recipe.out)
    assert [(each.path, each.pairs, each.weight) for each in data.corpora("train")] == [("", 158, 1.0)]
    assert data.tags("test") == [None] * 10
    assert prepare(plain, workers=1).reason is None
    weighted = prepare(replace(plain, train=(CorpusSettings("law", weight=2), CorpusSettings("news"))), workers=1)
    assert weighted.reason == "the corpora of its pairs were not noted, which weights need"
    assert [each.weight for each in weighted.data.corpora("train")] == [2.0, 1.0]


@pytest.mark.parametrize(("pairs", "held"), [(2, 1), (15, 1), (100, 5)])
def test_pairs_are_held_out_where_no_valid_is_given(
    tmp_path: Path, pairs: int, held: int, capsys: pytest.CaptureFixture[str]
) -> None:
    from macaron.processes import Progress

    write(tmp_path / "news", pairs, "news")
    settings = {"source_lang": "de", "target_lang": "en", "out": str(tmp_path / "out"), "root": str(tmp_path)}
    settings |= {"vocab_size": 300}
    recipe = data_recipe({"data": {**settings, "train": [{"path": "news", "tag": "<n>"}]}})
    data = prepare(recipe, workers=1, progress=Progress()).data
    assert len(data.pairs("valid")) == len(data.text("valid", "de")) == held
    assert len(data.pairs("train")) == pairs - held
    assert set(data.tags("valid")) == {"<n>"}
    assert f"{held:,} in all (data.valid_every sets the share; 0: none)" in capsys.readouterr().err
    assert prepare(recipe, workers=1).reason is None
    assert prepare(replace(recipe, valid_every=0), workers=1).data.splits == ("train",)


@pytest.mark.parametrize(("pairs", "held"), [(1, 0), (30_000, 1500), (40_000, 1538), (1_000_000, 1501)])
def test_about_1500_pairs_are_held_out_of_many(tmp_path: Path, pairs: int, held: int) -> None:
    hashes = tmp_path / "hashes"
    np.arange(2 * pairs, dtype="<u8").tofile(hashes)
    settings = PairsSettings(source_lang="de", target_lang="en", out=tmp_path, train=(CorpusSettings("a"),))
    roles, dropped = choose_pairs(settings, hashes, [])
    assert np.bincount(roles, minlength=3)[1:3].tolist() == [pairs - held, held]
    assert not dropped.total()


def test_a_split_is_not_lost(recipe: PairsSettings) -> None:
    prepare(recipe, workers=1)
    with pytest.raises(MacaronError, match=r"has a test split.*Add --test valid --test test \(in a recipe"):
        prepare(replace(recipe, test=()), workers=1)
    with pytest.raises(MacaronError, match=r"has a valid split.*Add --valid valid"):
        prepare(replace(recipe, valid=(), valid_every=10), workers=1)
    assert PreparedData.open(recipe.out).splits == ("train", "valid", "test")
    elsewhere = prepare(replace(recipe, test=(), out=recipe.root / "other"), workers=1)
    assert elsewhere.data.splits == ("train", "valid")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": [{"path": "a", "tag": "law"}]}, "a: tag 'law': write a tag as a word in angle brackets"),
        ({"train": [{"path": "a", "tag": "<a b>"}]}, "write a tag as"),
        ({"train": [{"path": "a", "tag": "<unk>"}]}, "is the name of a special token"),
        ({"train": [{"path": "a", "weight": 0}]}, "a: weight must be above 0"),
        ({"valid": [{"path": "b", "weight": 2}]}, "b: weight is for data.train alone"),
        ({"test": [{"path": "b", "tag": "<law>"}]}, "data.test: tag <law> is not that of a corpus to train on"),
        ({"train": [{"path": "a", "tag": "<x>"}, {"path": "b", "tag": "<y>"}], "vocab_size": 261}, "at least 260"),
    ],
)
def test_mistakes(changes: dict[str, object], message: str) -> None:
    data = {"source_lang": "de", "target_lang": "en", "out": "o", "train": [{"path": "a"}], **changes}
    with pytest.raises(MacaronError, match=message):
        data_recipe({"data": data})
