"""Reading GLUE's official files: every error names the file and the line."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from macaron.data.glue_tasks import GlueFile, GlueTask, Submission
from macaron.data.tabular import Table, class_indices, numbers_of
from macaron.errors import MacaronError
from macaron.files import find_compressed, read_lines

#: The largest share of torn lines in an official file. A file with more is not the official one.
MOST_TORN = 0.01
#: Where GLUE's files come from, for messages.
SOURCE = "https://gluebenchmark.com/tasks"


@dataclass
class Examples:
    """Texts and labels of a file.

    :param texts: one or two lists
    :param labels: class indices or scores; empty for a test file
    :param skipped: torn lines and lines without an agreed label
    """

    texts: tuple[list[str], ...]
    labels: list[float]
    lines: list[int]
    skipped: int

    def __len__(self) -> int:
        return len(self.lines)

    def fingerprint(self) -> str:
        """A digest of the texts and labels, independent of path and compression."""
        digest = hashlib.sha256()
        for texts in self.texts:
            digest.update("\n".join(texts).encode("utf-8", "surrogatepass") + b"\0")
        digest.update(repr(self.labels).encode())
        return digest.hexdigest()[:16]


def task_folder(root: Path, task: GlueTask) -> Path:
    """The folder of a task in that of the archive; names in lower case are found, too."""
    if not root.is_dir():
        raise MacaronError(
            f"{root}: no such folder. Give the one that holds {task.folders[0]} and the others (--data)."
        )
    for name in task.folders:
        for folder in (root / name, root / name.lower()):
            if folder.is_dir():
                return folder
    raise MacaronError(
        f"{root}: no folder {task.folders[0]!r} for the task {task.name}. Fetch it from {SOURCE}, or leave "
        f"{task.name} out of --tasks."
    )


def has_folder(root: Path, task: GlueTask) -> bool:
    """Whether there is a folder for a task."""
    return any((root / name).is_dir() or (root / name.lower()).is_dir() for name in task.folders)


def read_train(root: Path, task: GlueTask) -> Examples:
    """The training set."""
    return _required(root, task, task.train)


def read_dev(root: Path, task: GlueTask) -> dict[str, Examples]:
    """The development sets by name."""
    return {name: _required(root, task, file) for name, file in task.dev.items()}


def read_test(root: Path, task: GlueTask, wanted: Submission) -> Examples | None:
    """A test set, without labels; None if its file is missing."""
    path = find_compressed(task_folder(root, task) / wanted.test.name)
    return None if path is None else read_file(path, wanted.test, task)


def _required(root: Path, task: GlueTask, file: GlueFile) -> Examples:
    wanted = task_folder(root, task) / file.name
    path = find_compressed(wanted)
    if path is None:
        raise MacaronError(
            f"{wanted}: no such file (nor compressed, .gz or .xz). Fetch it from {SOURCE}, or leave "
            f"{task.name} out of --tasks."
        )
    return read_file(path, file, task)


def read_file(path: Path, file: GlueFile, task: GlueTask) -> Examples:
    """The examples of a file. GLUE's files have no quoting: a quotation mark is an ordinary character."""
    lines = enumerate(read_lines(path), start=1)
    columns, width = file.columns, file.width
    if file.header:
        names = [name.strip() for name in next(lines, (1, ""))[1].split("\t")]
        for wanted in file.columns:
            if wanted not in names:
                raise MacaronError(
                    f"{path}, line 1: no column {wanted!r} in the header; found {', '.join(map(repr, names))[:200]}. "
                    "Is this the official file? It is separated by tabs."
                )
        columns, width = tuple(names.index(str(wanted)) for wanted in file.columns), len(names)
    indices = [int(column) for column in columns]
    found = Table(str(path), tuple([] for _ in range(len(indices) - file.label)))
    torn: list[int] = []
    unlabelled = 0
    for number, line in lines:
        values = line.split("\t")
        # Missing columns matter only up to the last wanted one; an additional tab would shift them all.
        if not max(indices) < len(values) <= width:
            if not (task.torn and file.label):  # a test file is answered line by line, so nothing may be skipped
                raise MacaronError(
                    f"{path}, line {number}: {len(values)} column(s) where {width} are expected. Columns are separated "
                    f"by tabs. Correct the line, or fetch the file again from {SOURCE}."
                )
            torn.append(number)
            continue
        values = [values[index].strip() for index in indices]
        if file.label:
            label = values.pop()
            if label in task.no_label:
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
    labels: list[float] = []
    if file.label:
        labels = numbers_of(found, *task.score_range) if task.regression else class_indices(found, task.labels)
    return Examples(found.texts, labels, found.lines, unlabelled + len(torn))
