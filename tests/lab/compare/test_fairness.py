"""Which comparisons of real runs are fair."""

import json
import shutil
from collections.abc import Callable
from copy import copy as shallow_copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macaron.data.prepared import PreparedData
from macaron.errors import UsageError
from macaron.evaluate.stored import Search
from macaron.lab.compare import comparison_page as module
from macaron.lab.compare.fairness import Fairness, Question, fairness
from macaron.lab.compare.finished_run import FinishedRun, Kind, open_runs
from macaron.seal import seal

Train = Callable[..., Path]
# Enough for what is tested here, which is not how precise a p-value is.
compare = partial(module.compare, trials=300)


def write_comparison(*arguments: Any, **options: Any) -> dict[str, Any]:
    return json.loads(json.dumps(module.write_comparison(*arguments, trials=300, **options).to_dict()))


def copy(source: Path, place: Path) -> Path:
    return Path(shutil.copytree(source, place))


def changed(run_: FinishedRun, **values: Any) -> FinishedRun:
    """A run with other records."""
    other = shallow_copy(run_)
    vars(other).update(values)
    return other


def test_an_unfair_comparison_is_found_and_ranks_nothing(
    twins: tuple[Path, Path], train: Train, data: Path, tmp_path: Path
):
    other = train("rate", "model.scheme=strang-gfg", "train.learning_rate=0.001", "train.max_updates=80")
    found = write_comparison([twins[0], other], data, "test", tmp_path / "page.html")
    (pair,) = found["comparisons"]
    assert pair["fairness"]["unfair"] == ["train.learning_rate is 0.01 for lie-fg and 0.001 for strang-gfg"]
    assert found["verdict"].startswith(
        "This is not a fair comparison of lie-fg and strang-gfg, so nothing is concluded: train."
    )
    assert pair["deciding_p_value"] is None
    assert pair["tests_over_sentences"] == {}
    text = (tmp_path / "page.html").read_text()
    assert text.count("Not a fair comparison") == 1
    assert "not fair" not in text
    assert text.count("<li>train.learning_rate is 0.01 for lie-fg and 0.001 for strang-gfg</li>") == 1
    assert ">unfair</td>" in text
    assert "Difference in sacreBLEU" not in text

    # If the rate is what somebody wants to compare, it is no flaw.
    meant = compare([twins[1], other], data, vary=["train.learning_rate"])
    assert meant.pairs[0].verdict.outcome == "first"
    assert [kind.label for kind in meant.kinds] == ["macaron", "rate"]
    with pytest.raises(UsageError, match=r"--vary train.learning_rat: no such setting; did you mean 'train.learning_r"):
        compare([twins[1], other], data, vary=["train.learning_rat"])


def test_runs_that_were_stopped_are_named(train: Train, data: Path):
    cap = ("train.max_updates=100000", "train.max_minutes=0.02", "train.schedule=cosine")
    runs = [train(f"capped-{scheme}", f"model.scheme={scheme}", *cap) for scheme in ("lie-fg", "strang-gfg")]
    (pair,) = compare(runs, data).pairs
    updates = [json.loads((each / "summary.json").read_text())["update"] for each in runs]
    if updates[0] != updates[1]:  # the clock decides
        assert pair.verdict.outcome == "unfair"
        assert len(pair.fairness.unfair) == 2
        said = pair.fairness.unfair[0]
    else:
        said = pair.fairness.cautions[0]
    assert said == (
        f"capped-lie-fg was stopped after {updates[0]:,} of 100,000 updates, before its schedule ended (max_minutes)"
    )


def test_other_updates_batches_data_and_dropout_are_unfair_but_not_what_changes_nothing(train: Train, data: Path):
    one = train("base", "model.scheme=lie-fg")
    changed = {
        "train.max_updates": "12",
        "train.batch_tokens": "256",
        "model.dropout": "0.1",
        "train.warmup": "2",
        "decode.beam": "2",
    }
    other = train("changed", *(f"{key}={value}" for key, value in changed.items()), "train.log_every=2", "train.keep=1")
    (pair,) = compare([one, other], data).pairs
    effects = {each.key: each.effect for each in pair.fairness.differences}
    assert {key for key, effect in effects.items() if effect == "unfair"} == set(changed)
    assert {key for key, effect in effects.items() if effect == "harmless"} == {"train.log_every", "train.keep"}
    # The search can be the same for all, whatever the models would do.
    (pair,) = compare([one, other], data, search=Search(beam=2)).pairs
    assert {each.key: each.effect for each in pair.fairness.differences}["decode.beam"] == "harmless"


def test_other_training_data_are_unfair(
    twins: tuple[Path, Path], train: Train, data: Path, tmp_path: Path, prepared: Callable[..., Path]
):
    elsewhere = prepared(tmp_path / "other", letters="abcdefghi")
    other = train("elsewhere", f"data.out={elsewhere}")
    result = compare([train("base", "model.scheme=lie-fg"), other], data)
    (pair,) = result.pairs
    assert any(each.startswith("data.tokenizer is") for each in pair.fairness.unfair)
    assert any(each.startswith("data.training data is") for each in pair.fairness.unfair)
    assert any("not all runs were trained on the training data of" in each for each in result.cautions)
    # Without checkpoints nobody knows, and that is said.
    kept = copy(twins[1], tmp_path / "bare")
    shutil.rmtree(kept / "checkpoints")
    (pair,) = compare([twins[0], kept], data).pairs
    assert not pair.fairness.unfair
    assert "cannot verify that the training data are the same for bare" in pair.fairness.cautions[0]


