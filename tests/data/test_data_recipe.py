"""The shipped recipes load, and mistakes in one are named."""

from pathlib import Path

import pytest

from macaron.data.recipe import DataRecipe, data_recipe, load_data_recipe
from macaron.errors import MacaronError

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.mark.parametrize(
    "name",
    ["deen-mix", "iwslt14-de-en", "multi30k-de-en", "wmt14-en-de-base", "wmt14-en-de-big", "your-own"],
)
def test_shipped_recipes(name: str) -> None:
    recipe = load_data_recipe(RECIPES / f"{name}.toml")
    assert recipe.train
    assert recipe.test
    assert bool(recipe.valid) != bool(recipe.valid_every)


def test_the_papers_settings() -> None:
    iwslt = load_data_recipe(RECIPES / "iwslt14-de-en.toml")
    assert (iwslt.pipeline, iwslt.lower, iwslt.vocab_size, iwslt.valid_every) == ("moses", True, 10_000, 23)
    assert (iwslt.max_words, iwslt.max_ratio, iwslt.ratio_slack) == (175, 1.5, 0.0)
    names = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]
    assert [corpus.path for corpus in iwslt.test] == [f"IWSLT14.{name}.de-en" for name in names]
    base, big = (load_data_recipe(RECIPES / f"wmt14-en-de-{size}.toml") for size in ("base", "big"))
    assert base == big
    assert (base.vocab_size, base.lower, base.source_lang) == (37_000, False, "en")
    assert [corpus.path for corpus in (*base.valid, *base.test)] == ["newstest2013", "newstest2014"]


def test_the_commented_recipe_shows_the_defaults() -> None:
    shown = load_data_recipe(RECIPES / "your-own.toml")
    least = DataRecipe("de", "en", shown.out, shown.train, shown.valid, shown.test)
    assert shown == least


def test_overrides() -> None:
    recipe = load_data_recipe(RECIPES / "deen-mix.toml", ["data.root=/elsewhere", "data.vocab_size=8000"])
    assert (recipe.root, recipe.vocab_size) == (Path("/elsewhere"), 8000)


LEAST = {"source_lang": "de", "target_lang": "en", "out": "x", "train": [{"path": "a"}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocabsize": 3}, r"unknown key 'data.vocabsize'; did you mean 'vocab_size'"),
        ({"train": []}, "data.train is empty"),
        ({"train": [{"paht": "a"}]}, r"unknown key 'data.train\[0\].paht'"),
        ({"train": [{"path": "a", "state": "bpe"}]}, "'raw', 'moses'"),
        ({"train": [{"path": "a", "state": "moses"}]}, "raw pipeline takes plain text"),
        ({"source_lang": "en"}, "are the same"),
        ({"source_lang": "../de"}, "no language code"),
        ({"valid": [{"path": "b"}], "valid_every": 5}, "not both"),
        ({"valid_every": 1}, "at least 2"),
        ({"min_words": 9, "max_words": 3}, "min_words <= max_words"),
        ({"max_ratio": -1.0}, "not be negative"),
        ({"pipeline": "moses", "valid": [{"path": "b"}, {"path": "c", "state": "moses"}]}, "different state"),
        ({"train": [{"path": "a", "archive": "z", "source": "s", "target": "t"}]}, "no archive 'z'"),
        ({"train": [{"path": "a", "archive": "z"}]}, "which files of archive 'z'"),
        ({"train": [{"path": "a", "url": "http://x/y"}]}, "must contain {lang}"),
        ({"archives": [{"name": "z", "urls": []}]}, "at least one url"),
        ({"archives": [{"name": "z", "urls": ["u"], "checksum": "abc"}]}, "write a checksum as"),
        ({"train": [{"path": "a", "checksums": {"fr": "md5:" + "0" * 32}}]}, "no language here"),
    ],
)
def test_mistakes(changes: dict[str, object], message: str) -> None:
    assert data_recipe({"data": LEAST}).train[0].path == "a"
    with pytest.raises(MacaronError, match=message) as caught:
        data_recipe({"data": {**LEAST, **changes}, "train": {"left": "alone"}}, "my.toml")
    assert str(caught.value).startswith("my.toml: ")


def test_a_recipe_needs_data() -> None:
    with pytest.raises(MacaronError, match=r"no \[data\] section"):
        data_recipe({"train": {}})
