"""Learning rates."""

import math

from macaron.train.settings import TrainSettings


def learning_rate(settings: TrainSettings, update: int, progress: float = 0.0) -> float:
    """The rate after ``update`` updates, which the next update uses (so the first runs at the warm-up's start).

    :param progress: the share of the run that lies behind, for schedules that end with it
    """
    peak, warmup = settings.learning_rate, settings.warmup
    if update < warmup:
        return settings.warmup_rate + update * (peak - settings.warmup_rate) / warmup
    if settings.schedule == "constant":
        return peak
    if settings.schedule == "inverse-sqrt":
        return peak * math.sqrt(warmup / update) if warmup else peak * (update + 1) ** -0.5
    floor = settings.final_rate
    progress = min(max(progress, 0.0), 1.0)
    left = 1 - progress if settings.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return peak * (floor + (1 - floor) * left)
