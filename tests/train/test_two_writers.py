"""Two processes that train into one folder: the second is refused at once, and the first never notices."""

import json
import shutil
import signal
from pathlib import Path
from typing import Any

from macaron.files import LOCK


def test_the_second_is_refused_and_a_killed_first_is_forgotten(recipe: Path, server: Any, tmp_path: Path):
    run, short = tmp_path / "run", ("--set", "train.max_updates=12")
    first = server.start("train", recipe, "--out", run, "--set", "train.max_updates=100000")
    first.until(run / "metrics.jsonl", 1)
    for resume in (("--resume",), (recipe, "--resume")):
        text = server.run("train", *resume, "--out", run, code=1)
        assert f"{run} is being written by process {first.pid}. Wait for it to end." in text
    assert "is not empty: continue with --resume" in server.run("train", recipe, "--out", run, code=1)
    lines = len((run / "metrics.jsonl").read_text().splitlines())
    first.until(run / "metrics.jsonl", lines + 2)  # it goes on
    first.send(signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert (run / LOCK).read_text().startswith(f"{first.pid} ")
    shutil.rmtree(run / "checkpoints")  # it may have come further than the short run
    server.run("train", recipe, "--out", run, *short, "--resume")
    assert json.loads((run / "summary.json").read_text())["update"] == 12
    assert not list(run.rglob(".*"))


def test_two_that_start_together(recipe: Path, server: Any, tmp_path: Path):
    """Both find no folder. One of them trains, whichever it is; the other leaves it alone."""
    run = tmp_path / "run"
    commands = [server.start("train", recipe, "--out", run, "--set", "train.max_updates=40") for _ in range(2)]
    codes = [command.wait() for command in commands]
    assert sorted(codes) == [0, 1]
    refused = commands[codes.index(1)].text
    assert "is being written by process" in refused or "is not empty: continue with --resume" in refused
    assert "Traceback" not in refused
    assert json.loads((run / "summary.json").read_text())["update"] == 40
