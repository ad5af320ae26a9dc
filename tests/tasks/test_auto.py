"""``model.preset = "auto"``: choices by data, device and time; what is given stays; what was chosen is stored."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.device import multiplies_bfloat16
from macaron.models.configuration import TranslationConfig
from macaron.recipe import AUTO, configuration, data_recipe, load_recipe, recipe_from
from macaron.tasks.auto import TABLE, kept, resolve
from macaron.text.vocabulary import chosen_size


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("auto")
    for name, count in (("train", 200), ("valid", 20)):
        words = [f"wort{i % 17} haus{i % 5} baum{i}" for i in range(count)]
        (folder / f"{name}.de").write_text("\n".join(words) + "\n")
        (folder / f"{name}.en").write_text("\n".join(line.upper() for line in words) + "\n")
    settings: dict[str, Any] = {"source_lang": "de", "target_lang": "en", "root": str(folder)}
    splits = {name: [{"path": name}] for name in ("train", "valid")}
    content = {"data": {**settings, **splits, "out": str(folder / "data"), "remove_overlap": "none"}}
    return prepare(data_recipe(content), workers=1).data.folder


def auto(data: Path, **train: Any) -> Any:
    content = {"data": {"out": str(data)}, "model": {"preset": AUTO}, "train": {"max_minutes": 15, **train}}
    return recipe_from(content)


def test_the_choice_follows_device_and_time(data: Path):
    tiny, longer, gpu = (
        resolve(auto(data, max_minutes=minutes), on_gpu) for minutes, on_gpu in ((0.5, False), (1e6, False), (5, True))
    )
    sizes = [configuration(each, 1).hidden_size for each in (tiny, longer, gpu)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[2]
    assert gpu.model.preset == "macaron-small"
    assert gpu.train.batch_tokens > tiny.train.batch_tokens
    for recipe in (tiny, longer, gpu):
        assert recipe.model.preset != AUTO
        assert recipe.train.schedule == "cosine"


def test_updates_are_the_time_where_they_are_the_limit(data: Path):
    said: list[str] = []
    few, many = (
        resolve(auto(data, max_minutes=None, max_updates=updates), False, said.append) for updates in (10, 10**8)
    )
    assert configuration(few, 1).hidden_size < configuration(many, 1).hidden_size
    assert few.model.changes["dropout"] == 0.0  # a few epochs at most
    assert many.model.changes["dropout"] == 0.3
    assert "10 updates on " in said[0]
    # Minutes beside them are the time.
    assert "15 minutes on" in _first_reason(auto(data, max_updates=10))


def _first_reason(recipe: Any) -> str:
    said: list[str] = []
    resolve(recipe, False, said.append)
    return said[0]


@pytest.mark.parametrize("key", list(TABLE), ids="-".join)
def test_the_table_has_a_row_for_every_time_and_valid_models(key: tuple[str, str]):
    rows = TABLE[key]
    assert [row.minutes for row in rows] == sorted(row.minutes for row in rows)
    assert rows[-1].minutes == float("inf")
    for row in rows:
        recipe = recipe_from(
            {
                "data": {"out": "x"},
                "model": {"preset": row.preset, **row.model},
                "train": {"max_updates": 1, **row.train},
            }
        )
        assert recipe.kind == key[0]


def test_each_choice_is_said_with_its_reason_and_what_is_given_stays(data: Path):
    said: list[str] = []
    recipe = auto(data, learning_rate=0.123)
    recipe = replace(
        recipe, given=recipe.given | {("model", "dropout")}, model=replace(recipe.model, changes={"dropout": 0.25})
    )
    found = resolve(recipe, False, said.append)
    assert found.train.learning_rate == 0.123
    assert found.model.changes["dropout"] == 0.25
    text = "\n".join(said)
    assert "learning_rate" not in text
    assert "model.dropout" not in text
    for part in ("model.preset = macaron-tiny", "train.batch_tokens = ", "15 minutes on", "epochs of"):
        assert part in text
    config = configuration(found, 1)
    assert isinstance(config, TranslationConfig)
    assert config.encoder_layers == found.model.changes["encoder_layers"]


def test_pairs_and_text_train_in_bfloat16_where_the_processor_multiplies_it(data: Path, tmp_path: Path):
    (tmp_path / "a.txt").write_text("".join(f"Document {i}. Its end, {i * 7}.\n\n" for i in range(40)))
    text = {"kind": "text", "root": str(tmp_path), "train": [{"path": "a.txt"}], "out": str(tmp_path / "data")}
    prepare(data_recipe({"data": {**text, "vocab_size": 300}}), workers=1)
    for section in ({"out": str(data)}, text):
        content = {"data": section, "model": {"preset": AUTO}, "train": {"max_minutes": 15}}
        assert resolve(recipe_from(content), False).train.precision == ("bfloat16" if multiplies_bfloat16() else "auto")
        assert resolve(recipe_from(content), True).train.precision == "auto"
        content["train"]["precision"] = "float32"
        assert resolve(recipe_from(content), False).train.precision == "float32"


def test_another_preset_chooses_nothing(data: Path):
    recipe = recipe_from(
        {"data": {"out": str(data)}, "model": {"preset": "macaron-base"}, "train": {"max_minutes": 15}}
    )
    assert resolve(recipe, False) is recipe


def test_a_resumed_run_keeps_what_was_chosen(data: Path):
    first = resolve(auto(data), False)
    first = replace(first, train=replace(first.train, max_updates=777, warmup=77))
    again = kept(auto(data), first)
    assert again == first
    # What is given now is compared with what was stored, and not hidden by it.
    assert kept(auto(data, seed=5), first).train.seed == 5
    plain = recipe_from({"data": {"out": str(data)}, "train": {"max_updates": 5}})
    assert kept(plain, first) is plain


def test_the_run_stores_the_choices(data: Path, server: Any, tmp_path: Path):
    recipe = tmp_path / "recipe.toml"
    data_section = f'[data]\nout = "{data}"\ntrain = [{{path = "elsewhere"}}]\n'
    recipe.write_text(f'{data_section}[model]\npreset = "auto"\n[train]\nmax_minutes = 1\ndevice = "cpu"\n')
    small = ("--set", "train.max_updates=2", "--set", "model.hidden_size=32", "--set", "train.batch_tokens=200")
    said = server.run("train", recipe, "--out", tmp_path / "run", *small)
    stored = tomllib.loads((tmp_path / "run/recipe.toml").read_text())
    assert stored["model"]["preset"] in said
    assert stored["model"]["preset"] != AUTO
    assert (stored["model"]["hidden_size"], stored["train"]["batch_tokens"]) == (32, 200)
    vocabulary = json.loads((data / "prepared.json").read_text())["vocab_size"]
    assert stored["model"]["vocab_size"] == vocabulary
    assert f"model.vocab_size = {vocabulary}: the subwords of {data}" in said
    assert stored["data"]["train"] == [{"path": "train", "weight": 1.0}]  # those of the data, not of the recipe
    assert load_recipe(tmp_path / "run/recipe.toml").train.schedule == "cosine"
    assert "is finished" in server.run("train", recipe, "--out", tmp_path / "run", *small, "--resume")


def test_the_vocabulary_grows_with_the_corpus(data: Path):
    assert [chosen_size(words)[0] for words in (10**5, 10**7, 10**9)] == [4_000, 10_000, 32_000]
    assert [chosen_size(words, "encoder")[0] for words in (10**5, 10**9)] == [8_000, 32_000]
