"""Paths of particles: they are the scheme's own steps, and their errors fall as the theory says."""

import itertools

import numpy as np
import pytest

from macaron.errors import MacaronError
from macaron.ode import scheme
from macaron.ode.flows import exact_step, integrated_flow, particle_system, split_step
from macaron.ode.trajectories import DURATION, PARTICLES, SEED, STEPS, compare


@pytest.fixture(scope="module")
def found():
    return compare(["lie-fg", "strang-gfg", "lie-fg:euler", "strang-gfg:euler"])


@pytest.fixture(scope="module")
def system():
    return particle_system(SEED, PARTICLES, width=2)


def test_the_exact_path_is_the_flow(found, system):
    assert found[0].shape == (97, PARTICLES, 2)
    assert (found[0][0] == system.start).all()
    field = system.total(["F", "G"])
    half = exact_step(field, system.time, system.start, DURATION / 2)
    assert found[0][48] == pytest.approx(half, abs=1e-11)
    assert found[0][96] == pytest.approx(exact_step(field, system.time + DURATION / 2, half, DURATION / 2), abs=1e-11)


@pytest.mark.parametrize(("place", "name", "method"), [(0, "lie-fg", "exact"), (3, "strang-gfg", "euler")])
def test_nodes_are_whole_steps_and_moves_lead_from_one_to_the_next(found, system, place, name, method):
    walk = found[1][place].trajectories[STEPS.index(4)]
    x, step, flow = system.start, DURATION / 4, integrated_flow(system.fields, method)
    for k in range(4):
        x = split_step(scheme(name), flow, system.time + k * step, x, step)
        assert walk.nodes[k + 1] == pytest.approx(x, abs=1e-11)
    operators = [operator for operator, _ in scheme(name).branches[0].steps]
    assert [operator for operator, _ in walk.moves] == operators * 4
    for (_, before), (_, after) in zip(walk.moves, walk.moves[1:], strict=False):
        assert before[-1] == pytest.approx(after[0], abs=1e-15)
    assert walk.moves[-1][1][-1] == pytest.approx(walk.nodes[-1], abs=1e-15)
    assert walk.error == pytest.approx(float(np.linalg.norm(walk.nodes[-1] - found[0][-1])))


def test_the_claim(found):
    """Half the step halves Lie's error and quarters Strang's; with Euler sub-steps, as in a network, both halve."""
    ratios = [[walk.ratio for walk in each.trajectories] for each in found[1]]
    assert ratios[0][2:] == pytest.approx([2] * 4, abs=0.05)
    assert ratios[1][2:] == pytest.approx([4] * 4, abs=0.05)
    assert ratios[2][-1] == pytest.approx(2, abs=0.05)
    assert ratios[3][-1] == pytest.approx(2, abs=0.05)
    lie, strang = (each.trajectories[STEPS.index(4)].error for each in found[1][:2])
    assert strang < lie / 10
    errors = [walk.error for walk in found[1][0].trajectories]
    assert [a / b for a, b in itertools.pairwise(errors)] == pytest.approx(ratios[0][:-1])


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (5, 23))])
def test_other_seeds_have_the_same_orders(seed):
    lie, strang = compare(["lie-fg", "strang-gfg"], seed, steps=(128,))[1]
    assert lie.trajectories[0].ratio == pytest.approx(2, abs=0.1)
    assert strang.trajectories[0].ratio == pytest.approx(4, abs=0.1)


def test_a_sum_of_branches_has_nodes_but_no_single_way():
    [walk] = compare(["parallel"], steps=(2,))[1][0].trajectories
    assert walk.nodes.shape == (3, PARTICLES, 2)
    assert walk.moves == ()


def test_schemes_of_other_operators_cannot_be_compared():
    with pytest.raises(MacaronError, match="strang-gfhg splits G, F, H: to be compared on one system"):
        compare(["lie-fg", "strang-gfhg"])
    assert len(compare(["strang-gfhg", "strang3-gfhfg"], steps=(1,))[1]) == 2
    with pytest.raises(MacaronError, match="did you mean 'strang-gfg'"):
        compare(["strang-gfq"])
