"""The demo through the real command: small and fast, and (slow) as users run it, against its bar."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from forked import macaron_text
from macaron.errors import Interrupted, MacaronError
from macaron.lab.demo import BUDGET, demo_twins, run_demo, score_twins
from macaron.recipe import load_recipe
from macaron.seal import seal
from macaron.shipped import write_demo_corpus
from macaron.train.stopping import StopSignals

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def demo(runs: Path, recipe: Path, minutes: float = 1.0) -> str:
    """What the real command prints on standard output and standard error."""
    done = macaron_text("demo", "--runs", runs, "--recipe", recipe, "--minutes", minutes, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first lines of the demo's corpus."""
    folder = tmp_path_factory.mktemp("corpus") / "demo-corpus"
    write_demo_corpus(folder)
    for path in folder.iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(lines[: {"train": 600, "valid": 40}.get(path.stem, 30)]))
    return folder


@pytest.fixture(scope="module")
def finished(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str]:
    """The runs of a small demo through the real command, its recipe, and what it printed."""
    runs, recipe = small(tmp_path_factory.mktemp("demo"), corpus)
    return runs, recipe, demo(runs, recipe)


def small(folder: Path, corpus: Path, **changes: object) -> tuple[Path, Path]:
    """A folder for runs with a small corpus in it, and a recipe of a few small updates."""
    runs, recipe = folder / "runs", folder / "demo.toml"
    shutil.copytree(corpus, runs / "demo-corpus")
    text = (REPOSITORY / "recipes/demo.toml").read_text()
    settings = {"max_updates": 4, "warmup": 1, "validate_every": 2, "checkpoint_every": 2, "log_every": 1}
    for key, value in {**settings, "batch_tokens": 256, "max_length": 12, **changes}.items():
        text, found = re.subn(rf"^{key} = \S+", f"{key} = {value}", text, flags=re.M)
        assert found == 1
    recipe.write_text(text)
    return runs, recipe


