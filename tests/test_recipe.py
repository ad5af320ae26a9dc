"""One parser for every verb: mistakes in any section are named with their line, missing keys only where they count."""

import subprocess
import sys
from pathlib import Path

import pytest

from macaron.data.settings import TextSettings
from macaron.errors import MacaronError
from macaron.recipe import configuration, data_recipe, load_data_recipe, load_recipe, recipe_from
from macaron.settings import load_toml, write_toml

WHOLE = """\
[data]
source_lang = "de"
target_lang = "en"
out = "prepared"

[[data.train]]
path = "train"

[model]
preset = "macaron-tiny"
dropout = 0.1

[train]
max_updates = 10

[decode]
beam = 2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "r.toml"
    path.write_text(WHOLE)
    return path


@pytest.mark.parametrize(
    ("right", "wrong", "line", "message"),
    [
        ("target_lang", "traget_lang", 3, "unknown key 'data.traget_lang'; did you mean 'target_lang'"),
        ('path = "train"', 'paht = "train"', 7, r"unknown key 'data.train\[0\].paht'; did you mean 'path'"),
        ('"macaron-tiny"', '"macaron-tny"', 10, "no preset 'macaron-tny' for model.preset; did you mean"),
        ("dropout", "dropuot", 11, "unknown key 'model.dropuot'; did you mean 'dropout'"),
        ("[train]", "[trian]", 13, "unknown section 'trian'; did you mean 'train'"),
        ("max_updates", "max_update", 14, "unknown key 'train.max_update'; did you mean 'max_updates'"),
        ("dropout = 0.1", 'dropout = "x"', 11, "model.dropout must be a number, not 'x'"),
        ("dropout = 0.1", "hidden_size = 0", 11, r"\[model\]: .*hidden_size"),
        ("dropout = 0.1", 'scheme = "strang-gfh"', 11, r"\[model\]: .*strang-gfh"),
        ("max_updates = 10", 'max_updates = "x"', 14, "train.max_updates must be a whole number, not 'x'"),
        ("beam", "beams", 17, "unknown key 'decode.beams'; did you mean 'beam'"),
        ("[decode]\nbeam = 2", "[pretrain]", 16, r"\[pretrain\] is for pre-training; this recipe is for translation"),
    ],
)
def test_every_verb_refuses_every_section(recipe: Path, right: str, wrong: str, line: int, message: str) -> None:
    recipe.write_text(WHOLE.replace(right, wrong))
    for load in (load_recipe, load_data_recipe):
        with pytest.raises(MacaronError, match=rf"r\.toml, line {line}: {message}"):
            load(recipe)


def test_missing_keys_are_refused_where_they_are_needed(recipe: Path) -> None:
    recipe.write_text(WHOLE.replace("max_updates = 10", ""))
    assert load_data_recipe(recipe).out == Path("prepared")
    with pytest.raises(MacaronError, match=r"r\.toml: the run needs a limit: set train.max_updates"):
        load_recipe(recipe)
    recipe.write_text(WHOLE.replace('target_lang = "en"', ""))
    assert load_recipe(recipe).data == Path("prepared")
    with pytest.raises(MacaronError, match=r"r\.toml: missing key 'data.target_lang'"):
        load_data_recipe(recipe)
    recipe.write_text(WHOLE.replace('out = "prepared"', ""))
    with pytest.raises(MacaronError, match=r"r\.toml: missing key 'data.out', the folder that macaron prepare writes"):
        load_recipe(recipe)
    assert load_data_recipe(recipe, out=Path("other")).out == Path("other")


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    for load in (load_recipe, load_data_recipe):
        with pytest.raises(MacaronError, match=r"gone\.toml: no such recipe"):
            load(tmp_path / "gone.toml")


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
        ("train.betas=[0.9]", "train.betas must be two numbers"),
        ("train.seed=-1", "train.seed must be from 0"),
        ("train.max_minutes=0", "train.max_minutes must be above 0"),
        ("train.learning_rate=nan", "train.learning_rate must be above 0"),
        ("train.learning_rate=1e300", "train.learning_rate must be above 0 and at most 1e30"),
        ("train.ema=1.0", "train.ema must be at least 0 and below 1"),
        ("decode.beam=0", "decode.beam"),
        ("data.out=3", "data.out must be a path, not 3"),
        (f"data.out=a/{'b' * 256}", "a name in data.out must be at most 255, not 256"),
        ("data.vocab_size=1000000000", "data.vocab_size must be at most 1,000,000, not 1000000000"),
        ("data.vocab_multiple=1000000000", "data.vocab_multiple must be at most 65,536"),
        ("data.max_ratio=nan", "data.max_ratio must be at least 0, not nan"),
        ("data.train=[{path='a',weight=1e308}]", "weight must be above 0 and at most 1000, not 1e\\+308"),
        ("data.train=[{path='a',weight=nan}]", "weight must be above 0 and at most 1000, not nan"),
        ("data.train=[{path='a',weight=-1}]", "weight must be above 0 and at most 1000, not -1"),
        ("data.train=[{path='a',tag='law'}]", "write a tag as a word in angle brackets"),
        ("vocab_size=300", "unknown section 'vocab_size'; did you mean 'data.vocab_size'"),
    ],
)
def test_mistakes(recipe: Path, assignment: str, message: str):
    with pytest.raises(MacaronError, match=message) as caught:
        load_recipe(recipe, [assignment])
    assert str(caught.value).startswith(f"--set {assignment}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 30, "num_attention_heads": 4}, "not a multiple of num_attention_heads"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"vocab_size": 10}, "less than the data's 100"),
        ({"scheme": "strang-gfh"}, "strang-gfh"),
        ({"preset": "bert-tiny"}, "is for pre-training, which needs data of kind 'text'"),
    ],
)
def test_models_that_cannot_be(changes: dict[str, object], message: str):
    data = {
        "data": {"kind": "pairs", "out": "x"},
        "model": {"preset": "macaron-tiny", **changes},
        "train": {"max_updates": 1},
    }
    with pytest.raises(MacaronError, match=message):
        configuration(recipe_from(data, "r.toml"), 100)


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
        ({"pretrain": {"max_tokens": 500}}, "pretrain.max_tokens must be at least 8"),
        ({"pretrain": {"pairs": "words"}}, "pairs must be one of 'spans', 'sentences'"),
    ],
)
def test_mistakes_in_a_recipe_for_pretraining(section: dict[str, object], message: str):
    data = {"data": {"out": "x"}, "model": {"preset": "bert-tiny"}, "train": {"max_updates": 1}, **section}
    with pytest.raises(MacaronError, match=message):
        recipe_from(data, "r.toml")
    with pytest.raises(MacaronError, match=r"\[pretrain\] is for pre-training; this recipe is for translation"):
        recipe_from({**data, "model": {"preset": "macaron-tiny"}, "pretrain": {}}, "r.toml")


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
    assert recipe_from(*load_toml(tmp_path / "recipe.toml")) == recipe


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
        ({"source_lang": "../de"}, "not a language code"),
        ({"valid": [{"path": "b"}], "valid_every": 5}, "not both"),
        ({"valid_every": 1}, "at least 2"),
        ({"min_words": 9, "max_words": 3}, "min_words <= max_words"),
        ({"max_ratio": -1.0}, "data.max_ratio must be at least 0, not -1.0"),
        ({"pipeline": "moses", "valid": [{"path": "b"}, {"path": "c", "state": "moses"}]}, "different state"),
        ({"train": [{"path": "a", "archive": "z", "source": "s", "target": "t"}]}, "no archive 'z'"),
        ({"train": [{"path": "a", "archive": "z"}]}, "which files of archive 'z'"),
        ({"train": [{"path": "a", "url": "http://x/y"}]}, "must contain {lang}"),
        ({"archives": [{"name": "z", "urls": []}]}, "at least one url"),
        ({"archives": [{"name": "z", "urls": ["u"], "checksum": "abc"}]}, "write a checksum as"),
        ({"train": [{"path": "a", "checksums": {"fr": "md5:" + "0" * 32}}]}, "not a language here"),
    ],
)
def test_mistakes_in_data_of_pairs(changes: dict[str, object], message: str) -> None:
    assert data_recipe({"data": LEAST}).train[0].path == "a"
    with pytest.raises(MacaronError, match=message) as caught:
        data_recipe({"data": {**LEAST, **changes}}, "my.toml")
    assert str(caught.value).startswith("my.toml: ")


LEAST_TEXT = {"kind": "text", "out": "o", "train": [{"path": "a"}]}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "txt"}, "my.toml: data.kind must be one of 'pairs', 'text', not 'txt'"),
        ({"kind": 3}, "data.kind must be one of"),
        ({"source_lang": "de"}, "unknown key 'data.source_lang'"),
        ({"max_word": 3}, "unknown key 'data.max_word'; did you mean 'max_words'"),
        ({"train": []}, "data.train is empty"),
        ({"train": [{"path": ""}]}, "a text needs a path"),
        ({"train": [{"path": "a", "state": "tokenised"}]}, "state must be one of 'raw', 'moses'"),
        ({"train": [{"path": "a", "state": "moses"}]}, "the raw pipeline takes plain text, but a has state 'moses'"),
        ({"valid_every": 1}, "data.valid_every must be at least 2"),
        ({"max_words": 0}, "data.max_words must be at least 1, not 0"),
        ({"vocab_multiple": 0}, "data.vocab_multiple"),
        ({"vocab_size": 261}, "data.vocab_size: a byte-level vocabulary needs at least 262 entries"),
        ({"pipeline": "moses", "vocab_size": 7}, "data.vocab_size: a vocabulary needs at least 8 entries"),
        ({"lang": "e n"}, "data.lang = 'e n' is not a language code"),
        ({"wikipedia": [{"path": "w.txt.xz", "urls": ["http://x/y"]}]}, "written plain or as .gz"),
        ({"wikipedia": [{"path": "w.txt", "urls": []}]}, "'w.txt' needs at least one url"),
        ({"fetch": [{"path": "w.txt", "urls": ["u"], "checksum": "1"}]}, "w.txt: write a checksum as 'sha256:'"),
        ({"fetch": [{"path": "w", "urls": ["u"]}] * 2}, "two files have the same path"),
    ],
)
def test_mistakes_in_data_of_documents(changes: dict[str, object], message: str) -> None:
    assert isinstance(data_recipe({"data": LEAST_TEXT}), TextSettings)
    with pytest.raises(MacaronError, match=message) as caught:
        data_recipe({"data": {**LEAST_TEXT, **changes}}, "my.toml")
    assert str(caught.value).startswith("my.toml: ")


def test_a_recipe_needs_data() -> None:
    with pytest.raises(MacaronError, match=r"no \[data\] section"):
        data_recipe({"train": {}})


def test_a_recipe_is_read_without_torch(recipe: Path) -> None:
    recipe.write_text(WHOLE.replace("dropout", "dropuot"))
    code = (
        "import sys; from pathlib import Path; from macaron.errors import MacaronError; from macaron.recipe import *\n"
        "try:\n    load_recipe(Path(sys.argv[1]))\nexcept MacaronError as error:\n    print(error)\n"
        "print({'torch', 'transformers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, recipe], capture_output=True, text=True, check=True)
    message, heavy = done.stdout.splitlines()
    assert "line 11: unknown key 'model.dropuot'" in message
    assert heavy == "set()"
