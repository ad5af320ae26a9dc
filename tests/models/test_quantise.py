"""``macaron quantise``: folders in int8 are small and complete, and are checked when they are read."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from macaron.errors import MacaronError
from macaron.models import LanguageModel, TranslationModel, preset
from macaron.models.load import INT8, QUANTISATION, find_folder, load_model, read_weights, save_model
from macaron.models.quantise import quantise
from macaron.models.translation import LanguageForSequenceClassification
from macaron.nn.linear import round_rows
from macaron.seal import damaged, recorded, seal
from macaron.tasks.classifier import Predictor
from macaron.text import MacaronTokenizer
from operators import OPERATORS, tiny
from sealing import unseal
from served import CLASSIFIER, TRANSLATION

Tensors = dict[str, torch.Tensor]
FC1 = "encoder.layers.0.sublayers.G1.operator.fc1.weight"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained translation model in int8."""
    folder = tmp_path_factory.mktemp("small") / "model"
    quantise(TRANSLATION, folder)
    return folder


@given(st.integers(0, 1 << 20), st.integers(1, 12), st.integers(1, 70), st.integers(-20, 5))
def test_rounded_rows(seed: int, rows: int, columns: int, size: int):
    draw = torch.Generator().manual_seed(seed)
    matrix = torch.randn(rows, columns, generator=draw) * torch.rand(rows, 1, generator=draw) * 2.0**size
    matrix[:: rows // 3 + 1] = 0
    rounded, scales = round_rows(matrix)
    restored = rounded * scales[:, None]
    assert bool(((restored - matrix).abs() <= scales[:, None] * 0.5001).all())
    # What is restored is rounded to the same int8 numbers: their scales differ by rounding in float32 alone.
    again, their_scales = round_rows(restored)
    assert torch.equal(again, rounded)
    torch.testing.assert_close(their_scales, scales, rtol=2.5e-7, atol=1e-12)


def test_what_is_written(tmp_path: Path, macaron: Callable[..., Any]):
    source = tmp_path / "source"
    shutil.copytree(TRANSLATION, source)
    (source / "README.md").write_text("# A card\n")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text("{}")
    done = macaron("quantise", source, "--out", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    small, before, after = tmp_path / "small", read_weights(source), load_file(tmp_path / "small" / "model.safetensors")
    matrices = {name for name, each in before.items() if each.dim() == 2}
    assert matrices == {name for name, each in after.items() if each.dtype == torch.int8}
    assert after.keys() == before.keys() | {f"{name}_scale" for name in matrices}
    assert {each.dtype for each in after.values()} == {torch.int8, torch.float32}
    assert all(torch.equal(after[name], before[name]) for name in before.keys() - matrices)
    config = json.loads((small / "config.json").read_text())
    assert config.pop(QUANTISATION) == INT8
    assert config == {**json.loads((source / "config.json").read_text()), "dtype": "float32"}
    others = {path.relative_to(source) for path in source.rglob("*") if path.is_file()}
    assert {path.relative_to(small) for path in small.rglob("*") if path.is_file()} == {*others, Path("digests.json")}
    for name in others - {Path("config.json"), Path("model.safetensors")}:
        assert (small / name).read_bytes() == (source / name).read_bytes()
    assert set(recorded(small) or ()) == {str(name) for name in others if name.suffix != ".md"}
    assert not damaged(small)


def test_a_model_of_14_million_parameters_has_at_most_16_megabytes(tmp_path: Path):
    draw, letters = random.Random(0), "etaoinsrhldcumfpgwybvkxjqz"
    words = ["".join(draw.choices(letters, k=draw.randint(4, 9))) for _ in range(12_000)]
    tokenizer = MacaronTokenizer.train([" ".join(words[i : i + 10]) for i in range(0, 12_000, 10)] * 2, 12_000)
    shape = {"hidden_size": 320, "num_attention_heads": 5, "intermediate_size": 1280, "decoder_layers": 2}
    model = TranslationModel(preset("transformer-small", vocab_size=len(tokenizer), **shape))
    assert 14.4e6 < model.num_parameters() < 14.6e6
    save_model(tmp_path / "model", model, None, tokenizer)
    quantise(tmp_path / "model", tmp_path / "small")
    assert sum(path.stat().st_size for path in (tmp_path / "small").iterdir()) < 16e6


def restored(folder: Path) -> Tensors:
    """The weights of a folder, its matrices rounded."""
    rounded = {name: round_rows(each) for name, each in read_weights(folder).items() if each.dim() == 2}
    return read_weights(folder) | {name: each * scales[:, None] for name, (each, scales) in rounded.items()}


def test_every_reader_gets_the_restored_matrices(small: Path, tmp_path: Path):
    model = TranslationModel.from_pretrained(small)
    wanted = restored(TRANSLATION)
    assert not model.in_int8
    assert all(torch.equal(each, wanted[name]) for name, each in model.state_dict().items())
    quantise(CLASSIFIER, tmp_path / "classifier")
    texts = ["the cat sat", "it was bad"]
    found, before = (
        Predictor(folder, "cpu").predict_rows([[t] for t in texts]) for folder in (tmp_path / "classifier", CLASSIFIER)
    )
    for mine, theirs in zip(found, before, strict=True):
        assert mine is not None
        assert theirs is not None
        assert mine["label"] == theirs["label"]
        assert mine["probability"] == pytest.approx(theirs["probability"], abs=0.02)


def test_a_language_model_and_other_sources(tmp_path: Path):
    tokenizer = MacaronTokenizer.train(["the cat sat on the mat"], 280, kind="language")
    model = LanguageModel(preset("macaron-gpt-tiny", vocab_size=len(tokenizer))).bfloat16()
    run = tmp_path / "run"
    save_model(run / "model", model, None, tokenizer)
    quantise(run, tmp_path / "small")
    again = LanguageModel.from_pretrained(tmp_path / "small")
    assert {each.dtype for each in again.state_dict().values()} == {torch.float32}
    # A checkpoint has its weights under other names, and the state of the run, which stays behind.
    place = run / "checkpoints" / "best-00000002"
    place.parent.mkdir()
    (run / "model").rename(place)
    weights = load_file(place / "model.safetensors")
    (place / "model.safetensors").unlink()
    save_file({f"model.{name}": each for name, each in weights.items()}, place / "weights.safetensors")
    (place / "state.json").write_text("{}")
    quantise(unseal(run), tmp_path / "of-a-checkpoint")
    one, other = (read_weights(tmp_path / name) for name in ("small", "of-a-checkpoint"))
    assert one.keys() == other.keys()
    assert all(torch.equal(each, other[name]) for name, each in one.items())
    assert not (tmp_path / "of-a-checkpoint" / "state.json").exists()


def test_a_classifier_on_a_language_model(tmp_path: Path):
    tokenizer = MacaronTokenizer.train(["the cat sat on the mat"], 280, kind="language")
    config = preset("macaron-gpt-tiny", vocab_size=len(tokenizer), id2label={0: "a", 1: "b"})
    save_model(tmp_path / "model", LanguageForSequenceClassification(config), None, tokenizer)
    quantise(tmp_path / "model", tmp_path / "small")
    again, wanted = load_model(tmp_path / "small", LanguageForSequenceClassification)[0], restored(tmp_path / "model")
    assert all(torch.equal(each, wanted[name]) for name, each in again.state_dict().items())


def test_refusals(small: Path, tmp_path: Path, macaron: Callable[..., Any]):
    done = macaron("quantise", small, "--out", tmp_path / "again")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"macaron: {small}: its matrices are int8 already\n"
    with pytest.raises(MacaronError, match="is not empty: give another --out"):
        quantise(TRANSLATION, small)
    tokenizer = MacaronTokenizer.train(["the cat sat on the mat"], 280)
    weighted = tiny(OPERATORS["weighted"], len(tokenizer))
    save_model(tmp_path / "weighted", weighted, None, tokenizer)
    with pytest.raises(MacaronError, match=r"weighted: weighted branches cannot be int8 \('"):
        quantise(tmp_path / "weighted", tmp_path / "out")
    broken = read_weights(TRANSLATION)
    broken[FC1][3, 4] = torch.nan
    shutil.copytree(TRANSLATION, tmp_path / "broken")
    save_file(broken, tmp_path / "broken" / "model.safetensors")
    with pytest.raises(MacaronError, match="broken: the weights contain non-finite values in"):
        quantise(tmp_path / "broken", tmp_path / "out")
    foreign = read_weights(TRANSLATION)
    foreign["embedding.tokens.weight"] = foreign["embedding.tokens.weight"].T.contiguous()
    save_file(foreign, tmp_path / "broken" / "model.safetensors")
    with pytest.raises(MacaronError, match=r"broken: the weights have 'embedding\.tokens\.weight'"):
        quantise(tmp_path / "broken", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert macaron("quantise", TRANSLATION).returncode == 2


def without(name: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {key: each for key, each in tensors.items() if key != name}


def put(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {**tensors, name: change(tensors[name])}


def spoiled(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda scales: torch.cat([scales[:-1], torch.tensor([value])])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without(f"{FC1}_scale"), r"model\.safetensors: '.*fc1\.weight' is not int8 with a float32 scale for each row"),
        (put(f"{FC1}_scale", torch.Tensor.half), "is not int8 with a float32 scale"),
        (put(f"{FC1}_scale", lambda scales: scales[1:].clone()), "is not int8 with a float32 scale"),
        (put(FC1, torch.Tensor.float), "is not int8 with a float32 scale"),
        (put(FC1, lambda rows: rows.view(torch.uint8)), "is not int8 with a float32 scale"),
        (put(f"{FC1}_scale", spoiled(torch.nan)), r"model\.safetensors: '.*fc1\.weight' has scales that are not pos"),
        (put(f"{FC1}_scale", spoiled(torch.inf)), "has scales that are not positive, or overflow: they are damaged"),
        (put(f"{FC1}_scale", spoiled(3e38)), "has scales that are not positive, or overflow"),
        (put(f"{FC1}_scale", spoiled(-1.0)), "has scales that are not positive, or overflow"),
        (put(FC1, lambda rows: rows[1:].clone()), "is not int8 with a float32 scale"),
        (without(FC1), "the weights contain '.*_scale', which the model does not have"),
    ],
    ids=["none", "half", "few", "float matrix", "unsigned", "nan", "inf", "large", "negative", "rows", "no matrix"],
)  # fmt: skip
def test_damaged_weights(change: Callable[[Tensors], Tensors], message: str, small: Path, tmp_path: Path):
    folder = Path(shutil.copytree(small, tmp_path / "model"))
    save_file(change(load_file(small / "model.safetensors")), folder / "model.safetensors")
    with pytest.raises(MacaronError, match=r"model\.safetensors: damaged"):
        load_model(folder, TranslationModel)
    seal(folder)
    for int8 in (False, True):
        with pytest.raises(MacaronError, match=message) as caught:
            load_model(folder, TranslationModel, int8=int8)
        assert str(folder) in str(caught.value)


def test_a_damaged_file_or_configuration(small: Path, tmp_path: Path):
    folder = unseal(Path(shutil.copytree(small, tmp_path / "model")))
    config = json.loads((folder / "config.json").read_text())
    for said in (None, {"quant_method": "bitsandbytes"}, 8):
        (folder / "config.json").write_text(json.dumps({**config, QUANTISATION: said}))
        with pytest.raises(MacaronError, match=r"the weights have '.*weight' in another shape or type"):
            load_model(folder, TranslationModel)
    (folder / "config.json").write_text(json.dumps(config))
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])
    with pytest.raises(MacaronError, match="the weights cannot be read; the file is damaged") as caught:
        load_model(find_folder(folder), TranslationModel)
    assert str(folder) in str(caught.value)
