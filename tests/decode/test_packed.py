"""Packed matrices: in float32 the plain search, in int8 one that is near to it."""

import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from macaron.decode import Hypothesis, Sampling, SearchSettings, Translator, matrices, translate_ids
from macaron.decode.folder import int8_precision
from macaron.decode.matrices import Int8Linear, PackedLinear, threads_for_products
from macaron.decode.packed import packed
from macaron.decode.packed_attention import PackedCrossAttention
from macaron.errors import MacaronError
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.nn import Context
from macaron.text import MacaronTokenizer

PAD, EOS = 1, 2
LINES = ["The cat sits.", "", "A dog, a cat and a mouse.", "Where is the big house?", "Nobody knows the trouble."]


def random_sources(count: int = 9, vocabulary: int = 30) -> list[list[int]]:
    draw = random.Random(0)
    lengths = [1, 2, 30] + [draw.randint(1, 25) for _ in range(count - 3)]
    return [[*(draw.randrange(3, vocabulary) for _ in range(length)), EOS] for length in lengths]


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]], gap: float) -> None:
    for mine, theirs in zip(found, expected, strict=True):
        assert [each.tokens for each in mine] == [each.tokens for each in theirs]
        assert [each.score for each in mine] == pytest.approx([each.score for each in theirs], abs=gap)
        for one, other in zip(mine, theirs, strict=True):
            assert one.token_scores == pytest.approx(other.token_scores, abs=10 * gap)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheme": "lie-fg", "head_size": 5},
        {"scheme": "parallel", "activation": "gelu"},
        {"scheme": "strang-fgf", "tying": "layer"},
        {"integrator": "heun", "tying": "layer"},
        {"integrator": "rk4", "scheme": "lie-gf"},
        {"tying": "depth", "prologue": [["G", 0.5]], "decoder_epilogue": [["F", 1.0], ["G", 0.5]]},
        {"tying": "depth", "scheme": "lie-fg", "prologue": [["G", 0.5]]},  # one matrix, two coefficients
        {"scheme": "lie-fg", "prologue": [["G", 0.5]], "epilogue": [["F", 1.0], ["G", 0.5]]},
    ],
    ids=str,
)
def test_float32_is_the_plain_search(changes: dict[str, Any], make_model: Callable[..., TranslationModel]):
    model, sources = make_model(biases=0.1, **changes), random_sources()
    fast = packed(model)
    for stop in ("early", "late", "late-reference"):
        settings = SearchSettings(beam=4, max_length=25, stop=stop)
        same(translate_ids(fast, sources, settings), translate_ids(model, sources, settings), 1e-4)


@pytest.mark.parametrize("count", [1, 9])
def test_float32_samples_and_greedy_search(count: int, make_model: Callable[..., TranslationModel]):
    model, sources = make_model(), random_sources()[-count:]
    fast = packed(model)
    drawn = Sampling(temperature=0.8, top_k=10, seed=3)
    for settings in (SearchSettings(beam=1, max_length=20), SearchSettings(beam=3, max_length=20, sampling=drawn)):
        same(translate_ids(fast, sources, settings), translate_ids(model, sources, settings), 1e-4)


def test_float32_post_norm():
    torch.manual_seed(0)
    model = TranslationModel(preset("macaron-tiny", vocab_size=30, norm="post")).eval()
    settings = SearchSettings(beam=4, max_length=15)
    same(
        translate_ids(packed(model), random_sources(), settings), translate_ids(model, random_sources(), settings), 1e-4
    )


