"""Validation by BLEU or chrF: it decides the best weights, patience and the final model, in one process and in two."""

import json
from pathlib import Path
from typing import Any

import pytest

from macaron.errors import MacaronError
from macaron.recipe import load_recipe
from macaron.train.checkpoint import RunState
from macaron.train.distributed import Processes
from macaron.train.passes import Validation
from macaron.train.settings import SCORED_SENTENCES, TrainSettings

SETTINGS = [
    *("--set", "train.best_metric=bleu", "--set", "train.validate_every=3", "--set", "train.ema=0.9"),
    *("--set", "train.learning_rate=0.01", "--set", "train.average=2", "--set", "train.max_updates=14"),
    *("--set", "train.bleu_sentences=12", "--set", "train.checkpoint_every=4"),
]


@pytest.fixture(scope="module")
def whole(recipe: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody stopped."""
    run = tmp_path_factory.mktemp("whole") / "run"
    server.run("train", recipe, "--out", run, *SETTINGS)
    return run


def state(run: Path) -> dict[str, Any]:
    path = max((run / "checkpoints").glob("update-*")) / "state.json"
    found: dict[str, Any] = json.loads(path.read_text())["progress"]
    return found


def scheduled(run: Path, metrics: Any, name: str) -> dict[int, float]:
    """The values of a validation metric that count."""
    return {each["update"]: each[name] for each in metrics(run) if name in each and "end" not in each}


def test_bleu_decides(whole: Path, metrics: Any):
    bleu, chrf = (scheduled(whole, metrics, name) for name in ("valid_sacrebleu", "valid_chrf"))
    loss = scheduled(whole, metrics, "valid_loss")
    assert list(bleu) == list(chrf) == list(loss) == [3, 6, 9, 12]
    best = max(bleu, key=bleu.__getitem__)
    assert state(whole)["best_update"] == best
    assert state(whole)["best_value"] == bleu[best]
    assert [path.name for path in (whole / "checkpoints").glob("best-*")] == [f"best-{best:08d}"]
    summary = json.loads((whole / "summary.json").read_text())
    scores = summary["candidate_scores"]
    assert list(scores) == list(summary["candidates"]) == ["last", "best", "average of 2", "running mean"]
    assert scores["best"] == bleu[best]
    assert summary["final_model"] == max(scores, key=scores.get)


def test_scores_are_those_of_the_saved_model(whole: Path, toy: Path, server: Any, tmp_path: Path, metrics: Any):
    """The translations of a validation are those of macaron translate, with the beam of the recipe."""
    from macaron.data.prepared import PreparedData
    from macaron.decode import Translator
    from macaron.evaluate import chrf, sacre_bleu

    data = PreparedData.open(toy)
    lines, references = (data.text("valid", language)[:12] for language in (data.source_lang, data.target_lang))
    found = Translator(whole / "model", device="cpu").translate(lines, one_per_line=True)
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["candidate_scores"][summary["final_model"]] == sacre_bleu(found, references).score
    run = tmp_path / "run"
    arguments = ("--set=train.best_metric=chrf", "--set=train.max_updates=5", "--set=train.average=0")
    server.run("train", toy.parent / "recipe.toml", "--out", run, *SETTINGS, *arguments)
    found = Translator(run / "model", device="cpu").translate(lines, one_per_line=True)
    summary = json.loads((run / "summary.json").read_text())
    assert summary["candidate_scores"][summary["final_model"]] == chrf(found, references).score


def test_resume_is_exact(whole: Path, recipe: Path, server: Any, same_run: Any, tmp_path: Path):
    run = tmp_path / "run"
    for updates in ("7", "14"):
        server.run("train", recipe, "--out", run, *SETTINGS, "--set", f"train.max_updates={updates}", "--resume")
    same_run(whole, run)
    kept, expected = state(run), state(whole)
    assert (kept["best_value"], kept["best_update"]) == (expected["best_value"], expected["best_update"])


@pytest.mark.parametrize("how", ["ddp", pytest.param("fsdp", marks=pytest.mark.slow)])
def test_two_processes_decide_together(how: str, whole: Path, recipe: Path, server: Any, metrics: Any, tmp_path: Path):
    """Only one of two processes translates, and both must know."""
    run = tmp_path / "run"
    patient = ("--set", "train.patience=2", "--set", f"train.distributed={how}", "--set", "model.dropout=0")
    others = (
        "--set",
        "model.attention_dropout=0",
        "--set",
        "model.activation_dropout=0",
        "--set",
        "train.epsilon=1e-3",
    )
    server.run("train", recipe, "--out", tmp_path / "one", *SETTINGS, *patient, *others)
    server.run_group(2, "train", recipe, "--out", run, *SETTINGS, *patient, *others)
    assert scheduled(run, metrics, "valid_sacrebleu") == scheduled(tmp_path / "one", metrics, "valid_sacrebleu")
    ours, theirs = (state(each) for each in (run, tmp_path / "one"))
    for key in ("update", "best_update", "best_value", "validations_without_gain"):
        assert ours[key] == theirs[key], key


def test_patience_counts_the_metric(recipe: Path, server: Any, metrics: Any, tmp_path: Path):
    """Nothing is learned, and equal scores are no improvement."""
    still = ("--set", "train.patience=2", "--set", "train.learning_rate=1e-30", "--set", "train.warmup=0")
    server.run("train", recipe, "--out", tmp_path / "run", *SETTINGS, *still, "--set", "train.learning_rate=1e-30")
    assert state(tmp_path / "run")["update"] == 9
    assert state(tmp_path / "run")["best_update"] == 3


def test_resume_with_another_metric_or_search_is_refused(whole: Path, recipe: Path, server: Any):
    for change, words in (
        ("train.best_metric=chrf", "train.best_metric was 'bleu', is 'chrf'"),
        ("decode.beam=1", "decode.beam was 2, is 1"),
    ):
        text = server.run("train", recipe, "--out", whole, *SETTINGS, "--resume", "--set", change, code=1)
        assert words in text


def test_which_value_is_better():
    validation = {
        metric: Validation(None, TrainSettings(max_updates=1, best_metric=metric), Processes(), None, None)  # type: ignore[arg-type]
        for metric in ("loss", "bleu")
    }
    for metric, better in (("loss", 1.0), ("bleu", 3.0)):
        assert validation[metric].rank(better) < validation[metric].rank(2.0) < validation[metric].rank(float("nan"))
        assert validation[metric].rank(2.0) == validation[metric].rank(2.0)
    values = {"last": 2.0, "best": 3.0, "same": 3.0, "mean": float("nan"), "least": 1.0}
    assert min(values, key=lambda name: validation["bleu"].rank(values[name])) == "best"
    assert min(values, key=lambda name: validation["loss"].rank(values[name])) == "least"


def test_number_of_sentences():
    assert TrainSettings(max_updates=1).scored_sentences == 0
    assert TrainSettings(max_updates=1, bleu_sentences=7).scored_sentences == 7
    assert TrainSettings(max_updates=1, best_metric="bleu").scored_sentences == SCORED_SENTENCES
    assert TrainSettings(max_updates=1, best_metric="chrf", bleu_sentences=7).scored_sentences == 7
    assert RunState().best_value is None


def test_pre_training_has_no_bleu(tmp_path: Path):
    path = tmp_path / "recipe.toml"
    path.write_text('[data]\nkind = "text"\nout = "nowhere"\n[train]\nmax_updates = 1\nbest_metric = "bleu"\n')
    with pytest.raises(MacaronError, match=r"train.best_metric = 'bleu' is for translation; plain text has 'loss'"):
        load_recipe(path)
