"""Transformers as models of CTranslate2: equal translations, ids in and ids out; other networks are refused."""

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from macaron import Translator
from macaron.convert.to_ctranslate2 import uncovered, write_ctranslate2
from macaron.decode import SearchSettings, translate_ids
from macaron.models import TranslationModel
from macaron.models.configuration import TranslationConfig
from macaron.seal import damaged

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra export is not installed: make setup")

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"
SMALL = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64, "encoder_layers": 2, "decoder_layers": 2}
WORDS = [f"w{number}" for number in range(50)]


def random_model(**settings: Any) -> TranslationModel:
    torch.manual_seed(1)
    model = TranslationModel(TranslationConfig(vocab_size=len(WORDS), **{"scheme": "lie-fg", **SMALL, **settings}))
    for parameter in model.parameters():
        if parameter.dim() == 1:  # biases and gains that matter
            torch.nn.init.normal_(parameter, 0.5, 0.3)
    return model.eval()


def difference(folder: Path, model: TranslationModel, words: Sequence[str]) -> float:
    """The largest difference of a log-probability in CTranslate2 from ours, over random pairs of different lengths."""
    generator, largest = torch.Generator().manual_seed(1), 0.0
    pairs = [torch.randint(3, len(words), (2, length), generator=generator) for length in (1, 4, 9)]
    sides = ([[words[index] for index in pair[side]] for pair in pairs] for side in (0, 1))
    scores = ctranslate2.Translator(str(folder), "cpu", compute_type="float32").score_batch(*sides)
    for pair, found in zip(pairs, scores, strict=True):
        target = F.pad(pair[1:], (1, 1), value=2)
        with torch.no_grad():
            wanted = model(pair[:1], target[:, :-1]).log_softmax(-1).gather(-1, target[:, 1:, None]).flatten()
        largest = max(largest, float((torch.tensor(found.log_probs) - wanted).abs().max()))
    return largest


def sources_of(golden: Path, name: str) -> list[list[int]]:
    """The recorded sources, and random ones of other lengths."""
    recorded = json.loads((golden / name / "beam.json").read_text())["src_tokens"]
    generator = random.Random(1)
    more = [[*(generator.randrange(4, 50) for _ in range(generator.randrange(1, 12))), 2] for _ in range(60)]
    return [[token for token in source if token != 1] for source in recorded] + more


@pytest.mark.golden
def test_equal_translations(
    macaron: Callable[..., Any], golden: Path, converted: Callable[[str], Path], tmp_path: Path
):
    name = "tiny_plain_v1_trained"
    folder, out = converted(name), tmp_path / "out"
    done = macaron("export", "ctranslate2", folder, "--out", out)
    assert done.returncode == 0, done.stderr
    assert not damaged(out)
    ours, theirs = Translator(folder, device="cpu"), ctranslate2.Translator(str(out), "cpu", compute_type="float32")
    names = {index: word for word, index in ours.tokenizer.get_vocab().items()}
    sources = sources_of(golden, name)
    for penalty in (1.0, 0.6, 0.0):
        settings = SearchSettings(beam=5, length_penalty=penalty, max_length=40, min_length=0)
        found = theirs.translate_batch(
            [[names[token] for token in source] for source in sources],
            beam_size=5,
            length_penalty=penalty,
            max_decoding_length=40,
            min_decoding_length=0,
            return_scores=True,
        )
        for best, result in zip(translate_ids(ours.model, sources, settings), found, strict=True):
            assert result.hypotheses[0] == [names[token] for token in best[0].tokens[:-1]]
            assert result.scores[0] == pytest.approx(best[0].score, abs=1e-4)


