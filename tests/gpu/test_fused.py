"""Fused kernels compute what the plain modules compute. Needs a GPU with Triton.

With TRITON_INTERPRET=1 and Triton the tests that need no recording run on a CPU, in float32.
"""

import copy
import os
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from macaron.models import LanguageConfig, LanguageModel, TranslationConfig, TranslationModel, preset
from macaron.nn.embedding import FIRST_POSITION
from macaron.nn.loss import PairDivergence
from macaron.tasks.language_model import LanguageBatch, LanguageLoss
from macaron.tasks.translation import TranslationBatch, TranslationLoss
from macaron.train.step import WARM_UP, RecordedStep, TrainStep, precision, tensors_of

ON_GPU = torch.cuda.is_available()
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None or not (ON_GPU or os.environ.get("TRITON_INTERPRET")), reason="needs a GPU and Triton"
)
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
VOCABULARY, WIDTH = 100, 32
#: With 8 batches a gain once had 1.26 times the error of the plain modules, by chance; with 16 it was 1.06 times.
BATCHES = 16 if ON_GPU else 1
SMALL = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96, "encoder_layers": 1, "decoder_layers": 1}
STILL = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}


def module(**changes) -> TranslationLoss:
    torch.manual_seed(1)
    config = preset("macaron-small", vocab_size=VOCABULARY, **{**SMALL, **STILL, **changes})
    assert isinstance(config, TranslationConfig)
    made = TranslationLoss(TranslationModel(config), 0.1).to(DEVICE).train()
    with torch.no_grad():  # biases are zero at first
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return made


def fused(plain: Any) -> Any:
    made = copy.deepcopy(plain)
    made.fused = made.criterion.losses.fused = True
    return made


def batch(seed: int = 0) -> TranslationBatch:
    """Rows with padding on one side, on the other, on both, on none."""
    draw = torch.Generator().manual_seed(seed)
    source, target = torch.randint(4, VOCABULARY, (2, 4, WIDTH), generator=draw)
    texts = torch.ones(2, 4, WIDTH, dtype=torch.int32)
    texts[:, :, WIDTH // 3 :] = 2
    texts[0, 0, -7:] = texts[1, 1, -5:] = texts[:, 2, -4:] = 0
    source[texts[0] == 0] = target[texts[1] == 0] = 1
    places = (torch.arange(WIDTH, dtype=torch.int32) % 11 + 2).expand(4, -1).contiguous()
    given = (source, target, target.roll(1, 1), places, places, *texts)
    return TranslationBatch(*(each.to(DEVICE) for each in given))


def computed(loss: Any, given: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss.zero_grad()
    with precision(DEVICE, ON_GPU):
        sums = loss(given)
    torch.autograd.backward(sums[0])
    return sums.detach(), {name: parameter.grad for name, parameter in loss.named_parameters()}


def check_against_float64(plain: Any, batches: Sequence[Any], tolerance: float = 1e-3) -> None:
    """Fused losses and gradients are those of the plain modules in float64, but for rounding.

    On a GPU states are bfloat16. So they are in plain modules that have nothing else, which are the measure of each
    gradient: rounded at the same places, the errors over all batches can only differ by chance. With the kernels'
    arithmetic done on a CPU they were 1.1 times as large at most; autocast, whose states are float32, has down to 0.6
    of them. A single batch says little: relu cuts other numbers off, and gains of norms are sums over 128 positions.
    """
    ours = fused(plain)
    exact, rough = (copy.deepcopy(plain).to("cpu", kind) for kind in (torch.float64, torch.bfloat16))
    squares = {name: torch.zeros(2) for name, _ in plain.named_parameters()}
    for given in batches:
        on_cpu = replace(given, **{name: each.cpu() for name, each in tensors_of(given).items()})
        (expected, truth), (found, made) = computed(exact, on_cpu), computed(ours, given)
        torch.testing.assert_close(found.cpu().double(), expected, rtol=tolerance if ON_GPU else 1e-5, atol=0)
        rounded = computed(rough, on_cpu)[1] if ON_GPU else {name: (1 + 1e-4) * each for name, each in truth.items()}
        for name, each in truth.items():
            assert torch.isfinite(made[name]).all(), name
            errors = (made[name].cpu() - each).norm(), (rounded[name] - each).norm()
            squares[name] += torch.stack(errors).square().float()
    for name, (error, allowed) in ((name, each.sqrt()) for name, each in squares.items()):
        assert error <= (1.25 if ON_GPU else 1.0) * allowed + 1e-6, name


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "post", "activation": "gelu"},
        {"norm_type": "rms", "scheme": "lie-fg", "tying": "layer"},
        {"scheme": "strang-fgf", "head_size": 32, "prologue": [["G", 0.5]], "epilogue": [["F", 1.0]]},
        {"scheme": "lie-fg", "velocity": {"beta": 0.5, "mu": 0.5, "learned": "channel"}, "activation": "swiglu"},
        {"velocity": "damped", "norm": "post", "activation": "silu"},
    ],
)
def test_losses_and_gradients_are_those_of_the_plain_modules_in_float64(changes):
    plain = module(**changes)
    assert not plain.model.encoder.uncovered(WIDTH)
    assert not plain.model.decoder.uncovered(WIDTH)
    check_against_float64(plain, [batch(seed) for seed in range(BATCHES)])


