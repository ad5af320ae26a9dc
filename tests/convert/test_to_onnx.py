"""Models as ONNX, run by ONNX Runtime: the outputs and the translations are those of our own networks."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from macaron.convert.to_onnx import TOLERANCE, difference, graphs
from macaron.decode import SearchSettings, translate_ids
from macaron.models import (
    EncoderForPreTraining,
    EncoderForSequenceClassification,
    LanguageModel,
    TranslationModel,
    preset,
)
from macaron.models.load import save_model
from macaron.models.translation import LanguageForSequenceClassification
from macaron.nn.linear import ACTIVATIONS
from macaron.seal import damaged
from macaron.text import MacaronTokenizer

onnx = pytest.importorskip("onnx", reason="the extra export is not installed: make setup")
onnxruntime = pytest.importorskip("onnxruntime", reason="the extra export is not installed: make setup")

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"
LINES = ["the cat sat on the mat", "a dog ran away from the good house", "it was bad"] * 20
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "dropout": 0.1}


def saved(folder: Path, network: Any, name: str, **settings: Any) -> Any:
    """A model with random weights, biases and gains too, in a folder; and the model."""
    kind = {"tra": "translation", "ber": "encoder", "gpt": "language"}[name.removeprefix("macaron-")[:3]]
    tokenizer = MacaronTokenizer.train(LINES, 280, kind=kind)
    fingerprint = tokenizer.fingerprint()
    torch.manual_seed(1)
    given = {"vocab_size": len(tokenizer), "tokenizer_fingerprint": fingerprint, **SMALL, **settings}
    model = network(preset(name, **given)).eval()
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, 0.5, 0.3)
    save_model(folder, model, None, tokenizer)
    return model


def translator(folder: Path, scheme: str, **settings: Any) -> Any:
    layers = {"encoder_layers": 1, "decoder_layers": 1, **settings}
    return saved(folder, TranslationModel, "transformer-tiny", scheme=scheme, **layers)


def session(path: Path) -> Any:
    """A file in ONNX Runtime; its inputs and outputs are those that onnx.json names."""
    made = onnxruntime.InferenceSession(path)
    described = json.loads((path.parent / "onnx.json").read_text())["files"][path.name]
    for kind, found in (("inputs", made.get_inputs()), ("outputs", made.get_outputs())):
        assert {each.name: each.shape for each in found} == {name: e["shape"] for name, e in described[kind].items()}
        assert {each.name: each.type for each in found} == {
            name: {"float32": "tensor(float)", "int64": "tensor(int64)"}[e["dtype"]]
            for name, e in described[kind].items()
        }
    return made


def greedy(folder: Path, sources: Sequence[Sequence[int]], longest: int) -> list[list[int]]:
    """The translations of a batch by greedy search, with nothing but the files of a folder."""
    config = json.loads((folder / "onnx.json").read_text())["config"]
    start, end, pad = (config[name] for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id"))
    encoder, decoder = session(folder / "encoder.onnx"), session(folder / "decoder.onnx")
    width = max(map(len, sources))
    ids = np.array([[*source, *[pad] * (width - len(source))] for source in sources])
    mask = (ids != pad).astype(np.int64)
    names = [each.name for each in encoder.get_outputs()]
    memory = dict(zip(names, encoder.run(None, {"input_ids": ids, "attention_mask": mask}), strict=True))
    past = {
        each.name: np.zeros((len(ids), each.shape[1], 0, each.shape[3]), np.float32)
        for each in decoder.get_inputs()
        if each.name.startswith("past.")
    }
    tokens = np.full((len(ids), 1), start)
    found: list[list[int]] = [[] for _ in sources]
    for step in range(longest + 1):
        given = {"input_ids": tokens, "encoder_attention_mask": mask, **memory, **past}
        logits, *present = decoder.run(None, given)
        past = dict(zip(past, present, strict=True))
        logits[..., pad] = -np.inf
        if step == 0:
            logits[..., end] = -np.inf
        tokens = logits[:, -1].argmax(-1)[:, None]
        for row, token in zip(found, tokens[:, 0].tolist(), strict=True):
            if end not in row:
                row.append(end if step == longest else token)
    return found


def check_translations(folder: Path, model: Any) -> None:
    generator = torch.Generator().manual_seed(2)
    size = model.config.vocab_size
    sources = [[*torch.randint(4, size, (n,), generator=generator).tolist(), 2] for n in (0, 1, 3, 8, 5)]
    settings = SearchSettings(beam=1, max_length=12)
    wanted = [list(best[0].tokens) for best in translate_ids(model, sources, settings)]
    assert greedy(folder, sources, 12) == wanted
    assert greedy(folder, sources[:1], 12) == wanted[:1]


def export(macaron: Callable[..., Any], model: Path, out: Path) -> str:
    done = macaron("export", "onnx", model, "--out", out)
    assert done.returncode == 0, done.stderr
    assert not damaged(out)
    assert "Warning" not in done.stderr
    return str(done.stdout)


def test_a_macaron_as_onnx(macaron: Callable[..., Any], tmp_path: Path):
    model = translator(tmp_path / "m", "strang-gfg", activation="swiglu")
    text = export(macaron, tmp_path / "m", tmp_path / "out")
    assert "encoder.onnx and decoder.onnx: outputs of ONNX Runtime differ by" in text
    check_translations(tmp_path / "out", model)
    tokenizer = MacaronTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.fingerprint() == model.config.tokenizer_fingerprint
    assert all(difference(tmp_path / "out" / name, each) < 1e-5 for name, each in graphs(model).items())
    # The comparison notices other weights, small as the change may be.
    with torch.no_grad():
        model.decoder.layers[0].sublayers["H1"].operator.kv.bias += 1e-3
        model.decoder.layers[0].sublayers["G1"].operator.fc2.weight *= 1.01
    assert all(difference(tmp_path / "out" / name, each) > TOLERANCE for name, each in graphs(model).items())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("lie-fg", {"encoder_layers": 2, "decoder_layers": 2}),
        ("strang-gfg", {"norm": "post", "position_vectors": "marian"}),
        ("strang-fgf", {"norm_type": "rms", "activation": "relu2"}),
        ("parallel", {"activation": "geglu", "tying": "layer"}),
        ("yoshida4-gfg", {"prologue": [["G", 0.5]], "tying": "depth", "encoder_layers": 2}),
        ("lie-fg", {"integrator": "heun", "layer_integrator": "midpoint"}),
        ("lie-fg", {"attention": "relative", "cross_attention": "qk-norm", "positions_at": "none"}),
        ("strang-gfg", {"attention": "rotary", "positions_at": "layers"}),
        ("strang-gfg", {"attention": "dynamic", "velocity": "heavy-ball"}),
        ("lie-fg", {"attention": "weighted", "position_vectors": "learned", "embedding_norm": True}),
        ("lie-fg", {"attention": "lightweight", "output_bias": True, "decoder_settings": {"activation": "silu"}}),
    ],
)
def test_schemes_and_operators(scheme: str, settings: dict[str, Any], macaron: Callable[..., Any], tmp_path: Path):
    model = translator(tmp_path / "m", scheme, **settings)
    export(macaron, tmp_path / "m", tmp_path / "out")
    check_translations(tmp_path / "out", model)


def logits_of(path: Path, texts: Sequence[Sequence[int]], **more: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of texts, which of them are real, and what a file makes of them."""
    width = max(map(len, texts))
    ids = torch.tensor([[*text, *[1] * (width - len(text))] for text in texts])
    given = {"input_ids": ids.numpy(), "attention_mask": (ids != 1).long().numpy(), **more}
    return ids, ids != 1, torch.from_numpy(session(path).run(None, given)[0])


