"""Particles of networks with every operator: the last frame is the model's output, and all measures are numbers."""

import math
from typing import Any

import pytest
import torch

from macaron.lab.particles.depth import depth
from macaron.lab.particles.trace import trace
from macaron.nn.operators import Convolution
from operators import OPERATORS, tiny

SOURCE, TARGET = torch.tensor([[7, 9, 11, 4, 2]]), torch.tensor([[2, 5, 6, 7]])


@pytest.mark.parametrize("changes", OPERATORS.values(), ids=OPERATORS)
def test_particles_of_every_operator(changes: dict[str, Any]):
    model = tiny(changes)
    with torch.no_grad():
        memory = model.encode(SOURCE)
        states = {"encoder": memory, "decoder": model.decode(TARGET, memory)}
    calls = {"encoder": lambda: model.encode(SOURCE), "decoder": lambda: model.decode(TARGET, memory)}
    for name, expected in states.items():
        traced = trace(getattr(model, name), calls[name])
        assert torch.equal(traced.frames[-1].state, expected[0])
        assert {frame.state.shape for frame in traced.frames} == {expected[0].shape}
        for frame in traced.frames:
            if frame.operator in ("F", "H"):
                assert frame.attention is not None
                sums = frame.attention.sum(-1)
                operator: Any = traced.stack.layers[0].sublayers[f"{frame.operator}1"].operator
                if isinstance(operator, Convolution):
                    assert bool((sums <= 1 + 1e-6).all())  # less where the kernel reaches beyond the sentence
                else:
                    torch.testing.assert_close(sums, torch.ones(len(expected[0])))
        measures = depth(traced)
        moved = [row[key] for row in measures["moves"] for key in ("size", "relative")]
        assert all(math.isfinite(number) for number in moved)
        assert all(math.isfinite(row["relative"]) for key in ("commutator", "truncation") for row in measures[key])
        assert (measures["truncation"] == []) == traced.stack.has_velocity
