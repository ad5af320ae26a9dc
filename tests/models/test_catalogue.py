"""Models by name and by their languages, and the language of a text among theirs."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from forked import macaron_text
from macaron.errors import MacaronError, UsageError
from macaron.models.catalogue import Catalogue, language_name
from sealing import unseal
from served import CLASSIFIER, ENVIRONMENT, TRANSLATION


@pytest.fixture
def nameless(tmp_path: Path) -> Path:
    """A model that does not name its languages."""
    folder = tmp_path / "nameless"
    shutil.copytree(TRANSLATION, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"source_lang": None, "target_lang": None}))
    return folder


def test_models_by_pair_and_name(nameless: Path):
    catalogue = Catalogue([str(TRANSLATION), str(CLASSIFIER), f"fr-de={nameless}", f"pt-BR-de={nameless}"])
    assert list(catalogue.models) == ["de-en", "classifier", "fr-de", "pt-BR-de"]
    assert catalogue.pair("de", "en") is catalogue.models["de-en"]
    with pytest.raises(MacaronError, match="en to de is not supported: this server has de-en, fr-de, pt-BR-de"):
        catalogue.pair("en", "de")
    assert catalogue.sources == ["de", "fr", "pt-BR"]
    assert catalogue.languages == ["de", "fr", "pt-BR", "en"]
    assert catalogue.models["classifier"].tasks == ("text_classification", "feature_extraction", "sentence_similarity")
    assert (language_name("pt-BR"), language_name("de"), language_name("tlh")) == ("Portuguese", "German", "tlh")
    forms = ("DE", "de_DE", "EN-US", "pt", "pt-PT", "pt_br")
    assert [catalogue.language(code) for code in forms] == ["de", "de", "en", "pt-BR", "pt-BR", "pt-BR"]
    with pytest.raises(MacaronError, match="the language d is not supported: this server has de, fr, pt-BR, en"):
        catalogue.language("d")


def test_a_run_is_named_by_its_folder(tmp_path: Path):
    """The runs of `macaron finetune` have no recipe."""
    for name in ("first", "second"):
        shutil.copytree(CLASSIFIER, tmp_path / name / "model")
    assert list(Catalogue([str(tmp_path / "first"), str(tmp_path / "second")]).models) == ["first", "second"]


def test_languages_are_detected_among_those_served(nameless: Path):
    alone = Catalogue([str(TRANSLATION)])
    assert alone.detect("Bonjour à tous !") == [("de", 1.0)]
    several = Catalogue([str(TRANSLATION), f"fr-en={nameless}", f"tlh-en={nameless}"])
    for text, language in (("Bonjour à tous, comment allez-vous ?", "fr"), ("Guten Morgen, wie geht es dir?", "de")):
        found = several.detect(text)
        assert found[0][0] == language
        assert found[0][1] > 0.9
        assert found[-1] == ("tlh", 0.0)  # unknown to the detector
    assert {code for code, _ in several.detect("")} == {"de", "fr", "tlh"}
    # Into a language: those that are translated into it, or itself if the text is in it already.
    both = Catalogue([str(TRANSLATION), f"en-de={nameless}", f"fr-en={nameless}"])
    german, english = "Guten Morgen, wie geht es dir?", "Good morning, how are you today?"
    assert [code for code, _ in both.detect(german, "en")] == ["de", "fr"]
    assert [code for code, _ in both.detect(german, "de")] == ["de", "en"]
    assert [code for code, _ in both.detect(english, "de")] == ["en"]
    assert both.detect(german, "fr") == []
    assert Catalogue([str(CLASSIFIER)]).detect("Hello") == []


def test_mistakes(nameless: Path, tmp_path: Path):
    with pytest.raises(UsageError, match=r"does not name its languages. Name them: de-en="):
        Catalogue([str(nameless)])
    with pytest.raises(UsageError, match="are both de-en: serve one of them"):
        Catalogue([str(TRANSLATION), f"de-en={nameless}"])
    with pytest.raises(MacaronError, match="no such folder"):
        Catalogue([str(tmp_path / "missing")])
    damaged = unseal(Path(shutil.copytree(CLASSIFIER, tmp_path / "damaged")))
    config = json.loads((damaged / "config.json").read_text())
    (damaged / "config.json").write_text(json.dumps({**config, "hidden_size": "x"}))
    with pytest.raises(MacaronError, match=r"damaged/config\.json: hidden_size must be a whole number, not 'x'"):
        Catalogue([str(damaged)])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([TRANSLATION, "--device", "tpu"], 2, "no device 'tpu'"),
        ([TRANSLATION, "--device", "cuda", "--int8"], 2, "--int8 is for the CPU"),
        ([TRANSLATION, "--deadline", "0"], 2, "Invalid value for '--deadline'"),
        ([TRANSLATION, "--cors", "example.org"], 2, "--cors takes an origin, such as https://example.org"),
        ([TRANSLATION, "--api-keys", "missing"], 1, "missing: No such file"),
        ([TRANSLATION, "--host", "192.0.2.1"], 1, "Choose another --host"),
    ],
)
def test_mistakes_on_the_command_line(arguments: list[Any], code: int, message: str):
    done = macaron_text("serve", *arguments)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr


def test_what_answers_http_needs_no_torch():
    program = "import sys, macaron.serve.app; print({'torch', 'transformers', 'scipy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=ENVIRONMENT, check=True)
    assert done.stdout == "set()\n"
