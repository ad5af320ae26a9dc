"""Training that starts from a model, and parts that keep their weights."""

import json
import random
import shutil
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from macaron import Translator
from macaron.convert import convert_fairseq
from macaron.data.prepare import prepare
from macaron.lab.compare.fairness import Question, differences
from macaron.lab.compare.finished_run import FinishedRun
from macaron.recipe import data_recipe
from macaron.text import MacaronTokenizer
from macaron.text.extension import origins

GOLDEN = Path(__file__).parents[1] / "golden"
# One update at rate zero: nothing changes.
STILL = ("--set", "train.max_updates=1", "--set", "train.warmup_rate=0")
SHORT = ("--set", "train.max_updates=9", "--set", "train.checkpoint_every=4")


@pytest.fixture(scope="module")
def base(recipe: Path, server: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("base") / "run"
    server.run("train", recipe, "--out", run)
    return run


def weights(run: Path) -> dict[str, Any]:
    return load_file(run / "model" / "model.safetensors")


def words(folder: Path, tokenizer: Path, **settings: Any) -> Path:
    """Prepared pairs of words, among them digits, with the tokenizer of a model."""
    generator = random.Random(5)
    for name, count in (("train", 120), ("valid", 20)):
        choice = ["foo", "bar", "foobar", *map(str, range(10))]
        rows = [generator.choices(choice, k=generator.randint(2, 8)) for _ in range(count)]
        for ending, step in (("src", 1), ("tgt", -1)):
            (folder / f"{name}.{ending}").write_text("".join(" ".join(row[::step]) + "\n" for row in rows))
    content = {
        **{"source_lang": "src", "target_lang": "tgt", "root": str(folder), "out": str(folder / "prepared")},
        **{name: [{"path": name}] for name in ("train", "valid")},
        **{"tokenizer": str(tokenizer), "remove_overlap": "none", **settings},
    }
    return prepare(data_recipe({"data": content}), workers=1).data.folder


def test_before_training_it_is_the_model(recipe: Path, base: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    text = server.run("train", recipe, "--from", base, "--out", run, *STILL, "--set", "model.dropout=0.3")
    ours, theirs = weights(run), weights(base)
    assert ours.keys() == theirs.keys()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    before, after = (json.loads((each / "summary.json").read_text()) for each in (base, run))
    assert after["candidates"]["last"] == before["candidates"][before["final_model"]]
    # All of it is recorded, and what the recipe may change is changed.
    model = tomllib.loads((run / "recipe.toml").read_text())["model"]
    assert model["from"] == str(base)
    assert model["from_weights"] in text
    assert (model["preset"], model["hidden_size"], model["dropout"]) == ("macaron-tiny", 32, 0.3)
    first, second = (json.loads((each / "model" / "config.json").read_text()) for each in (base, run))
    assert {**first, "dropout": 0.3} == second


def test_with_more_subwords(recipe: Path, base: Path, server: Any, tmp_path: Path):
    data, run = words(tmp_path, base, extend_vocab=6), tmp_path / "run"
    text = server.run("train", recipe, "--from", base, "--out", run, *STILL, "--set", f"data.out={data}")
    assert "6 new subwords" in text
    old, new = (MacaronTokenizer.from_pretrained(each / "model") for each in (base, run))
    ours, theirs = (weights(each)["embedding.tokens.weight"] for each in (run, base))
    assert ours[: len(old)].equal(theirs)
    assert len(ours) == len(new) > len(old)
    for index, parts in origins(old, new).items():
        assert ours[index].allclose(theirs[parts].mean(0) if parts else theirs.mean(0))
    # The logit of a new piece is a mean of old logits, so it is never the greatest.
    lines = (recipe.parent / "test.src").read_text().splitlines()
    assert old.encode_lines(lines) == new.encode_lines(lines)
    translated = [Translator(each).translate(lines, beam=1) for each in (base, run)]
    assert translated[0] == translated[1]
    # It learns the new pieces: the run goes on.
    more = ("--set", "train.max_updates=8", "--set", "train.warmup_rate=0", "--set", f"data.out={data}")
    server.run("train", recipe, "--from", base, "--out", run, *more, "--resume")
    assert not weights(run)["embedding.tokens.weight"][len(old) :].equal(ours[len(old) :])


def test_a_converted_model(recipe: Path, server: Any, tmp_path: Path):
    model, text = tmp_path / "converted", tmp_path / "text"
    convert_fairseq(GOLDEN / "tiny_macaron_v2_trained" / "checkpoint_min.pt", GOLDEN / "dict.txt", model)
    text.mkdir()
    data = words(text, model)
    chosen = tmp_path / "recipe.toml"  # without a [model]
    chosen.write_text(f'[data]\nout = "{data}"\n[train]\n{recipe.read_text().partition("[train]")[2]}')
    server.run("train", chosen, "--from", model, "--out", tmp_path / "run", *STILL)
    ours, theirs = weights(tmp_path / "run"), load_file(model / "model.safetensors")
    assert all(ours[name].equal(theirs[name].float()) for name in ours)


FROZEN = {
    ("encoder", "embedding"): ("encoder.", "embedding."),
    ("attention",): (".F1.operator.", ".H1.operator."),
    ("ffn", "*norm*"): (".G1.operator.", ".G2.operator.", "norm."),
    ("decoder.layers.0.sublayers.H1",): ("decoder.layers.0.sublayers.H1.",),
}
EVERYTHING = ("--set", "train.ema=0.9", "--set", "train.average=2", "--set", "train.clip_norm=1", *SHORT)


@pytest.mark.parametrize("parts", FROZEN)
def test_frozen_parts_keep_their_bits(parts: tuple[str, ...], recipe: Path, base: Path, server: Any, tmp_path: Path):
    freeze = ("--set", f"train.freeze={json.dumps(parts)}")
    text = server.run("train", recipe, "--from", base, "--out", tmp_path / "run", *EVERYTHING, *freeze)
    before = weights(base)
    still = {name for name in before if any(part in name for part in FROZEN[parts])}
    trained = sum(tensor.numel() for name, tensor in before.items() if name not in still)
    assert f"({trained:,} of them trained)" in text
    last = load_file(tmp_path / "run" / "checkpoints" / "update-00000009" / "weights.safetensors")
    for after in (weights(tmp_path / "run"), {name.removeprefix("model."): last[name] for name in last}):
        assert {name for name in before if before[name].equal(after[name])} == still


PARTLY = ("--set", 'train.freeze=["encoder", "norm"]', *EVERYTHING)


def test_it_is_resumed_exactly_and_without_the_model(
    recipe: Path, base: Path, server: Any, same_run: Any, tmp_path: Path
):
    model = shutil.copytree(base / "model", tmp_path / "model")
    server.run("train", recipe, "--from", model, "--out", tmp_path / "whole", *PARTLY)
    run = tmp_path / "run"
    command = server.start(
        *("train", recipe, "--from", model, "--out", run, *PARTLY), kill_at=["macaron.train.loop.Trainer._save", 2]
    )
    assert command.wait() == -signal.SIGKILL
    shutil.rmtree(model)
    other = ("--set", "model.dropout=0.4")
    refused = server.run("train", recipe, "--from", model, "--out", run, *PARTLY, *other, "--resume", code=1)
    assert "model.dropout was " in refused
    server.run("train", recipe, "--from", model, "--out", run, *PARTLY, "--resume")
    same_run(tmp_path / "whole", run)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ddp", "fsdp"])
def test_two_processes_are_one(how: str, recipe: Path, base: Path, server: Any, metrics: Any, tmp_path: Path):
    # As in test_distributed: without dropout, and with an epsilon that does not amplify rounding.
    off = [f"model.{name}=0" for name in ("dropout", "attention_dropout", "activation_dropout")]
    settings = [*PARTLY, *(part for each in [*off, "train.epsilon=1e-3"] for part in ("--set", each))]
    one, two = tmp_path / "one", tmp_path / "two"
    server.run("train", recipe, "--from", base, "--out", one, *settings)
    server.run_group(2, "train", recipe, "--from", base, "--out", two, *settings, "--set", f"train.distributed={how}")
    losses = [[each["loss"] for each in metrics(run) if "loss" in each] for run in (one, two)]
    assert losses[0]
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)
    ours, theirs = weights(one), weights(two)
    assert max(float((ours[name] - theirs[name]).abs().max()) for name in ours) < 1e-5
    frozen = [name for name in ours if name.startswith("encoder.") or "norm." in name]
    assert all(theirs[name].equal(weights(base)[name]) for name in frozen)


REFUSED = {
    "model.hidden_size=64": "model.hidden_size = 64 does not fit",
    "model.preset=transformer-tiny": "model.preset = 'transformer-tiny' does not fit",
    "model.scheme=lie-fg": "model.scheme = 'lie-fg' does not fit",
    "model.from_weights=0123": "not the weights that the recipe names",
    'train.freeze=["enkoder"]': "'enkoder' matches no weight of the model",
    'train.freeze=["*"]': "leaves nothing to train",
}


@pytest.mark.parametrize("setting", REFUSED)
def test_what_does_not_fit_is_refused_by_name(setting: str, recipe: Path, base: Path, server: Any, tmp_path: Path):
    run = tmp_path / "run"
    chosen = ("--set", f"model.from={base}", "--set", setting)
    assert REFUSED[setting] in server.run("train", recipe, "--out", run, *chosen, code=1)
    assert not run.exists()


def test_another_tokenizer_is_refused_with_the_remedy(recipe: Path, base: Path, server: Any, tmp_path: Path):
    data, run = words(tmp_path, base, extend_vocab=6), tmp_path / "run"
    server.run("train", recipe, "--from", base, "--out", run, *STILL, "--set", f"data.out={data}")
    # The extended model does not fit the data of the first one.
    text = server.run("train", recipe, "--from", run, "--out", tmp_path / "again", *STILL, code=1)
    assert f"macaron prepare --train ... --tokenizer {run}" in text


def test_a_missing_model_is_refused_before_anything_else(recipe: Path, macaron: Any, tmp_path: Path):
    done = macaron("train", recipe, "--from", tmp_path / "none", "--out", tmp_path / "run")
    assert done.returncode == 1
    assert "none: no such folder" in done.stderr


def test_comparisons_know_where_a_run_started(recipe: Path, base: Path, server: Any, tmp_path: Path):
    for name, start in (("fresh", ()), ("from", ("--from", base))):
        server.run("train", recipe, *start, "--out", tmp_path / name, *SHORT)
    runs = [FinishedRun(tmp_path / name) for name in ("fresh", "from")]
    (found,) = differences(*runs, Question())
    assert (found.key, found.first, found.effect) == ("model.from", "–", "unfair")


def test_embeddings_begin_as_word_vectors(recipe: Path, base: Path, server: Any, tmp_path: Path):
    counts = ("--set", "train.embeddings=counts")
    text = server.run("train", recipe, "--out", tmp_path / "still", *STILL, *counts)
    assert "embeddings begin as word vectors" in text
    server.run("train", recipe, "--out", tmp_path / "drawn", *STILL)
    ours, drawn = weights(tmp_path / "still"), weights(tmp_path / "drawn")
    name = "embedding.tokens.weight"
    assert [key for key in ours if not ours[key].equal(drawn[key])] == [name]
    rows = (ours[name] != drawn[name]).any(1)
    assert 0 < rows.sum() < len(rows)  # tokens that do not occur keep theirs
    lengths = ours[name][rows].norm(dim=1)
    assert lengths.std() < 1e-4 * lengths.mean()
    # A run that was stopped goes on from its weights and ends as one that was not.
    for run in ("whole", "parts"):
        server.run("train", recipe, "--out", tmp_path / run, *SHORT, *counts)
    for checkpoint in sorted((tmp_path / "parts/checkpoints").glob("update-*"))[1:]:
        shutil.rmtree(checkpoint)
    shutil.rmtree(tmp_path / "parts/model")
    said = server.run("train", recipe, "--out", tmp_path / "parts", *SHORT, *counts, "--resume")
    assert "word vectors" not in said
    whole, parts = (weights(tmp_path / run) for run in ("whole", "parts"))
    assert all(whole[key].equal(parts[key]) for key in whole)
    said = server.run("train", recipe, "--from", base, "--out", tmp_path / "refused", *counts, code=1)
    assert "train.embeddings = 'counts' is for a new model" in said
    assert not (tmp_path / "refused").exists()
