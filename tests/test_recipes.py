"""Every shipped recipe loads and names a model that exists; mistakes are named with what was meant."""

import dataclasses
import tomllib
from pathlib import Path

import pytest

from macaron.data.recipe import load_data_recipe
from macaron.errors import MacaronError
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.settings import read_toml
from macaron.tasks.pretraining import encoder_config
from macaron.tasks.recipe import DecodeSettings, PretrainSettings, load_recipe, recipe_from, write_toml
from macaron.tasks.translation import model_config
from macaron.train.settings import TrainSettings

RECIPES = sorted((Path(__file__).parents[1] / "recipes").glob("*.toml"))


def test_there_are_recipes():
    assert RECIPES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_shipped_recipes(path: Path):
    content = read_toml(path)
    data = load_data_recipe(path) if set(content["data"]) > {"out"} else None
    if set(content) == {"data"}:  # for macaron prepare alone: several others train on it
        return
    recipe = load_recipe(path, [])
    prepared = {str(read_toml(other)["data"]["out"]) for other in RECIPES if set(read_toml(other)["data"]) > {"out"}}
    assert str(recipe.data) in prepared
    size = data.vocab_size if data else 32_000
    if recipe.kind == "text":
        assert isinstance(encoder_config(recipe, size), EncoderConfig)
    else:
        assert isinstance(model_config(recipe, size), TranslationConfig)
    # What a run stores is read back as the same.
    stored = tomllib.loads(write_toml(recipe.to_data()))
    assert recipe_from(stored, "stored") == recipe


def test_overrides():
    path = next(path for path in RECIPES if path.stem == "deen-mix")
    recipe = load_recipe(path, ["train.max_updates=7", "model.dropout=0.25", "model.preset=transformer-tiny"])
    assert recipe.train.max_updates == 7
    assert recipe.model.preset == "transformer-tiny"
    assert recipe.model.changes["dropout"] == 0.25


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train.learning_rat=1", "unknown key 'train.learning_rat'; did you mean 'learning_rate'"),
        ("model.dropuot=1", "unknown key 'model.dropuot'; did you mean 'dropout'"),
        ("model.preset=macaron-smal", "did you mean 'macaron-small'"),
        ("decode.beams=1", "unknown key 'decode.beams'; did you mean 'beam'"),
        ("trian.seed=1", "unknown section 'trian'; did you mean 'train'"),
        ("train=3", r"\[train\] must be a section"),
        ("train.schedule=cosin", "schedule must be one of"),
        ("train.batch_tokens=0", "train.batch_tokens must be at least 1, not 0"),
        ("train.betas=[0.9]", "train.betas must be two"),
        ("train.seed=-1", "train.seed must be from 0"),
        ("train.max_minutes=0", "train.max_minutes must be above 0"),
        ("train.learning_rate=nan", "train.learning_rate must be above 0"),
        ("train.ema=1.0", "train.ema must be at least 0 and below 1"),
        ("decode.beam=0", "decode.beam"),
        ("data.out=3", "missing key 'data.out'"),
    ],
)
def test_mistakes(assignment: str, message: str):
    path = next(path for path in RECIPES if path.stem == "your-own")
    with pytest.raises(MacaronError, match=message) as caught:
        load_recipe(path, [assignment])
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 30, "num_attention_heads": 4}, "not a multiple of num_attention_heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"vocab_size": 10}, "less than the data's 100"),
        ({"scheme": "strang-gfh"}, "strang-gfh"),
        ({"preset": "bert-tiny"}, "is a text encoder"),
    ],
)
def test_models_that_cannot_be(changes: dict[str, object], message: str):
    data = {"data": {"out": "x"}, "model": {"preset": "macaron-tiny", **changes}, "train": {"max_updates": 1}}
    with pytest.raises(MacaronError, match=message):
        model_config(recipe_from(data, "r.toml"), 100)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"data": {"out": "x"}}, "pairs"),
        ({"data": {"out": "x", "kind": "text"}}, "text"),
        ({"data": {"out": "x"}, "model": {"preset": "bert-tiny"}}, "text"),
        ({"data": {"out": "x"}, "pretrain": {"nsp": False}}, "text"),
        ({"data": {"out": "x"}, "model": {"preset": "macaron-tiny"}}, "pairs"),
    ],
)
def test_what_a_recipe_is_for(data: dict[str, dict[str, object]], kind: str):
    recipe = recipe_from({**data, "train": {"max_updates": 1}}, "r.toml")
    assert recipe.kind == kind
    if "model" not in data:
        assert recipe.model.preset == {"pairs": "macaron-small", "text": "macaron-bert-base"}[kind]


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"decode": {"beam": 2}}, r"\[decode\] is for translation; this recipe is for pre-training"),
        ({"pretrain": {"masks": 2}}, "unknown key 'pretrain.masks'"),
        ({"pretrain": {"max_tokens": 500}}, "r.toml: pretrain.max_tokens must be at least 8"),
        ({"pretrain": {"pairs": "words"}}, "pairs must be one of 'spans', 'sentences'"),
    ],
)
def test_mistakes_in_a_recipe_for_pretraining(section: dict[str, object], message: str):
    data = {"data": {"out": "x"}, "model": {"preset": "bert-tiny"}, "train": {"max_updates": 1}, **section}
    with pytest.raises(MacaronError, match=message):
        recipe_from(data, "r.toml")
    with pytest.raises(MacaronError, match=r"\[pretrain\] is for pre-training; this recipe is for translation"):
        recipe_from({**data, "model": {"preset": "macaron-tiny"}, "pretrain": {}}, "r.toml")


