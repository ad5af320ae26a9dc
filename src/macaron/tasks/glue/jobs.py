"""The runs of a GLUE grid, and what is known of a task's files before the first one."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, mode

from macaron.data.glue import Examples, read_dev, read_test, read_train
from macaron.data.glue_tasks import TASKS, GlueTask
from macaron.evaluate.glue_metrics import score
from macaron.tasks.classification import FineTuning, Objective, glue_objective

#: The search space of the paper (its "5e-3" is a misprint of Devlin's 5e-5).
PAPER = {"batch_sizes": (16, 32), "learning_rates": (5e-5, 3e-5), "epochs": (3, 4, 5)}
FIXED = {"batch_sizes": (32,), "learning_rates": (5e-5,), "epochs": (3,)}


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
        """The objective of the task."""
        return glue_objective(TASKS[self.task], self.one_logit)


def make_plan(
    tasks: Sequence[GlueTask],
    seeds: int,
    batch_sizes: Sequence[int],
    learning_rates: Sequence[float],
    epochs: Sequence[int],
    weight_decays: Sequence[float] = (0.0,),
    symmetric: bool = False,
    one_logit: bool = True,
    clip_norm: float = 0.0,
) -> list[Job]:
    """All runs, task by task; the seeds are 1 to ``seeds``."""
    space = product(tasks, batch_sizes, learning_rates, epochs, weight_decays, range(1, seeds + 1))
    jobs = []
    for task, batch, rate, length, decay, seed in space:
        swaps = symmetric and task.symmetric
        settings = FineTuning(batch, rate, length, seed, decay, clip_norm=clip_norm, symmetric=swaps)
        jobs.append(Job(task.name, settings, one_logit))
    return list({job.name: job for job in jobs}.values())


@dataclass(frozen=True)
class TaskFacts:
    """What is known of a task's files before anything is trained.

    :param fingerprint: of the training and development sets
    :param missing: test files that do not exist
    :param constant: the scores of the training set's most frequent answer on dev: a model with no better scores has
        learned nothing
    """

    examples: int
    fingerprint: dict[str, str]
    skipped: int
    missing: tuple[str, ...]
    constant: dict[str, dict[str, float]]


def inspect(root: Path, task: GlueTask) -> TaskFacts:
    """Read all files of a task, so that errors in them are reported before the first run."""
    train, dev = read_train(root, task), read_dev(root, task)
    tests = {wanted.test.name: read_test(root, task, wanted) for wanted in task.submission}
    sets: dict[str, Examples] = {"train": train, **dev}
    usual = fmean(train.labels) if task.regression else mode(train.labels)
    return TaskFacts(
        len(train),
        {name: each.fingerprint() for name, each in sets.items()},
        sum(each.skipped for each in sets.values()),
        tuple(name.removeprefix("../") for name, found in tests.items() if found is None),
        {name: score(task.metrics, [usual] * len(each), each.labels) for name, each in dev.items()},
    )
