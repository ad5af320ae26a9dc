"""What is the same for all verbs: output that cannot be written, and how threads wait."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from macaron import __version__ as version
from macaron import cli


@pytest.mark.parametrize("arguments", [["recipe", "list"], ["ode", "list"], ["--version"]], ids=" ".join)
@pytest.mark.parametrize(
    ("place", "reason"),
    [("&-", "Bad file descriptor"), ("/dev/full", "No space left on device")],
    ids=["closed", "full"],
)
def test_standard_output_that_is_closed_or_full(arguments: list[str], place: str, reason: str):
    command = ["sh", "-c", f'"$@" >{place}', "sh", sys.executable, "-m", "macaron", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"macaron: cannot write the output: {reason}\n"


@pytest.mark.parametrize(
    ("verb", "load", "spins"),
    [("translate", 0.1, "10000"), ("train", 0.1, "10000"), ("train", 0.9, None), ("serve", 0.9, "1000")],
    ids=["translate", "train", "beside another program", "serve"],
)
def test_threads_spin_where_nobody_else_computes(
    verb: str, load: float, spins: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: f"{load} 0 0 {2 if load > 0.5 else 1}/100 1")
    monkeypatch.setattr(sys, "argv", ["macaron", verb, "--help"])
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "1")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    with pytest.raises(SystemExit):
        cli.main()
    assert verb in capsys.readouterr().out
    found = {name: os.environ.get(name) for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    assert found == {"OMP_WAIT_POLICY": None if spins else "PASSIVE", "GOMP_SPINCOUNT": spins}


def test_short_version(macaron: Callable[..., Any]):
    assert macaron("-V") == macaron("--version")
    assert macaron("-V").stdout == f"macaron {version}\n"


def test_completion(macaron: Callable[..., Any], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # the shell is that of the tests
    assert "_MACARON_COMPLETE=complete_bash" in macaron("--show-completion", "bash").stdout
    monkeypatch.setenv("_MACARON_COMPLETE", "complete_bash")
    for words, expected in {"macaron re": ["report", "recipe"], "macaron recipe c": ["copy"]}.items():
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        assert macaron().stdout.split() == expected
