"""The zip for GLUE's server: eleven complete files, and a validator that says what is wrong."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from macaron.data.glue import TASKS, GlueTask, Submission
from macaron.data.tabular import Table
from macaron.errors import MacaronError
from macaron.files import DAMAGED, atomic_file

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
    """Write the zip. The server refuses one that lacks a file: without predictions, all rows of a file are the same.

    :return: the names of the files without predictions
    """
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
