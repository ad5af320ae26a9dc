"""The model for the CPU: in float32 the plain search, in int8 that of a model with rounded numbers."""

import copy
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from forked import macaron
from macaron.decode import Hypothesis, Sampling, SearchSettings, Translator, translate_ids
from macaron.decode.cpu.linear import Int8Linear, PackedLinear, activation_levels, packed_products
from macaron.decode.cpu.model import CpuTranslationModel, RowCrossAttention
from macaron.errors import MacaronError
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.nn import Context, FeedForward, Stack
from macaron.nn.layer import SubStep
from macaron.text import MacaronTokenizer

PAD, EOS = 1, 2
needs_int8 = pytest.mark.skipif(not packed_products(), reason="int8 needs oneDNN")
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
    fast = CpuTranslationModel(model)
    for stop in ("early", "late", "late-reference"):
        settings = SearchSettings(beam=4, max_length=25, stop=stop)
        same(translate_ids(fast, sources, settings), translate_ids(model, sources, settings), 1e-4)


@pytest.mark.parametrize("count", [1, 9])
def test_float32_samples_and_greedy_search(count: int, make_model: Callable[..., TranslationModel]):
    model, sources = make_model(), random_sources()[-count:]
    fast = CpuTranslationModel(model)
    drawn = Sampling(temperature=0.8, top_k=10, seed=3)
    for settings in (SearchSettings(beam=1, max_length=20), SearchSettings(beam=3, max_length=20, sampling=drawn)):
        same(translate_ids(fast, sources, settings), translate_ids(model, sources, settings), 1e-4)


