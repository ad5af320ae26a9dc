"""How far a run has come, and when it is over."""

import math
import time

from macaron.train.checkpoint import Progress
from macaron.train.settings import LIMITS, TrainSettings


class Clock:
    """Seconds of a run, those before it was resumed included.

    :param started: when this process began (``time.monotonic()``): imports and compilation count
    """

    def __init__(self, started: float | None = None) -> None:
        self._started = time.monotonic() if started is None else started
        self.before = 0.0

    def seconds(self) -> float:
        """Seconds until now."""
        return self.before + time.monotonic() - self._started


def share(settings: TrainSettings, progress: Progress, seconds: float) -> float:
    """The share of the run that is done, from 0 to 1, by whichever limit is nearest."""
    return min(max(_shares(settings, progress, seconds)), 1.0)


def schedule_share(settings: TrainSettings, progress: Progress, seconds: float) -> float:
    """The share of the schedule that is done, from 0 to 1: by the first limit given, whatever the others say.

    A cap in minutes beside ``max_updates`` thus changes no learning rate: the run does not depend on the machine's
    speed unless the cap really stops it.
    """
    return min(_shares(settings, progress, seconds)[0], 1.0)


def _shares(settings: TrainSettings, progress: Progress, seconds: float) -> list[float]:
    """How much of each limit that is given is used up, in the order of ``LIMITS``."""
    within = progress.batch / progress.batches if progress.batches else 0.0
    done = {
        "max_updates": progress.update,
        "max_epochs": progress.epoch - 1 + within,
        "max_minutes": seconds / 60,
    }
    given = ((getattr(settings, name), done[name]) for name in LIMITS)
    return [value / limit for limit, value in given if limit is not None]


def over(settings: TrainSettings, progress: Progress, seconds: float) -> bool:
    """Whether a limit is reached or patience is lost."""
    waited = settings.patience > 0 and progress.validations_without_gain >= settings.patience
    return waited or share(settings, progress, seconds) >= 1.0


def seconds_left(done: float, seconds: float) -> float:
    """Seconds until the end, if it goes on as before."""
    return seconds * (1 - done) / done if done > 0 else math.inf


def duration(seconds: float) -> str | None:
    """Seconds as h:mm:ss; None if nobody knows."""
    if not math.isfinite(seconds):
        return None
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