def with_copy(both: bool, cut: float) -> TranslationLoss:
    """A loss with a consistency term; at a cut of 1 nothing is random.

    Then all tokens are alike, and where relu cuts one off it cuts off many: gelu is smooth.
    """
    made = module(activation="gelu")
    made.divergence, made.cut = PairDivergence(3.0, both, 1), cut
    return made


@pytest.mark.parametrize("both", [False, True])
def test_consistency_losses_are_those_of_the_plain_modules_in_float64(both):
    batches = [replace(batch(seed), consistent=True) for seed in range(BATCHES)]
    check_against_float64(with_copy(both, 1.0), batches, 2e-2)


@needs_gpu
def test_a_consistency_loss_is_recorded_beside_the_plain_one():
    eager = fused(with_copy(False, 0.3))
    ours = copy.deepcopy(eager)

    def autocast():
        return precision(DEVICE, True)

    with torch.cuda.stream(torch.cuda.Stream()):
        replayed, step = RecordedStep(ours, autocast), TrainStep(eager, autocast)
        for number in range(2 * (WARM_UP + 3)):
            given, sums = replace(batch(number), consistent=number % 2 == 1), []
            for each in (replayed, step):
                torch.manual_seed(number)
                sums.append(each(given, 1e-3).clone())
            torch.testing.assert_close(*sums, rtol=1e-5, atol=0)
            assert bool(sums[0][2]) == given.consistent
    assert len(replayed.recorded) == 2


def test_three_tensors_side_by_side_and_their_sums():
    from macaron.nn.fused_functions import joined

    kind = torch.bfloat16 if ON_GPU else torch.float32
    given = [torch.randn(37, 96, device=DEVICE).to(kind) for _ in range(3)]
    found, sums = joined(*given)
    assert found.equal(torch.cat(given, 1))
    torch.testing.assert_close(sums, found.float().sum(0), rtol=1e-5, atol=1e-4)


def test_dropout_repeats_and_its_gradient_is_that_of_the_drawn_mask():
    ours = fused(module(dropout=0.3, attention_dropout=0.2, activation_dropout=0.1))

    def loss(seed: int) -> float:
        torch.manual_seed(seed)
        sums, _ = computed(ours, batch())
        return float(sums[0])

    assert loss(3) == loss(3)
    assert loss(3) != loss(4)
    if ON_GPU:  # in half precision differences are too coarse
        return
    torch.manual_seed(3)
    _, gradients = computed(ours, batch())
    slopes = {name: gradient.clone() for name, gradient in gradients.items()}
    for name, parameter in list(ours.named_parameters())[::9]:
        way = torch.randn_like(parameter)
        way *= 3e-3 / way.norm()
        values = []
        for step in (way, -2 * way):
            with torch.no_grad():
                parameter.add_(step)
            values.append(loss(3))
        with torch.no_grad():
            parameter.add_(way)
        above, below = values
        assert (above - below) / 2 == pytest.approx(float((slopes[name] * way).sum()), rel=0.1, abs=2e-4), name