def test_float32_post_norm():
    torch.manual_seed(0)
    model = TranslationModel(preset("macaron-tiny", vocab_size=30, norm="post")).eval()
    settings = SearchSettings(beam=4, max_length=15)
    same(
        translate_ids(CpuTranslationModel(model), random_sources(), settings),
        translate_ids(model, random_sources(), settings),
        1e-4,
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
    """For one short sentence, cross-attention keeps keys and values multiplied by its matrices."""
    folds: list[int] = []
    fold = RowCrossAttention._fold
    monkeypatch.setattr(RowCrossAttention, "_fold", lambda self, *args: (folds.append(1), fold(self, *args))[1])
    model = make_model(hidden_size=32, integrator=integrator, biases=0.1)
    draw = random.Random(1)
    sources = [[*(draw.randrange(3, 30) for _ in range(length - each)), EOS] for each in range(count)]
    settings = SearchSettings(beam=4, max_length=25)
    same(translate_ids(CpuTranslationModel(model), sources, settings), translate_ids(model, sources, settings), 1e-4)
    assert len(folds) == (2 if count == 1 and length == 3 else 0)  # as many as layers


def test_states_of_a_given_translation(make_model: Callable[..., TranslationModel]):
    """The states between layers, coefficients being part of the packed matrices; without a search or a cache."""
    model = make_model(scheme="strang-fgf")
    ids, targets = torch.tensor(random_sources()[2:3]), torch.tensor([[EOS, 5, 6]])

    def states(of: TranslationModel) -> tuple[Tensor, ...]:
        source: list[Tensor] = []
        target: list[Tensor] = []
        memory = of.encoder(of.embedding(ids), Context(), source)
        last = of.decoder(of.embedding(targets), Context(causal=True, memory=memory), target)
        return *source, memory, *target, last, of.logits(last)

    with torch.no_grad():
        for mine, plain in zip(states(CpuTranslationModel(model)), states(model), strict=True):
            torch.testing.assert_close(mine, plain, atol=1e-4, rtol=1e-4)


def test_visitors_see_rows(make_model: Callable[..., TranslationModel]):
    """The walk is that of `Stack`: a visitor sees every sub-step, with states as rows."""
    model = make_model(scheme="parallel")
    seen: list[Tensor] = []
    expected: list[Tensor] = []
    x = model.embedding(torch.tensor([[4, 5, 6, EOS], [7, 8, 9, EOS]]))
    with torch.no_grad():
        CpuTranslationModel(model).encoder(x, Context(), visit=lambda step: seen.append(step.after))
        model.encoder(x, Context(), visit=lambda step: expected.append(step.after))
    assert len(seen) == 4
    for mine, plain in zip(seen, expected, strict=True):
        torch.testing.assert_close(mine, plain.flatten(0, 1), atol=1e-5, rtol=1e-4)


@pytest.mark.golden
@pytest.mark.parametrize("name", ["tiny_macaron_v2_trained", "tiny_plain_v1_trained"])
def test_recorded_lists(name: str, golden: Path, golden_model: Callable[[str], TranslationModel]):
    record = json.loads((golden / name / "beam.json").read_text())
    sources = [[token for token in row if token != PAD] for row in record["src_tokens"]]
    settings = SearchSettings(max_length=record["maxlen"], beam=5, length_penalty=0.0)
    found = translate_ids(CpuTranslationModel(golden_model(name)), sources, settings)
    for ours, theirs in zip(found, record["settings"]["beam5_unnormalized"], strict=True):
        assert [list(each.tokens) for each in ours] == [each["tokens"] for each in theirs]
        assert [each.score for each in ours] == pytest.approx([each["score"] for each in theirs], abs=1e-4)


def whole_numbers(x: Tensor, weight: Tensor, bias: Tensor | None, levels: int) -> Tensor:
    """A product in float64 of numbers that are rounded as `Int8Linear` rounds them."""
    x, weight = x.double(), weight.double()
    steps, sizes = weight.abs().amax(1) / 127, x.abs().amax(-1, keepdim=True) / levels
    whole = (weight / steps.clamp(min=1e-12)[:, None]).round()
    y = (x / sizes.clamp(min=1e-12)).round() @ whole.T * sizes * steps
    return (y if bias is None else y + bias).float()


def rounded_model(model: TranslationModel) -> TranslationModel:
    """A copy of a model with plain layers, all of whose products are `whole_numbers`."""
    model = copy.deepcopy(model)
    levels = dict.fromkeys((each for each in model.modules() if isinstance(each, nn.Linear)), activation_levels())
    # Numbers that are not negative need no sign, and have all levels on every processor.
    levels |= {each.fc2: 127 for each in model.modules() if isinstance(each, FeedForward) and each.activation is F.relu}
    for linear, most in levels.items():
        linear.forward = partial(whole_numbers, weight=linear.weight, bias=linear.bias, levels=most)
    table = model.embedding.tokens.weight
    model.embedding.logits = partial(whole_numbers, weight=table, bias=None, levels=activation_levels())
    return model


def gaps(model: TranslationModel, sources: list[list[int]], found: list[list[Hypothesis]]) -> list[float]:
    """Differences between the token scores that were found and those of a model, without a search or a cache."""
    result: list[float] = []
    with torch.no_grad():
        for source, best in zip(sources, found, strict=True):
            memory = model.encode(torch.tensor([source]))
            for each in best:
                states = model.decode(torch.tensor([[EOS, *each.tokens[:-1]]]), memory)
                table = model.logits(states).log_softmax(-1)[0]
                exact = table.gather(1, torch.tensor(each.tokens)[:, None])[:, 0]
                result += (exact - torch.tensor(each.token_scores)).abs().tolist()
    return sorted(result)


@needs_int8
@pytest.mark.parametrize("changes", [{}, {"activation": "gelu"}, {"integrator": "heun"}, {"norm": "post"}], ids=str)
def test_int8_sublayers_are_those_of_rounded_numbers(changes: dict[str, Any]):
    """The promise of int8 on any processor: 8 bits of a matrix, and as many of an activation as products here have."""
    torch.manual_seed(0)
    shape = {"hidden_size": 64, "intermediate_size": 128, "encoder_layers": 2, "decoder_layers": 2}
    model = TranslationModel(preset("macaron-tiny", vocab_size=30, **shape, **changes)).eval()
    fast, reference = CpuTranslationModel(model, int8=True), rounded_model(model)
    ids, targets = torch.randint(4, 30, (2, 3, 20))
    differences: list[Tensor] = []

    def compare(own: Stack, context: Context) -> Callable[[SubStep], None]:
        sublayers = [layer.sublayer(move) for layer in own.steps for _, moves in layer.walk for move in moves]

        def visit(step: SubStep) -> None:
            before = step.before.view(*ids.shape, -1)
            sublayer = sublayers.pop(0)
            after = sublayer(before, step.move.coefficient, step.layer.tableau, context, 0)
            differences.append((step.after.view_as(after) - after).abs().flatten())

        return visit

    with torch.no_grad():
        encoding, decoding = Context(), Context(causal=True, memory=fast.encode(ids))
        fast.encoder(fast.embedding(ids), Context(), visit=compare(reference.encoder, encoding))
        states = fast.decoder(
            fast.embedding(targets),
            Context(causal=True, memory=decoding.memory),
            visit=compare(reference.decoder, decoding),
        )
        differences.append((fast.logits(states) - reference.logits(states)).abs().flatten())
    assert len(differences) == 2 * 3 + 2 * 4 + 1
    found = torch.cat(differences)
    # A number may fall on the other side of the edge between two levels, which moves one row a little.
    assert found.quantile(0.95) < 1e-5
    assert found.max() < 2 / activation_levels()


@needs_int8
def test_int8_is_near_float32(make_model: Callable[..., TranslationModel]):
    """What int8 finds, scored by the float32 model: the bound is for 8 bits, and doubled for 7."""
    model = make_model(hidden_size=64, num_attention_heads=4, intermediate_size=128)
    sources, settings = random_sources(), SearchSettings(beam=4, max_length=25)
    found = gaps(model, sources, translate_ids(CpuTranslationModel(model, int8=True), sources, settings))
    assert 0 < found[len(found) // 2] < 0.03 * 127 / activation_levels()
    assert found[-1] < 0.3 * 127 / activation_levels()


@needs_int8
def test_int8_does_not_depend_on_the_batch(make_model: Callable[..., TranslationModel]):
    model, sources = CpuTranslationModel(make_model(), int8=True), random_sources()
    settings = SearchSettings(beam=4, max_length=25)
    together = translate_ids(model, sources, settings)
    # A last bit of the attention may carry a number over the edge between two levels: not exactly equal, but nearly.
    same([translate_ids(model, [source], settings)[0] for source in sources], together, 0.02)


@needs_int8
def test_the_model_itself_is_unchanged(make_model: Callable[..., TranslationModel]):
    model = make_model(tying="depth")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    fast = CpuTranslationModel(model, int8=True)
    assert fast.embedding.tokens.weight is model.embedding.tokens.weight
    made = [module for module in fast.modules() if isinstance(module, Int8Linear)]  # one more for the output
    assert len(made) == 1 + sum(isinstance(module, torch.nn.Linear) for module in model.modules())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with pytest.raises(MacaronError, match="packed already"):
        CpuTranslationModel(fast)
    with pytest.raises(MacaronError, match="only a float32 model"):
        CpuTranslationModel(model.double())


def test_a_translator_on_the_cpu(folder: Path):
    plain, fast = Translator(folder, dtype="float64"), Translator(folder, device="cpu")
    assert fast.translate(LINES) == plain.translate(LINES)
    assert any(isinstance(module, PackedLinear) for module in fast.searched.modules())


def test_int8_is_for_the_cpu(folder: Path):
    with pytest.raises(MacaronError, match="--device cpu"):
        Translator(folder, int8=True, device="meta")


@needs_int8
def test_an_int8_translator(folder: Path):
    translator = Translator(folder, int8=True)
    assert any(isinstance(module, Int8Linear) for module in translator.searched.modules())
    assert translator.translate(LINES)[1] == ""
    found = [best for best in translator.translate_nbest(LINES) if best[0].tokens]
    sources = translator.tokenizer.encode_lines([line for line in LINES if line])
    reference, plain = gaps(rounded_model(translator.model), sources, found), gaps(translator.model, sources, found)
    # Not equal: a number on the other side of the edge between two levels changes all that follows.
    assert reference[len(reference) // 2] < plain[len(plain) // 2] / 2


def test_a_model_in_memory_is_searched_directly(folder: Path):
    model = TranslationModel.from_pretrained(folder)
    translator = Translator(model, MacaronTokenizer.from_pretrained(folder), device="cpu")
    before = translator.translate_nbest(LINES[:1])[0][0].score
    with torch.no_grad():
        model.decoder.norm.bias.mul_(0.5)
        model.decoder.layers[0].sublayers["G1"].operator.fc1.weight.mul_(0.5)
    assert translator.translate_nbest(LINES[:1])[0][0].score != before


@needs_int8
def test_int8_on_the_command_line(folder: Path, tmp_path: Path):
    expected = Translator(folder, int8=True, threads=1).translate(LINES, one_per_line=True)
    source = tmp_path / "source"
    source.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")

    done = macaron("translate", folder, "--int8", "--one-per-line", "--input", source)
    assert done.returncode == 0, done.stderr
    lines = [line.replace("\r", " ").replace("\n", " ") for line in expected]  # the alphabet is one of bytes
    assert done.stdout.decode() == "".join(f"{line}\n" for line in lines)
    out = tmp_path / "out"
    done = macaron("evaluate", folder, "--int8", "--source", source, "--reference", source, "--output", out)
    assert done.returncode == 0, done.stderr
    assert out.read_bytes().decode() == "".join(f"{line}\n" for line in expected)
    done = macaron("translate", folder, "--int8", "--dtype", "bfloat16", "--input", source)
    assert done.returncode != 0
    assert b"int8 goes with float32" in done.stderr
    assert b"Traceback" not in done.stderr
