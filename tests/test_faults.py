"""Damaged and hostile inputs: a clean error that names the file, or the right result; and commands that are killed.

The campaigns are those of benchmarks/faults.py. ``--seed`` and ``--case`` of a failure repeat it.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faults import mutations
from faults.campaign import plan
from faults.readers import READERS
from macaron.data.glue import TASKS, read_file
from macaron.data.prepare.archive import extract
from macaron.data.settings import CorpusSettings
from macaron.data.tabular import read_table
from macaron.errors import MacaronError
from macaron.ode import Scheme
from macaron.recipe import data_recipe, load_content
from macaron.text.vocabulary import read_codes, read_dictionary

REPOSITORY = Path(__file__).resolve().parent.parent
#: Readers of what two quick commands write.
SAMPLE = (
    "recipe, prepare;--set;corpus;lines.;prepared.json, evaluate;config.json;tokenizer.json;model.safetensors;scheme;"
    "document .;POST /translate,;API keys;digests.json, verify"
)


def campaign(*arguments: object) -> str:
    command = [sys.executable, "benchmarks/faults.py", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY / "src")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_sample_of_damaged_files(tmp_path: Path):
    out = tmp_path / "faults.json"
    campaign("--cases", 80, "--seed", 1, "--readers", SAMPLE, "--out", out)
    found = json.loads(out.read_text())
    assert len(found["table"]) >= 10
    assert found["total"]["clean error"] > 20
    assert found["total"]["accepted"] > 5


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_damaged_files_for_all_readers(seed: int):
    campaign("--cases", 1500, "--seed", seed)


@pytest.mark.slow
def test_commands_that_are_killed():
    campaign("--kills", 16, "--seed", 1)


def test_half_of_the_cases_reach_the_readers_and_all_readers_are_tried():
    readers = list(READERS.values())
    cases = plan(readers, 1000)
    assert len(readers) > 80
    assert {reader.name for reader, _ in cases} == set(READERS)
    # Of the files under digests, three in ten are left as they are.
    assert sum(reader.sealed is not None for reader, _ in cases) * 0.3 < 0.5 * len(cases)


@pytest.mark.parametrize("name", ["any_bytes", "text", "as_json", "toml"])
def test_a_mutation_repeats_and_changes(name: str):
    mutate: mutations.Mutation = getattr(mutations, name)
    before = b'{"a": 1, "b": [1, 2]}' if name == "as_json" else b"[a]\nb = 1\nc = 2\n"
    once, again = ([mutate(Random(i), before) for i in range(200)] for _ in range(2))
    assert once == again
    assert sum(after != before for after in once) > 150


def refuses_or_reads(name: str, content: bytes, read: Callable[[Path], Any]) -> None:
    """The reader of a file raises nothing but our error, which names the file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        message = name
        try:
            read(path)
        except MacaronError as error:
            message = str(error)
        assert name in message


WORDS = st.text(st.sampled_from("ab,\"'\t\n\r #=[]{}.1<>\\\ufeff\u2028\0é"), max_size=60)
BYTES = st.one_of(st.binary(max_size=60), WORDS.map(str.encode))


@given(BYTES)
def test_any_bytes_as_a_table(content: bytes):
    for name in ("x.tsv", "x.csv"):
        refuses_or_reads(name, content, lambda path: read_table(path, ["a"], None))
        refuses_or_reads(name, b"a\tb\n" + content, lambda path: read_table(path, ["a"], "b"))


@given(BYTES)
def test_any_bytes_as_a_file_of_glue(content: bytes):
    task = TASKS["cola"]
    refuses_or_reads("train.tsv", content, lambda path: read_file(path, task, labelled=True))


@given(BYTES)
def test_any_bytes_as_a_dictionary_or_codes(content: bytes):
    refuses_or_reads("dict.txt", content, read_dictionary)
    refuses_or_reads("codes.txt", b"#version: 0.2\n" + content, read_codes)


@given(BYTES)
def test_any_bytes_as_an_archive(content: bytes):
    wanted = {"in": (Path(os.devnull), CorpusSettings("x"))}
    for name in ("x.zip", "x.tar.gz"):
        refuses_or_reads(name, content, lambda path: extract(path, wanted))


@given(BYTES, WORDS)
def test_any_bytes_as_a_recipe_and_any_text_as_a_setting(content: bytes, setting: str):
    refuses_or_reads("x.toml", content, lambda path: data_recipe(*load_content(path, [])))
    with suppress(MacaronError):
        load_content(REPOSITORY / "recipes" / "demo.toml", [setting])


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["name", "branches", "weight", "steps"]), inner)
        ),
    )
)
def test_any_json_as_a_scheme(value: Any):
    with suppress(MacaronError):
        Scheme.from_json(json.dumps(value))