@pytest.mark.parametrize("name", STILL)
def test_each_dropout_acts(name):
    ours, losses = fused(module(**{name: 0.5})), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        with torch.no_grad(), precision(DEVICE, ON_GPU):
            losses.append(float(ours(batch())[0]))
    assert losses[0] == losses[1] != losses[2]


@needs_gpu
@pytest.mark.parametrize("attention_dropout", [0.0, 0.1])
def test_the_plain_path_survives_queries_without_a_key(attention_dropout):
    plain = module(attention_dropout=attention_dropout)
    sums, gradients = computed(plain, batch())
    assert torch.isfinite(sums).all()
    assert all(bool(torch.isfinite(each).all()) for each in gradients.values())


@needs_gpu
def test_a_replayed_step_gives_losses_and_gradients_of_the_eager_one():
    eager = fused(module())
    ours = copy.deepcopy(eager)

    def autocast():
        return precision(DEVICE, True)

    with torch.cuda.stream(torch.cuda.Stream()):
        replayed, step = RecordedStep(ours, autocast), TrainStep(eager, autocast)
        for number in range(WARM_UP + 3):
            for parameter in (*eager.parameters(), *ours.parameters()):
                if parameter.grad is not None:
                    parameter.grad.zero_()
            given = batch(number)
            for _ in range(2):  # gradients accumulate
                torch.testing.assert_close(replayed(given, 1e-3), step(given, 1e-3), rtol=1e-5, atol=0)
            # The same kernels in the same order.
            for (name, one), two in zip(ours.named_parameters(), eager.parameters(), strict=True):
                assert (one.grad - two.grad).norm() <= 1e-3 * two.grad.norm() + 1e-6, (number, name)


@needs_gpu
def test_dropout_of_a_replayed_step_follows_the_seed():
    ours = fused(module(dropout=0.3))
    with torch.cuda.stream(torch.cuda.Stream()):
        step = RecordedStep(ours, lambda: precision(DEVICE, True))

        def loss(seed: int) -> float:
            torch.manual_seed(seed)
            return float(step(batch(), 1.0)[0])

        eager = loss(5)
        for _ in range(WARM_UP):
            loss(5)
        assert loss(5) == eager
        assert loss(6) != eager


def language(**changes) -> LanguageLoss:
    torch.manual_seed(1)
    sizes = {"vocab_size": VOCABULARY, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96}
    config = preset("macaron-gpt-tiny", **{**sizes, "dropout": 0.0, "attention_dropout": 0.0, **changes})
    assert isinstance(config, LanguageConfig)
    made = LanguageLoss(LanguageModel(config)).to(DEVICE).train()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return made


def text_batch(width: int, seed: int) -> LanguageBatch:
    """Texts of a third and of two thirds of a row, the last row with padding, which is a sequence of its own."""
    draw = torch.Generator().manual_seed(seed)
    ids, targets = torch.randint(4, VOCABULARY, (2, 4, width), generator=draw)
    first = width // 3
    texts = torch.ones(4, width, dtype=torch.int32)
    texts[:, first:] = 2
    texts[3, first:] = 0
    targets[texts == 0] = 1
    places = torch.cat([torch.arange(first), torch.arange(width - first)]) + FIRST_POSITION
    starts = torch.arange(0, 4 * width, width, dtype=torch.int32)
    starts = torch.cat([torch.stack([starts, starts + first], 1).flatten(), starts.new_tensor([4 * width, 4 * width])])
    given = ids, targets, places.expand(4, -1).to(torch.int32).contiguous(), texts, starts
    return LanguageBatch(*(each.to(DEVICE) for each in given))


@pytest.mark.parametrize("width", [WIDTH, pytest.param(200, marks=needs_gpu)])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheme": "lie-fg", "norm": "post", "embedding_norm": True, "scale_embedding": False},
        {"output_bias": True, "position_vectors": "sinusoidal", "activation": "relu"},
    ],
)
def test_a_language_model_learns_as_with_the_plain_modules_in_float64(width: int, changes):
    plain = language(**changes)
    assert not plain.model.decoder.uncovered(width, offsets=True)
    check_against_float64(plain, [text_batch(width, seed) for seed in range(BATCHES)])
