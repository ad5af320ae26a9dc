"""A newcomer with nothing but the README: every command in it is run, in its order, in an empty folder.

The commands are taken from the page. What the page takes for granted (a corpus, GLUE) is replaced by small files of the
same names, and what would take long is shortened; nothing else is changed.
"""

import lzma
import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from macaron.data.glue import TASKS
from served import start

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CORPUS = REPOSITORY / "tests" / "compatibility" / "fixtures" / "corpus"
#: Installing is tested by .ci/wheel and by make itself, the demo by tests/lab/test_demo.py.
ELSEWHERE = ("pip ", "make ", "macaron demo")
#: What is shortened: times, seeds, sizes.
SHORTER = {
    r"--minutes \d+": "--minutes 0.5",
    r"--seeds \d+": "--seeds 1",
    r"--budget \d+": "--budget 4",
    r"--grid fixed": "--grid fixed --epochs 1",
}


def commands() -> list[str]:
    """The commands of the page: in blocks, one a line, and in sentences; without comments."""
    found, kind = [], None
    for line in README.splitlines():
        if line.startswith("```"):
            kind = line.removeprefix("```") if kind is None else None
        elif kind == "console":
            found += re.findall(r"^\$ (.*)$", line)
        elif kind == "" and line.strip():
            found.append(line)
        elif kind is None and not line.startswith("|"):
            found += re.findall(r"`(macaron [a-z][^`]*)`", line)
    return [re.sub(r"\s+# .*", "", command).strip() for command in found]


def shortened(command: str) -> str:
    for pattern, short in SHORTER.items():
        command = re.sub(pattern, short, command)
    return command


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(lzma.compress(text) if path.suffix == ".xz" else text)


def write_stand_ins(folder: Path) -> None:
    """The files that the page takes for granted."""
    lines = {path.name: path.read_text(encoding="utf-8").splitlines() for path in CORPUS.iterdir()}
    for name, split in (("corpus", "train"), ("dev", "valid"), ("test", "test")):
        for language in ("de", "en"):
            write(folder / f"{name}.{language}", lines[f"{split}.{language}"])
    write(folder / "text.de", ["Guten Morgen!", "", *lines["test.de"][:3]])
    for name in ("wiki.txt.xz", "books.txt.xz"):
        write(folder / name, lines["documents.txt"])
    english, draw = lines["train.en"], random.Random(3)
    moods = [(draw.choice(english).replace('"', ""), draw.choice(("glad", "sad"))) for _ in range(40)]
    for name in ("train.csv", "dev.csv"):
        write(folder / name, ["review,mood", *(f'"{text}",{mood}' for text, mood in moods)])
    for name in ("reviews.txt", "texts.txt"):
        write(folder / name, english[:5])
    for task in (TASKS[name] for name in ("cola", "mrpc", "stsb", "rte")):
        for name in ("train.tsv", *task.dev.values()):
            rows = [] if task.indices else ["\t".join(task.columns)]
            for number in range(24):
                label = task.labels[number % 2] if task.labels else str(number % 6)
                texts = [draw.choice(english) for _ in range(task.texts)]
                rows.append("\t".join(["x", label, "", *texts] if task.indices else [*texts, label]))
            write(folder / "GLUE" / task.folders[0] / name, rows)


def serve(arguments: list[str], folder: Path) -> None:
    """Run the one command that does not end by itself: see its page, ask for a translation, end it."""
    server = start(*arguments, folder=folder)
    try:
        status, page = server.ask("/")
        assert status == 200
        assert "<html" in page
        server.translate("Guten Morgen!")
    finally:
        code, errors = server.stop()
    assert code == 0, errors
    assert "Traceback" not in errors


def test_commands_are_found():
    found = commands()
    assert "macaron doctor" in found
    assert "macaron translate runs/mine < text.de > text.en" in found
    assert len(found) >= 15
    piped = [command.rpartition(" | ")[2] for command in found]
    others = [command for command in piped if not command.startswith(("macaron ", *ELSEWHERE))]
    assert not others


@pytest.mark.slow
def test_every_command_of_the_readme(tmp_path: Path):
    write_stand_ins(tmp_path)
    given = {path.name for path in tmp_path.iterdir()}
    macaron = f"{shlex.quote(sys.executable)} -m macaron "
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src"), "OMP_NUM_THREADS": "1"}
    for command in commands():
        if command.startswith(ELSEWHERE):
            continue
        if command.startswith("macaron serve "):
            serve(shlex.split(command)[2:], tmp_path)
            continue
        first, pipe, last = shortened(command).rpartition(" | ")
        line = first + pipe + macaron + last.removeprefix("macaron ")
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, f"{command}\n{line}\n{done.stdout}{done.stderr}"
        assert "Traceback" not in done.stderr, f"{command}\n{done.stderr}"
    # What the page promises is there.
    assert len((tmp_path / "text.en").read_text().splitlines()) == len((tmp_path / "text.de").read_text().splitlines())
    for path in ("runs/mine/report.html", "runs/bert/model/config.json", "particles.html", "comparison.html"):
        assert (tmp_path / path).stat().st_size > 0
    assert {path.name for path in tmp_path.iterdir()} - given <= {
        *("data", "runs", "text.en", "vectors.tsv", "your-own.toml", "particles.html", "comparison.html"),
    }
    (call,) = re.findall(r"In Python: `(.*?)`", README)
    done = subprocess.run([sys.executable, "-c", call], cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
