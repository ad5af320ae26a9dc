"""What README and the examples say is run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
#: Models for the folders that the pages name.
FIXTURES = {
    f"runs/{name}/model": f"tests/compatibility/fixtures/{fixture}"
    for name, fixture in (("mine", "translation"), ("bert", "classifier"))
}


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / name).read_text(), flags=re.DOTALL)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=REPOSITORY, env=environment
    )


def test_the_ten_lines_of_the_readme():
    (block,) = python_blocks("README.md")
    assert len([line for line in block.splitlines() if line.strip()]) <= 11
    done = run("-c", block)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 1\n"


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *(f"docs/{p.name}" for p in (REPOSITORY / "docs").glob("*.md"))])
def test_python_on_other_pages_runs(page: str):
    for block in python_blocks(page):
        done = run("-c", re.sub("|".join(FIXTURES), lambda found: FIXTURES[found[0]], block))
        assert done.returncode == 0, done.stderr


def test_the_files_to_read_first_exist():
    table = re.findall(
        r"^\| `(\w+)/` .* `(\w+\.py)` \|$", (REPOSITORY / "docs/architecture.md").read_text(), flags=re.M
    )
    assert len(table) >= 10
    for room, file in table:
        assert (REPOSITORY / "src/macaron" / room / file).is_file()


@pytest.mark.slow
def test_the_example_trains():
    done = run("examples/own_scheme.py")
    assert done.returncode == 0, done.stderr
    share = re.search(r"sorted without a mistake: (\d+)%", done.stdout)
    assert share
    assert int(share[1]) >= 90
