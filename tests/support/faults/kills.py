"""Commands that are killed (SIGKILL) at random moments, and given again: the end is as if nothing had happened."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from faults.campaign import call
from faults.world import COLUMNS, FAST

#: Files that hold times, and so are the same in name only; log lines are compared without their times.
TIMED = (
    "environment.json",
    "summary.json",
    "report.html",
    "state.json",
    "prepared.json",
    "digests.json",
    "results.json",
)
CLOCKS = ("time", "seconds", "tokens_per_second", "time_left")
MOST = 3  # kills in a row, before a command may end


@dataclass(frozen=True)
class Killed:
    """A command.

    :param arguments: as it is given the first time and after a kill
    :param out: the folder that it writes
    :param before: a folder of the world that is at this place before
    """

    name: str
    arguments: tuple[str, ...]
    needs: tuple[str, ...]
    out: str
    before: str | None = None


CONVERT = ("convert", "fairseq", "foreign.pt", "--dict", "dict.txt", "--out", "new", "--force")
COMMANDS = (
    Killed("train", ("train", "pairs.toml", "--resume", "--out", "new"), ("pairs.toml", "data"), "new"),
    Killed("train, text", ("train", "text.toml", "--resume", "--out", "new"), ("text.toml", "text"), "new"),
    Killed("prepare", ("prepare", "pairs.toml", "--workers", "1"), ("pairs.toml", "corpus"), "data"),
    Killed(
        "prepare, again",
        ("prepare", "pairs.toml", "--workers", "1", "--set", "data.max_words=5"),
        ("pairs.toml", "corpus"),
        "data",
        "data",
    ),
    Killed("prepare, text", ("prepare", "text.toml", "--workers", "1"), ("text.toml", "corpus"), "text"),
    Killed(
        "finetune",
        ("finetune", "bert", "--train", "train.tsv", "--dev", "dev.tsv", *COLUMNS, *FAST, "--out", "new"),
        ("bert", "train.tsv", "dev.tsv"),
        "new",
    ),
    Killed("convert", CONVERT, ("foreign.pt", "dict.txt"), "new"),
    Killed("convert, over another", CONVERT, ("foreign.pt", "dict.txt"), "new", "shards"),
)
#: What of the world they need.
NEEDS = {need for command in COMMANDS for need in (*command.needs, command.before or "run")}


def contents(folder: Path) -> dict[str, Any]:
    """All files of a folder, as far as they do not depend on the clock."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".verified.json"):
        name = str(path.relative_to(folder))
        if path.suffix == ".jsonl":
            found[name] = [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
        else:
            found[name] = None if path.name in TIMED else path.read_bytes()
    return found


def _timeless(record: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _timeless(value) if isinstance(value, dict) else value
        for key, value in record.items()
        if key not in CLOCKS
    }


def _start(place: Path, command: Killed) -> int:
    """Start the command in a forked process."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            done = call(place, command.arguments)
            (place.parent / "errors").write_text(f"{done.errors}\n{done.crashed!r}")
            code = done.code
        finally:
            os._exit(code)
    return child


def _place(world: Path, folder: Path, command: Killed) -> Path:
    place = folder / "here"
    for need in (*command.needs, *([] if command.before is None else [command.before])):
        source, target = world / need, place / (command.out if need == command.before else need)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy2(source, target)
    return place


def kill(world: Path, folder: Path, kills: int, seed: int) -> Iterator[tuple[str, int, str | None]]:
    """Kill commands in turn; yields the command, how often it was killed, and what was wrong at the end.

    :param folder: for the files of the commands
    """
    draw = Random(seed)
    expected: dict[str, tuple[float, dict[str, Any]]] = {}
    done, turn = 0, 0
    while done < kills:
        command = COMMANDS[turn % len(COMMANDS)]
        if command.name not in expected:
            place = _place(world, folder / "whole", command)
            begun = time.monotonic()
            _, status = os.waitpid(_start(place, command), 0)
            assert status == 0, (folder / "whole" / "errors").read_text()
            expected[command.name] = time.monotonic() - begun, contents(place / command.out)
            shutil.rmtree(folder / "whole")
        seconds, whole = expected[command.name]
        place = _place(world, folder / "killed", command)
        often, wrong = 0, None
        for last in (*[False] * draw.randint(1, min(MOST, kills - done)), True):
            child = _start(place, command)
            if not last:
                time.sleep(draw.uniform(0, seconds))
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            if os.WIFSIGNALED(status):
                often += 1
            elif status:
                said = (folder / "killed" / "errors").read_text()
                # Killed after its last file: finetune refuses a finished run, whose files are compared all the same.
                wrong = None if command.name == "finetune" and "is not empty" in said else said
                break
            else:  # it had ended before
                break
        if wrong is None:
            found = contents(place / command.out)
            differ = sorted(
                name
                for name in {*found, *whole}
                if name not in found or name not in whole or found[name] != whole[name]
            )
            left = sorted(path.name for path in place.iterdir() if path.name.startswith("."))
            wrong = f"{differ[:5]} differ" if differ else f"{left} are left" if left else None
        shutil.rmtree(folder / "killed")
        done, turn = done + often, turn + 1
        yield command.name, often, wrong
