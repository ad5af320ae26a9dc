"""The recipes that come with Macaron: listed, shown, copied, and found by their names from any folder."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macaron.errors import MacaronError
from macaron.recipe import load_data_recipe, load_recipe
from macaron.shipped import find, names, shipped, title

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_there_is_one_copy_of_each_recipe():
    assert names() == sorted(path.stem for path in (REPOSITORY / "recipes").glob("*.toml"))
    for name in names():
        assert shipped(name).samefile(REPOSITORY / "recipes" / f"{name}.toml")


def test_list(macaron: Callable[..., Any]):
    done = macaron("recipe", "list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == names()
    for name in names():
        assert 10 < len(title(name)) < 125
        assert title(name)[0] not in "#["


def test_show_and_copy(macaron: Callable[..., Any], tmp_path: Path):
    whole = (REPOSITORY / "recipes/your-own.toml").read_text()
    assert macaron("recipe", "show", "your-own").stdout == whole
    assert macaron("recipe", "copy", "your-own").stdout == "wrote your-own.toml\n"
    assert macaron("recipe", "copy", "your-own.toml", "mine.toml").returncode == 0
    (tmp_path / "folder").mkdir()
    assert macaron("recipe", "copy", "your-own", "folder").returncode == 0
    for path in ("your-own.toml", "mine.toml", "folder/your-own.toml"):
        assert (tmp_path / path).read_text() == whole
    (tmp_path / "mine.toml").write_text("edited")
    done = macaron("recipe", "copy", "your-own", "mine.toml")
    assert (done.returncode, (tmp_path / "mine.toml").read_text()) == (2, "edited")
    assert "mine.toml exists" in done.stderr


@pytest.mark.parametrize("command", [("show",), ("copy",)])
def test_an_unknown_name(command: tuple[str], macaron: Callable[..., Any], tmp_path: Path):
    done = macaron("recipe", *command, "your-onw")
    assert done.returncode == 1
    assert done.stderr == "macaron: no recipe 'your-onw' comes with Macaron; did you mean 'your-own'?\n"
    assert not list(tmp_path.iterdir())


def test_a_recipe_is_found_by_its_name(tmp_path: Path):
    assert load_recipe(Path("your-own")) == load_recipe(Path("your-own.toml")) == load_recipe(shipped("your-own"))
    assert load_data_recipe(Path("demo")) == load_data_recipe(shipped("demo"))
    (tmp_path / "runs").mkdir()
    with pytest.raises(MacaronError, match=r"runs: is a folder, not a recipe.*: bert-base, deen-mix"):
        find(Path("runs"))
    with pytest.raises(
        MacaronError, match=r"^recipes/multi30k\.toml: no such recipe.*did you mean 'multi30k-(de-en|en-de)'\?"
    ):
        find(Path("recipes/multi30k.toml"))


def test_a_file_goes_first(tmp_path: Path):
    shutil.copy(shipped("demo"), tmp_path / "your-own.toml")
    for name in ("your-own.toml", "your-own"):
        assert load_recipe(Path(name)) == load_recipe(Path("demo")) != load_recipe(shipped("your-own"))


def test_every_verb_finds_them(macaron: Callable[..., Any]):
    for verb in (("train", "--out", "run"), ("twins", "--out", "run"), ("prepare",)):
        done = macaron(verb[0], "demo", *verb[1:], "--set", "train.sed=1")
        assert done.returncode == 1
        assert done.stderr == "macaron: --set train.sed=1: unknown key 'train.sed'; did you mean 'seed'?\n"
