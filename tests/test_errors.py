"""The commands that messages recommend can be pasted into a shell."""

import shlex
import sys
from pathlib import Path

import pytest

from macaron.errors import CannotWrite, MacaronError, command_line, resume_command, same_command, system_message


def test_a_command_is_quoted_and_called_as_this_one_was(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    run = Path("runs/it's mine; rm")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("macaron", "python3"):
        (tmp_path / name).touch(mode=0o755)
    ours = ["train", "--resume", "--out", str(run)]
    called = {str(tmp_path / "macaron"): ["macaron"], ".venv/bin/macaron": [".venv/bin/macaron"]}
    for argument, program in called.items():
        monkeypatch.setattr(sys, "argv", [argument, "twins", "my recipe.toml"])
        assert shlex.split(resume_command(run)) == [*program, *ours]
        assert shlex.split(same_command()) == [*program, "twins", "my recipe.toml"]
    assert same_command("--resume").endswith("'my recipe.toml' --resume")
    monkeypatch.setattr(sys, "argv", ["/lib/macaron/__main__.py", "glue", "--resume"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    assert same_command("--resume") == "python3 -m macaron glue --resume"
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert command_line("train") == "torchrun --standalone --nproc-per-node 4 -m macaron train"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert command_line("train") == "torchrun ... -m macaron train"


def test_a_value_of_any_length_leaves_the_rest_of_a_message_readable():
    message = f"x.toml, line 3: data.lang must be a code, not {'long ' * 10_000}. Write 'de'."
    wrong = OSError(36, "File name too long", "a/" * 30_000)
    for said in (str(MacaronError(message)), str(CannotWrite(Path("a/" * 30_000), wrong)), system_message(wrong)):
        assert 1_000 < len(said) < 2_100
        assert " [...] " in said
    assert str(MacaronError(message)).startswith("x.toml, line 3: data.lang must be a code, not long ")
    assert str(MacaronError(message)).endswith("long . Write 'de'.")
    assert str(MacaronError("x" * 2_000)) == "x" * 2_000


def test_where_another_program_trains(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["script.py", "--fast"])
    assert same_command("--resume") == "the same command with --resume"
    assert resume_command(Path("run")) == "macaron train --resume --out run"
