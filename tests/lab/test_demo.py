"""The demo through the real command: small and fast, and (slow) as users run it, against its bar."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from macaron.data.demo_corpus import write_demo_corpus
from macaron.errors import Interrupted, MacaronError
from macaron.lab.demo import BUDGET, SCORING, Demo, twin_minutes
from macaron.train import stopping
from macaron.train.stopping import StopSignals

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def demo(runs: Path, recipe: Path, minutes: float = BUDGET, **environment: str) -> subprocess.CompletedProcess[str]:
    options = ["--runs", str(runs), "--recipe", str(recipe), "--minutes", str(minutes)]
    return subprocess.run(
        [sys.executable, "-m", "macaron", "demo", *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
    )


def small(folder: Path, **changes: object) -> tuple[Path, Path]:
    """A folder for runs with a small corpus in it, and a recipe of a few updates."""
    runs, recipe = folder / "runs", folder / "demo.toml"
    write_demo_corpus(runs / "demo-corpus")
    for path in (runs / "demo-corpus").iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: {"train": 600, "valid": 40}.get(path.stem, 30)]))
    text = (REPOSITORY / "recipes/demo.toml").read_text()
    settings = {"max_updates": 4, "warmup": 1, "validate_every": 2, "checkpoint_every": 2, "log_every": 1}
    for key, value in {**settings, "max_length": 12, **changes}.items():
        text, found = re.subn(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.M)
        assert found == 1
    recipe.write_text(text)
    return runs, recipe


def timeless(runs: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((runs / "demo-report.json").read_text())
    assert report.pop("seconds") > 0
    return report


def weights(runs: Path) -> list[bytes]:
    return [(runs / f"demo-{name}/model/model.safetensors").read_bytes() for name in ("transformer", "macaron")]


def test_it_runs_says_what_it_reuses_and_repeats(tmp_path: Path):
    runs, recipe = small(tmp_path)
    done = demo(runs, recipe, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    assert f"reusing {runs / 'demo-corpus'}" in done.stdout
    assert "training" in done.stdout
    assert "No fair comparison" not in done.stdout
    assert "macaron translate" in done.stdout.splitlines()[-1]
    report, trained = timeless(runs), weights(runs)
    assert all("p_value" in part["macaron_minus_transformer"] for part in report["sets"].values())
    assert set(report["sets"]) == {"test", "novel"}
    for part in report["sets"].values():
        assert set(part["scores"]) == {"word by word", "Transformer", "Macaron"}
    sizes = report["parameters"]
    assert abs(sizes["Macaron"] / sizes["Transformer"] - 1) < 0.005
    assert report["updates"] == {"Transformer": 4, "Macaron": 4}
    assert report["fair"] is True
    assert (runs / "demo-curves.png").stat().st_size > 10_000
    for name, words in {
        "comparison": "Same training data, same recipe, same budget",
        "particles": "Wir wissen",
    }.items():
        assert report["pages"][name] == str(runs / f"demo-{name}.html")
        assert report["pages"][name] in done.stdout
        assert words in (runs / f"demo-{name}.html").read_text()

    again = demo(runs, recipe, OMP_NUM_THREADS="1")
    assert again.returncode == 0, again.stderr
    assert again.stdout.count("reusing") == 4
    assert weights(runs) == trained
    assert timeless(runs) == report

    # From the start: the same bits and the same numbers.
    for name in ("data", "transformer", "macaron"):
        shutil.rmtree(runs / f"demo-{name}")
    afresh = demo(runs, recipe, OMP_NUM_THREADS="1")
    assert afresh.returncode == 0, afresh.stderr
    assert afresh.stdout.count("reusing") == 1
    assert weights(runs) == trained
    assert timeless(runs) == report


def _tick(clock: Any) -> float:
    """A clock of which ten seconds are over whenever it is looked at."""
    clock.looks = getattr(clock, "looks", 0) + 1
    return 10.0 * clock.looks


def cap(run: Path) -> float:
    return float(tomllib.loads((run / "recipe.toml").read_text())["train"]["max_minutes"])


def test_it_says_when_the_clock_has_stopped_a_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs, recipe = small(tmp_path, max_updates=100)
    said: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(stopping.Clock, "seconds", _tick)
        report = Demo(recipe, runs, said.append).run()
    assert report["fair"] is False
    text = "\n".join(said)
    assert re.search(
        r"No fair comparison: Transformer after \d+ and Macaron after \d+ of 100 updates had to stop", text
    )
    assert "too slow, or busy, for the demo's 5.5 minutes" in text
    assert " p = " not in text
    assert all("p_value" not in part["macaron_minus_transformer"] for part in report["sets"].values())
    assert (runs / "demo-curves.png").exists()
    # Both had the same time, and so has one that is trained again.
    assert 1 < cap(runs / "demo-transformer") == cap(runs / "demo-macaron") < 2.25
    shutil.rmtree(runs / "demo-macaron")
    path = runs / "demo-transformer" / "recipe.toml"
    path.write_text(re.sub(r"max_minutes = \S+", "max_minutes = 1.25", path.read_text()))
    with monkeypatch.context() as patch:
        patch.setattr(stopping.Clock, "seconds", _tick)
        Demo(recipe, runs, said.append).run()
    assert cap(runs / "demo-macaron") == 1.25


def test_the_twins_share_what_is_left_of_the_time():
    assert 20 + 2 * 60 * twin_minutes(BUDGET, 20, None) + SCORING == pytest.approx(60 * BUDGET, abs=0.1)
    assert BUDGET < 6
    assert twin_minutes(BUDGET, 20, 1.5) == 1.5  # the recipe's own limit
    assert twin_minutes(BUDGET, 20, 60.0) == twin_minutes(BUDGET, 20, None)
    assert twin_minutes(BUDGET, 10_000, None) > 0


def test_a_corpus_of_another_grammar_is_not_reused(tmp_path: Path):
    runs, recipe = small(tmp_path)
    for name in ("test.de", "test.en"):
        path = runs / "demo-corpus" / name
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    with pytest.raises(MacaronError, match="not the demo corpus of this version: remove it"):
        Demo(recipe, runs, lambda _: None).run()


def test_stopped_and_started_again_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs, recipe = small(tmp_path)
    demo = Demo(recipe, runs, lambda _: None)
    with monkeypatch.context() as patch:
        patch.setattr("macaron.train.stopping.StopSignals.__enter__", _stop_at_once)
        with pytest.raises(Interrupted, match="stopped at update 1; start the demo again"):
            demo.run()
    said: list[str] = []
    Demo(recipe, runs, said.append).run()
    assert any(f"going on with {runs / 'demo-transformer'}" in line for line in said)
    assert timeless(runs)["updates"] == {"Transformer": 4, "Macaron": 4}


def _stop_at_once(signals: StopSignals) -> StopSignals:
    signals.received = True
    return signals


@pytest.mark.slow
def test_the_demo_as_users_run_it_meets_its_bar(tmp_path: Path):
    # The time is not what is tested: other tests run beside this one.
    done = demo(tmp_path / "runs", REPOSITORY / "recipes/demo.toml", minutes=60)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "runs/demo-report.json").read_text())
    assert report["fair"], done.stdout
    for part in ("test", "novel"):
        scores = {name: score["score"] for name, score in report["sets"][part]["scores"].items()}
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
