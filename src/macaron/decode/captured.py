"""Steps of the search recorded as a CUDA graph and replayed.

A step is some five hundred small kernels: launched one by one from Python, the GPU would wait for most of them. Shapes
change when sentences leave the batch or the cache grows; then the next step runs as it is written, which lets the
libraries choose their kernels, the one after it is recorded, and from then on it is replayed.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from macaron.decode.beam import Beams
from macaron.decode.fixed import FixedScorer

Replay = Callable[[], None]
Recorder = Callable[[Callable[[], None]], Replay]


class CapturedSteps:
    """Carries a search from step to step.

    :param record: makes a function of what it is given that does the same again; by default a CUDA graph
    """

    def __init__(self, scorer: FixedScorer, state: Beams, record: Recorder | None = None) -> None:
        self.scorer, self.state, self.record = scorer, state, record or record_graph
        self._kind: tuple[object, ...] | None = None
        self._replay: Replay | None = None

    def __call__(self, tokens: Tensor, step: int, at_limit: bool) -> Tensor:
        """One step from the last tokens of all beams, (B, N), to the next ones."""
        cache, state = self.scorer.cache, self.state
        if step == cache.room:
            cache.grow()
        # What a recorded step cannot change: shapes, and what is decided here rather than by a tensor.
        kind = (len(tokens), cache.room, at_limit, step >= state.settings.min_length)
        if kind != self._kind:
            self._kind, self._replay = kind, None
            tokens, parents = self._move(tokens, step, at_limit)
            state.remember(tokens, parents)
            return tokens
        if self._replay is None:
            self._record(tokens, step, at_limit)
            assert self._replay is not None
        self._replay()
        state.remember(self._tokens.clone(), self._parents.clone())
        return self._tokens

    def _move(self, tokens: Tensor, step: int, at_limit: bool) -> tuple[Tensor, Tensor]:
        tokens, parents = self.state.move(self.scorer.step(tokens), step, at_limit)
        self.scorer.reorder(parents)
        return tokens, parents

    def _record(self, tokens: Tensor, step: int, at_limit: bool) -> None:
        """Record a step that reads its state from fixed places and writes it back there."""
        state = self.state
        held = [each.clone() for each in state.tensors()]
        self._tokens, self._parents = tokens.clone(), torch.zeros_like(tokens)

        def again() -> None:
            state.set_tensors(held)
            found, parents = self._move(self._tokens, step, at_limit)
            torch._foreach_copy_([*held, self._tokens, self._parents], [*state.tensors(), found, parents])
            state.set_tensors(held)

        self._replay = self.record(again)
        state.set_tensors(held)


def record_graph(function: Callable[[], None]) -> Replay:
    """A CUDA graph of what a function launches.

    `torch.cuda.graph` would first give all free memory back to the driver, and there are many recordings.
    """
    graph, stream, present = torch.cuda.CUDAGraph(), _stream(), torch.cuda.current_stream()
    stream.wait_stream(present)
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            function()
        finally:
            graph.capture_end()
    present.wait_stream(stream)
    return graph.replay


@cache
def _stream() -> torch.cuda.Stream:
    """Recording is not possible on the default stream."""
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]
