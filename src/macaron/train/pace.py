"""How fast a run trains on this machine, measured before its first update, and how a run is fitted to its minutes."""

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import torch

from macaron.device import own_stream
from macaron.train.checkpoint import RunState
from macaron.train.loop import Trainer
from macaron.train.optimiser import copy_weights
from macaron.train.settings import TrainSettings

Say = Callable[[str], None]
#: Updates of a trial that do not count in any case: on a GPU they compile the model and record it.
WARM_UP = {"cpu": 1, "cuda": 8}
#: Of a run fitted to its minutes: the share of the time that is planned, because the speed of a machine varies, the
#: share of its updates that is warm-up, and how often it validates.
PLANNED, WARM_UP_SHARE, VALIDATIONS = 0.93, 0.1, 10
#: Its multiples, modulo 1, are evenly spread.
GOLDEN = (5**0.5 - 1) / 2
#: A fitted run of fewer updates has learned next to nothing.
FEW = 300
#: The share of the speed of large matrix products that training reaches, roughly.
REACHED = 0.4
DAY = 24 * 3600


@dataclass(frozen=True)
class Pace:
    """Seconds of an update and of a validation, and the number of updates in an epoch."""

    update: float
    validation: float
    epoch: float


def measure(trainer: Trainer, seconds: float) -> Pace:
    """Train for some seconds, then restore the trainer: the run is the same as without this trial."""
    weights, accumulate = trainer.weights(), trainer.settings.accumulate
    plan, sections = trainer.task.plan(1), trainer.task.sections
    groups = [plan[i : i + accumulate] for i in range(0, len(plan), accumulate)]

    def clock() -> float:
        """The first process's clock, after the work so far."""
        if trainer.device.type == "cuda":
            torch.cuda.synchronize(trainer.device)
        return trainer.processes.agree(False, trainer.elapsed())[1]

    trainer._consult()
    started = clock()
    with own_stream(trainer.device):
        # The first half does not count: every new shape of batch is slow at first.
        for least, until in ((WARM_UP[trainer.device.type], seconds / 2), (1, seconds)):
            begun, first, trainer.pace_targets = clock(), trainer.state.update, 0
            while trainer.state.update < first + least or trainer.seconds - started < until:
                # Shares from all over the schedule: what is computed in a part of it counts as much as later.
                count = trainer.state.update
                trainer._update(groups[count % len(groups)], GOLDEN * count % 1)
        trained = clock() - begun
        for _ in range(2 if trainer.device.type == "cuda" else 1):  # a GPU compiles in the first one
            begun = clock()
            trainer.validation.losses(trainer.state)  # translating is not counted: at first it takes much longer
            validation = clock() - begun
    copy_weights(weights, trainer.optimiser.named.items())
    trainer.optimiser.reset()
    trainer.log_losses.zero_()
    trainer.state = RunState(parts=trainer.state.parts, validation_parts=trainer.state.validation_parts)
    mean = sum(each.targets for each in plan) / len(groups)
    return Pace(trained * mean / max(trainer.pace_targets, 1), validation, len(groups) * sections)


def trial_seconds(minutes: float) -> float:
    """The length of the trial before a run of this many minutes."""
    return min(max(0.03 * 60 * minutes, 0.5), 20.0)


def fitted(settings: TrainSettings, pace: Pace, elapsed: float, given: Collection[str]) -> TrainSettings:
    """Settings whose schedule ends when the minutes do, and whose warm-up is a part of it.

    :param elapsed: seconds of the run so far
    :param given: the keys that the user has set: of these only ``warmup`` may change, if it is too long
    """
    left = PLANNED * (60 * (settings.max_minutes or 0) - elapsed)
    # Validations take a tenth of the time at most; at the end, there is one for each candidate.
    count = min(max(int(0.1 * left / max(pace.validation, 1e-9)) - 3, 1), VALIDATIONS)
    updates = max(int((left - (count + 3) * pace.validation) / pace.update), 1)
    updates = updates // 10 * 10 if updates > FEW else updates
    every = -(-updates // count)
    chosen: dict[str, Any] = {
        "validate_every": every,
        "checkpoint_every": every,
        "log_every": min(-(-updates // 50), 100),
    }
    chosen = {key: value for key, value in chosen.items() if key not in given}
    warmup = min(settings.warmup, max(round(WARM_UP_SHARE * updates), 1))
    return replace(settings, max_updates=updates, warmup=warmup, **chosen)


def fit(trainer: Trainer, given: Collection[str], say: Say) -> None:
    """Fit the settings of a new run to its minutes, if they are its only limit; warn of a run that cannot end well."""
    settings = trainer.settings
    minutes, alone = settings.max_minutes, settings.max_updates is None and settings.max_epochs is None
    if minutes is not None and alone:
        pace = measure(trainer, trial_seconds(minutes))
        trainer.settings = new = fitted(settings, pace, trainer.processes.agree(False, trainer.elapsed())[1], given)
        updates = new.max_updates or 0
        say(
            f"pace: {pace.update:.3f} s per update. Fitted to {minutes:g} minutes: {updates:,} updates, "
            f"{updates / pace.epoch:.1f} epochs; warm-up {new.warmup:,}, validation every "
            f"{new.validate_every or pace.epoch:,.0f} updates"
        )
        if updates < FEW:
            say(f"warning: {updates:,} updates are too few to learn from: give more --minutes, or a smaller model")
        return
    length = len(trainer.task.plan(1)) * trainer.task.sections / settings.accumulate
    updates = settings.max_updates or int((settings.max_epochs or 0) * length)
    if updates <= settings.warmup:
        say(
            f"warning: the run ends after {updates:,} updates, inside its warm-up of {settings.warmup:,}: the learning "
            f"rate never reaches its peak. Set train.warmup={max(updates // 10, 1)}, or train longer."
        )
    size = sum(parameter.numel() for parameter in trainer.task.model.parameters())
    passes = 1.0 if settings.consistency == "none" else 2 - settings.consistency_from
    operations = 6.0 * size * settings.batch_tokens * settings.accumulate * updates * passes
    # Estimated, not measured: an update of a large model on a CPU takes minutes.
    needed = operations / trainer.processes.world / (REACHED * products(trainer.device, trainer.half))
    if minutes is not None and needed > 120 * minutes:
        say(
            f"warning: {minutes:g} minutes are about {6000 * minutes / needed:.2g} % of {updates:,} updates: the run "
            "will stop before its schedule ends. To fit the schedule to the minutes, make them the only limit: "
            "--set train.max_updates= --set train.max_epochs="
        )
    elif minutes is None and needed > DAY:
        say(
            f"warning: {updates:,} updates take about {needed / DAY:,.0f} days on this machine. To train what fits "
            "into an hour: --minutes 60 --set train.max_updates= --set train.max_epochs= ; model.preset=auto chooses a "
            "model for this machine."
        )


def products(device: torch.device, half: bool) -> float:
    """Floating-point operations in a second of large matrix products on a device."""
    size = 8192 if device.type == "cuda" else 1024
    matrix = torch.ones(size, size, device=device, dtype=torch.bfloat16 if half else torch.float32)
    best = float("inf")
    for _ in range(4):
        started = time.perf_counter()
        total = (matrix @ matrix)[0, 0].item()  # waits for a GPU
        best = min(best, time.perf_counter() - started) if total else best
    return 2.0 * size**3 / best
