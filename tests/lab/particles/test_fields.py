"""Commutators and truncation errors against matrices, theory and the order of schemes."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from macaron.lab.particles.depth import commutators, flow, operator_fields, time_segments, truncation_error
from macaron.lab.particles.trace import LayerTrace
from macaron.nn import Context, LayerSettings, SchemeLayer, build_layer
from macaron.nn.layer import SubStep
from macaron.ode import Branch, Step, lift, scheme

D = 12
SHAPE: Any = {"hidden_size": D, "num_attention_heads": 3, "head_size": 4, "intermediate_size": 24, "dropout": 0.0}
SETTINGS = LayerSettings(**SHAPE, activation="gelu", tying="layer")
STATE = torch.randn(1, 5, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


class Matrix(nn.Module):
    """A linear operator, in the place of attention or a feed-forward network."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = matrix

    def forward(self, x: Tensor, context: Context, slot: int) -> Tensor:
        return x @ self.matrix.T


def layer_of(name: str, settings: LayerSettings = SETTINGS) -> SchemeLayer:
    torch.manual_seed(0)
    layer = build_layer(scheme(name), settings).double().eval()
    for parameter in layer.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return layer


def linear_layer(name: str, settings: LayerSettings | None = None, **matrices: Tensor) -> SchemeLayer:
    """A layer of a scheme whose sub-layers are matrices, without norms."""
    layer = layer_of(name, settings or LayerSettings(**SHAPE))
    for key, matrix in matrices.items():
        layer.sublayers[key].norm = nn.Identity()
        layer.sublayers[key].operator = Matrix(matrix)
    assert set(matrices) == set(layer.sublayers)
    return layer


def traced(layer: SchemeLayer, x: Tensor = STATE, context: Context | None = None) -> LayerTrace:
    steps: list[SubStep] = []
    with torch.no_grad():
        return LayerTrace(1, steps, x, layer(x, context or Context(), visit=steps.append))


