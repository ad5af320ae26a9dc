"""GLUE's runs over devices: in this process if there is one device, otherwise in a process for each."""

from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch

from macaron.data.glue import read_dev, read_train
from macaron.data.glue_submission import as_predictions
from macaron.data.glue_tasks import TASKS
from macaron.errors import MacaronError, ProcessLost
from macaron.files import write_text
from macaron.processes import Workers, stop_requested
from macaron.tasks.classification import Objective
from macaron.tasks.classification_data import Encoded
from macaron.tasks.finetune import DevSet, FineTuner, RunStopped, TunerSettings
from macaron.tasks.glue.glue_results import Record
from macaron.tasks.glue.jobs import Job

_INTERVAL = 0.2  # seconds between two checks for a signal


@dataclass(frozen=True)
class WorkerSettings:
    """Everything that a process needs for its jobs."""

    model: Path
    data: Path
    run: Path
    devices: tuple[str, ...] = ("auto",)
    tuner: TunerSettings = field(default_factory=TunerSettings)


class GlueWorker:
    """Runs jobs, one after the other, on one device.

    :param index: of the device
    """

    #: The worker of this process, in a process of `Workers`.
    own: ClassVar["GlueWorker | None"] = None

    def __init__(self, settings: WorkerSettings, index: int = 0) -> None:
        self.settings, self.device = settings, settings.devices[index]
        self._tuner: FineTuner | None = None
        self._held: tuple[tuple[str, Objective], Encoded, dict[str, DevSet]] | None = None

    @property
    def tuner(self) -> FineTuner:
        """The model on its device, loaded with the first job."""
        if self._tuner is None:
            self._tuner = FineTuner(self.settings.model, self.device, self.settings.tuner)
        return self._tuner

    def work(self, job: Job, best: float | None, before_update: Callable[[], None] = lambda: None) -> Record:
        """One run. Its model is kept in ``candidates`` if it is at least as good as the best so far."""
        task = TASKS[job.task]
        data, dev = self._data(job)
        outcome = self.tuner.fit(data, dev, job.objective, job.settings, task.metrics, before_update)
        for name, values in outcome.predictions.items():
            rows = [str(float(value)) for value in values] if task.regression else as_predictions(task, list(values))
            write_predictions(self.settings.run / "predictions" / "dev" / f"{job.name}.{name}.tsv", rows)
        if best is None or (outcome.score >= best and not outcome.diverged):
            takes = {"texts": task.texts, "task": task.name, "run": job.name, "dev": outcome.scores}
            self.tuner.save(candidate(self.settings.run, job.name), job.objective, takes)
        return {
            "run": job.name,
            "task": job.task,
            "setting": job.setting,
            **asdict(job.settings),
            "objective": job.objective.kind,
            "score": outcome.score,
            "scores": outcome.scores,
            "epoch_log": outcome.epochs,
            "diverged": outcome.diverged,
            "examples": len(data),
            "truncated": data.truncated + sum(each.data.truncated for each in dev.values()),
            "updates": outcome.updates,
            "seconds": outcome.seconds,
        }

    def _data(self, job: Job) -> tuple[Encoded, dict[str, DevSet]]:
        """The task's examples as tokens; those of one task are kept in memory."""
        key = (job.task, job.objective)
        if self._held is None or self._held[0] != key:
            self._held = None
            train = read_train(self.settings.data, TASKS[job.task])
            data = self.tuner.encode(train.texts, job.objective, train.labels)
            dev = {
                name: DevSet(self.tuner.encode(each.texts, job.objective, each.labels), each.labels)
                for name, each in read_dev(self.settings.data, TASKS[job.task]).items()
            }
            self._held = (key, data, dev)
        return self._held[1:]


def write_predictions(path: Path, rows: list[str]) -> None:
    """Write predictions in the order of their examples."""
    write_text(path, "index\tprediction\n" + "".join(f"{index}\t{row}\n" for index, row in enumerate(rows)))


def candidate(run: Path, name: str) -> Path:
    """The path of a run's model until it is known whether it is the best."""
    return run / "candidates" / name


def run_jobs(
    jobs: list[Job],
    settings: WorkerSettings,
    best: Callable[[str], float | None],
    stop: Callable[[], bool],
    advance: Callable[[int], None],
) -> Generator[tuple[Job, Record], None, None]:
    """Run all jobs and yield their records in the order in which they end; raises `RunStopped` if asked to stop.

    :param best: the best score of a task so far
    :param stop: whether to stop
    :param advance: called with numbers of finished updates
    """
    count = min(len(settings.devices), len(jobs))
    if count < 2:
        worker = GlueWorker(settings)
        for job in jobs:
            yield job, worker.work(job, best(job.task), partial(_count_update, stop, advance))
        return
    waiting = list(reversed(jobs))
    running: dict[Future[Record], Job] = {}
    with Workers(count, partial(_set_up, settings, count)) as workers:
        while waiting or running:
            while waiting and len(running) < count:
                job = waiting.pop()
                running[workers.submit(_work, job, best(job.task))] = job
            if stop():
                raise RunStopped
            for future in wait(running, _INTERVAL, FIRST_COMPLETED).done:
                names = ", ".join(each.name for each in running.values())
                job = running.pop(future)
                try:
                    record = future.result()
                except BrokenProcessPool:
                    raise ProcessLost(
                        f"a process has ended (exit code {workers.lost()}) during {names}; -9 usually means that "
                        "memory ran out. The finished runs are kept: go on with --resume."
                    ) from None
                except (MacaronError, OSError) as error:  # a full disk, a file removed
                    raise MacaronError(f"{job.name}: {error}") from error
                advance(record["updates"])
                yield job, record


def _count_update(stop: Callable[[], bool], advance: Callable[[int], None]) -> None:
    if stop():
        raise RunStopped
    advance(1)


def _set_up(settings: WorkerSettings, count: int, index: int) -> None:
    """Set up a process: its device, and its share of the cores."""
    torch.set_num_threads(max(1, torch.get_num_threads() // count))
    GlueWorker.own = GlueWorker(settings, index)


def _work(job: Job, best: float | None) -> Record:
    assert GlueWorker.own is not None
    return GlueWorker.own.work(job, best, partial(_count_update, stop_requested, lambda _: None))
