"""``macaron compare`` and ``macaron twins`` as a user meets them."""

import io
import json
import os
import random
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from forked import macaron_text
from macaron.cli import main
from macaron.data.prepare import prepare
from macaron.recipe import data_recipe

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
RECIPE = """
[data]
out = "{data}"
[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 128
[train]
batch_tokens = 512
learning_rate = 0.01
warmup = 2
max_updates = 4
log_every = 2
device = "cpu"
[decode]
beam = 1
max_length = 10
"""


def macaron(*arguments: object) -> subprocess.CompletedProcess[str]:
    return macaron_text(*arguments)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    generator = random.Random(1)
    for name, lines in (("train", 100), ("valid", 10), ("test", 20)):
        text = "".join(" ".join(generator.choices("abcdef", k=4)) + "\n" for _ in range(lines))
        for language in ("src", "tgt"):
            (folder / f"{name}.{language}").write_text(text)
    splits: dict[str, Any] = {name: [{"path": name}] for name in ("train", "valid", "test")}
    settings = {"source_lang": "src", "target_lang": "tgt", "out": str(folder / "prepared"), "root": str(folder)}
    settings |= {"vocab_size": 280, "remove_overlap": "none", "remove_duplicates": False, **splits}
    data = prepare(data_recipe({"data": settings}), workers=1).data.folder
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(data=data))
    return path


@pytest.fixture(scope="module")
def twins(recipe: Path) -> Path:
    """A set of two, trained by the command."""
    out = recipe.parent / "set"
    done = macaron("twins", recipe, "--schemes", "transformer, macaron", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "run 2 of 2: strang-gfg, seed 1" in done.stderr
    assert done.stdout.splitlines()[-1] == f"Page: {out / 'comparison.html'}    Numbers: {out / 'comparison.json'}"
    assert done.stdout.splitlines()[0] == json.loads((out / "comparison.json").read_text())["verdict"]
    return out


def test_compare(twins: Path, tmp_path: Path):
    runs = [twins / "strang-gfg-seed1", twins / "lie-fg-seed1"]
    page, numbers = tmp_path / "page.html", tmp_path / "page.json"
    done = macaron("compare", *runs, "--out", page, "--json", numbers, "--data", twins.parent / "prepared")
    assert done.returncode == 0, done.stderr
    verdict, where = done.stdout.splitlines()
    found = json.loads(numbers.read_text())
    assert verdict == found["verdict"]
    assert where == f"Page: {page}    Numbers: {numbers}"
    assert "translations of an earlier comparison" in done.stderr
    # Who is first is what others are compared with.
    assert [kind["label"] for kind in found["kinds"]] == ["strang-gfg", "lie-fg"]
    assert "<h1>strang-gfg and lie-fg compared</h1>" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["compare", "{lie}", "--out", "{new}/page.html"], 2, "give at least two runs"),
        (["compare", "{lie}", "{strang}", "--out", "{new}/page.txt"], 2, "a page is FILE.html"),
        (["compare", "{lie}", "{strang}", "--out", "{new}/p.html", "--split", "train"], 2, "--split is valid or test"),
        (["compare", "{lie}", "{new}/nothing", "--out", "{new}/page.html"], 1, "no such folder"),
        (["compare", "{lie}", "{strang}", "--out", "{new}/p.html", "--vary", "train.rate"], 2, "no such setting"),
        (["twins", "{recipe}", "--schemes", "lie-fg,strangg", "--out", "{new}"], 1, "unknown scheme 'strangg'"),
        (["twins", "{recipe}", "--schemes", "lie-fg", "--out", "{new}"], 2, "at least two"),
        (["twins", "{recipe}", "--seeds", "0", "--out", "{new}"], 2, "'--seeds'"),
        (["twins", "{recipe}", "--budget", "0", "--out", "{new}"], 2, "'--budget'"),
        (["twins", "{new}/none.toml", "--out", "{new}"], 1, "no such recipe"),
    ],
)
def test_mistakes(
    arguments: list[str],
    code: int,
    words: str,
    twins: Path,
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    new = tmp_path / "new"
    places = {"lie": twins / "lie-fg-seed1", "strang": twins / "strang-gfg-seed1", "new": new, "recipe": recipe}
    monkeypatch.setattr(sys, "argv", ["macaron", *(argument.format(**places) for argument in arguments)])
    said = io.StringIO()
    # In this process: starting another takes longer than making the mistake.
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code, said.getvalue()
    assert words in said.getvalue()
    assert not new.exists()
