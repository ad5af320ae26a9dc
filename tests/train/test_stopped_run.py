"""A run without a final model is used through its checkpoints."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from forked import macaron_text
from macaron.decode import Translator
from macaron.errors import MacaronError
from macaron.lab.run_folder import RunFolder
from macaron.models import TranslationModel
from macaron.models.load import find_folder, load_model, run_of, save_model
from macaron.text.load_tokenizer import load_tokenizer

LINES = "1 2 3\n9 8 7 6 5\n\n4 4\n"


@pytest.fixture(scope="module")
def killed(recipe: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was killed when it was about to choose its final model, far from its data."""
    run = tmp_path_factory.mktemp("killed") / "run"
    server.run(
        *("train", recipe, "--out", run, "--set", "train.max_updates=24", "--set", "train.validate_every=9"),
        kill_at=["macaron.train.checkpoint.candidates", 1],
        code=-9,
    )
    assert not (run / "model").exists()
    written = (run / "recipe.toml").read_text()
    (run / "recipe.toml").write_text(written.replace(str(recipe.parent), "gone"))
    return run


@pytest.fixture
def stopped(killed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(killed, tmp_path / "run"))


def test_translate_takes_the_best_checkpoint_and_says_so(stopped: Path, recipe: Path, tmp_path: Path):
    best = stopped / "checkpoints" / "best-00000018"
    done = macaron_text("translate", stopped, "--one-per-line", text=LINES)
    assert done.returncode == 0, done.stderr
    assert done.stderr == (
        f"{stopped} has no final model yet: using its checkpoint of update 18 (the best so far). To finish the run: "
        f"macaron train --resume --out {stopped}\n"
    )
    # The same as of a model folder with these weights.
    model, lacking = load_model(best, TranslationModel)
    assert lacking == []
    weights = {name.removeprefix("model."): tensor for name, tensor in load_file(best / "weights.safetensors").items()}
    assert model.state_dict().keys() == weights.keys()
    save_model(tmp_path / "model", model, weights, load_tokenizer(best, "translation"))
    same = macaron_text("translate", tmp_path / "model", "--one-per-line", text=LINES)
    assert (same.returncode, same.stdout, same.stderr) == (0, done.stdout, "")
    # A checkpoint can be chosen; its search settings are the recipe's; it belongs to its run.
    last = stopped / "checkpoints" / "update-00000024"
    assert Translator(last).settings.beam == 2
    assert run_of(last) == run_of(best) == stopped
    assert find_folder(last) == last
    # Without a best one, the last is taken.
    shutil.rmtree(best)
    assert "update 24 (the last)" in macaron_text("translate", stopped, "--one-per-line", text=LINES).stderr
    shutil.rmtree(stopped / "checkpoints")
    with pytest.raises(MacaronError, match=r"no model and no checkpoint yet. Continue the run: macaron train --resume"):
        find_folder(stopped)


def test_scores_of_a_checkpoint_are_kept_until_there_is_a_model(stopped: Path, recipe: Path, toy: Path):
    done = macaron_text("evaluate", stopped, "--data", toy, "--json")
    assert done.returncode == 0, done.stderr
    scores = json.loads(done.stdout)["scores"]
    (found,) = RunFolder(stopped).evaluations
    assert found["data"] == f"{toy} (test), 40 sentences"
    assert [{name: each[name] for name in each if name != "rows"} for each in found["scores"]] == scores
    done = macaron_text("report", stopped, "--data", toy)
    assert done.returncode == 0, done.stderr
    text = (stopped / "report.html").read_text()
    assert "There is no final model yet: this is best-00000018." in text
    assert f"{scores[0]['score']:.2f}" in text
    done = macaron_text("train", "--resume", "--out", stopped, "--set", f"data.out={toy}")
    assert done.returncode == 0, done.stderr
    assert RunFolder(stopped).evaluations == []


def test_particles_of_a_stopped_run(stopped: Path, tmp_path: Path):
    done = macaron_text("particles", stopped, "1 2 3", "--out", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "checkpoint of update 18" in done.stderr
