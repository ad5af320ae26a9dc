"""What a command imports: no transformers to translate, no torch to refuse a recipe."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from macaron.models import EncoderForSequenceClassification, TranslationModel, preset
from macaron.text import MacaronTokenizer

LINES = ["The cat sits on the mat.", "A dog, a cat and a mouse."] * 5
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}
#: Takes seconds to import, or drags such packages in.
HEAVY = (
    "transformers",
    "huggingface_hub",
    "torch._dynamo",
    "torch._inductor",
    "sympy",
    "scipy",
    "matplotlib",
    "pandas",
)
PROGRAM = """
import json, sys
from macaron.cli import main
sys.argv[0] = "macaron"
try:
    main()
except SystemExit as end:
    code = end.code
print(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""


def imported(*arguments: object) -> tuple[int, set[str], str]:
    """The exit code of a command, the modules that it has imported, and its messages."""
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    last = json.loads(done.stdout.splitlines()[-1])
    return last["code"] or 0, set(last["modules"]), done.stderr


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A translation model, a classifier and a line of text."""
    path = tmp_path_factory.mktemp("folders")
    torch.manual_seed(0)
    for kind, model_class, name in (
        ("translation", TranslationModel, "macaron-tiny"),
        ("encoder", EncoderForSequenceClassification, "macaron-bert-tiny"),
    ):
        tokenizer = MacaronTokenizer.train(LINES, 280, kind=kind)
        model = model_class(preset(name, vocab_size=len(tokenizer), **SMALL))
        model.save_pretrained(path / kind)
        tokenizer.save_pretrained(path / kind)
    (path / "text").write_text("The cat\n", encoding="utf-8")
    return path


def test_translating_imports_no_transformers(folders: Path):
    code, modules, text = imported("translate", folders / "translation", "--input", folders / "text")
    assert code == 0, text
    assert "torch" in modules
    assert not modules & {*HEAVY, "sacrebleu", "sacremoses"}


@pytest.mark.parametrize("verb", ["predict", "embed"])
def test_predicting_imports_no_transformers(verb: str, folders: Path):
    code, modules, text = imported(verb, folders / "encoder", "--input", folders / "text")
    assert code == 0, text
    assert not modules & {*HEAVY, "sacrebleu", "sacremoses"}


def test_scoring_imports_no_transformers(folders: Path):
    line = folders / "text"
    code, modules, text = imported("score", folders / "translation", "--source", line, "--target", line)
    assert code == 0, text
    assert not modules & {*HEAVY, "sacrebleu", "sacremoses"}


def test_evaluating_imports_no_transformers(folders: Path):
    line = folders / "text"
    code, modules, text = imported("evaluate", folders / "translation", "--source", line, "--reference", line)
    assert code == 0, text
    assert not modules & set(HEAVY)


def test_a_recipe_with_an_unknown_key_is_refused_without_torch(tmp_path: Path):
    for section, key in (("model", "dropot"), ("train", "learning_rat")):
        (tmp_path / "recipe.toml").write_text(f'[data]\nout = "data"\n[{section}]\n{key} = 0.1\n', encoding="utf-8")
        code, modules, text = imported("train", tmp_path / "recipe.toml", "--out", tmp_path / "run")
        assert code == 1
        assert f"unknown key '{section}.{key}'" in text
        assert "torch" not in modules


@pytest.mark.parametrize("arguments", [("--help",), ("train", "--help"), ("recipe", "list"), ("-V",)], ids=" ".join)
def test_help_is_light(arguments: tuple[str, ...]):
    code, modules, text = imported(*arguments)
    assert code == 0, text
    assert not modules & {*HEAVY, "torch", "numpy", "tokenizers", "sacrebleu", "sacremoses"}
