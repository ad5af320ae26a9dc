"""Twins: equal in size before anything is trained, trained through the real function, stopped and gone on with."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from macaron.data.prepared import read_manifest
from macaron.errors import Interrupted, MacaronError, UsageError
from macaron.lab.twins import NUMBERS, PAGE, control_changes, make_twins, resolve, with_budget
from macaron.models import EncoderForPreTraining, TranslationConfig, TranslationModel, preset
from macaron.models.summary import count
from macaron.nn.budget import TOLERANCE
from macaron.ode.catalogue import two_operator_names
from macaron.recipe import Recipe, configuration, load_recipe
from macaron.settings import write_toml
from macaron.train.stopping import StopSignals

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def weights(run: Path) -> dict[str, Any]:
    return load_file(run / "model" / "model.safetensors")


def same(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(tensor.equal(theirs[key]) for key, tensor in ours.items())


def test_a_set_is_trained_compared_and_kept(recipe: Path, tmp_path: Path):
    said: list[str] = []
    names = ["transformer", "strang-gfg", "control"]
    twins = make_twins(load_recipe(recipe, []), names, 1, tmp_path / "set", say=said.append)
    assert said[0].startswith("lie-fg: ")
    result = twins.run()
    assert result is not None
    found = result.to_dict()
    assert [kind["label"] for kind in found["kinds"]] == ["lie-fg", "strang-gfg", "control"]
    assert all(each["fairness"]["fair"] for each in found["comparisons"])
    assert json.loads((tmp_path / "set" / NUMBERS).read_text()) == json.loads(json.dumps(found))
    assert "control" in (tmp_path / "set" / PAGE).read_text()
    assert [line for line in said if line.startswith("run ")] == [
        f"run {i} of 3: {name}, seed 1 ({tmp_path / 'set' / f'{name}-seed1'})"
        for i, name in enumerate(["lie-fg", "strang-gfg", "control"], start=1)
    ]
    # More seeds are added to what is there, which is left alone.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "set").glob("*-seed1/model/*")}
    more = make_twins(load_recipe(recipe, []), names[:2], 2, tmp_path / "set", say=said.append).run()
    assert more is not None
    assert [len(kind.runs) for kind in more.kinds] == [2, 2]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    seeds = [weights(tmp_path / "set" / f"lie-fg-seed{seed}") for seed in (1, 2)]
    assert not all(tensor.equal(seeds[1][key]) for key, tensor in seeds[0].items())
    # Another recipe in the same folder would be another set.
    with pytest.raises(MacaronError, match=r"was started with another recipe.*train.learning_rate was 0.01, is 0.1"):
        make_twins(load_recipe(recipe, ["train.learning_rate=0.1"]), names, 1, tmp_path / "set", say=said.append).run()


@pytest.mark.slow
def test_stopped_and_started_again_it_goes_on_exactly(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = ["lie-fg", "strang-gfg"]
    make_twins(load_recipe(recipe, []), names, 1, tmp_path / "whole", say=lambda _: None).run()
    twins = make_twins(load_recipe(recipe, []), names, 1, tmp_path / "set", say=lambda _: None)
    entered = 0

    def stop_the_second(signals: StopSignals) -> StopSignals:
        nonlocal entered
        entered += 1
        signals.received = entered == 2
        return signals

    with monkeypatch.context() as patch:
        patch.setattr("macaron.train.stopping.StopSignals.__enter__", stop_the_second)
        with pytest.raises(
            Interrupted, match=r"stopped in run 2 of 2: stopped at update 1; finished runs are kept.* the same command$"
        ):
            twins.run()
    assert not (tmp_path / "set" / PAGE).exists()
    assert not (tmp_path / "set" / "strang-gfg-seed1" / "model").exists()
    result = twins.run()
    assert result is not None
    found = result.to_dict()
    assert [len(kind["runs"]) for kind in found["kinds"]] == [1, 1]
    for name in ("lie-fg-seed1", "strang-gfg-seed1"):
        assert same(tmp_path / "whole" / name, tmp_path / "set" / name)


@pytest.mark.slow
def test_killed_and_started_again_through_the_command(recipe: Path, tmp_path: Path):
    settings = ["--seeds", "2", "--budget", "60", "--set", "train.checkpoint_every=5"]
    command = [sys.executable, "-m", "macaron", "twins", str(recipe), *settings, "--out"]

    def done(out: Path) -> str:
        ended = subprocess.run([*command, str(out)], capture_output=True, text=True, env=ENVIRONMENT, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    said = done(tmp_path / "whole")
    assert f"Page: {tmp_path / 'whole' / PAGE}" in said
    out = tmp_path / "set"
    for number, code, run in ((signal.SIGKILL, -9, "strang-gfg-seed1"), (signal.SIGINT, 130, "lie-fg-seed2")):
        process = subprocess.Popen([*command, str(out)], stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        deadline = time.monotonic() + 120
        while not list(out.glob(f"{run}/checkpoints/update-*")):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(number)
        assert process.stderr is not None
        text = process.stderr.read()
        assert process.wait() == code
        if code == 130:
            assert re.search(r"stopped in run 3 of 4: stopped at update \d+; finished runs are kept", text)
            assert shlex.split(text.partition("Continue with: ")[2])[1:] == [*command[1:], str(out)]
            assert "Traceback" not in text
        assert not (out / run / "model").exists()
    text = done(out)
    assert text.replace(str(out), "") == said.replace(str(tmp_path / "whole"), "")
    for name in ("lie-fg-seed1", "strang-gfg-seed1", "lie-fg-seed2", "strang-gfg-seed2"):
        assert same(tmp_path / "whole" / name, out / name)


@pytest.mark.slow
def test_in_several_processes(recipe: Path, tmp_path: Path):
    """As torchrun starts them: every run has a meeting of its own, and one process speaks and writes the page."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "macaron"]
    command += ["twins", str(recipe), "--seeds", "2", "--set", "train.accumulate=2", "--out", str(tmp_path / "set")]
    for _ in range(2):  # the second time all is finished
        ended = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False, timeout=300)
        assert ended.returncode == 0, ended.stderr
        assert ended.stdout.count("Page: ") == 1
        assert ended.stderr.count("run 4 of 4") == 1
    alone = make_twins(
        load_recipe(recipe, ["train.accumulate=2"]), ["lie-fg", "strang-gfg"], 2, tmp_path / "alone", say=lambda _: None
    ).run()
    assert alone is not None
    both = json.loads((tmp_path / "set" / NUMBERS).read_text())
    for ours, theirs in zip(both["kinds"], alone.to_dict()["kinds"], strict=True):
        for one, other in zip(ours["runs"], theirs["runs"], strict=True):
            assert one["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-4)


def test_every_scheme_of_the_catalogue_has_its_size_checked(recipe: Path, tmp_path: Path):
    """Those that are too large or too small for these layers are refused, the others agree within 0.5 %."""
    loaded = load_recipe(recipe, ["model.hidden_size=256", "model.intermediate_size=1024"])
    vocabulary = read_manifest(loaded.data)["vocab_size"]
    sizes: dict[str, int] = {}
    for name in (*two_operator_names(), "strang-gfg/strang3-gfhfg", "control"):
        if name != "lie-fg":
            twins = make_twins(loaded, ["lie-fg", name], 1, tmp_path, say=lambda _: None)
            sizes |= {kind: count(configuration(own, vocabulary)) for kind, own, _ in twins.plan}
    assert len(sizes) > 20
    assert all(abs(size / sizes["lie-fg"] - 1) <= TOLERANCE for size in sizes.values())


def test_unequal_networks_are_refused_before_anything_is_trained(recipe: Path, tmp_path: Path):
    small = load_recipe(recipe, ["model.hidden_size=8", "model.intermediate_size=16"])
    out = tmp_path / "set"
    with pytest.raises(MacaronError, match=r"control and lie-fg differ in size by \+\d\.\d\d %.*--allow-unequal"):
        make_twins(small, ["lie-fg", "control"], 1, out, say=lambda _: None)
    assert not out.exists()
    assert len(make_twins(small, ["lie-fg", "control"], 1, out, allow_unequal=True, say=lambda _: None).plan) == 2


@pytest.mark.parametrize("name", ["macaron-tiny", "macaron-base", "macaron-bert-base"])
def test_the_control_is_the_transformer_with_half_a_network_at_both_ends(name: str):
    config = preset(name)
    control = preset(name, **control_changes(config))
    transformer = preset(name, scheme="lie-fg")
    assert abs(count(control) / count(transformer) - 1) < TOLERANCE
    # As many applications of each operator as in the Transformer, but for G: its first is halved and goes to both ends.
    import torch

    with torch.device("meta"):
        kind = TranslationModel if isinstance(config, TranslationConfig) else EncoderForPreTraining
        model, plain = kind(control), kind(transformer)
    stacks = [("encoder", "F")] + ([("decoder", "FH")] if hasattr(model, "decoder") else [])
    for part, attention in stacks:
        ours, theirs = (each if hasattr(each, part) else each.model for each in (model, plain))
        walks = [
            [
                (move.sublayer[0], move.coefficient)
                for step in getattr(each, part).steps
                for _, moves in step.walk
                for move in moves
            ]
            for each in (ours, theirs)
        ]
        layers = len(walks[1]) // (1 + len(attention))
        block = [(operator, 1.0) for operator in (*attention, "G")]
        assert walks[1] == block * layers
        assert walks[0] == [("G", 0.5), *(block * layers)[:-1], ("G", 0.5)]


def test_names():
    assert [resolve(name) for name in ("transformer", "macaron", "sws", "control")] == [
        *("lie-fg", "strang-gfg", "sws", "control")
    ]
    assert resolve("macaron/strang3-gfhfg") == "strang-gfg/strang3-gfhfg"
    with pytest.raises(MacaronError, match="did you mean 'strang-gfg'"):
        resolve("strang-gfgg")
    with pytest.raises(UsageError, match=r"a decoder's scheme .* write ENCODER/strang-gfhg.* replacing F by F H"):
        resolve("strang-gfhg")
    with pytest.raises(UsageError, match="no cross-attention"):
        resolve("lie-fg/lie-fg")


def test_refusals(recipe: Path, tmp_path: Path):
    def refused(words: str, schemes: str, *settings: str, **options: Any) -> None:
        with pytest.raises(MacaronError, match=words):
            make_twins(
                load_recipe(recipe, list(settings)),
                schemes.split(","),
                1,
                tmp_path / "set",
                say=lambda _: None,
                **options,
            )
        assert not (tmp_path / "set").exists()

    refused("names 'lie-fg' twice", "lie-fg,transformer")
    refused("the recipe sets model.decoder_scheme", "lie-fg,sws", "model.decoder_scheme=strang-gfhg")
    refused(
        "control needs at least 2 layers, and model.encoder_layers is 1", "lie-fg,control", "model.encoder_layers=1"
    )
    refused("no such file. Is .* a folder that 'macaron prepare' wrote", "lie-fg,sws", f"data.out={tmp_path}")


def test_the_budget_is_updates(recipe: Path, tmp_path: Path):
    timed = Recipe(**{**vars(load_recipe(recipe, [])), "train": load_recipe(recipe, ["train.max_minutes=1"]).train})
    given = with_budget(timed, 50).train
    assert (given.max_updates, given.max_epochs, given.max_minutes) == (50, None, None)
    assert with_budget(timed, None).train.max_minutes == 1  # a cap, which the page would name
    text = recipe.read_text().replace("max_updates = 6", "max_minutes = 1")
    other = recipe.with_name("timed.toml")
    other.write_text(text)
    assert with_budget(load_recipe(other, []), 7).train.max_updates == 7
    # What is chosen is chosen for the budget, not for the minutes that it replaces.
    said: list[str] = []
    chosen = load_recipe(other, ["model.preset=auto"])
    make_twins(chosen, ["lie-fg", "sws"], 1, tmp_path, budget=7, allow_unequal=True, say=said.append)
    assert "7 updates on" in "\n".join(said)
    assert "minutes" not in "\n".join(said)
    by_epochs = recipe.with_name("epochs.toml")
    by_epochs.write_text(text.replace("max_minutes", "max_epochs"))
    assert with_budget(load_recipe(by_epochs, []), None).train.max_epochs == 1
    # A warm-up that would not end becomes a tenth; a shorter one is the recipe's.
    assert [with_budget(load_recipe(recipe, [f"train.warmup={n}"]), 40).train.warmup for n in (39, 40)] == [39, 4]


def test_minutes_give_all_twins_the_same_updates(recipe: Path, tmp_path: Path):
    """The slowest twin decides, once: the number is in the first run's recipe, and the same command goes on with it."""
    timed = recipe.with_name("minutes.toml")
    timed.write_text(recipe.read_text().replace("max_updates = 6", "max_minutes = 0.02"))
    said: list[str] = []

    def trains() -> list[Any]:
        planned = make_twins(load_recipe(timed, []), ["lie-fg", "strang-gfg"], 2, tmp_path / "set", say=said.append)
        return [own.train for _, own, _ in planned.plan]

    found = trains()
    assert said[-1].startswith("pace: ")
    assert len({each.max_updates for each in found}) == 1
    assert [(each.max_minutes, each.seed) for each in found] == [(None, 1), (None, 1), (None, 2), (None, 2)]
    assert all(each.warmup <= max(1, round(each.max_updates / 10)) for each in found)
    chosen = replace(found[0], max_updates=7)  # what another speed would have given
    (tmp_path / "set" / "lie-fg-seed1").mkdir(parents=True)
    stored = replace(load_recipe(timed, ["model.scheme=lie-fg"]), train=chosen)
    (tmp_path / "set" / "lie-fg-seed1" / "recipe.toml").write_text(write_toml(stored.to_data()))
    assert [each.max_updates for each in trains()] == [7, 7, 7, 7]
    assert trains()[0] == chosen
    assert "7 updates of each run, as chosen when" in said[-1]