@pytest.mark.golden
def test_int8(macaron: Callable[..., Any], golden: Path, converted: Callable[[str], Path], tmp_path: Path):
    name = "tiny_plain_v1_trained"
    for options in ((), ("--quantization", "int8")):
        done = macaron("export", "ctranslate2", converted(name), "--out", tmp_path / f"out{len(options)}", *options)
        assert done.returncode == 0, done.stderr
    assert "matrices in int8" in done.stdout
    sizes = [(tmp_path / f"out{count}" / "model.bin").stat().st_size for count in (0, 2)]
    assert sizes[1] < 0.6 * sizes[0]  # biases, norms and positions stay
    translator = Translator(converted(name), device="cpu")
    names = [word for word, _ in sorted(translator.tokenizer.get_vocab().items(), key=lambda each: each[1])]
    assert difference(tmp_path / "out0", translator.model, names) < 1e-4
    assert 1e-4 < difference(tmp_path / "out2", translator.model, names) < 3  # of random targets


@pytest.mark.parametrize(
    "settings",
    [
        {"norm": "post", "activation": "gelu"},
        {"activation": "swiglu", "norm_type": "rms", "layer_norm_eps": 1e-2},
        {"activation": "glu", "norm_affine": False, "tying": "depth"},
        {"attention": "relative", "positions_at": "none", "activation": "gelu_new"},
        {"attention": "rotary", "positions_at": "none", "head_size": 16},
        {"position_vectors": "marian", "scale_embedding": False, "activation": "silu"},
        {"position_vectors": "learned", "embedding_norm": True, "output_bias": True},
        {"decoder_settings": {"activation": "geglu", "norm": "post"}, "decoder_layers": 1, "inner_sizes": (48,)},
        {"prologue": [["F", 1], ["G", 1]]},  # a layer in all but name
    ],
    ids="-".join,
)
def test_what_it_knows(settings: dict[str, Any], tmp_path: Path):
    model = random_model(**settings)
    assert uncovered(model) == ""
    write_ctranslate2(model, WORDS, tmp_path)
    assert difference(tmp_path, model, WORDS) < 1e-5
    with torch.no_grad():
        model.decoder.layers[-1].sublayers["H1"].operator.kv.bias += 0.1
    assert difference(tmp_path, model, WORDS) > 1e-3


@pytest.mark.parametrize(
    ("settings", "lacks"),
    [
        ({"scheme": "strang-gfg"}, "the scheme 'strang-gfg', the scheme 'strang-gfhg'"),
        ({"scheme": "lie-gf"}, "the scheme 'lie-gf', the scheme 'lie-gfh'"),
        ({"scheme": "parallel"}, "the scheme 'parallel', the scheme 'parallel-lifted'"),
        ({"prologue": [["G", 0.5]]}, "a prologue or epilogue"),
        ({"velocity": "nesterov"}, "velocity = 'nesterov'"),
        ({"integrator": "heun"}, "integrator = 'heun'"),
        ({"decoder_settings": {"layer_integrator": "rk4"}}, "layer_integrator = 'rk4'"),
        ({"activation": "relu2"}, "activation = 'relu2'"),
        ({"attention": "qk-norm"}, "attention = 'qk-norm'"),
        ({"cross_attention": "qk-norm"}, "cross_attention = 'qk-norm'"),
        ({"positions_at": "layers"}, "positions_at = 'layers' with attention = 'softmax'"),
        ({"attention": "rotary"}, "positions_at = 'input' with attention = 'rotary'"),
    ],
)
def test_what_it_lacks(settings: dict[str, Any], lacks: str):
    assert uncovered(random_model(**settings)) == lacks


def test_a_macaron_is_refused(macaron: Callable[..., Any], tmp_path: Path):
    done = macaron("export", "ctranslate2", FIXTURES / "translation", "--out", tmp_path / "out")
    assert done.returncode == 1
    assert "CTranslate2 cannot hold this network: the scheme 'strang-gfg'" in done.stderr
    assert f"macaron export onnx {FIXTURES / 'translation'} --out {tmp_path / 'out'}" in done.stderr
    assert not (tmp_path / "out").exists()
    done = macaron("export", "ctranslate2", FIXTURES / "classifier", "--out", tmp_path / "out")
    assert (done.returncode, "cannot translate" in done.stderr) == (1, True)
