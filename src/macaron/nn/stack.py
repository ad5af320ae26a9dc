"""A stack of layers: the integration over depth, with sub-steps of its own at both ends if asked."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from macaron.errors import MacaronError
from macaron.nn import fused
from macaron.nn.attention import Context, CrossAttention, SelfAttention
from macaron.nn.budget import LayerSettings
from macaron.nn.embedding import FIRST_POSITION, sinusoids
from macaron.nn.layer import Visitor, build_ends, build_layer, build_norm, layer_widths
from macaron.nn.linear import EmbeddingTable, FeedForward, Linear
from macaron.ode import Scheme, Step


class StepSignals(nn.Module):
    """Position vectors and a learned vector of the step, added before every step (Universal Transformer)."""

    def __init__(self, steps: int, hidden_size: int) -> None:
        super().__init__()
        self.steps = EmbeddingTable(steps, hidden_size)

    def forward(self, x: Tensor, context: Context, step: int) -> Tensor:
        """Add the signals of a step to (B, T, D), or to the positions in (B, T, 2 D); to rows as to (B, T, ...)."""
        own = self.steps.weight[step]
        precise = torch.promote_types(x.dtype, torch.float32)
        assert context.positions is not None
        signal = sinusoids(context.positions, len(own), precise).to(x.dtype) + own
        signal = F.pad(signal, (0, x.shape[-1] - len(own)))
        return (x.view(context.batch, -1, x.shape[-1]) + signal).view_as(x) if context.batch else x + signal


class Stack(nn.Module):
    """``num_layers`` steps of a scheme, then the final norm of a pre-norm network.

    :param prologue: sub-steps before the first layer, such as ``[("G", 0.5)]``; ``epilogue``: after the last
    """

    main_input_name = "input_ids"  # transformers' `generate` asks an encoder for it

    def __init__(
        self,
        scheme: Scheme,
        num_layers: int,
        settings: LayerSettings,
        prologue: Sequence[Step] | None = None,
        epilogue: Sequence[Step] | None = None,
    ) -> None:
        super().__init__()
        if num_layers < 1:
            raise MacaronError(f"a stack needs at least one layer, not {num_layers}")
        self.num_layers = num_layers
        # Tied across depth there is one layer, applied num_layers times.
        tied = settings.tying == "depth"
        # Only the kernels of convolutions differ from layer to layer.
        widths = None if settings.interaction("F").convolves else layer_widths(scheme, settings)
        layers = [build_layer(scheme, settings, number, widths) for number in range(1 if tied else num_layers)]
        self.layers = nn.ModuleList(layers)
        borrowed = layers[0].sublayers if tied else None
        self.prologue = build_ends(prologue, settings, borrowed) if prologue else None
        self.epilogue = build_ends(epilogue, settings, borrowed) if epilogue else None
        middle = layers * num_layers if tied else layers
        #: All steps in order of application, the ends included. A plain list: nothing is registered twice.
        self.steps = [step for step in (self.prologue, *middle, self.epilogue) if step is not None]
        self.norm = build_norm(settings) if settings.norm == "pre" else None
        self.has_velocity = not settings.velocity_value().plain
        signals = settings.positions_at == "layers"
        self.signals = StepSignals(len(self.steps), settings.hidden_size) if signals else None
        self.needs_positions = signals or settings.interaction("F").positions == "rotary"
        # transformers sets these when a user enables gradient checkpointing.
        self.gradient_checkpointing = False
        self._gradient_checkpointing_func: Callable[..., Any] | None = None

    def forward(
        self,
        x: Tensor,
        context: Context,
        states: list[Tensor] | None = None,
        *,
        visit: Visitor | None = None,
        norm: bool = True,
    ) -> Tensor:
        """Carry (B, T, D) through all layers.

        :param states: if a list, receives the state before each step; the caller has the last one
        :param visit: called after every sub-step
        :param norm: apply the final norm; a caller that needs few positions applies it to those alone

        From a state of `macaron.nn.fused` fused kernels carry rows, (B T, D).
        """
        if self.needs_positions and context.positions is None:
            start = FIRST_POSITION + (context.cache.length if context.cache is not None else 0)
            steps = len(x) // context.batch if context.batch else x.shape[1]
            context = replace(context, positions=torch.arange(start, start + steps, device=x.device))
        size = 0 if isinstance(x, fused.State) else x.shape[-1]
        if self.has_velocity and size:
            x = torch.cat([x, torch.zeros_like(x)], dim=-1)
        self_slot = memory_slot = 0
        for number, step in enumerate(self.steps):
            if states is not None:
                states.append(x[..., :size] if self.has_velocity else x)
            if self.signals is not None:
                x = self.signals(x, context, number)
            # Without a cache the slots mean nothing; left out, all layers are one and the same graph to the compiler.
            slots = () if context.cache is None else (self_slot, memory_slot)
            if self.gradient_checkpointing and self.training and self._gradient_checkpointing_func:
                x = self._gradient_checkpointing_func(step.__call__, x, context, *slots)
            else:
                x = step(x, context, *slots, visit=visit)
            self_slot += step.self_slots
            memory_slot += step.memory_slots
        if isinstance(x, fused.State):
            return x.normed(self.norm)[1] if norm and self.norm is not None else x.sum
        if self.has_velocity:
            x = x[..., :size]
        return self.norm(x) if norm and self.norm is not None else x

    def uncovered(self, width: int, offsets: bool = False) -> str:
        """What the fused kernels lack for this stack and rows of this width, in words; empty if they cover it.

        :param offsets: whether rows come with their offsets
        """
        parts: list[Any] = [part for step in self.steps for part in step.sublayers.values()]
        operators = [part.operator for part in parts]
        attentions = [each for each in operators if isinstance(each, SelfAttention | CrossAttention)]
        networks = [each for each in operators if isinstance(each, FeedForward)]
        stages = {len(each.b) for step in self.steps for each in (step.tableau, step.layer_tableau)}
        found = {
            "Triton is missing": find_spec("triton") is None,
            "positions at the layers": self.signals is not None,
            "an integrator": max(stages) > 1,
            "a sum of sequences": any(len(step.walk) > 1 for step in self.steps),
            "gradient checkpointing": self.gradient_checkpointing,
            "norms without gain": any(part.norm.weight is None for part in parts),
            "this operator": len(attentions) + len(networks) < len(operators),
            "this attention": any(
                each.relative or each.q_norm or each.interaction.positions == "rotary" or type(each.out) is not Linear
                for each in attentions
            ),
            "this width of heads": any(each.head_size not in (16, 32, 64, 128) for each in attentions),
            "this length of rows": not offsets and width not in fused.ROWS,
            "dropout of everything": any(rate >= 1 for part in parts for rate in (part.dropout, part.operator.dropout)),
        }
        return ", ".join(name for name, lacks in found.items() if lacks)
