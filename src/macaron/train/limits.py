"""How far a run has come, and when it is over."""

import math
import time

from macaron.train.checkpoint import Progress
from macaron.train.settings import TrainSettings


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
    shares = [0.0]
    if settings.max_updates is not None:
        shares.append(progress.update / settings.max_updates)
    if settings.max_epochs is not None:
        within = progress.batch / progress.batches if progress.batches else 0.0
        shares.append((progress.epoch - 1 + within) / settings.max_epochs)
    if settings.max_minutes is not None:
        shares.append(seconds / (60 * settings.max_minutes))
    return min(max(shares), 1.0)


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
