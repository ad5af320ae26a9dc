"""The runs of a GLUE grid: in this process if there is one device, otherwise in a process for each."""

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from pathlib import Path
from statistics import fmean, mode
from typing import Any, ClassVar

import torch

from macaron.data.glue import TASKS, GlueTask, as_predictions, prediction_file, read_dev, read_test, read_train
from macaron.errors import MacaronError, ProcessLost
from macaron.evaluate.glue_metrics import score
from macaron.files import write_text
from macaron.json_files import Record
from macaron.processes import Workers, check_stop
from macaron.tasks.classification import FineTuning, Objective
from macaron.tasks.classifier import Encoded
from macaron.tasks.finetune import FineTuner

#: Values of fields of `FineTuning`.
Space = dict[str, tuple[Any, ...]]
_INTERVAL = 0.2  # seconds between two checks for a signal
#: The search space of the paper (its "5e-3" is a misprint of Devlin's 5e-5).
PAPER: Space = {"batch_size": (16, 32), "learning_rate": (5e-5, 3e-5), "epochs": (3, 4, 5)}
FIXED: Space = {"batch_size": (32,), "learning_rate": (5e-5,), "epochs": (3,)}


@dataclass(frozen=True)
class Job:
    """One run of one task."""

    task: str
    settings: FineTuning
    one_logit: bool = True

    @property
    def setting(self) -> str:
        """All settings but the seed, in short; runs that share it differ in their seed alone."""
        chosen = self.settings
        parts = [f"b{chosen.batch_size}", f"lr{chosen.learning_rate:g}", f"e{chosen.epochs}"]
        parts += [f"wd{chosen.weight_decay:g}"] if chosen.weight_decay else []
        parts += ["swapped"] if chosen.symmetric else []
        parts += ["two-logits"] if TASKS[self.task].one_logit and not self.one_logit else []
        return "-".join(parts)

    @property
    def name(self) -> str:
        """The name of the run, unique in its folder."""
        return f"{self.task}-{self.setting}-s{self.settings.seed}"

    @property
    def objective(self) -> Objective:
        """The authors' objective of the task; two logits instead of one if the job says so."""
        task = TASKS[self.task]
        if task.regression:
            # The authors' 0.5 * (score - 3).
            return Objective("score", ("score",), shift=3.0, scale=2.0)
        return Objective("one-logit" if self.one_logit and task.one_logit else "classes", task.labels)


def make_plan(
    tasks: Sequence[GlueTask],
    seeds: int,
    space: Space,
    symmetric: bool = False,
    one_logit: bool = True,
    clip_norm: float = 0.0,
) -> list[Job]:
    """All runs, task by task; the seeds are 1 to ``seeds``."""
    plan: dict[str, Job] = {}
    for task, *values, seed in product(tasks, *space.values(), range(1, seeds + 1)):
        chosen = dict(zip(space, values, strict=True))
        swaps = symmetric and task.symmetric
        job = Job(task.name, FineTuning(**chosen, seed=seed, clip_norm=clip_norm, symmetric=swaps), one_logit)
        plan[job.name] = job
    return list(plan.values())


@dataclass(frozen=True)
class TaskFacts:
    """What is known of a task's files before anything is trained.

    :param known: part of every record: ``data``, the fingerprints of the sets, and ``constant``, the scores of the most
        frequent answer on dev: a model with no better scores has learned nothing
    """

    examples: int
    known: Record
    notes: list[str]


def inspect(root: Path, task: GlueTask) -> TaskFacts:
    """Read all files of a task, so that errors in them are reported before the first run."""
    train, dev = read_train(root, task), read_dev(root, task)
    tests = {wanted.test: read_test(root, task, wanted) for wanted in task.submission}
    sets = {"train": train, **dev}
    usual = fmean(train.values) if task.regression else mode(train.values)
    constant = {name: score(task.metrics, [usual] * len(each), each.values) for name, each in dev.items()}
    skipped = sum(each.skipped for each in sets.values())
    notes = [f"{skipped} torn or unlabelled lines are skipped"] if skipped else []
    missing = (name.removeprefix("../") for name, found in tests.items() if found is None)
    notes += [f"no {name}: its part of the submission is a placeholder" for name in missing]
    fingerprints = {name: each.fingerprint() for name, each in sets.items()}
    return TaskFacts(len(train), {"data": fingerprints, "constant": constant}, notes)


