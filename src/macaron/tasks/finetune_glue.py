"""GLUE from end to end: the runs of a grid, what is finished, the best model of each task, the submission."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, mode
from typing import Any

from macaron.data.glue import Examples, has_folder, read_dev, read_test, read_train
from macaron.data.glue_submission import as_predictions, check_submission, expected_files, write_submission
from macaron.data.glue_tasks import TASKS, GlueTask
from macaron.evaluate.glue import score
from macaron.tasks.classification import FineTuning, Objective, glue_objective
from macaron.tasks.classification_data import Encoded
from macaron.tasks.classification_model import weights_fingerprint
from macaron.tasks.classification_predict import Precision, Predictor
from macaron.tasks.finetune import DevSet, FineTuner
from macaron.tasks.finetune_results import Record, write_text

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
        """All but the seed, in short; runs that share it differ in their seed alone."""
        chosen = self.settings
        parts = [f"b{chosen.batch_size}", f"lr{chosen.learning_rate:g}", f"e{chosen.epochs}"]
        parts += [f"wd{chosen.weight_decay:g}"] if chosen.weight_decay else []
        parts += ["swapped"] if chosen.symmetric else []
        parts += ["two-logits"] if TASKS[self.task].one_logit and not self.one_logit else []
        return "-".join(parts)

    @property
    def name(self) -> str:
        """A name that no other run of the folder has."""
        return f"{self.task}-{self.setting}-s{self.settings.seed}"

    @property
    def objective(self) -> Objective:
        """What the task predicts."""
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
    space = list(product(batch_sizes, learning_rates, epochs, weight_decays, range(1, seeds + 1)))
    jobs = [
        Job(
            task.name,
            FineTuning(
                batch_size=batch,
                learning_rate=rate,
                epochs=length,
                seed=seed,
                weight_decay=decay,
                clip_norm=clip_norm,
                symmetric=symmetric and task.symmetric,
            ),
            one_logit,
        )
        for task in tasks
        for batch, rate, length, decay, seed in space
    ]
    return list({job.name: job for job in jobs}.values())


@dataclass(frozen=True)
class Facts:
    """What is known of a task's files before anything is trained.

    :param fingerprint: of the training and development sets
    :param missing: test files that are not there
    :param constant: what the most frequent answer of the training set scores on dev: a model that says no more than
        that has learned nothing
    """

    examples: int
    fingerprint: dict[str, str]
    skipped: int
    missing: tuple[str, ...]
    constant: dict[str, dict[str, float]]


def look_at(root: Path, task: GlueTask) -> Facts:
    """Read all files of a task, so that what is wrong with one is said before the first run."""
    train, dev = read_train(root, task), read_dev(root, task)
    tests = {wanted.test.name: read_test(root, task, wanted) for wanted in task.submission}
    sets: dict[str, Examples] = {"train": train, **dev}
    return Facts(
        len(train),
        {name: each.fingerprint() for name, each in sets.items()},
        sum(each.skipped for each in sets.values()),
        tuple(name.removeprefix("../") for name, found in tests.items() if found is None),
        {
            name: score(task.metrics, [_usual_answer(task, train)] * len(each), each.labels)
            for name, each in dev.items()
        },
    )


def _usual_answer(task: GlueTask, train: Examples) -> float:
    return fmean(train.labels) if task.regression else mode(train.labels)


@dataclass(frozen=True)
class WorkerSettings:
    """What a process needs to know to take jobs."""

    model: Path
    data: Path
    run: Path
    devices: tuple[str, ...] = ("auto",)
    precision: Precision = "auto"
    max_length: int = 256
    dropout: float | None = None
    compiled: bool = False


class GlueWorker:
    """Takes jobs, one after the other, on one device.

    :param index: which of the devices
    """

    def __init__(self, settings: WorkerSettings, index: int = 0) -> None:
        self.settings = settings
        self.tuner = FineTuner(
            settings.model,
            settings.devices[index],
            settings.precision,
            settings.max_length,
            settings.dropout,
            settings.compiled,
        )
        self._held: tuple[tuple[str, Objective], Encoded, dict[str, DevSet], int] | None = None

    def work(
        self,
        job: Job,
        best: float | None,
        stop: Callable[[], bool] = lambda: False,
        advance: Callable[[], None] = lambda: None,
    ) -> Record:
        """One run. Its model is kept in ``candidates`` if it is at least as good as the best so far."""
        task = TASKS[job.task]
        data, dev, truncated = self._data(job)
        outcome = self.tuner.fit(data, dev, job.objective, job.settings, task.metrics, stop, advance)
        for name, values in outcome.predictions.items():
            rows = [str(float(value)) for value in values] if task.regression else as_predictions(task, list(values))
            text = "".join(f"{index}\t{value}\n" for index, value in enumerate(rows))
            write_text(
                self.settings.run / "predictions" / "dev" / f"{job.name}.{name}.tsv", f"index\tprediction\n{text}"
            )
        record: Record = {
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
            "truncated": truncated,
            "updates": outcome.updates,
            "seconds": outcome.seconds,
        }
        if best is None or (outcome.score >= best and not outcome.diverged):
            takes = {"texts": task.texts, "task": task.name, "run": job.name, "dev": outcome.scores}
            self.tuner.save(candidate(self.settings.run, job.name), job.objective, takes)
        return record

    def _data(self, job: Job) -> tuple[Encoded, dict[str, DevSet], int]:
        """The task's examples as tokens; those of one task are held."""
        key = (job.task, job.objective)
        if self._held is None or self._held[0] != key:
            self._held = None
            task = TASKS[job.task]
            train = read_train(self.settings.data, task)
            data = self.tuner.encode(train.texts, job.objective, train.labels)
            dev = {
                name: DevSet(self.tuner.encode(each.texts, job.objective, each.labels), each.labels)
                for name, each in read_dev(self.settings.data, task).items()
            }
            truncated = data.truncated + sum(each.data.truncated for each in dev.values())
            self._held = (key, data, dev, truncated)
        return self._held[1:]


