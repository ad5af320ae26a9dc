"""When a run stops: its limits, and the signals that ask for it."""

import signal
import time
from datetime import timedelta
from types import FrameType
from typing import Any, Self

from macaron.errors import Interrupted
from macaron.train.checkpoint import RunState
from macaron.train.settings import LIMITS, TrainSettings

#: Seconds after which the time that is left is printed, if no line with it has been printed yet.
ESTIMATE_AFTER = 8.0
_ECHO = 1.0  # seconds; repeated signals within this time are ignored


def shares(settings: TrainSettings, state: RunState, seconds: float) -> list[float]:
    """The used share of each given limit, from 0 to 1, in the order of ``LIMITS``.

    The largest is the share of the run that is done. The first is that of the schedule, whatever the others are.
    """
    within = (state.section + (state.batch / state.batches if state.batches else 0.0)) / state.sections
    done = {"max_updates": state.update, "max_epochs": state.epoch - 1 + within, "max_minutes": seconds / 60}
    given = ((getattr(settings, name), done[name]) for name in LIMITS)
    return [min(value / limit, 1.0) for limit, value in given if limit is not None]


def over(settings: TrainSettings, state: RunState, seconds: float) -> bool:
    """Whether a limit is reached or patience is exhausted."""
    impatient = settings.patience > 0 and state.validations_without_gain >= settings.patience
    return impatient or max(shares(settings, state, seconds)) >= 1.0


def early_end(settings: TrainSettings, state: RunState, seconds: float, resume: str) -> str | None:
    """What has ended a run before the limit that its schedule was planned for; None if nothing has."""
    planned, *caps = (name for name in LIMITS if getattr(settings, name) is not None)
    share, *others = shares(settings, state, seconds)
    if share >= 1.0:
        return None
    name = next((cap for cap, used in zip(caps, others, strict=True) if used >= 1.0), "patience")
    return (
        f"train.{name} = {getattr(settings, name):g} has ended the run at {100 * share:.0f} % of train.{planned} = "
        f"{getattr(settings, planned):,}. To go on, raise it: {resume} --set train.{name}=N"
    )


def time_left(done: float, seconds: float, begun: float = 0.0, share: float = 0.0) -> str | None:
    """The time until the end, such as 4 days, 3:02:01, at the pace so far; None before the first update.

    :param done: the share of the run that is done after ``seconds``
    :param begun: when the first update began: starting and compiling are no part of the pace
    :param share: the share that was done then, in a resumed run
    """
    if done <= share:
        return None
    return str(timedelta(seconds=int((seconds - begun) * (1 - done) / (done - share))))


class StopSignals:
    """A context in which Ctrl-C and SIGTERM only set ``received``; the loop stops when it is ready.

    A second Ctrl-C, a second or more after the first, stops at once. Echoes are ignored: torchrun and ``timeout``
    forward a signal to processes that have received it already.
    """

    def __init__(self) -> None:
        self.received = False
        self._first = 0.0
        self._before: dict[int, Any] = {}

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self.received:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._receive)
        return self

    def _receive(self, number: int, _: FrameType | None) -> None:
        now = time.monotonic()
        if self.received and number == signal.SIGINT and now - self._first >= _ECHO:
            raise KeyboardInterrupt
        if not self.received:
            self.received, self._first = True, now
            Interrupted.exit_code = 128 + number

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
