"""A mistake that needs no torch is reported before torch is imported, by every verb."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from macaron.cli import app

REPOSITORY = Path(__file__).parents[2]
FIXTURES = REPOSITORY / "tests" / "compatibility" / "fixtures"
#: One process that has imported the command, and forks each call from it.
PROGRAM = """
import contextlib, io, json, os, sys, tempfile
import macaron.data.glue, macaron.data.prepare, macaron.lab.page, macaron.models.load, macaron.recipe
import typer.rich_utils
from macaron import cli
sys.argv = ["macaron", "recipe", "show", "GONE"]  # typer imports the rest when it is first called
with contextlib.suppress(SystemExit), contextlib.redirect_stderr(io.StringIO()):
    cli.main()
assert "torch" not in sys.modules
for line in sys.stdin:
    asked = json.loads(line)
    with tempfile.TemporaryFile("w+") as errors:
        pid = os.fork()
        if not pid:
            os.dup2(errors.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            sys.argv = ["macaron", *asked]
            try:
                cli.main()
                code = 0
            except SystemExit as end:
                code = end.code or 0
            sys.stderr.flush()
            os._exit(100 + code if "torch" in sys.modules else code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        errors.seek(0)
        print(json.dumps([code, errors.read()]), flush=True)
"""
#: Each verb with its mistakes, and a part of the message. GONE is missing, FULL a folder that is in use.
MISTAKES = {
    "export": [
        ("onnx GONE --out NEW", "no such folder"),
        ("onnx translation --out FULL", "FULL is not empty: choose another --out"),
        ("onnx translation --out NEW --quantization int8", "--quantization is for ctranslate2: leave it out"),
        ("ctranslate2 classifier --out NEW", "cannot translate"),
    ],
    "prepare": [
        ("pairs.toml --set data.root=GONE --out NEW", "these files are missing"),
        ("GONE", "no such recipe"),
        ("--source-lang de --target-lang en --train GONE --out NEW", "these files are missing"),
        ("pairs.toml --out FULL", "was not written by 'macaron prepare'"),
        ("--text GONE --out NEW", "missing"),
        ("pairs.toml --set data.vocab_size=1000000000", "data.vocab_size must be at most 1,000,000"),
        ("pairs.toml --set data.vocab_multiple=1000000000", "data.vocab_multiple must be at most 65,536"),
    ],
    "train": [
        ("pairs.toml --set data.out=GONE --out NEW", "--set data.out=GONE: data.out: GONE/prepared.json: no such file"),
        ("pairs.toml --out FULL", "FULL is not empty: continue with --resume"),
        ("pairs.toml --out pairs.toml", "pairs.toml is a file"),
        ("GONE --out NEW", "no such recipe"),
        ("pairs.toml --out NEW --set train.seed=x", "train.seed must be a whole number"),
        ("pairs.toml --out NEW --set model.encoder_layers=100000", "encoder_layers must be at most 1,000"),
        ("pairs.toml --out NEW --set decode.beam=100000", "decode.beam must be at most 1,024"),
        ("pairs.toml --out NEW --set train.row_tokens=1000000000", "train.row_tokens must be at most 100,000"),
        (
            "pairs.toml --out NEW --set train.max_minutes=5 --minutes 0",
            "--minutes 0: train.max_minutes must be above 0",
        ),
        ("pairs.toml --out NEW --set data.out=text", "text holds data for pre-training, but the recipe"),
        ("pairs.toml --out NEW --from GONE", "--from GONE: GONE: no such folder"),
        ("pairs.toml --out NEW --from classifier", "--from classifier: classifier: a model of type"),
    ],
    "twins": [
        ("pairs.toml --set data.out=GONE --out NEW", "prepared.json: no such file"),
        ("pairs.toml --out NEW --schemes lie-fg,strang-gfgg", "strang-gfg"),
        ("pairs.toml --out pairs.toml", "pairs.toml is a file"),
    ],
    "translate": [
        ("GONE", "GONE: no such folder. Give a model folder"),
        ("corpus", "not a model folder"),
        ("classifier", "cannot translate"),
        ("translation --input GONE", "GONE: No such file"),
        ("translation --input corpus", "corpus: Is a directory"),
        ("translation --output corpus", "corpus is a folder"),
        ("translation --output GONE/text.en", "GONE/text.en: there is no folder GONE"),
        ("translation --device gpu", "no device 'gpu'"),
        ("translation --dtype float8", "float8"),
        ("translation --length-penalty nan", "length_penalty must be at least -1,000, not nan"),
        ("translation --top-k 3", "--top-k is for --sample"),
        ("translation --beam 100000", "1024"),
        ("translation --max-length 1000000000", "Invalid value for '--max-length'"),
    ],
    "generate": [
        ("GONE", "GONE: no such folder"),
        ("translation", "is not a language model"),
        ("translation --nbest 2", "--nbest is for --sample"),
        ("translation --device gpu", "no device 'gpu'"),
    ],
    "verify": [("GONE", "GONE: no such folder"), ("corpus", "no model, checkpoint or prepared data")],
    "evaluate": [
        ("GONE --data pairs", "GONE: no such folder"),
        ("translation --data GONE", "prepared.json: no such file"),
        ("translation --data pairs --split train", "--split is valid or test"),
        ("translation --source GONE --reference corpus/test.en", "GONE: No such file"),
        ("translation --source corpus/test.de --reference GONE", "GONE: No such file"),
        ("translation --data pairs --output corpus", "corpus is a folder"),
        ("translation --data pairs --device gpu", "no device 'gpu'"),
    ],
    "glue": [
        ("GONE --data corpus --out NEW", "GONE: no such folder"),
        ("classifier --data GONE --out NEW", "GONE: no such folder"),
        ("classifier --data corpus --out FULL", "FULL is not empty"),
        ("classifier --data corpus --out NEW --tasks colla", "no GLUE task 'colla'"),
        ("classifier --data corpus --out NEW --batch-size x", "--batch-size takes a number"),
        ("--check GONE", "GONE"),
    ],
    "finetune": [
        ("GONE --train train.csv --dev train.csv --out NEW", "GONE: no such folder"),
        ("translation --train train.csv --dev train.csv --out NEW", "is not a text encoder"),
        ("classifier --train GONE --dev train.csv --out NEW", "GONE: No such file"),
        ("classifier --train train.csv --dev train.csv --out FULL", "FULL is not empty: give another --out"),
        ("classifier --train train.csv --dev GONE --out NEW", "GONE: No such file"),
        ("classifier --train train.csv --dev train.csv --out NEW --text review", "no column 'review' in the header"),
        (
            "classifier --train train.csv --dev train.csv --out NEW --learning-rate -1",
            "--learning-rate must be above 0",
        ),
    ],
    "predict": [
        ("GONE", "GONE: no such folder"),
        ("translation", "is not a text encoder"),
        ("classifier --input GONE", "GONE: No such file"),
        ("classifier --device gpu", "no device 'gpu'"),
    ],
    "embed": [
        ("GONE", "GONE: no such folder"),
        ("translation", "is not a text encoder"),
        ("classifier --input GONE", "GONE: No such file"),
    ],
    "serve": [
        ("GONE", "GONE: no such folder"),
        ("translation --api-keys GONE", "GONE: No such file"),
        ("translation --device tpu", "no device 'tpu'"),
        ("translation --deadline 0", "greater than or equal to 0.1"),
        ("translation --cors example.org", "--cors takes an origin"),
    ],
    "score": [
        ("GONE --source corpus/test.de --target corpus/test.en", "GONE: no such folder"),
        ("translation --source GONE --target corpus/test.en", "GONE: No such file"),
        ("translation --source corpus/test.de --target GONE", "GONE: No such file"),
    ],
    "report": [("GONE", "GONE: no such folder. Give the folder of a run")],
    "particles": [
        ("GONE Hallo --out NEW.html", "GONE: no such folder"),
        ("translation Hallo --model2 GONE --out NEW.html", "GONE: no such folder"),
        ("translation Hallo --out NEW.doc", "NEW.doc"),
    ],
    "compare": [
        ("GONE GONE --out NEW.html", "GONE: no such folder. Give the folder of a run"),
        ("stopped-pairs stopped-pairs --data GONE --out NEW.html", "prepared.json: no such file"),
        ("stopped-pairs stopped-pairs --out NEW.doc", "a page is FILE.html"),
        ("stopped-pairs stopped-pairs --out NEW.html --split train", "--split is valid or test"),
    ],
    "convert": [
        ("fairseq GONE --dict corpus/test.de --out NEW", "GONE: No such file"),
        ("fairseq corpus/test.de --dict GONE --out NEW", "GONE: No such file"),
        ("fairseq corpus/test.de --dict corpus/test.de --out FULL", "FULL is not empty"),
    ],
    "recipe": [("show GONE", "no recipe 'GONE'"), ("copy demo pairs.toml", "pairs.toml exists")],
    "demo": [("--recipe GONE", "no such recipe")],
    "ode": [("show strang-gfgg", "strang-gfg")],
    "models": [("--vocab-size 3", "vocab-size")],
    "doctor": [("--fast", "No such option")],
}
CASES = [(verb, *case) for verb, cases in MISTAKES.items() for case in cases]
#: Verbs that need nothing that a folder lacks, and would do their work here.
_ALONE = {"ode", "models", "recipe", "doctor", "demo"}


def commands_of(page: Path) -> Iterator[list[str]]:
    """The commands in the blocks of a page that need files, as lists of arguments; without redirections and pipes."""
    for block in re.findall(r"^```\w*\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^macaron +(.*)$", block, flags=re.MULTILINE):
            arguments = shlex.split(line, comments=True)
            end = next((index for index, each in enumerate(arguments) if each in ("<", ">", "|")), None)
            if arguments[0] not in _ALONE:
                yield arguments[:end]


PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
DOCUMENTED = [command for page in PAGES for command in commands_of(page)]


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[int, str]]:
    """What each call answers: its exit code (above 99 if it imported torch) and its messages."""
    folder = tmp_path_factory.mktemp("early")
    for path in FIXTURES.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / "FULL").mkdir()
    (folder / "FULL" / "results.json").write_text("{}")
    (folder / "train.csv").write_text("text,label\ngood,1\nbad,0\n")
    asked = [*([verb, *arguments.split()] for verb, arguments, _ in CASES), *DOCUMENTED]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "TERM": "dumb", "COLUMNS": "200"}
    command = [sys.executable, "-c", PROGRAM]
    lines = "".join(f"{json.dumps(arguments)}\n" for arguments in asked)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    made = {path.name for path in folder.iterdir()} - {path.name for path in FIXTURES.iterdir()}
    assert made == {"FULL", "train.csv"}, "something was written"
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(CASES)), ids=[f"{verb} {arguments}" for verb, arguments, _ in CASES])
def test_a_mistake_is_reported_without_torch(number: int, answers: list[tuple[int, str]]):
    code, message = answers[number]
    assert CASES[number][2] in message
    assert "Traceback" not in message
    assert code in (1, 2), "torch was imported" if code > 99 else message


def test_documented_commands_lack_nothing_but_their_files(answers: list[tuple[int, str]]):
    assert len(DOCUMENTED) > 25
    for command, (code, message) in zip(DOCUMENTED, answers[len(CASES) :], strict=True):
        assert code == 1, f"macaron {shlex.join(command)}: {message}"


def test_every_verb_is_here():
    groups = {group.name for group in app.registered_groups}
    verbs = {command.callback.__name__ for command in app.registered_commands if command.callback is not None}
    assert groups | verbs == set(MISTAKES)
