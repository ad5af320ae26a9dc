"""Ctrl-C and SIGTERM as a wish that the loop grants when it is ready."""

import signal
import time
from types import FrameType, TracebackType
from typing import Any, Self

_AGAIN = 1.0  # seconds: what comes sooner is an echo of the first


class StopSignals:
    """A context in which Ctrl-C and SIGTERM are only noted, in ``received``.

    A person who presses Ctrl-C again a second later or more wants to leave at once. Echoes are ignored: torchrun and
    ``timeout`` pass on to their processes a signal that these have had already.
    """

    def __init__(self) -> None:
        self.received = False
        self._first = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.received and number == signal.SIGINT and now - self._first >= _AGAIN:
            raise KeyboardInterrupt
        if not self.received:
            self.received, self._first = True, now

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