def candidate(run: Path, name: str) -> Path:
    """Where a run leaves its model until it is known whether it is the best."""
    return run / "candidates" / name


def submit(settings: WorkerSettings, best: dict[str, Record], say: Callable[[str], None]) -> dict[str, Any]:
    """Predict the test sets with the best models and write the zip.

    What the same model has said of the same texts before is taken as it is.

    :param best: the best run of each task
    """
    folder = settings.run / "predictions" / "test"
    stamps = folder / "runs.json"
    known: dict[str, Any] = json.loads(stamps.read_text()) if stamps.is_file() else {}
    found: dict[str, list[str]] = {}
    for name, record in best.items():
        task, model, predictor = TASKS[name], settings.run / "models" / name, None
        maker = {"run": record["run"], "weights": weights_fingerprint(model)}
        for wanted in task.submission:
            place = folder / wanted.name
            before = known.get(wanted.name) if place.is_file() else None
            examples = read_test(settings.data, task, wanted) if has_folder(settings.data, task) else None
            if examples is None:
                # A resumed run may have had its files elsewhere.
                if before is None or {**before, **maker} != before:
                    continue
            elif before != (stamp := {**maker, "texts": examples.fingerprint()}):
                say(f"predicting {wanted.name}: {len(examples):,} examples")
                predictor = predictor or Predictor(model, settings.devices[0], settings.precision, settings.max_length)
                rows = as_predictions(task, list(predictor.glue_values(task, examples.texts)))
                text = "".join(f"{index}\t{row}\n" for index, row in enumerate(rows))
                write_text(place, f"index\tprediction\n{text}")
                known[wanted.name] = stamp
                write_text(stamps, json.dumps(known, indent=1) + "\n")
            found[wanted.name] = [line.split("\t")[1] for line in place.read_text().splitlines()[1:]]
    path = settings.run / "submission.zip"
    filled = write_submission(path, found)
    return {
        "file": path.name,
        "files": {name: known[name]["run"] if name in found else "placeholder" for name in expected_files()},
        "placeholders": filled,
        "problems": check_submission(path),
    }
