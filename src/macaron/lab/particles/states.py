"""The states of a sentence after every sub-step of a stack: the particles and their moves.

A stack is walked again with its own parts, from the input that the model itself gave it; the last state is what the
model computes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from macaron.nn import Context, SchemeLayer, Stack, SubLayer
from macaron.ode.describe import number

#: What the operators do to particles.
MEANING = {"F": "diffusion", "G": "convection", "H": "cross-attention"}
START, END = "start", "end"


@dataclass(frozen=True)
class Frame:
    """The states of all particles at one moment.

    :param operator: what moved them there: F, G, H, or ``start`` and ``end`` (the final norm)
    :param layer: from 1 on; 0 is what comes before the first layer, one more than there are what comes after the last
    :param step: of the sub-steps of that layer, from 1 on
    :param state: (T, D)
    :param attention: (T, S), the weights that moved them, averaged over heads; None where nothing attends
    """

    operator: str
    layer: int
    step: int
    coefficient: float
    label: str
    state: Tensor
    attention: Tensor | None = None


@dataclass(frozen=True)
class Passage:
    """One layer on its way: from where (1, T, D) to where."""

    layer: int
    module: SchemeLayer
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Walk:
    """A sentence on its way through a stack.

    :param passages: its layers, the ends of the stack not among them
    :param output: (T, D), what the model's own forward has computed
    """

    stack: Stack
    frames: list[Frame]
    passages: list[Passage]
    context: Context
    output: Tensor

    @property
    def layer_ends(self) -> list[int]:
        """Indices of the start, of the last frame of each layer (0: the prologue) and of the last frame of all."""
        last: dict[int, int] = {}
        for index, frame in enumerate(self.frames):
            last[frame.layer] = index
        return [0, *(index for index in last.values() if index)]


@torch.no_grad()
def walk(stack: Stack, forward: Callable[[], Any]) -> Walk:
    """Follow one sentence through a stack.

    :param forward: has the model send the sentence, a batch of one, through that stack once
    """
    given: list[tuple[Tensor, Context]] = []
    results: list[Tensor] = []
    handles = [
        stack.register_forward_pre_hook(lambda _, args: given.append((args[0], args[1]))),
        stack.register_forward_hook(lambda _, __, result: results.append(result)),
    ]
    try:
        forward()
    finally:
        for handle in handles:
            handle.remove()
    (x, context), (output,) = given[0], results
    frames = [Frame(START, 0, 0, 0.0, "The words as they are embedded", x[0])]
    passages: list[Passage] = []
    first = 0 if stack.prologue is not None else 1
    for layer, module in enumerate(stack.steps(), start=first):
        where = _where(layer, stack.num_layers)
        before = x
        for frame in _sub_steps(module, layer, where, x, context):
            frames.append(frame)
            x = frame.state[None]
        if 1 <= layer <= stack.num_layers:
            passages.append(Passage(layer, module, before, x))
    if stack.norm is not None:
        after = stack.num_layers + 1
        step = 1 + sum(frame.layer == after for frame in frames)
        frames.append(Frame(END, after, step, 0.0, "The final norm", stack.norm(x)[0]))
    return Walk(stack, frames, passages, context, output[0])


def _where(layer: int, layers: int) -> str:
    if layer == 0:
        return "Before the first layer"
    return f"Layer {layer} of {layers}" if layer <= layers else "After the last layer"


def _sub_steps(module: SchemeLayer, layer: int, where: str, x: Tensor, context: Context) -> Iterator[Frame]:
    """The frames of one layer.

    A layer of several branches, x + Σ w (end - x) with branches from the same x, has no state between them. Its
    sub-steps are shown one after the other, each with its share w of the move, so that moves add up to the layer's.
    """
    branches = [(weight, moves) for weight, moves in module.walk if moves]
    several = len(module.walk) > 1
    end = module(x, context) if several else x
    done, step = x, 0
    for branch, (weight, moves) in enumerate(branches, start=1):
        y = x
        for move in moves:
            step += 1
            sublayer = module.sublayers[move.sublayer]
            assert isinstance(sublayer, SubLayer)
            operator = move.sublayer[0]
            weights = None
            if operator != "G":
                weights = _attention(sublayer, y, move.coefficient, module, context)
            y = sublayer(y, move.coefficient, module.tableau, context, 0)
            state = done + weight * (y - x) if several else y
            if several and branch == len(branches) and move is moves[-1]:
                state = end  # the same but for rounding
            remark = f", branch {branch} of {len(branches)}" if several else ""
            label = f"{where}, {MEANING[operator]} ({_size(move.coefficient)}{remark})"
            yield Frame(operator, layer, step, weight * move.coefficient, label, state[0], weights)
        done = done + weight * (y - x)


def _attention(sublayer: SubLayer, x: Tensor, coefficient: float, module: SchemeLayer, context: Context) -> Tensor:
    """The weights (T, S) of a sub-step, averaged over heads, and over the integrator's stages as it weighs them."""
    stages: list[tuple[str, Tensor]] = []
    sublayer(x, coefficient, module.tableau, replace(context, weights=stages), 0)
    mean = torch.stack([weights[0].mean(0) for _, weights in stages])
    shares = torch.tensor(module.tableau.b, dtype=mean.dtype)
    return torch.einsum("s,stk->tk", shares, mean)


def _size(coefficient: float) -> str:
    if coefficient < 0:
        return f"a step of {number(-coefficient)} back"
    return {1.0: "full step", 0.5: "half step"}.get(coefficient, f"step of {number(coefficient)}")
