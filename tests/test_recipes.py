"""Every shipped recipe loads, names a model that exists, and shows what it says that it shows."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

from macaron.data.settings import PairsSettings, TextSettings
from macaron.models import preset
from macaron.models.configuration import EncoderConfig, LanguageConfig, TranslationConfig
from macaron.recipe import (
    AUTO,
    DEFAULT_PRESETS,
    DecodeSettings,
    Recipe,
    configuration,
    load_data_recipe,
    load_recipe,
    recipe_from,
)
from macaron.settings import load_toml, write_toml
from macaron.tasks.pretraining import encoder_config
from macaron.train.settings import PretrainSettings, TrainSettings

FOLDER = Path(__file__).parents[1] / "recipes"
RECIPES = sorted(FOLDER.glob("*.toml"))


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes(path: Path):
    content = load_toml(path)[0]
    data = load_data_recipe(path) if set(content["data"]) > {"out"} else None
    if set(content) == {"data"}:  # for macaron prepare alone: several others train on it
        return
    recipe = load_recipe(path, [])
    prepared = {
        str(load_toml(other)[0]["data"]["out"]) for other in RECIPES if set(load_toml(other)[0]["data"]) > {"out"}
    }
    assert str(recipe.data) in prepared
    size = data.vocab_size if data and data.vocab_size != "auto" else 32_000
    recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, preset=preset_of(recipe)))
    if recipe.task == "language-model":
        assert isinstance(configuration(recipe, size), LanguageConfig)
    elif recipe.kind == "text":
        assert isinstance(encoder_config(recipe, size), EncoderConfig)
    else:
        assert isinstance(configuration(recipe, size), TranslationConfig)
    # What a run stores is read back as the same.
    stored = tomllib.loads(write_toml(recipe.to_data()))
    assert recipe_from(stored, "stored") == recipe


def preset_of(recipe: Recipe) -> str:
    return DEFAULT_PRESETS[recipe.task] if recipe.model.preset == AUTO else recipe.model.preset


def test_the_papers_settings() -> None:
    iwslt = load_data_recipe(FOLDER / "iwslt14-de-en.toml")
    assert (iwslt.pipeline, iwslt.lower, iwslt.vocab_size, iwslt.valid_every) == ("moses", True, 10_000, 23)
    assert (iwslt.max_words, iwslt.max_ratio, iwslt.ratio_slack) == (175, 1.5, 0.0)
    names = ["TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"]
    assert [corpus.path for corpus in iwslt.test] == [f"IWSLT14.{name}.de-en" for name in names]
    base, big = (load_data_recipe(FOLDER / f"wmt14-en-de-{size}.toml") for size in ("base", "big"))
    assert base == big
    assert (base.vocab_size, base.lower, base.source_lang) == (37_000, False, "en")
    assert [corpus.path for corpus in (*base.valid, *base.test)] == ["newstest2013", "newstest2014"]


@pytest.mark.parametrize("name", ["weighted", "relative", "universal", "dynamic-conv", "scaling-nmt"])
def test_the_other_systems_of_the_papers_table(name: str) -> None:
    """They train as they say, and with another preset their recipe trains that and nothing else."""
    path = FOLDER / f"wmt14-en-de-{name}.toml"
    big, own = load_recipe(FOLDER / "wmt14-en-de-big.toml", []), load_recipe(path, [])
    differ = {name for name, value in vars(own.train).items() if value != getattr(big.train, name)}
    assert own.decode == big.decode
    if name == "scaling-nmt":
        assert differ == {"learning_rate", "warmup", "batch_tokens", "accumulate", "average"}
        assert (own.train.batch_tokens * own.train.accumulate, own.train.average) == (458_752, 10)
        return
    assert differ == {"learning_rate", "warmup"}
    other = configuration(load_recipe(path, ["model.preset=transformer-big"]), 32_000)
    assert other == preset("transformer-big", vocab_size=32_000, max_position_embeddings=other.max_position_embeddings)


def test_the_commented_recipe_shows_the_defaults() -> None:
    shown = load_data_recipe(FOLDER / "your-own.toml")
    given = {name: getattr(shown, name) for name in ("out", "train", "valid", "test")}
    assert shown == PairsSettings(source_lang="de", target_lang="en", **given)
    assert shown.vocab_size == "auto"


def test_overrides():
    path = FOLDER / "deen-mix.toml"
    recipe = load_recipe(path, ["train.max_updates=7", "model.dropout=0.25", "model.preset=transformer-tiny"])
    assert recipe.train.max_updates == 7
    assert recipe.model.preset == "transformer-tiny"
    assert recipe.model.changes["dropout"] == 0.25


def test_the_shipped_data_of_documents() -> None:
    mix = load_data_recipe(FOLDER / "pretrain-mix.toml")
    books = load_data_recipe(FOLDER / "wikipedia-books.toml")
    for recipe in (mix, books):
        assert isinstance(recipe, TextSettings)
        assert (recipe.pipeline, recipe.valid_every) == ("moses", 200)
    assert (mix.vocab_size, books.vocab_size) == ("auto", 32_000)
    # wikipedia-books is the manual: it shows every key.
    shown = (FOLDER / "wikipedia-books.toml").read_text()
    for name in ("kind", *(field.name for field in dataclasses.fields(TextSettings))):
        assert f"\n{name} = " in shown or f"\n# {name} = " in shown or f"[[data.{name}]]" in shown, name


def test_the_base_recipe_shows_every_key_of_pretraining():
    """All but two, which are shown behind a #, at their defaults."""
    path = FOLDER / "macaron-bert-base.toml"
    keys = {field.name for field in dataclasses.fields(PretrainSettings)}
    assert keys - set(load_toml(path)[0]["pretrain"]) == (hidden := {"cls_target", "max_tokens"})
    assert all(f"\n# {key} = " in path.read_text() for key in hidden)
    assert load_recipe(path, []).pretrain == PretrainSettings()


def test_your_own_recipe_is_the_manual():
    """It shows every key of [train] and [decode]: those of [train] behind a #, at their defaults."""
    path = FOLDER / "your-own.toml"
    shown = load_toml(path)[0]
    assert shown["train"] == {"max_minutes": 30}
    text = path.read_text().partition("\n[train]\n")[2].partition("\n[decode]\n")[0]
    hidden = tomllib.loads("\n".join(line.removeprefix("# ") for line in text.splitlines()))
    assert set(hidden) == {field.name for field in dataclasses.fields(TrainSettings)}
    made, default = TrainSettings(**hidden), TrainSettings(max_updates=1)
    differ = {name for name in hidden if list_or(getattr(made, name)) != list_or(getattr(default, name))}
    assert differ == {"max_updates", "max_epochs", "max_minutes"}
    assert set(shown["decode"]) == {field.name for field in dataclasses.fields(DecodeSettings)}
    assert load_recipe(path, []).decode == DecodeSettings()


def list_or(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
