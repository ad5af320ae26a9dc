"""The benchmark of pre-training through its real command, on a corpus of a few documents."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from macaron.data.prepare import prepare
from macaron.recipe import data_recipe

REPOSITORY = Path(__file__).resolve().parent.parent
RECIPE = """
[data]
kind = "text"
out = "nowhere"
[model]
hidden_size = 16
num_attention_heads = 2
intermediate_size = 32
num_hidden_layers = 1
[train]
warmup = 5
max_updates = 40
"""


def prepared(tmp_path: Path) -> None:
    """A corpus of a few documents."""
    draw = random.Random(1)
    documents = [" ".join(f"The {draw.randrange(50)} is {draw.randrange(50)}." for _ in range(12)) for _ in range(80)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents) + "\n")
    data = {"kind": "text", "out": str(tmp_path / "prepared"), "root": str(tmp_path), "train": [{"path": "text.txt"}]}
    prepare(data_recipe({"data": {**data, "vocab_size": 300, "valid_every": 10}}), workers=1)


@pytest.mark.slow
def test_gpu_pretraining(tmp_path: Path):
    prepared(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    command = [sys.executable, REPOSITORY / "benchmarks" / "gpu_pretraining.py", "prepared", "--recipe", "recipe.toml"]
    command += ["--preset", "macaron-bert-tiny", "--lengths", "16", "48", "--batch-tokens", "384", "--seconds", "60"]
    command += ["--log-every", "4", "--validate-every", "10", "--peers", "eager", "--peer-seconds", "0.1"]
    command += ["--device", "cpu", "--out", "result.json"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert set(result["lengths"]) == {"16", "48"}
    for found in result["lengths"].values():
        ours, peer = found["ours"], found["peers"]["HF BERT, eager"]
        assert ours["exit_code"] == 0
        assert ours["sustained_targets_counted"]
        assert ours["validations_inside"] >= 1
        assert "error" not in peer
        assert peer["padding"] == 0  # only texts that fill their rows
        positions = 512 * 16  # of which ours has none
        assert peer["parameters"] - positions == pytest.approx(ours["parameters"], rel=0.1)
        assert found["ratios"]["sustained / HF BERT, eager"] > 0
    assert "| 48: HF BERT, eager" in done.stdout


@pytest.mark.slow
def test_gpu_lm(tmp_path: Path):
    prepared(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE.replace("[train]", '[train]\ntask = "language-model"'))
    command = [sys.executable, REPOSITORY / "benchmarks" / "gpu_lm.py", "prepared", "--recipe", "recipe.toml"]
    command += ["--length", "32", "--batch-tokens", "384", "--log-every", "4", "--device", "cpu", "--out", "lm"]
    measured = ["--presets", "macaron-gpt-tiny", "--seconds", "30", "--peers", "eager", "--peer-seconds", "0.1"]
    trained = ["--train", "gpt-tiny", "macaron-gpt-tiny", "--together", "--minutes", "0.5"]
    said = []
    for more in (measured, trained):
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, *more], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False
        )
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    result = json.loads((tmp_path / "lm" / "speed.json").read_text())
    ours = result["ours"]["macaron-gpt-tiny"]
    assert ours["exit_code"] == 0
    peer = result["peers"]["HF GPT-2, eager, 384"]
    assert peer["parameters"] == pytest.approx(ours["parameters"], rel=0.1)
    assert result["ratios"]["macaron-gpt-tiny"]["sustained"] > 0
    assert "| HF GPT-2, eager" in said[0]
    for preset in ("gpt-tiny", "macaron-gpt-tiny"):
        twin = json.loads((tmp_path / "lm" / f"{preset}.json").read_text())
        assert twin["updates"] > 0
        assert 1 < twin["held_out"]["perplexity_per_token"] < 1000
        assert f"{preset}: " in said[1]
