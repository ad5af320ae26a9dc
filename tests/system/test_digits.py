"""Small tasks learned through the real commands, prepare to evaluate, to a bound of quality."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from macaron.decode import Translator

pytestmark = pytest.mark.slow
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
RECIPE = """
[data]
source_lang = "src"
target_lang = "tgt"
out = "prepared"
vocab_size = 280
[[data.train]]
path = "train"
[[data.valid]]
path = "valid"
[[data.test]]
path = "test"

[model]
preset = "macaron-tiny"
hidden_size = 64
intermediate_size = 256
dropout = 0.0
attention_dropout = 0.0
activation_dropout = 0.0
{scheme}

[train]
batch_tokens = 1024
learning_rate = 0.002
warmup = 100
max_updates = 1500
schedule = "cosine"
label_smoothing = 0.0
log_every = 100
device = "cpu"

[decode]
beam = 2
max_length = 20
"""
# An asymmetric relative of Strang's scheme that no catalogue has, written into the recipe.
OWN = """
[model.scheme]
name = "mine"
branches = [{ weight = 1.0, steps = [["G", 0.25], ["F", 1.0], ["G", 0.75]] }]
"""


def macaron(*arguments: object, where: Path) -> str:
    command = [sys.executable, "-m", "macaron", *map(str, arguments)]
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, generator = tmp_path_factory.mktemp("sort"), random.Random(4)
    for name, count in (("train", 8000), ("valid", 100), ("test", 200)):
        lines = [[str(generator.randrange(10)) for _ in range(generator.randint(3, 8))] for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    return folder


@pytest.mark.parametrize("scheme", ['scheme = "strang-gfg"', OWN], ids=["strang-gfg", "own"])
def test_reversing_is_learned(scheme: str, corpus: Path, tmp_path: Path):
    recipe, run = corpus / f"{tmp_path.name}.toml", tmp_path / "run"
    recipe.write_text(RECIPE.format(scheme=scheme))
    macaron("prepare", recipe, where=corpus)
    macaron("train", recipe, "--out", run, where=corpus)
    output = tmp_path / "out.txt"
    found = json.loads(macaron("evaluate", run, "--data", "prepared", "--json", "--output", output, where=corpus))
    assert found["scores"][0]["metric"] == "sacreBLEU"
    assert found["scores"][0]["score"] >= 95
    expected = (corpus / "test.tgt").read_text().splitlines()
    right = sum(a == b for a, b in zip(output.read_text().splitlines(), expected, strict=True))
    assert right >= 0.9 * len(expected)
    translated = macaron(
        "translate", run / "model", "--one-per-line", "--input", "test.src", "--device", "cpu", where=corpus
    )
    assert translated.splitlines() == output.read_text().splitlines()
    sources = (corpus / "test.src").read_text().splitlines()
    linked = [pair for found in Translator(run).align(sources, expected) for pair in found]
    turned = [(len(line) - 1 - place) for line in sources for place in range(0, len(line), 2)]
    right = sum(link.source[0] == place for link, place in zip(linked, turned, strict=True))
    assert right >= 0.9 * len(linked)


@pytest.mark.parametrize("batching", ["pack", "bucket"])
def test_compiled_is_eager(batching: str, corpus: Path, tmp_path: Path):
    recipe = corpus / "compiled.toml"
    recipe.write_text(RECIPE.format(scheme="encoder_layers = 1\ndecoder_layers = 1"))
    macaron("prepare", recipe, where=corpus)
    losses = {}
    settings = ["train.max_updates=12", "train.schedule=constant", "train.log_every=1", "train.row_tokens=64"]
    settings += [f"train.batching={batching}", "train.validate_every=6"]
    for how in ("off", "on"):
        run = tmp_path / how
        assignments = [part for text in (*settings, f"train.compile={how}") for part in ("--set", text)]
        macaron("train", recipe, "--out", run, *assignments, where=corpus)
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        losses[how] = [record.get("loss", record.get("valid_loss")) for record in records if "final" not in record]
    assert losses["on"] == pytest.approx(losses["off"], abs=1e-4)