def random_matrix(seed: int, scale: float = 0.3) -> Tensor:
    return scale * torch.randn(D, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_matrices_that_commute_have_no_commutator():
    a = random_matrix(2)
    (found,) = commutators(traced(linear_layer("lie-fg", F1=a, G1=a @ a + 2 * a)), Context())
    assert found["pair"] == "FG"
    assert found["relative"] == pytest.approx(0, abs=1e-12)
    assert found["error"] == pytest.approx(0, abs=1e-12)


def test_the_commutator_of_matrices_is_theirs():
    a, b = random_matrix(2), random_matrix(3)
    where = traced(linear_layer("lie-fg", F1=a, G1=b))
    (found,) = commutators(where, Context())
    one, other = STATE @ (a @ b).T, STATE @ (b @ a).T
    difference = (one - other).norm()
    assert found["relative"] == pytest.approx(float(difference / (one.norm() + other.norm())), rel=1e-10)
    assert found["error"] == pytest.approx(float(difference / 2 / (where.after - STATE).norm()), rel=1e-10)


def test_untied_halves_count_by_their_coefficients():
    a, b, c = (random_matrix(seed) for seed in (2, 3, 4))
    (halves,) = commutators(traced(linear_layer("strang-gfg", F1=a, G1=b, G2=c)), Context())
    (whole,) = commutators(traced(linear_layer("lie-fg", F1=a, G1=(b + c) / 2)), Context())
    assert halves["relative"] == pytest.approx(whole["relative"], rel=1e-10)


def test_the_commutator_by_finite_differences():
    """A real layer, with attention and norms: the derivative along a direction, from values alone."""
    layer = layer_of("strang-gfg")
    fields = operator_fields(traced(layer).steps, Context())
    with torch.no_grad():
        f, g = fields["F"](STATE), fields["G"](STATE)
        h = 1e-5
        one = (fields["F"](STATE + h * g) - fields["F"](STATE - h * g)) / (2 * h)
        other = (fields["G"](STATE + h * f) - fields["G"](STATE - h * f)) / (2 * h)
    (found,) = commutators(traced(layer), Context())
    assert found["relative"] == pytest.approx(float((one - other).norm() / (one.norm() + other.norm())), rel=1e-6)


def test_an_operator_that_does_nothing_commutes():
    layer = layer_of("lie-fg")
    for parameter in layer.sublayers["G1"].operator.parameters():
        parameter.data.zero_()
    (found,) = commutators(traced(layer), Context())
    assert (found["relative"], found["error"]) == (0.0, 0.0)


def test_a_decoder_layer_has_three_pairs():
    torch.manual_seed(0)
    layer = build_layer(lift(scheme("strang-gfg")), SETTINGS).double().eval()
    context = Context(causal=True, memory=torch.randn(1, 7, D, dtype=torch.float64))
    found = commutators(traced(layer, context=context), context)
    assert [each["pair"] for each in found] == ["FG", "FH", "GH"]
    assert all(0 < each["relative"] <= 1 for each in found)


def test_the_flow_of_matrices_is_their_exponential():
    a, b = random_matrix(2, 0.1), random_matrix(3, 0.1)
    where = traced(linear_layer("lie-fg", F1=a, G1=b))
    exact = STATE @ torch.linalg.matrix_exp(a + b).T
    expected = float((where.after - exact).norm() / (where.after - STATE).norm())
    assert truncation_error(where, Context()) == pytest.approx(expected, rel=0.02)
    assert expected > 0.01


def test_each_half_of_macaron_acts_in_its_half_of_the_time():
    a, b, c = (random_matrix(seed, 0.1) for seed in (2, 3, 4))
    layer = linear_layer("strang-gfg", F1=a, G1=b, G2=c)
    assert [length for length, _ in time_segments(traced(layer).steps, Context())] == [0.5, 0.5]
    exact = STATE @ (torch.linalg.matrix_exp((a + c) / 2) @ torch.linalg.matrix_exp((a + b) / 2)).T
    torch.testing.assert_close(
        flow(time_segments(traced(layer).steps, Context()), STATE, 64), exact, rtol=1e-8, atol=1e-8
    )


def test_clocks_of_other_schemes():
    lengths = [length for length, _ in time_segments(traced(layer_of("best22-fgfg")).steps, Context())]
    assert lengths == pytest.approx([1 - math.sqrt(0.5), math.sqrt(2) - 1, 1 - math.sqrt(0.5)])
    for name in ("ruth3-fg", "sws", "parallel"):  # steps back, and several branches: the mean all the time
        ((length, field),) = time_segments(traced(layer_of(name)).steps, Context())
        assert length == 1
        with torch.no_grad():
            total = sum(each(STATE) for each in operator_fields(traced(layer_of(name)).steps, Context()).values())
            torch.testing.assert_close(field(STATE), total)


def test_stages_of_a_whole_layer_share_its_time():
    """Both halves of Macaron act in every stage: their mean acts all the time."""
    a, b, c = (random_matrix(seed, 0.1) for seed in (2, 3, 4))
    layer = linear_layer("strang-gfg", LayerSettings(**SHAPE, layer_integrator="heun"), F1=a, G1=b, G2=c)
    exact = STATE @ torch.linalg.matrix_exp(a + (b + c) / 2).T
    torch.testing.assert_close(
        flow(time_segments(traced(layer).steps, Context()), STATE, 64), exact, rtol=1e-8, atol=1e-8
    )


def test_one_operator_alone_errs_by_its_integrator_only():
    a = random_matrix(2, 0.1)
    where = traced(linear_layer("lie-fg", F1=a, G1=torch.zeros_like(a)))
    exact = STATE @ torch.linalg.matrix_exp(a).T
    expected = float((where.after - exact).norm() / (where.after - STATE).norm())
    assert truncation_error(where, Context()) == pytest.approx(expected, rel=0.02)


def test_a_layer_that_does_not_move_has_no_error():
    layer = layer_of("strang-gfg")
    for sublayer in layer.sublayers.values():
        for parameter in sublayer.operator.parameters():
            parameter.data.zero_()
    assert truncation_error(traced(layer), Context()) == 0


def test_the_field_of_a_post_norm_sub_step_is_what_it_moves_by():
    layer = layer_of("strang-gfg", LayerSettings(**SHAPE, norm="post"))
    with torch.no_grad():
        found = operator_fields(traced(layer).steps, Context())["G"](STATE)
        moved = [layer.sublayers[name](STATE, 0.5, layer.tableau, Context(), 0) - STATE for name in ("G1", "G2")]
    torch.testing.assert_close(found, sum(moved))


def slope(name: str, integrator: str, scales: Sequence[float] = (1 / 16, 1 / 32)) -> float:
    """How the relative error of a small step falls as the step is halved."""
    settings = LayerSettings(**SHAPE, activation="gelu", tying="layer", integrator=integrator)
    fields = layer_of("lie-fg", settings).sublayers
    found = []
    for scale in scales:
        branches = tuple(
            Branch(branch.weight, tuple(Step(op, scale * c) for op, c in branch.steps))
            for branch in scheme(name).branches
        )
        small = SchemeLayer(branches, {"F": (4,), "G": (24,)}, settings, fields)
        found.append(truncation_error(traced(small), Context()))
    return math.log2(found[0] / found[1])


@pytest.mark.parametrize(
    ("name", "integrator", "order"),
    [
        ("lie-fg", "rk4", 1),
        ("strang-gfg", "rk4", 2),
        ("strang-gfg", "euler", 1),
        ("strang-gfg", "midpoint", 2),
        ("sws", "rk4", 2),
        ("parallel", "rk4", 1),
        ("best22-fgfg", "rk4", 2),
    ],
)
def test_the_error_falls_with_the_order_of_the_scheme(name: str, integrator: str, order: int):
    assert slope(name, integrator) == pytest.approx(order, abs=0.2)