def timeless(runs: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((runs / "demo-report.json").read_text())
    assert report.pop("seconds") > 0
    return report


def train_settings(runs: Path, name: str) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads((runs / f"demo-{name}/recipe.toml").read_text())["train"]
    return settings


def weights(runs: Path) -> list[bytes]:
    return [(runs / f"demo-{name}/model/model.safetensors").read_bytes() for name in ("transformer", "macaron")]


def test_it_runs_says_what_it_reuses_and_repeats(finished: tuple[Path, Path, str]):
    runs, recipe, said = finished
    assert f"1. Corpus: reusing {runs / 'demo-corpus'}" in said
    assert re.search(r"3\. Twins\n.*pace: \d\.\d{3} and \d\.\d{3} s per update; 4 of 4 updates of each run", said, re.S)
    assert "Not a fair comparison" not in said
    assert re.search(r"^ *echo .*macaron translate", said, flags=re.M)
    report, trained = timeless(runs), weights(runs)
    assert set(report["sets"]) == {"test", "novel"}
    for part in report["sets"].values():
        assert "p_value" in part["macaron_minus_transformer"]
        assert set(part["scores"]) == {"word by word", "Transformer", "Macaron"}
    sizes = report["parameters"]
    assert abs(sizes["Macaron"] / sizes["Transformer"] - 1) < 0.005
    assert report["updates"] == {"Transformer": 4, "Macaron": 4}
    assert report["fair"] is True
    for name, words in {"comparison": "Loss against updates", "particles": "Wir wissen"}.items():
        assert report["pages"][name] == str(runs / f"demo-{name}.html")
        assert report["pages"][name] in said
        assert words in (runs / f"demo-{name}.html").read_text()

    again = demo(runs, recipe)
    assert "4 updates of each run, as chosen when" in again
    assert again.count("is finished: the model is in") == 2
    assert weights(runs) == trained
    assert timeless(runs) == report


@pytest.mark.slow
def test_afresh_it_has_the_same_weights_and_numbers(finished: tuple[Path, Path, str]):
    runs, recipe, _ = finished
    report, trained = timeless(runs), weights(runs)
    for name in ("data", "transformer", "macaron"):
        shutil.rmtree(runs / f"demo-{name}")
    assert demo(runs, recipe).count("reusing /") == 1
    assert weights(runs) == trained
    assert timeless(runs) == report


def test_a_slow_machine_trains_both_twins_for_the_same_smaller_number_of_updates(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    runs, recipe = small(tmp_path, corpus, max_updates=100_000, warmup=100, validate_every=50)
    said: list[str] = []
    report = run_demo(recipe, runs, said.append, minutes=0.1)
    (updates,) = set(report["updates"].values())
    assert updates < 100_000
    assert report["fair"] is True
    assert any(f"s per update; {updates:,} of 100,000 updates of each run" in line for line in said)
    for name in ("transformer", "macaron"):
        train = train_settings(runs, name)
        assert (train["max_updates"], train["schedule"]) == (updates, "cosine")
        assert train["warmup"] == min(100, max(round(updates / 10), 1))
        assert "max_minutes" not in train
    # One of the twins is trained again: for as many updates as the other, whatever the pace is now.
    shutil.rmtree(runs / "demo-transformer")
    again = run_demo(recipe, runs, said.append, minutes=60)
    assert again["updates"] == report["updates"]
    assert again["sets"] == report["sets"]


def test_an_unfair_comparison_reports_no_difference(finished: tuple[Path, Path, str], tmp_path: Path):
    """A twin that has made fewer updates than the other: its difference is nowhere, and the reason everywhere."""
    runs, recipe = Path(shutil.copytree(finished[0], tmp_path / "runs")), finished[1]
    said: list[str] = []
    for name in ("summary.json", "checkpoints/update-00000004/state.json"):
        changed = runs / "demo-macaron" / name
        changed.write_text(re.sub(r'"update": 4\b', '"update": 3', changed.read_text()))
    seal(changed.parent)
    changed.parent.rename(changed.parent.with_name("update-00000003"))
    page = tmp_path / "page.html"
    twins = demo_twins(recipe, runs / "demo-data", runs, said.append, 1.0)
    result = twins.compare(page, tmp_path / "page.json")
    report = score_twins(result, runs / "demo-corpus", said.append)
    reason = "Macaron was stopped after 3 of 4 updates"
    assert report["fair"] is False
    assert report["unfair"][0].startswith(reason)
    assert all(set(part) == {"scores"} for part in report["sets"].values())
    text = "\n".join(said)
    assert "Not a fair comparison, so no difference is reported: Macaron was stopped after 3" in text
    assert not re.search(r"Macaron - Transformer|p = ", text)
    numbers = json.loads((tmp_path / "page.json").read_text())
    (pair,) = numbers["comparisons"]
    assert (pair["deciding_p_value"], pair["tests_over_sentences"], pair["tests_over_seeds"]) == (None, {}, {})
    assert pair["sentences"]["counts"] is None
    assert {example["sort"] for example in pair["sentences"]["examples"]} == {"drawn"}
    assert all(part["differences"] == [None] for key in ("by_length", "by_frequency") for part in numbers[key])
    shown = page.read_text()
    assert reason in shown
    assert "A random sample." in shown
    assert not re.search(r"Macaron − Transformer|Difference in|p = |higher chrF", shown)


def test_the_recipe_says_how_many_updates_there_are_at_most():
    train = load_recipe(REPOSITORY / "recipes/demo.toml").train
    assert (train.max_updates, train.warmup, train.max_minutes) == (1000, 100, None)
    assert BUDGET <= 6


def test_another_corpus_is_not_reused(corpus: Path, tmp_path: Path):
    runs, recipe = small(tmp_path, corpus)
    for name in ("test.de", "test.en"):
        path = runs / "demo-corpus" / name
        path.write_text("".join(reversed(path.read_text().splitlines(keepends=True))))
    with pytest.raises(MacaronError, match="not the demo corpus of this version: remove it"):
        run_demo(recipe, runs, lambda _: None)


@pytest.mark.slow
def test_stopped_and_started_again_it_continues(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    runs, recipe = small(tmp_path, corpus)
    entered = 0

    def stop_the_first_twin(signals: StopSignals) -> StopSignals:
        nonlocal entered
        entered += 1
        signals.received = entered == 1
        return signals

    with monkeypatch.context() as patch:
        patch.setattr("macaron.train.stopping.StopSignals.__enter__", stop_the_first_twin)
        with pytest.raises(Interrupted, match="stopped in run 1 of 2: stopped at update 1; finished runs are kept"):
            run_demo(recipe, runs, lambda _: None)
    run_demo(recipe, runs, lambda _: None)
    assert timeless(runs)["updates"] == {"Transformer": 4, "Macaron": 4}
    # Another recipe would make another demo: it is refused before anything is trained.
    recipe.write_text(recipe.read_text().replace("learning_rate = 0.004", "learning_rate = 0.001"))
    with pytest.raises(
        MacaronError, match=r"demo-transformer was started with another recipe.*learning_rate was 0.004, is 0.001"
    ):
        run_demo(recipe, runs, lambda _: None)


@pytest.mark.slow
def test_the_demo_as_users_run_it_meets_its_bar(tmp_path: Path):
    # The time is not tested: other tests run beside this one.
    options = ["--runs", str(tmp_path / "runs"), "--minutes", "60"]
    done = subprocess.run(
        [sys.executable, "-m", "macaron", "demo", *options], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "runs/demo-report.json").read_text())
    assert report["fair"], done.stdout
    assert report["updates"] == {"Transformer": 1000, "Macaron": 1000}
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
