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
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["macaron", *arguments]
    try:
        main()
    except SystemExit as end:
        code = end.code
    print(json.dumps({"code": code or 0, "modules": sorted(sys.modules)}))
"""


def imported(*commands: list[object], code: int = 0) -> tuple[list[set[str]], str]:
    """The modules that there are after each of some commands, given to one process in turn, and their messages."""
    asked = json.dumps([[str(word) for word in command] for command in commands])
    done = subprocess.run([sys.executable, "-c", PROGRAM, asked], capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"code":')]
    assert [each["code"] for each in found] == [code] * len(commands), done.stderr
    return [set(each["modules"]) for each in found], done.stderr


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


def test_commands_import_no_transformers(folders: Path):
    line, translation, encoder = folders / "text", folders / "translation", folders / "encoder"
    commands: list[list[object]] = [
        ["translate", translation, "--input", line],
        ["score", translation, "--source", line, "--target", line],
        ["predict", encoder, "--input", line],
        ["embed", encoder, "--input", line],
        ["evaluate", translation, "--source", line, "--reference", line],
    ]
    for command, modules in zip(commands, imported(*commands)[0], strict=True):
        assert "torch" in modules
        scores = set() if command[0] == "evaluate" else {"sacrebleu", "sacremoses"}
        assert not modules & {*HEAVY, *scores}, command


def test_a_recipe_with_an_unknown_key_is_refused_without_torch(tmp_path: Path):
    for section, key in (("model", "dropot"), ("train", "learning_rat")):
        (tmp_path / "recipe.toml").write_text(f'[data]\nout = "data"\n[{section}]\n{key} = 0.1\n', encoding="utf-8")
        [modules], text = imported(["train", tmp_path / "recipe.toml", "--out", tmp_path / "run"], code=1)
        assert f"unknown key '{section}.{key}'" in text
        assert "torch" not in modules


def test_help_is_light():
    commands: list[list[object]] = [["-V"], ["recipe", "list"], ["--help"], ["train", "--help"]]
    for command, modules in zip(commands, imported(*commands)[0], strict=True):
        assert not modules & {*HEAVY, "torch", "numpy", "tokenizers", "sacrebleu", "sacremoses"}, command
