"""The tasks of GLUE, which are data (glue.toml), and the reader of their official files: errors name file and line."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from macaron.data.tabular import Table, class_indices, numbers_of
from macaron.errors import MacaronError
from macaron.files import find_compressed, read_lines
from macaron.settings import build, load_toml

Metric = Literal["matthews", "accuracy", "f1", "pearson", "spearman"]
#: Their usual names.
METRICS = {"matthews": "Matthews", "accuracy": "accuracy", "f1": "F1", "pearson": "Pearson", "spearman": "Spearman"}
#: The largest share of torn lines in an official file. A file with more is not the official one.
MOST_TORN = 0.01
#: Where GLUE's files come from, for messages.
SOURCE = "https://gluebenchmark.com/tasks"


@dataclass(frozen=True)
class Submission:
    """A file of the submission: see glue.toml."""

    name: str
    rows: int
    filler: str
    test: str = "test.tsv"


@dataclass(frozen=True)
class GlueTask:
    """A task: see glue.toml."""

    name: str
    folders: tuple[str, ...]
    columns: tuple[str, ...]
    metrics: tuple[Metric, ...]
    submission: tuple[Submission, ...]
    labels: tuple[str, ...] = ()
    score_range: tuple[float, float] = (0.0, 0.0)
    indices: tuple[int, ...] = ()
    width: int = 0
    dev: dict[str, str] = field(default_factory=lambda: {"dev": "dev.tsv"})
    one_logit: bool = False
    symmetric: bool = False
    torn: bool = False
    no_label: str | None = None

    @property
    def title(self) -> str:
        """Its usual name, which its folder has in the archive."""
        return self.folders[0]

    @property
    def regression(self) -> bool:
        """Whether a score is predicted, not a class."""
        return not self.labels

    @property
    def texts(self) -> int:
        """Texts of an example: one or two."""
        return len(self.columns) - 1


_FILE = Path(__file__).with_suffix(".toml")
TASKS = {
    name: build(GlueTask, {"name": name, **task}, str(_FILE), (name,)) for name, task in load_toml(_FILE)[0].items()
}
#: The tasks that papers train: nothing can be learned from WNLI's 635 examples.
USUAL = tuple(name for name in TASKS if name != "wnli")


def task_named(name: str) -> GlueTask:
    """The task of a name in any usual spelling: ``cola``, ``SST-2``, ``sts_b``."""
    plain = name.lower().replace("-", "").replace("_", "").strip()
    if plain not in TASKS:
        raise MacaronError(f"no GLUE task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[plain]


def task_folder(root: Path, task: GlueTask) -> Path | None:
    """The folder of a task in that of the archive; names in lower case are found, too."""
    names = (each for name in task.folders for each in (name, name.lower()))
    return next((root / name for name in names if (root / name).is_dir()), None)


def read_train(root: Path, task: GlueTask) -> Table:
    """The training set."""
    return _labelled(root, task, "train.tsv")


def read_dev(root: Path, task: GlueTask) -> dict[str, Table]:
    """The development sets by name."""
    return {name: _labelled(root, task, file) for name, file in task.dev.items()}


def read_test(root: Path, task: GlueTask, wanted: Submission) -> Table | None:
    """A test set, without labels; None if its file is missing."""
    folder = task_folder(root, task)
    path = None if folder is None else find_compressed(folder / wanted.test)
    return None if path is None else read_file(path, task, labelled=False)


def _labelled(root: Path, task: GlueTask, name: str) -> Table:
    remedy = f"Fetch it from {SOURCE}, or leave {task.name} out of --tasks."
    if not root.is_dir():
        raise MacaronError(f"{root}: no such folder. Give the one that holds {task.title} and the others (--data).")
    folder = task_folder(root, task)
    if folder is None:
        raise MacaronError(f"{root}: no folder {task.title!r} for the task {task.name}. {remedy}")
    path = find_compressed(folder / name)
    if path is None:
        raise MacaronError(f"{folder / name}: no such file (nor compressed, .gz or .xz). {remedy}")
    return read_file(path, task, labelled=True)


def read_file(path: Path, task: GlueTask, labelled: bool) -> Table:
    """The examples of a file. GLUE's files have no quoting: a quotation mark is an ordinary character."""
    lines = enumerate(read_lines(path), start=1)
    indices, width = task.indices, task.width
    if not (labelled and indices):
        header = [name.strip() for name in next(lines, (1, ""))[1].split("\t")]
        columns = task.columns if labelled else task.columns[:-1]
        for column in columns:
            if column not in header:
                raise MacaronError(
                    f"{path}, line 1: no column {column!r} in the header; found {', '.join(map(repr, header))[:200]}. "
                    "Is this the official file? It is separated by tabs."
                )
        indices, width = tuple(map(header.index, columns)), len(header)
    found = Table(str(path), tuple([] for _ in range(task.texts)))
    torn: list[int] = []
    unlabelled = 0
    for number, line in lines:
        values = line.split("\t")
        # Missing columns matter only up to the last wanted one; an additional tab would shift them all.
        if not max(indices) < len(values) <= width:
            if not (task.torn and labelled):  # a test file is answered line by line, so nothing may be skipped
                raise MacaronError(
                    f"{path}, line {number}: {len(values)} column(s) where {width} are expected. Columns are separated "
                    f"by tabs. Correct the line, or fetch the file again from {SOURCE}."
                )
            torn.append(number)
            continue
        values = [values[index].strip() for index in indices]
        if labelled:
            label = values.pop()
            if label == task.no_label:
                unlabelled += 1
                continue
            found.labels.append(label)
        for texts, value in zip(found.texts, values, strict=True):
            texts.append(value)
        found.lines.append(number)
    if not found.lines:
        raise MacaronError(f"{path}: no examples in this file. Fetch it again from {SOURCE}.")
    if len(torn) > max(MOST_TORN * len(found.lines), 1):
        raise MacaronError(
            f"{path}, line {torn[0]}, and {len(torn) - 1:,} more of {len(torn) + len(found.lines):,}: not the columns "
            f"that line 1 names. Fetch the file again from {SOURCE}."
        )
    found.skipped = unlabelled + len(torn)
    if labelled:
        found.values = numbers_of(found, *task.score_range) if task.regression else class_indices(found, task.labels)
    return found
