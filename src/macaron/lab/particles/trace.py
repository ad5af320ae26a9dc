"""The states of a sentence after every sub-step of a stack: the particles and their moves.

The stack walks its layers itself and reports every sub-step, so the last frame is the model's output to the bit.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from macaron.nn import Context, Stack
from macaron.nn.layer import SubStep
from macaron.ode.describe import number

#: What the operators do to particles.
MEANING = {"F": "diffusion", "G": "convection", "H": "cross-attention"}
START, SIGNAL, END = "start", "signal", "end"


@dataclass(frozen=True)
class Frame:
    """The states of all particles after a sub-step.

    :param operator: F, G, H, or ``start`` (the embedding), ``signal`` (position and step, added before a layer) and
        ``end`` (the final norm)
    :param layer: from 1; 0 is before the first layer, the number of layers + 1 after the last
    :param step: number of the sub-step in its layer, from 1
    :param state: (T, D)
    :param attention: (T, S), the attention weights of the sub-step, averaged over heads; None for other operators
    """

    operator: str
    layer: int
    step: int
    coefficient: float
    label: str
    state: Tensor
    attention: Tensor | None = None


@dataclass(frozen=True)
class LayerTrace:
    """The sub-steps of one layer, and its states (1, T, D) before and after."""

    number: int
    steps: Sequence[SubStep]
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Trace:
    """A sentence traced through a stack: the last frame is its output, layers are without prologue and epilogue."""

    stack: Stack
    frames: list[Frame]
    layers: list[LayerTrace]
    context: Context

    @property
    def layer_ends(self) -> list[int]:
        """Indices of the first frame, of the last frame of each layer (0: the prologue) and of the last frame."""
        last = {frame.layer: index for index, frame in enumerate(self.frames)}
        return [0, *(index for index in last.values() if index)]

    @torch.no_grad()
    def normalised(self) -> list[Tensor]:
        """Every state (T, D) through the final norm; a post-norm stack has none, so a plain layer norm is used."""
        norm = self.stack.norm or (lambda state: F.layer_norm(state, state.shape[-1:]))
        return [frame.state if frame.operator == END else norm(frame.state) for frame in self.frames]


@torch.no_grad()
def trace(stack: Stack, forward: Callable[[], Any]) -> Trace:
    """Trace one sentence through a stack, which ``forward`` calls once, with a batch of one."""
    calls: list[Any] = []
    handle = stack.register_forward_pre_hook(lambda _, args: calls.append(args[:2]))
    try:
        forward()
    finally:
        handle.remove()
    ((embedded, context),) = calls
    states: list[Tensor] = []  # before each layer, and after the last
    visited: dict[int, list[SubStep]] = defaultdict(list)

    def visit(step: SubStep) -> None:
        visited[len(states)].append(step)

    states.append(stack(embedded, context, states, visit=visit, norm=False))
    frames = [Frame(START, 0, 0, 0.0, "The embedded words", states[0][0])]
    walked: list[LayerTrace] = []
    for index, (start, end) in enumerate(pairwise(states), start=0 if stack.prologue is not None else 1):
        steps = visited[len(walked) + 1]
        before = steps[0].before[..., : start.shape[-1]]  # with the signals of the layer
        walked.append(LayerTrace(index, steps, before, end))
        frames += _frames(walked[-1], stack, context)
    last = stack.num_layers + 1
    if stack.norm is not None:
        step = 1 + sum(frame.layer == last for frame in frames)
        frames.append(Frame(END, last, step, 0.0, "The final norm", stack.norm(states[-1])[0]))
    return Trace(stack, frames, [layer for layer in walked if 0 < layer.number < last], context)


def _frames(layer: LayerTrace, stack: Stack, context: Context) -> Iterator[Frame]:
    """The frames of one layer.

    A layer of several branches, x + Σ w (end - x) with all branches starting at x, has no states between them. Its
    sub-steps are shown in sequence, each with its share w of the move, so that the moves add up to the layer's.
    """
    ends = {0: "Before the first layer", stack.num_layers + 1: "After the last layer"}
    where = ends.get(layer.number, f"Layer {layer.number} of {stack.num_layers}")
    if stack.signals is not None:
        yield Frame(SIGNAL, layer.number, 0, 0.0, f"{where}, position and step", layer.before[0])
    branches = list(dict.fromkeys(step.branch for step in layer.steps))
    several = len(layer.steps[0].layer.walk) > 1 or len(branches) > 1
    start = state = origin = layer.before
    width = start.shape[-1]  # without the velocities
    for index, step in enumerate(layer.steps):
        if index and step.branch != layer.steps[index - 1].branch:
            start, origin = state, step.before[..., :width]  # that of a stage is not the layer's
        after = step.after[..., :width]
        state = start + step.weight * (after - origin) if several else after
        if step is layer.steps[-1]:
            state = layer.after  # equal up to rounding
        branch = f", branch {branches.index(step.branch) + 1} of {len(branches)}" if several else ""
        operator, coefficient = step.move.operator, step.move.coefficient
        size = {1.0: "full step", 0.5: "half step"}.get(coefficient, f"step of {number(coefficient)}")
        label = f"{where}, {MEANING[operator]} ({size}{branch})"
        attention = None if operator == "G" else _attention(step, context)
        yield Frame(operator, layer.number, index + 1, step.weight * coefficient, label, state[0], attention)


def _attention(step: SubStep, context: Context) -> Tensor:
    """The mean attention (T, S) of a sub-step over heads and stages, evaluated again, since weights change rounding."""
    stages: list[tuple[str, Tensor]] = []
    tableau = step.layer.tableau
    step.sublayer(step.before, step.move.coefficient, tableau, replace(context, weights=stages), 0)
    mean = torch.stack([weights[0].mean(0) for _, weights in stages])
    return torch.einsum("s,stk->tk", torch.tensor(tableau.b, dtype=mean.dtype), mean)