@pytest.mark.parametrize("integrator", ["euler", "heun"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("length", [3, 40])
def test_few_sentences(
    length: int,
    count: int,
    integrator: str,
    make_model: Callable[..., TranslationModel],
    monkeypatch: pytest.MonkeyPatch,
):
    """For one short sentence cross-attention keeps its keys and values multiplied by its matrices."""
    folds: list[int] = []
    fold = PackedCrossAttention._fold
    monkeypatch.setattr(PackedCrossAttention, "_fold", lambda self, *args: (folds.append(1), fold(self, *args))[1])
    model = make_model(hidden_size=32, integrator=integrator, biases=0.1)
    draw = random.Random(1)
    sources = [[*(draw.randrange(3, 30) for _ in range(length - each)), EOS] for each in range(count)]
    settings = SearchSettings(beam=4, max_length=25)
    same(translate_ids(packed(model), sources, settings), translate_ids(model, sources, settings), 1e-4)
    assert len(folds) == (2 if count == 1 and length == 3 else 0)  # as many as layers


def test_states_of_a_given_translation(make_model: Callable[..., TranslationModel]):
    """The state before each layer, coefficients being part of the packed matrices; no search, no cache."""
    model = make_model(scheme="strang-fgf")
    ids, targets = torch.tensor(random_sources()[2:3]), torch.tensor([[EOS, 5, 6]])

    def states(each: TranslationModel) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        memory = each.encoder(each.embedding(ids), Context(), found)
        x = each.decoder(each.embedding(targets), Context(causal=True, memory=memory), found)
        return [*found, memory, x, each.logits(x)]

    for mine, plain in zip(states(packed(model)), states(model), strict=True):
        torch.testing.assert_close(mine, plain, atol=1e-4, rtol=1e-4)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["tiny_macaron_v2_trained", "tiny_plain_v1_trained"])
def test_recorded_lists(name: str, golden: Path, golden_model: Callable[[str], TranslationModel]):
    record = json.loads((golden / name / "beam.json").read_text())
    sources = [[token for token in row if token != PAD] for row in record["src_tokens"]]
    settings = SearchSettings(max_length=record["maxlen"], beam=5, length_penalty=0.0)
    found = translate_ids(packed(golden_model(name)), sources, settings)
    for ours, theirs in zip(found, record["settings"]["beam5_unnormalized"], strict=True):
        assert [list(each.tokens) for each in ours] == [each["tokens"] for each in theirs]
        assert [each.score for each in ours] == pytest.approx([each["score"] for each in theirs], abs=1e-4)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_matrices(relu: bool, bias: bool):
    torch.manual_seed(0)
    weight, x = torch.randn(70, 33) * torch.rand(70, 1), torch.randn(3, 5, 33) * 10 ** torch.randn(3, 5, 1)
    weight[7], x[1, 2] = 0.0, 0.0  # rows without a scale
    added = torch.randn(70) if bias else None
    plain = F.linear(x, weight, added)
    exact = plain.relu() if relu else plain
    torch.testing.assert_close(PackedLinear(weight, added, relu)(x), exact)
    rows, onto = x.flatten(0, 1), torch.randn(15, 70)
    torch.testing.assert_close(
        PackedLinear(weight, added, step=-0.3)(rows, onto), onto - 0.3 * plain.flatten(0, 1), atol=1e-4, rtol=1e-4
    )

    # In int8 it is a product of whole numbers, which can be done again ...
    found, levels = Int8Linear(weight, added, relu)(x), matrices.activation_levels()
    again = in_whole_numbers(x, weight, levels) + (0.0 if added is None else added)
    torch.testing.assert_close(found, again.relu() if relu else again, atol=1e-5, rtol=1e-4)
    # ... and is no further from the exact one than half a level of either factor allows.
    steps, sizes = weight.abs().amax(1) / 127, x.abs().amax(-1, keepdim=True) / levels
    bound = x.abs().sum(-1, keepdim=True) * steps / 2 + sizes / 2 * weight.abs().sum(1) + 33 * sizes * steps / 4
    assert bool(((found - exact).abs() <= bound * 1.001 + 1e-6).all())
    assert not torch.equal(found, exact)
    moved = Int8Linear(weight, added, step=-0.3)(rows, onto)
    expected = onto - 0.3 * Int8Linear(weight, added)(rows)
    torch.testing.assert_close(moved, expected, atol=1e-4, rtol=1e-4)

    # Numbers that are not negative need no sign, and have all levels on every processor.
    found = Int8Linear(weight, added, relu, positive=True)(x.abs())
    again = in_whole_numbers(x.abs(), weight, 127) + (0.0 if added is None else added)
    torch.testing.assert_close(found, again.relu() if relu else again, atol=1e-5, rtol=1e-4)


def in_whole_numbers(x: torch.Tensor, weight: torch.Tensor, levels: int) -> torch.Tensor:
    steps, sizes = weight.abs().amax(1) / 127, x.abs().amax(-1, keepdim=True) / levels
    whole = (weight / steps.clamp(min=1e-12)[:, None]).round()
    return (x / sizes.clamp(min=1e-12)).round() @ whole.T * sizes * steps


def test_without_vnni():
    """The same on a processor that adds pairs of products in 16 bits: oneDNN can pretend to be on one."""
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("only processors of this kind have such a mode")
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2"}
    code = "from macaron.decode.matrices import activation_levels; print(activation_levels())"
    levels = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    assert levels.stdout == "63\n"
    tests = [f"{__file__}::test_matrices", f"{__file__}::test_int8_is_near_float32"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    result = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout[-3000:]
    assert "5 passed" in result.stdout


def test_int8_is_near_float32(make_model: Callable[..., TranslationModel]):
    """What int8 finds is scored by the float32 model, too: 0.1 a token is far below the differences between tokens."""
    settings = SearchSettings(beam=4, max_length=25)
    model = make_model(hidden_size=64, num_attention_heads=4, intermediate_size=128)
    sources = random_sources()
    fast = packed(model, int8=True)
    gaps = []
    with torch.no_grad():
        for source, best in zip(sources, translate_ids(fast, sources, settings), strict=True):
            memory = model.encode(torch.tensor([source]))
            for each in best:
                states = model.decode(torch.tensor([[EOS, *each.tokens[:-1]]]), memory)
                table = model.logits(states).log_softmax(-1)[0]
                exact = table.gather(1, torch.tensor(each.tokens)[:, None])[:, 0]
                gaps += (exact - torch.tensor(each.token_scores)).abs().tolist()
    gaps.sort()
    assert 0 < gaps[len(gaps) // 2] < 0.05
    assert gaps[-1] < 0.5


def test_int8_does_not_depend_on_the_batch(make_model: Callable[..., TranslationModel]):
    model, sources = packed(make_model(), int8=True), random_sources()
    settings = SearchSettings(beam=4, max_length=25)
    together = translate_ids(model, sources, settings)
    # A last bit of the attention may carry a number over the edge between two levels: not exactly equal, but nearly.
    same([translate_ids(model, [source], settings)[0] for source in sources], together, 0.02)


def test_the_model_itself_stays_as_it_is(make_model: Callable[..., TranslationModel]):
    model = make_model(tying="depth")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fast = packed(model, int8=True)
    assert fast.embedding.tokens.weight is model.embedding.tokens.weight
    made = [module for module in fast.modules() if isinstance(module, Int8Linear)]
    assert len(made) == 1 + sum(isinstance(module, torch.nn.Linear) for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(MacaronError, match="packed already"):
        packed(fast)
    with pytest.raises(MacaronError, match="float32"):
        packed(model.double())


def test_translator(folder: Path):
    plain = Translator(folder, dtype="float64")
    assert Translator(folder, device="cpu").translate(LINES) == plain.translate(LINES)
    quantised = Translator(folder, int8=True)
    assert any(isinstance(module, Int8Linear) for module in quantised.searched.modules())
    assert quantised.translate(LINES)[1] == ""
    nearly = zip(quantised.translate_nbest(LINES), plain.translate_nbest(LINES), strict=True)
    assert all(one[0].score == pytest.approx(other[0].score, abs=0.1) for one, other in nearly)


def test_a_model_in_memory_is_searched_as_it_is(folder: Path):
    model = TranslationModel.from_pretrained(folder)
    translator = Translator(model, MacaronTokenizer.from_pretrained(folder), device="cpu")
    before = translator.translate_nbest(LINES[:1])[0][0].score
    with torch.no_grad():
        model.decoder.norm.bias.mul_(0.5)
        model.decoder.layers[0].sublayers["G1"].operator.fc1.weight.mul_(0.5)
    assert translator.translate_nbest(LINES[:1])[0][0].score != before


def test_int8_on_the_command_line(folder: Path, tmp_path: Path):
    expected = Translator(folder, int8=True, threads=1).translate(LINES)
    source = tmp_path / "source"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")

    def run(*arguments: object) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "macaron", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"})

    done = run("translate", folder, "--int8", "--input", source)
    assert done.returncode == 0, done.stderr
    lines = [line.replace("\r", " ").replace("\n", " ") for line in expected]  # the alphabet is one of bytes
    assert done.stdout.decode() == "".join(f"{line}\n" for line in lines)
    out = tmp_path / "out"
    done = run("evaluate", folder, "--int8", "--source", source, "--reference", source, "--output", out)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes().decode() == "".join(f"{line}\n" for line in expected)
    done = run("translate", folder, "--int8", "--dtype", "bfloat16", "--input", source)
    assert done.returncode != 0
    assert b"int8 goes with float32" in done.stderr
    assert b"Traceback" not in done.stderr


def test_where_int8_does_not_work(monkeypatch: pytest.MonkeyPatch, make_model: Callable[..., TranslationModel]):
    with pytest.raises(MacaronError, match="--device cpu"):
        int8_precision(torch.device("cuda"), None)

    class Missing(Int8Linear):
        def __init__(self, *arguments: Any) -> None:
            raise RuntimeError("no such operator\nand much more")

    monkeypatch.setattr(matrices, "Int8Linear", Missing)
    with pytest.raises(MacaronError, match=r"oneDNN.*\(no such operator\)"):
        packed(make_model(), int8=True)
    # Without oneDNN float32 is the plain product.
    monkeypatch.setattr(matrices, "packs", lambda: False)
    model, settings = make_model(), SearchSettings(beam=4, max_length=25)
    same(
        translate_ids(packed(model), random_sources(), settings), translate_ids(model, random_sources(), settings), 1e-4
    )


def test_for_one_sentence_only_products_have_threads_if_there_are_many():
    before = torch.get_num_threads()
    seen: list[int] = []

    def kernel(x: torch.Tensor, *_: object) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return x

    product = PackedLinear(torch.eye(16), None)
    product.kernel = kernel
    try:
        for threads in (3, 2):
            torch.set_num_threads(threads)
            with threads_for_products():
                product(torch.eye(16))
                seen.append(torch.get_num_threads())
            seen.append(torch.get_num_threads())
    finally:
        torch.set_num_threads(before)
    assert seen == [3, 1, 3, 2, 2, 2]