def test_the_base_recipe_shows_every_key_of_pretraining():
    """All but three, which are shown behind a #, at their defaults."""
    path = next(path for path in RECIPES if path.stem == "macaron-bert-base")
    keys = {field.name for field in dataclasses.fields(PretrainSettings)}
    assert keys - set(read_toml(path)["pretrain"]) == (hidden := {"cls_target", "max_tokens", "attention"})
    assert all(f"\n# {key} = " in path.read_text() for key in hidden)
    assert load_recipe(path, []).pretrain == PretrainSettings()


def test_a_scheme_as_data_survives_the_run_folder(tmp_path: Path):
    scheme = {"name": "mine", "branches": [{"weight": 1.0, "steps": [["G", 0.25], ["F", 1.0], ["G", 0.75]]}]}
    data = {
        "data": {"out": 'odd "name"\t\\x'},
        "model": {"preset": "macaron-tiny", "scheme": scheme, "prologue": [["G", 0.5]]},
        "train": {"max_updates": 1, "epsilon": 1e-9},
        "decode": {},
    }
    recipe = recipe_from(data, "r.toml")
    (tmp_path / "recipe.toml").write_text(write_toml(recipe.to_data()))
    assert recipe_from(read_toml(tmp_path / "recipe.toml"), "stored") == recipe


def test_your_own_recipe_is_the_manual():
    """It shows every key of [train] and [decode], at its default but for the four that say they differ."""
    path = next(path for path in RECIPES if path.stem == "your-own")
    shown = read_toml(path)
    ends = {"max_updates", "max_epochs", "max_minutes"}
    keys = {field.name for field in dataclasses.fields(TrainSettings)}
    assert keys - set(shown["train"]) == ends - {"max_updates"}
    made, default = load_recipe(path, []).train, TrainSettings(max_updates=1)
    differ = {name for name in keys if getattr(made, name) != getattr(default, name)}
    assert differ == {"max_updates", "learning_rate", "warmup", "validate_every"}
    assert set(shown["decode"]) == {field.name for field in dataclasses.fields(DecodeSettings)}
    assert load_recipe(path, []).decode == DecodeSettings()
