"""``macaron prepare`` for plain text, through the real command."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from forked import macaron_text
from macaron.data.prepared import PreparedText


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "macaron", "prepare", *map(str, arguments)]


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    done = macaron_text("prepare", *arguments, **options)
    assert "Traceback" not in done.stderr
    return done


def documents(count: int) -> str:
    return "".join(
        f"Document {i} begins here. It has two sentences.\nThis is its end, {i * 7}.\n\n" for i in range(count)
    )


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(documents(400))
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(documents(100).encode() + b"Bad \xff line.\n"))
    return tmp_path


def test_plain_files(text: Path) -> None:
    out = text / "out"
    arguments = ["--text", text / "a.txt", "--text", text / "b.txt.gz", "--out", out, "--vocab-size", 400]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    cells = [re.split(r" {2,}", line.strip()) for line in done.stdout.splitlines()]
    rows = {found[0]: found[1] for found in cells if len(found) > 1}
    assert rows["paragraphs"] == "1,001"
    assert rows["- bad bytes"] == "1"
    assert rows["- too long"] == "0"
    assert rows["sentences"] == "1,500"
    assert rows["documents"] == "500"
    assert "train: 498 documents, 1,494 sentences, " in done.stdout
    assert "valid: 2 documents, 6 sentences, " in done.stdout
    assert f"prepared in {out}" in done.stdout
    assert "splitting into sentences: 1,500 sentences" in done.stderr
    assert len(PreparedText.open(out).documents("train")) == 499
    again = run(*arguments)
    assert (again.returncode, again.stdout, again.stderr) == (0, f"{out} is up to date: nothing to do\n", "")


def test_a_recipe_with_overrides(text: Path) -> None:
    (text / "my.toml").write_text(
        '[data]\nkind = "text"\nout = "out"\nvocab_size = 300\npipeline = "moses"\n[[data.train]]\npath = "*.txt"\n'
        '[model]\npreset = "bert-tiny"\n[train]\nseed = 1\n'
    )
    done = run("my.toml", "--set", "data.valid_every=10", "--out", "elsewhere", cwd=text)
    assert done.returncode == 0, done.stderr
    data = PreparedText.open(text / "elsewhere")
    assert data.manifest["splits"]["valid"]["documents"] == 40
    assert "(moses)" in done.stdout
    for_translation = run("my.toml", "--set", "data.source_lang=de", cwd=text)
    assert for_translation.returncode == 1
    assert "--set data.source_lang=de: unknown key 'data.source_lang'" in for_translation.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--text", "a.txt"], 2, "--text needs --out"),
        (["--text", "a.txt", "--train", "x", "--out", "o"], 2, "--train: for pairs to translate, not for --text"),
        (["my.toml", "--text", "a.txt"], 2, "--text: with a recipe, change its settings with --set"),
        (["--text", "a.txt", "b.txt", "--out", "o"], 2, "b.txt: --text takes one file. Repeat it, or quote a pattern"),
        (["--text", "gone.txt", "--text", "no*", "--out", "o"], 1, "these files are missing:   gone.txt   no*"),
        (["--text", ".", "--out", "o"], 1, "these files are missing:   ."),
        (["--text", "a.txt", "--out", "o", "--vocab-size", "99"], 1, "data.vocab_size: a byte-level"),
        (["--text", "a.txt", "--out", "o", "--state", "moses"], 1, "but a.txt has state 'moses'"),
        (["--text", "a.txt", "--out", "."], 1, "was not written by 'macaron prepare'"),
        (["--text", "empty.txt", "--out", "o"], 1, "empty.txt: empty. Give files with text"),
        (["--text", "one.txt", "--out", "o"], 1, "one.txt: only one document."),
        (["--text", "cut.txt.gz", "--out", "o"], 1, "cut.txt.gz: cannot be decompressed"),
    ],
)
def test_mistakes(text: Path, arguments: list[str], code: int, message: str) -> None:
    (text / "empty.txt").write_text("\n\n")
    (text / "one.txt").write_text("One. Two.\nThree.\n")
    (text / "cut.txt.gz").write_bytes((text / "b.txt.gz").read_bytes()[:-30])
    before = sorted(path.name for path in text.iterdir())
    done = run(*arguments, cwd=text)
    assert done.returncode == code, done.stderr
    assert message in done.stderr.replace("\n", " ")
    assert sorted(path.name for path in text.iterdir()) == before


def test_a_full_disk(text: Path) -> None:
    done = run("--text", text / "a.txt", "--out", text / "out", limit=("RLIMIT_FSIZE", 20_000))
    assert done.returncode == 1
    assert f"{text / 'out'} cannot be written: File too large. Free some space." in done.stderr
    assert sorted(path.name for path in text.iterdir()) == ["a.txt", "b.txt.gz"]


def test_stopped_in_the_middle(text: Path) -> None:
    (text / "big.txt").write_text(documents(60_000))
    process = subprocess.Popen(
        command("--text", text / "big.txt", "--out", text / "out", "--workers", 2, "--pipeline", "moses"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    partial = text / ".out.partial"
    while not (partial / "work" / "cleaned-train" / "0").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped by Ctrl-C" in errors
    assert "Traceback" not in errors
    assert not partial.exists()
    assert not (text / "out").exists()


def test_documents_begin_at_headings(tmp_path: Path, macaron) -> None:
    """WikiText has blank lines between paragraphs, and headings at the start of articles."""
    parts = (" \n = Title {} = \n \n", " First words . \n \n", " = = Part = = \n \n Last words . \n")
    articles = "".join(parts).format("A") * 6
    (tmp_path / "wiki.train.tokens").write_text(articles)
    recipe = tmp_path / "wiki.toml"
    recipe.write_text(
        f'[data]\nkind = "text"\nout = "{tmp_path / "data"}"\nroot = "{tmp_path}"\ndocuments = "headings"\n'
        'vocab_size = 300\n[[data.train]]\npath = "wiki.train.*"\n'
    )
    done = macaron("prepare", recipe)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((tmp_path / "data" / "prepared.json").read_text())
    assert sum(split["documents"] for split in manifest["splits"].values()) == 6
    assert "up to date" in (again := macaron("prepare", recipe)).stdout + again.stderr