@dataclass
class GlueWorker:
    """Runs jobs, one after the other, on one device. It is small until its first job."""

    #: The worker of this process, in a process of `Workers`.
    own: ClassVar["GlueWorker | None"] = None

    model: Path
    data: Path
    run: Path
    device: str
    settings: Record = field(default_factory=dict)
    _held: tuple[tuple[str, Objective], Encoded, dict[str, Encoded]] | None = None

    @cached_property
    def tuner(self) -> FineTuner:
        """The model on its device, loaded with the first job."""
        return FineTuner(self.model, self.device, **self.settings)

    def work(
        self,
        job: Job,
        best: Record | None,
        check: Callable[[], None] = check_stop,
        advance: Callable[[int], None] = lambda _: None,
    ) -> Record:
        """One run. Its model is kept in ``candidates`` if it is at least as good as the best so far."""
        task = TASKS[job.task]
        data, dev = self._data(job)
        outcome = self.tuner.fit(data, dev, job.objective, job.settings, task.metrics, check, advance)
        for name, values in outcome.predictions.items():
            rows = [str(float(value)) for value in values] if task.regression else as_predictions(task, list(values))
            write_text(self.run / "predictions" / "dev" / f"{job.name}.{name}.tsv", prediction_file(rows))
        if best is None or best["diverged"] or (outcome.score >= best["score"] and not outcome.diverged):
            takes = {"texts": task.texts, "task": task.name, "run": job.name, "dev": outcome.scores}
            self.tuner.save(self.run / "candidates" / job.name, job.objective, takes, [f"glue/{task.name}"])
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
            "truncated": data.truncated + sum(each.truncated for each in dev.values()),
            "updates": outcome.updates,
            "seconds": outcome.seconds,
        }

    def _data(self, job: Job) -> tuple[Encoded, dict[str, Encoded]]:
        key = (job.task, job.objective)
        if self._held is None or self._held[0] != key:
            self._held = None
            train = read_train(self.data, TASKS[job.task])
            data = self.tuner.encode(train.texts, job.objective, train.values)
            held = read_dev(self.data, TASKS[job.task])
            dev = {name: self.tuner.encode(each.texts, job.objective, each.values) for name, each in held.items()}
            self._held = (key, data, dev)
        return self._held[1:]


def run_jobs(
    jobs: list[Job],
    workers: list[GlueWorker],
    best: Callable[[str], Record | None],
    check: Callable[[], None],
    advance: Callable[[int], None],
) -> Generator[tuple[Job, Record], None, None]:
    """Run all jobs and yield their records in the order in which they end."""
    workers = workers[: len(jobs)]
    if len(workers) == 1:
        worker = replace(workers[0])  # the model and the data that it loads are freed with it
        for job in jobs:
            yield job, worker.work(job, best(job.task), check, advance)
        return
    waiting = list(reversed(jobs))
    running: dict[Future[Record], Job] = {}
    with Workers(len(workers), partial(_set_up, workers)) as processes:
        while waiting or running:
            while waiting and len(running) < len(workers):
                job = waiting.pop()
                running[processes.submit(_work, job, best(job.task))] = job
            check()
            for future in wait(running, _INTERVAL, FIRST_COMPLETED).done:
                names = ", ".join(each.name for each in running.values())
                job = running.pop(future)
                try:
                    record = future.result()
                except BrokenProcessPool:
                    ended = f"a process has ended (exit code {processes.lost()}) during {names}"
                    hint = "-9 usually means that memory ran out. The finished runs are kept: continue with --resume."
                    raise ProcessLost(f"{ended}; {hint}") from None
                except (MacaronError, OSError) as error:  # a full disk, a file removed
                    raise MacaronError(f"{job.name}: {error}") from error
                advance(record["updates"])
                yield job, record


def _set_up(workers: list[GlueWorker], index: int) -> None:
    torch.set_num_threads(max(1, torch.get_num_threads() // len(workers)))
    GlueWorker.own = workers[index]


def _work(job: Job, best: Record | None) -> Record:
    assert GlueWorker.own is not None
    return GlueWorker.own.work(job, best)
