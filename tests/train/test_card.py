"""The model card that training writes: what it says, who may read it, and that a user's own stays."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard

from macaron.seal import damaged, fingerprint, recorded

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"


@pytest.fixture(scope="module")
def run(macaron: Callable[..., Any], recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that measures chrF."""
    out = tmp_path_factory.mktemp("card") / "run"
    done = macaron("train", recipe, "--out", out, "--set", "train.max_updates=20", "--set", "train.best_metric=chrf")
    assert done.returncode == 0, done.stderr
    return out


def resumed(macaron: Callable[..., Any], recipe: Path, run: Path, updates: int) -> str:
    settings = ("--set", f"train.max_updates={updates}", "--set", "train.best_metric=chrf")
    done = macaron("train", recipe, "--out", run, "--resume", *settings)
    assert done.returncode == 0, done.stderr
    return (run / "model" / "README.md").read_text()


def test_a_run_describes_its_model(run: Path):
    card = ModelCard.load(run / "model" / "README.md")
    data = card.data
    assert (data.language, data.library_name, data.pipeline_tag) == (["src", "tgt"], "macaron", "translation")
    assert (data.datasets, data.license) == (["train"], None)
    assert data.tags == ["macaron", "translation", "strang-gfg"]
    summary = json.loads((run / "summary.json").read_text())
    chosen = summary["final_model"]
    found = {each.metric_type: each for each in data.eval_results}
    assert found["chrf"].metric_value == summary["candidate_scores"][chosen]
    assert found["chrf"].metric_name.startswith("chrF2 ")
    assert "nc:6" in found["chrf"].metric_name
    assert found["nll"].metric_value == summary["candidate_nll"][chosen]
    assert found["loss"].metric_value == summary["candidates"][chosen]
    assert {each.dataset_split for each in found.values()} == {"validation"}
    for part in (
        "Trained on 400 pairs",
        "20 updates",
        "learning_rate = 0.003",
        "import macaron",
        "strang-gfg",
        "chrF2 ",
    ):
        assert part in card.text
    assert str(run.parent) not in card.content  # nothing of this machine


def test_the_card_is_no_part_of_the_model(run: Path, tmp_path: Path):
    model = Path(shutil.copytree(run / "model", tmp_path / "model"))
    assert "README.md" not in (recorded(model) or {})
    before = fingerprint(model)
    (model / "README.md").write_text("# Mine\n")
    assert (damaged(model), fingerprint(model)) == ({}, before)


@pytest.mark.parametrize("edit", ["changed", "new", "none"])
def test_a_users_card_stays(edit: str, macaron: Callable[..., Any], recipe: Path, run: Path, tmp_path: Path):
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    path = copy / "model" / "README.md"
    written = path.read_text()
    mine = {
        "changed": written.replace("library_name", "license: mit\nlibrary_name"),
        "new": "# Mine\r\n",
        "none": written,
    }
    path.write_bytes(mine[edit].encode())
    assert resumed(macaron, recipe, copy, 25) == path.read_text()
    if edit == "none":
        assert "25 updates" in path.read_text()
    else:
        assert path.read_bytes() == mine[edit].encode()


@pytest.mark.parametrize("name", ["text", "classifier"])
def test_other_models(name: str, macaron: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(FIXTURES)
    if name == "text":
        done = macaron("train", "text.toml", "--out", tmp_path / "run", "--set", "train.max_updates=3")
    else:
        rows = [f"{word} {end},{label}\n" for word in "abcdefgh" for end in "xyz" for label in ("good", "bad")]
        for split in ("train", "dev"):
            (tmp_path / f"{split}.csv").write_text("text,mood\n" + "".join(rows))
        files = ("--train", tmp_path / "train.csv", "--dev", tmp_path / "dev.csv", "--text", "text", "--label", "mood")
        done = macaron("finetune", "classifier", *files, "--epochs", 1, "--device", "cpu", "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    card = ModelCard.load(tmp_path / "run" / "model" / "README.md")
    found = {each.metric_type for each in card.data.eval_results}
    if name == "text":
        assert (card.data.pipeline_tag, card.data.language, card.data.datasets) == (
            "fill-mask",
            ["en"],
            ["documents.txt"],
        )
        assert found == {"loss"}
        assert "AutoModelForMaskedLM" in card.text
    else:
        assert (card.data.pipeline_tag, card.data.datasets) == ("text-classification", ["train.csv"])
        assert found == {"accuracy", "f1", "matthews_correlation"}
        assert "Labels: bad, good." in card.text