TEXTS = [[4, 9, 33, 8, 2], [4, 77, 2]]


@pytest.mark.slow
def test_encoders_and_classifiers(macaron: Callable[..., Any], tmp_path: Path):
    segments = np.array([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]])
    for network, name in ((EncoderForPreTraining, "states"), (EncoderForSequenceClassification, "classes")):
        model = saved(tmp_path / name, network, "bert-tiny", scheme="strang-gfg", id2label={0: "a", 1: "b", 2: "c"})
        assert "model.onnx" in export(macaron, tmp_path / name, tmp_path / f"{name}-out")
        path = tmp_path / f"{name}-out" / "model.onnx"
        ids, real, found = logits_of(path, TEXTS, token_type_ids=segments)
        with torch.no_grad():
            wanted = (model.model if name == "states" else model)(ids, real, torch.from_numpy(segments))
        if name == "states":
            found, wanted = found[real], wanted[real]
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_language_models(macaron: Callable[..., Any], tmp_path: Path):
    model = saved(tmp_path / "m", LanguageModel, "macaron-gpt-tiny")
    text = export(macaron, tmp_path / "m", tmp_path / "out")
    assert text.startswith("decoder.onnx: outputs of ONNX Runtime differ by")
    # Texts of different lengths, padded on the left, as for generation.
    decoder, ids = session(tmp_path / "out" / "decoder.onnx"), torch.tensor([[4, 9, 33, 8, 2], [1, 1, 4, 77, 2]])
    mask, logits = (ids != 1).long(), []
    past = {
        each.name: np.zeros((2, each.shape[1], 0, each.shape[3]), np.float32)
        for each in decoder.get_inputs()
        if each.name.startswith("past.")
    }
    for start, end in ((0, 3), (3, 4), (4, 5)):
        given = {"input_ids": ids[:, start:end].numpy(), "attention_mask": mask[:, :end].numpy(), **past}
        found, *present = decoder.run(None, given)
        past = dict(zip(past, present, strict=True))
        logits.append(torch.from_numpy(found))
    with torch.no_grad():
        wanted = model(ids, mask.bool())
    torch.testing.assert_close(torch.cat(logits, 1)[mask.bool()], wanted[mask.bool()], atol=1e-4, rtol=1e-4)
    classifier = saved(tmp_path / "c", LanguageForSequenceClassification, "gpt-tiny", id2label={0: "a", 1: "b"})
    assert "model.onnx" in export(macaron, tmp_path / "c", tmp_path / "c-out")
    ids, real, found = logits_of(tmp_path / "c-out" / "model.onnx", TEXTS)
    with torch.no_grad():
        torch.testing.assert_close(found, classifier(ids, real), atol=1e-4, rtol=1e-4)


def test_what_onnx_lacks_is_named(macaron: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ACTIVATIONS, "relu2", torch.special.bessel_j1)
    translator(tmp_path / "m", "strang-gfg", activation="relu2")
    done = macaron("export", "onnx", tmp_path / "m", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "ONNX cannot hold this network (encoder)" in done.stderr
    assert "bessel_j1" in done.stderr
    assert len(done.stderr) < 1000
    assert not (tmp_path / "out").exists()


def test_refusals(macaron: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = FIXTURES / "translation"
    done = macaron("export", "onnx", tmp_path, "--out", tmp_path / "out")
    assert (done.returncode, "not a model folder" in done.stderr) == (1, True)
    done = macaron("export", "onnx", model, "--out", FIXTURES)
    assert (done.returncode, "is not empty: choose another --out" in done.stderr) == (1, True)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    done = macaron("export", "onnx", model, "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "onnxscript cannot be found: pip install 'macaron-net[export]'" in done.stderr


@pytest.mark.slow
def test_without_onnx_runtime(macaron: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "onnxruntime", None)
        text = export(macaron, FIXTURES / "translation", tmp_path / "out")
    assert "not compared with ours, since onnxruntime is not installed" in text
    session(tmp_path / "out" / "decoder.onnx")
