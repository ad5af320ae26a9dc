"""The demo through the real command: small and fast, and (slow) as users run it, against its bar."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from macaron.data.grammar import demo_corpus

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def demo(runs: Path, recipe: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "macaron", "demo", "--runs", str(runs), "--recipe", str(recipe)],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
    )


def test_it_runs_and_says_what_it_reuses(tmp_path: Path):
    runs, recipe = tmp_path / "runs", tmp_path / "demo.toml"
    demo_corpus(n_train=600, n_valid=40, n_test=30, n_novel=30).write(runs / "demo-corpus")
    text = (REPOSITORY / "recipes/demo.toml").read_text()
    for key, value in (
        ("max_updates", 4),
        ("warmup", 1),
        ("validate_every", 2),
        ("checkpoint_every", 2),
        ("log_every", 1),
    ):
        text = re.sub(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.M)
    recipe.write_text(re.sub(r"^max_length = \S+", "max_length = 12", text, flags=re.M))
    done = demo(runs, recipe, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert f"reusing {runs / 'demo-corpus'}" in done.stdout
    assert "training" in done.stdout
    assert "macaron translate" in done.stdout.splitlines()[-1]
    report = json.loads((runs / "demo-report.json").read_text())
    assert set(report["sets"]) == {"test", "novel"}
    for part in report["sets"].values():
        assert set(part["scores"]) == {"word by word", "Transformer", "Macaron"}
    sizes = report["parameters"]
    assert abs(sizes["Macaron"] / sizes["Transformer"] - 1) < 0.005
    assert (runs / "demo-curves.png").stat().st_size > 10_000
    weights = {
        name: (runs / f"demo-{name}/model/model.safetensors").read_bytes() for name in ("transformer", "macaron")
    }

    again = demo(runs, recipe, OMP_NUM_THREADS="1")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("reusing") == 4
    for name, before in weights.items():
        assert (runs / f"demo-{name}/model/model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_the_demo_as_users_run_it_meets_its_bar(tmp_path: Path):
    done = demo(tmp_path / "runs", REPOSITORY / "recipes/demo.toml")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "runs/demo-report.json").read_text())
    scores = {name: score["score"] for name, score in report["sets"]["test"]["scores"].items()}
    for name in ("Transformer", "Macaron"):
        assert scores[name] >= 60
        assert scores[name] >= scores["word by word"] + 30
    line = done.stdout.splitlines()[-1].strip()
    sentence = re.search(r'echo "(.*)" \| ', line)
    assert sentence
    answer = subprocess.run(
        [sys.executable, "-m", "macaron", "translate", str(tmp_path / "runs/demo-macaron")],
        input=sentence[1] + "\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "boy" in answer.stdout
    assert "door" in answer.stdout
