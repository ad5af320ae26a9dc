"""Installed models: found by name and by the language that they translate into."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macaron.decode import Translator
from macaron.errors import MacaronError, UsageError
from macaron.models import load
from macaron.models.catalogue import installed
from macaron.models.load import find_folder
from macaron.models.quantise import quantise
from sealing import unseal
from served import CLASSIFIER, TRANSLATION, start

CARD = """---
language: [de, en]
model-index:
- name: de-en
  results:
  - task: {type: translation}
    dataset: {name: tatoeba/valid, type: tatoeba}
    metrics:
    - {type: bleu, value: 57.1}
    - {type: chrf, name: chrF2, value: 70.2}
---
# German to English
"""
LINE = "Martin hat eure Katze gewaschen."


def named(folder: Path, source: str, target: str) -> Path:
    """A translation model that names these languages."""
    shutil.copytree(TRANSLATION, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"source_lang": source, "target_lang": target}))
    return unseal(folder)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the models that come with the package: one from German to English, in int8, with a card."""
    folder = tmp_path / "package"
    quantise(TRANSLATION, folder / "de-en")
    (folder / "de-en" / "README.md").write_text(CARD)
    monkeypatch.setattr(load, "INSTALLED", folder)
    monkeypatch.delenv(load.PLACES, raising=False)
    return folder


@pytest.fixture
def own(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: a run from English to German, a classifier, and things that are no models."""
    folder = tmp_path / "own"
    named(folder / "mine" / "model", "en", "de")
    shutil.copytree(CLASSIFIER, folder / "classifier")
    (folder / "unfinished" / "checkpoints").mkdir(parents=True)
    shutil.copytree(TRANSLATION, folder / ".mine.partial")
    (folder / "notes.txt").touch()
    monkeypatch.setenv(load.PLACES, str(folder))
    return folder


def test_without_a_model(package: Path, own: Path, macaron: Callable[..., Any], tmp_path: Path):
    text = tmp_path / "text"
    text.write_text(f"{LINE}\n")
    expected = macaron("translate", package / "de-en", "--input", text, "--device", "cpu").stdout
    assert expected == Translator(package / "de-en").translate(LINE) + "\n"
    for given in (("--to", "en"), ("--to", "en-GB"), ("de-en",)):
        done = macaron("translate", *given, "--input", text, "--device", "cpu")
        assert (done.returncode, done.stdout) == (0, expected), done.stderr
    turned = macaron("translate", "--to", "de", "--input", text, "--device", "cpu")
    assert turned.stdout == macaron("translate", own / "mine", "--input", text, "--device", "cpu").stdout
    assert Translator(to="en").translate(LINE) + "\n" == expected
    assert find_folder("mine") == own / "mine" / "model"
    done = macaron("score", "de-en", "--source", text, "--target", text, "--device", "cpu")
    assert done.returncode == 0, done.stderr


def test_one_model_needs_no_language(package: Path, tmp_path: Path, macaron: Callable[..., Any]):
    assert Translator().tokenizer.target_lang == "en"
    (tmp_path / "text").write_text(f"{LINE}\n")
    done = macaron("translate", "--input", tmp_path / "text", "--device", "cpu")
    assert done.stdout == Translator().translate(LINE) + "\n"


def test_a_path_comes_before_a_name_and_an_own_model_before_the_package(
    package: Path, own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    named(own / "de-en", "de", "en")
    assert find_folder("de-en") == own / "de-en"
    assert [each.folder for each in installed() if each.name == "de-en"] == [own / "de-en"]
    monkeypatch.setenv(load.PLACES, f"{tmp_path}:{own}")  # in several folders; this one has no models
    assert {each.name for each in installed()} == {"de-en", "mine"}
    monkeypatch.chdir(tmp_path)
    named(tmp_path / "de-en", "de", "fr")
    assert find_folder("de-en") == Path("de-en")


def test_which_one(package: Path, own: Path, tmp_path: Path):
    named(own / "fr-en", "fr", "en")
    with pytest.raises(
        UsageError, match=r"several installed models fit: fr-en \(fr to en\), de-en \(de to en\)\. Name "
    ):
        Translator(to="en")
    with pytest.raises(UsageError, match=r"several .* mine \(en to de\), de-en .*\. Choose a target language \(--to\)"):
        Translator()
    with pytest.raises(UsageError, match=r"no installed model translates into ja; there is fr-en \(fr to en\), mine"):
        Translator(to="ja")
    with pytest.raises(MacaronError, match=r"the target language .* chooses an installed model: leave it out"):
        Translator(package / "de-en", to="en")


def test_the_list(package: Path, own: Path, macaron: Callable[..., Any]):
    done = macaron("models", "--installed")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["mine", "en", "to", "de", "0.1", "MB", str(own / "mine" / "model")] in rows
    assert "bleu on tatoeba/valid 57.1, chrF2 on tatoeba/valid 70.2" in done.stdout
    listed = {each["name"]: each for each in json.loads(macaron("models", "--installed", "--json").stdout)["installed"]}
    assert listed.keys() == {"mine", "de-en"}
    assert listed["de-en"]["scores"] == {"bleu on tatoeba/valid": 57.1, "chrF2 on tatoeba/valid": 70.2}
    assert listed["de-en"]["bytes"] == sum(file.stat().st_size for file in (package / "de-en").iterdir())
    assert listed["mine"]["scores"] == {}
    (package / "de-en" / "README.md").write_text("---\nlanguage: [de\n---\n")
    done = macaron("models", "--installed")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{package / 'de-en' / 'README.md'}: the metadata cannot be read" in done.stderr


def test_none(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, macaron: Callable[..., Any]):
    monkeypatch.setattr(load, "INSTALLED", tmp_path / "nothing")
    for command in (("translate",), ("translate", "--to", "en"), ("serve",), ("models", "--installed")):
        done = macaron(*command)
        assert (done.returncode, done.stdout) == (1, "")
        assert "no translation model is installed: give a model folder or the folder of a run, or set" in done.stderr
        assert "MACARON_MODELS to a folder that holds some" in done.stderr
    monkeypatch.setenv(load.PLACES, str(tmp_path / "missing"))
    done = macaron("translate")
    assert done.returncode == 1
    assert f"{tmp_path / 'missing'}: no such folder (MACARON_MODELS names it)" in done.stderr


def test_serving_all_of_them(tmp_path: Path):
    """Models with the names of those in the package hide these: the server is a process of its own."""
    quantise(TRANSLATION, tmp_path / "de-en")
    named(tmp_path / "en-de", "en", "de")
    served = start(environment={load.PLACES: str(tmp_path)})
    try:
        for source, target in (("de", "en"), ("en", "de")):
            expected = Translator(tmp_path / f"{source}-{target}", device="cpu").translate(LINE)
            assert served.translate(LINE, source=source, target=target) == expected
    finally:
        served.stop()