def test_the_same_lengths_are_not_the_same_data(train: Train, data: Path, tmp_path: Path):
    base = train("base", "model.scheme=lie-fg")
    mixed = copy(data, tmp_path / "mixed")
    store = PreparedData.open(data).pairs("train").target
    sentences = [store[i] for i in range(len(store))]
    ids = [token for sentence in sentences for token in (*sentence[-2::-1], sentence[-1])]  # backwards, the end last
    np.array(ids, dtype=store.ids.dtype).tofile(mixed / "train.tgt.ids")
    seal(mixed)
    moved = copy(data, tmp_path / "moved")
    other, same = (train(each.name, f"data.out={each}", "model.scheme=strang-gfg") for each in (mixed, moved))
    for second, unfair in ((other, ["data.training data"]), (same, [])):
        found = compare([base, second], data).pairs[0].fairness
        assert [reason.split(" is ")[0] for reason in found.unfair] == unfair
        assert found.cautions == ()
    # Also where a folder is gone.
    shutil.rmtree(mixed)
    assert compare([base, other], data).pairs[0].verdict.outcome == "unfair"


def test_the_digest_of_the_data_is_the_runs_own(twins: tuple[Path, Path], data: Path):
    assert open_runs(list(twins))[0].data_digest == PreparedData.open(data).digest


def test_networks_of_unequal_size_are_remarked_upon(train: Train, data: Path):
    wide = train("wide", "model.intermediate_size=256")
    (pair,) = compare([train("base", "model.scheme=lie-fg"), wide], data).pairs
    assert not pair.fairness.unfair
    assert "% more parameters than lie-fg" in pair.verdict.sentence


def test_how_runs_ended(twins: tuple[Path, Path]):
    """Every way a run can end, from a real one whose records are changed."""
    first, second = open_runs(list(twins))

    def ended(run_: FinishedRun, updates: int, seconds: float = 5.0, **limits: Any) -> FinishedRun:
        none = {"max_updates": None, "max_epochs": None, "max_minutes": None}
        settings = replace(run_.recipe.train, **{**none, **limits})
        progress = replace(run_.progress, update=updates, seconds=seconds)
        progress.validations_without_gain = 3
        summary = {**run_.summary, "update": updates}
        recipe = replace(run_.recipe, train=settings)
        return changed(run_, recipe=recipe, progress=progress, summary=summary)

    def judged(one: FinishedRun, other: FinishedRun) -> Fairness:
        return fairness(Kind("one", (one,), 1), Kind("other", (other,), 1), Question())

    # Both came to the end of their schedule.
    found = judged(ended(first, 80, max_updates=80), ended(second, 80, max_updates=80))
    assert (found.unfair, found.cautions) == ((), ())
    # A cap stopped them, at different places or at the same one.
    capped = {"max_updates": 100, "max_minutes": 0.05}
    found = judged(ended(first, 60, **capped), ended(second, 70, **capped))
    assert len(found.unfair) == 2
    assert "macaron was stopped after 70 of 100 updates, before its schedule ended (max_minutes)" in found.unfair
    found = judged(ended(first, 60, **capped), ended(second, 60, **capped))
    assert (len(found.unfair), len(found.cautions)) == (0, 2)
    # One was stopped, the other was not: the cap mattered, so it is not harmless that it differs.
    found = judged(
        ended(first, 80, max_updates=80, max_minutes=60), ended(second, 70, max_updates=80, max_minutes=0.05)
    )
    assert any(each.startswith("train.max_minutes is") for each in found.unfair)
    found = judged(ended(first, 80, max_updates=80, max_minutes=60), ended(second, 80, max_updates=80, max_minutes=9))
    assert not found.unfair
    assert [each.effect for each in found.differences if each.key == "train.max_minutes"] == ["harmless"]
    # Patience is a rule that both follow, wherever it ends them.
    patient = {"max_updates": 100, "patience": 3}
    found = judged(ended(first, 50, **patient), ended(second, 70, **patient))
    assert not found.unfair
    assert "transformer was stopped after 50 of 100 updates, before its schedule ended (patience)" in found.cautions
    # A budget of time compares machines, too.
    timed = [ended(each, updates, max_minutes=0.05) for each, updates in ((first, 60), (second, 70))]
    found = judged(*timed)
    assert not found.unfair
    assert "the budget is time, not updates" in found.cautions[0]
    elsewhere = changed(timed[1], starts=[{**each, "machine": "abacus"} for each in timed[1].starts])
    assert "the runs had different machines" in judged(timed[0], elsewhere).unfair[0]
    # What else a reader should know.
    packages = {**second.starts[0]["packages"], "torch": "1.0"}
    other = changed(second, starts=[{**second.starts[0], "packages": packages}])
    assert "different versions: torch 1.0 / " in judged(first, other).cautions[0]
    other = changed(second, remarks=["environment.json could not be read"])
    assert judged(first, other).cautions == ("macaron: environment.json could not be read",)
    other = changed(second, summary={**second.summary, "final_model": "best"})
    assert "final models were chosen differently" in judged(first, other).cautions[0]
