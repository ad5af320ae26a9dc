"""``macaron prepare`` through the real command."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from forked import macaron_text
from macaron.data.prepared import PreparedData

LANGUAGES = ["--source-lang", "de", "--target-lang", "en"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "macaron", "prepare", *map(str, arguments)]


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    done = macaron_text("prepare", *arguments, **options)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    for language in ("de", "en"):
        lines = [f"{language} Satz Nummer {i} {'und noch mehr ' * (i % 5)}" for i in range(2000)]
        (tmp_path / f"train.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (tmp_path / f"valid.{language}").write_text(f"{language} neu\n", encoding="utf-8")
    return tmp_path


def test_plain_files(corpus: Path) -> None:
    train, valid, out = corpus / "train", corpus / "valid", corpus / "out"
    arguments = [*LANGUAGES, "--train", train, "--valid", valid, "--test", valid, "--out", out, "--vocab-size", 400]
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    for text in ("2,000", "- bad bytes", "- duplicate", "- overlap", "kept", "train: 2,000 pairs", f"in {out}"):
        assert text in done.stdout
    assert "cleaning train: 2,000 pairs" in done.stderr
    assert len(PreparedData.open(out).pairs("train")) == 2000
    again = run(*arguments)
    assert again.returncode == 0
    assert again.stdout == f"{out} is up to date: nothing to do\n"
    assert again.stderr == ""


def test_a_recipe_with_overrides(corpus: Path) -> None:
    recipe = corpus / "my.toml"
    recipe.write_text(
        '[data]\nsource_lang = "de"\ntarget_lang = "en"\nout = "out"\nvalid_every = 10\nvocab_size = 300\n'
        '[[data.train]]\npath = "train"\n[model]\npreset = "macaron-tiny"\n[train]\nseed = 1\n'
    )
    done = run(recipe, "--set", "data.remove_duplicates=false", "--out", "elsewhere", cwd=corpus)
    assert done.returncode == 0, done.stderr
    data = PreparedData.open(corpus / "elsewhere")
    assert (len(data.pairs("train")), len(data.pairs("valid"))) == (1800, 200)
    assert "- held out" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give a recipe, or these options: --source-lang, --target-lang, --train, --out"),
        (["my.toml", "--vocab-size", "99"], 2, "--vocab-size: with a recipe, change its settings with --set"),
        ([*LANGUAGES, "--train", "train", "--out", "o", "--pipeline", "bpe"], 2, "--pipeline"),
        (["nowhere.toml"], 1, "nowhere.toml: no such recipe"),
        ([*LANGUAGES, "--train", "gone", "--out", "o"], 1, "gone.de (also tried: .gz, .xz)"),
        ([*LANGUAGES, "--train", "train", "--out", "o", "--set", "data.max_word=3"], 1, "did you mean 'max_words'"),
        ([*LANGUAGES, "--train", "train", "--out", "o", "--vocab-size", "99"], 1, "at least 260 entries"),
        ([*LANGUAGES, "--train", "train", "--out", "o", "--vocab-size", "259"], 1, "data.vocab_size: a byte-level"),
        ([*LANGUAGES, "--train", "train", "--out", "o", "--pipeline", "moses", "--set", "data.vocab_size=5"], 1, "6"),
        (
            [*LANGUAGES, "--train", "train", "--out", "o", "--set", "vocab_size=300"],
            1,
            "did you mean 'data.vocab_size'",
        ),
        (
            [*LANGUAGES, "--train", "train", "--out", "o", "--set", "dta.vocab_size=300"],
            1,
            "unknown section 'dta'; did you mean 'data'",
        ),
        ([*LANGUAGES, "--train", "/", "--out", "o"], 1, "give the prefix of both files"),
        ([*LANGUAGES, "--train", ".", "--out", "o"], 1, "give the prefix of both files"),
        ([*LANGUAGES, "--train", "train", "--out", "train.de/o"], 1, "train.de/o cannot be written: Not a directory"),
        ([*LANGUAGES, "--train", "train", "--out", "."], 1, "was not written by 'macaron prepare'"),
    ],
)
def test_mistakes(corpus: Path, arguments: list[str], code: int, message: str) -> None:
    before = sorted(path.name for path in corpus.iterdir())
    done = run(*arguments, cwd=corpus)
    assert "cleaning" not in done.stderr  # it is said at once
    assert done.returncode == code, done.stderr
    assert message in done.stderr.replace("\n", " ")
    assert sorted(path.name for path in corpus.iterdir()) == before


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "\n" * 7,
            "of 7 pairs everything was dropped (7 too short). Look at the files, or loosen the rules in [data].",
        ),
        ("de neu\n", "of 1 pairs everything was dropped (1 overlap)"),
        ("", "{0}/few.de and {0}/few.en: empty. Give files with text, or leave them out."),
    ],
)
def test_nothing_left_to_train_on(corpus: Path, lines: str, message: str) -> None:
    for language in ("de", "en"):
        (corpus / f"few.{language}").write_text(lines, encoding="utf-8")
    before = sorted(path.name for path in corpus.iterdir())
    done = run(*LANGUAGES, "--train", corpus / "few", "--valid", corpus / "valid", "--out", corpus / "out")
    assert done.returncode == 1
    assert message.format(corpus) in done.stderr
    assert sorted(path.name for path in corpus.iterdir()) == before


def test_a_full_disk(corpus: Path) -> None:
    done = run(*LANGUAGES, "--train", corpus / "train", "--out", corpus / "out", limit=("RLIMIT_FSIZE", 20_000))
    assert done.returncode == 1
    assert f"{corpus / 'out'} cannot be written: File too large. Free some space." in done.stderr
    assert sorted(path.name for path in corpus.iterdir()) == ["train.de", "train.en", "valid.de", "valid.en"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_stopped_in_the_middle(corpus: Path, stop: signal.Signals) -> None:
    big = corpus / "big"
    for language in ("de", "en"):
        lines = [f"{language} Satz Nummer {i} und noch einer" for i in range(100_000)]
        big.with_name(f"big.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    arguments = [*LANGUAGES, "--train", big, "--out", corpus / "out", "--workers", 2, "--vocab-size", 500]
    process = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 60
    partial = corpus / ".out.partial"
    while not (partial / "work" / "cleaned-train" / "hashes").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    os.kill(process.pid, stop) if stop == signal.SIGKILL else os.killpg(process.pid, stop)
    _, errors = process.communicate(timeout=60)
    if stop == signal.SIGINT:
        assert process.returncode == 130
        assert "stopped by Ctrl-C" in errors
        assert not partial.exists()
    assert "Traceback" not in errors
    assert not (corpus / "out").exists()
    # The workers go, too, even if nobody told them to.
    while _group_lives(process.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _group_lives(process.pid)

    small = [*LANGUAGES, "--train", corpus / "train", "--out", corpus / "out", "--vocab-size", 400]
    assert run(*small).returncode == 0
    assert not partial.exists()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
