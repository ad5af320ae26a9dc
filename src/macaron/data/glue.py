"""The tasks of GLUE, which are data (glue.toml), the reader of their official files, and the zip for its server."""

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from macaron.data.tabular import Table, class_indices, numbers_of
from macaron.errors import MacaronError, require
from macaron.files import DAMAGED, atomic_file, find_compressed, read_lines
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

    def values_of(self, table: Table) -> list[float]:
        """The labels of a table as class indices or scores."""
        return numbers_of(table, *self.score_range) if self.regression else class_indices(table, self.labels)


_FILE = Path(__file__).with_suffix(".toml")
TASKS = {
    name: build(GlueTask, {"name": name, **task}, str(_FILE), (name,)) for name, task in load_toml(_FILE)[0].items()
}
#: The tasks that papers train: nothing can be learned from WNLI's 635 examples.
USUAL = tuple(name for name in TASKS if name != "wnli")


def task_named(name: str) -> GlueTask:
    """The task of a name in any usual spelling: ``cola``, ``SST-2``, ``sts_b``."""
    plain = name.lower().replace("-", "").replace("_", "").strip()
    require(plain in TASKS, f"no GLUE task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[plain]


def task_folder(root: Path, task: GlueTask) -> Path | None:
    """The folder of a task in that of the archive; names in lower case are found, too."""
    names = (each for name in task.folders for each in (name, name.lower()))
    return next((root / name for name in names if (root / name).is_dir()), None)


def read_dev(root: Path, task: GlueTask) -> dict[str, Table]:
    """The development sets by name."""
    return {name: read_train(root, task, file) for name, file in task.dev.items()}


def read_test(root: Path, task: GlueTask, wanted: Submission) -> Table | None:
    """A test set, without labels; None if its file is missing."""
    folder = task_folder(root, task)
    path = None if folder is None else find_compressed(folder / wanted.test)
    return None if path is None else read_file(path, task, labelled=False)


def read_train(root: Path, task: GlueTask, name: str = "train.tsv") -> Table:
    """The training set, or another one with labels."""
    remedy = f"Fetch it from {SOURCE}, or leave {task.name} out of --tasks."
    require(root.is_dir(), f"{root}: no such folder. Give the one that holds {task.title} and the others (--data).")
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
                raise MacaronError(f"{path}, line 1: no column {column!r} in the header. Are they separated by tabs?")
        indices, width = tuple(map(header.index, columns)), len(header)
    found = Table(str(path), tuple([] for _ in range(task.texts)))
    torn: list[int] = []
    unlabelled = 0
    for number, line in lines:
        values = line.split("\t")
        # Missing columns matter only up to the last wanted one; an additional tab would shift them all.
        if not max(indices) < len(values) <= width:
            if not (task.torn and labelled):  # a test file is answered line by line, so nothing may be skipped
                wrong = f"{len(values)} column(s) where {width} are expected, separated by tabs"
                raise MacaronError(f"{path}, line {number}: {wrong}. Correct it, or fetch the file from {SOURCE}.")
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
    require(bool(found.lines), f"{path}: no examples in this file. Fetch it again from {SOURCE}.")
    if len(torn) > max(MOST_TORN * len(found.lines), 1):
        others = f"and {len(torn) - 1:,} more of {len(torn) + len(found.lines):,}"
        raise MacaronError(f"{path}, line {torn[0]}, {others}: not the columns of line 1. Fetch it from {SOURCE}.")
    found.skipped = unlabelled + len(torn)
    if labelled:
        found.values = task.values_of(found)
    return found


HEADER = "index\tprediction"
#: Bytes of a file of a submission; the largest has 4 million.
LARGEST = 1 << 23
#: Files of a zip that are not expected, named before the rest is only counted.
_FOREIGN = 10


def expected_files() -> dict[str, tuple[GlueTask, Submission]]:
    """All files of a submission by name."""
    return {wanted.name: (task, wanted) for task in TASKS.values() for wanted in task.submission}


def prediction_file(rows: Sequence[str]) -> str:
    """The text of a file with predictions in the order of their examples."""
    return f"{HEADER}\n" + "".join(f"{index}\t{row}\n" for index, row in enumerate(rows))


def write_submission(path: Path, files: Mapping[str, str]) -> list[str]:
    """Write the zip; the names of files without predictions, in which all rows are the same."""
    filled = []
    with atomic_file(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (_, wanted) in expected_files().items():
            text = files.get(name)
            if text is None:
                filled.append(name)
                text = prediction_file([wanted.filler] * wanted.rows)
            # A fixed date: equal predictions give an equal file.
            entry = zipfile.ZipInfo(name, date_time=(2019, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, text)
    return filled


def as_predictions(task: GlueTask, values: Sequence[float]) -> list[str]:
    """Class indices or scores as the server reads them; scores are clipped to their range."""
    if task.regression:
        low, high = task.score_range
        return [f"{min(max(value, low), high):.3f}" for value in values]
    return [task.labels[int(value)] for value in values]


def check_submission(path: Path) -> list[str]:
    """The problems of a submission, with file and line; an empty list if the server will accept it."""
    path.open("rb").close()  # no such file, a folder: another message than for damage
    try:
        archive = zipfile.ZipFile(path)
    except (*DAMAGED, zipfile.BadZipFile) as error:
        raise MacaronError(f"{path}: not a zip file ({error})") from None
    with archive:
        wanted = expected_files()
        names = [name for name in archive.namelist() if not name.endswith("/")]
        problems = []
        foreign = [name for name in names if name not in wanted]
        for name in foreign[:_FOREIGN]:
            folder, _, inside = name.rpartition("/")
            where = f"must be at the top of the zip, not in {folder}/"
            problems.append(f"{name}: {where if inside in wanted else 'not a file of a submission'}")
        problems += [f"{len(foreign) - _FOREIGN:,} more files are not expected"] if len(foreign) > _FOREIGN else []
        problems += [f"{name}: occurs {names.count(name)} times" for name in wanted if names.count(name) > 1]
        for name, (task, submission) in wanted.items():
            if name not in names:
                problems.append(f"{name}: missing")
                continue
            if (size := archive.getinfo(name).file_size) > LARGEST:  # no more than this is unpacked
                problems.append(f"{name}: {size:,} bytes, the limit is {LARGEST:,}")
                continue
            try:
                raw = archive.read(name)
            except (*DAMAGED, zipfile.BadZipFile) as error:
                problems.append(f"{name}: cannot be unpacked ({error})")
                continue
            problems += _check_file(name, raw, task, submission)
    return problems


def _check_file(name: str, raw: bytes, task: GlueTask, submission: Submission) -> list[str]:
    try:
        lines = raw.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        return [f"{name}: not UTF-8 text (byte {error.start})"]
    if lines[0].rstrip("\r").lower() != HEADER:
        return [f"{name}, line 1: the header must be 'index', a tab, 'prediction', not {lines[0][:40]!r}"]
    problems, found = [], Table(name, ())
    try:
        for number, line in enumerate(lines[1:], start=2):
            values, index = line.rstrip("\r").split("\t"), number - 2
            if len(values) != 2 or values[0] != str(index):
                raise MacaronError(f"{name}, line {number}: {line[:40]!r} is not index {index}, a tab, a prediction")
            found.labels.append(values[1])
            found.lines.append(number)
        task.values_of(found)
    except MacaronError as error:
        problems.append(str(error))  # the lines after it usually have the same problem
    rows = len(lines) - 1
    if rows != submission.rows:
        problems.append(f"{name}: {rows:,} rows where the test set has {submission.rows:,}")
    return problems
