"""The tasks of GLUE as data: files, columns, labels, metrics and submission files, as in the archive."""

from dataclasses import dataclass, field
from typing import Literal

from macaron.errors import MacaronError

Split = Literal["train", "dev", "test"]
Metric = Literal["matthews", "accuracy", "f1", "pearson", "spearman"]


@dataclass(frozen=True)
class GlueFile:
    """One file of a task.

    :param name: its path in the task's folder, without a suffix of compression
    :param columns: of the texts and of the label, if there is one: names in the header, or indices (from 0) in a file
        without a header
    :param label: whether the last of ``columns`` is the label
    :param width: columns of a line in a file without a header
    """

    name: str
    columns: tuple[str, ...] | tuple[int, ...]
    label: bool
    width: int = 0

    @property
    def header(self) -> bool:
        """Whether the first line names the columns."""
        return isinstance(self.columns[0], str)


@dataclass(frozen=True)
class Submission:
    """A file of the submission.

    :param rows: examples of the official test set, numbered from 0
    :param test: the file with these examples
    :param filler: the answer if no model was trained; for WNLI the customary one
    """

    name: str
    rows: int
    test: GlueFile
    filler: str


@dataclass(frozen=True)
class GlueTask:
    """A task.

    :param name: for the command
    :param title: for tables
    :param folders: names of its folder, that of the archive first
    :param labels: of its classes, in the order of their indices (the authors'); empty for a score
    :param dev: the development sets by name; MNLI has two
    :param metrics: in the order in which they are printed
    :param positive: index of the class that F1 is about
    :param one_logit: the authors train these with one logit and binary cross-entropy
    :param symmetric: the order of the two texts has no meaning
    :param score_range: of a score's labels
    :param torn: a few lines of the official files are torn by line ends inside a text; they are skipped
    :param no_label: the label if the annotators did not agree; such lines are skipped
    """

    name: str
    title: str
    folders: tuple[str, ...]
    labels: tuple[str, ...]
    train: GlueFile
    dev: dict[str, GlueFile]
    metrics: tuple[Metric, ...]
    submission: tuple[Submission, ...] = ()
    positive: int = 1
    one_logit: bool = False
    symmetric: bool = False
    score_range: tuple[float, float] = (0.0, 0.0)
    torn: bool = False
    no_label: tuple[str, ...] = field(default=())

    @property
    def regression(self) -> bool:
        """Whether a score is predicted, not a class."""
        return not self.labels

    @property
    def texts(self) -> int:
        """Texts of an example: one or two."""
        return len(self.train.columns) - 1


def _files(*columns: str, label: str) -> tuple[GlueFile, dict[str, GlueFile], GlueFile]:
    """Training, development and test file of a task whose files have a header and the usual names."""
    known = (*columns, label)
    return (
        GlueFile("train.tsv", known, True),
        {"dev": GlueFile("dev.tsv", known, True)},
        GlueFile("test.tsv", columns, False),
    )


def _task(
    name: str,
    title: str,
    labels: tuple[str, ...],
    files: tuple[GlueFile, dict[str, GlueFile], GlueFile],
    metrics: tuple[Metric, ...],
    rows: int,
    filler: str,
    *others: str,
    one_logit: bool = False,
    symmetric: bool = False,
    score_range: tuple[float, float] = (0.0, 0.0),
    torn: bool = False,
) -> GlueTask:
    train, dev, test = files
    return GlueTask(
        name=name,
        title=title,
        folders=(title, *others),
        labels=labels,
        train=train,
        dev=dev,
        metrics=metrics,
        submission=(Submission(f"{title}.tsv", rows, test, filler),),
        one_logit=one_logit,
        symmetric=symmetric,
        score_range=score_range,
        torn=torn,
    )


BINARY = ("0", "1")
ENTAILMENT = ("not_entailment", "entailment")
_PAIR = ("sentence1", "sentence2")
_NLI = (*_PAIR, "gold_label")
# CoLA's labelled files have no header: source, label, the linguists' mark, sentence. Its test file has one.
_COLA = (3, 1)

TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        _task(
            "cola",
            "CoLA",
            BINARY,
            (
                GlueFile("train.tsv", _COLA, True, width=4),
                {"dev": GlueFile("dev.tsv", _COLA, True, width=4)},
                GlueFile("test.tsv", ("sentence",), False),
            ),
            ("matthews",),
            1063,
            "1",
            one_logit=True,
        ),
        _task("sst2", "SST-2", BINARY, _files("sentence", label="label"), ("accuracy",), 1821, "1", "SST2", "SST"),
        _task(
            "mrpc",
            "MRPC",
            BINARY,
            _files("#1 String", "#2 String", label="Quality"),
            ("f1", "accuracy"),
            1725,
            "1",
            one_logit=True,
            symmetric=True,
        ),
        _task(
            "stsb",
            "STS-B",
            (),
            _files(*_PAIR, label="score"),
            ("pearson", "spearman"),
            1379,
            "2.5",
            "STSB",
            "STS",
            symmetric=True,
            score_range=(0.0, 5.0),
        ),
        _task(
            "qqp",
            "QQP",
            BINARY,
            _files("question1", "question2", label="is_duplicate"),
            ("f1", "accuracy"),
            390965,
            "0",
            one_logit=True,
            symmetric=True,
            torn=True,
        ),
        GlueTask(
            "mnli",
            "MNLI",
            ("MNLI", "MultiNLI"),
            ("neutral", "entailment", "contradiction"),
            GlueFile("train.tsv", _NLI, True),
            {"m": GlueFile("dev_matched.tsv", _NLI, True), "mm": GlueFile("dev_mismatched.tsv", _NLI, True)},
            ("accuracy",),
            (
                Submission("MNLI-m.tsv", 9796, GlueFile("test_matched.tsv", _PAIR, False), "entailment"),
                Submission("MNLI-mm.tsv", 9847, GlueFile("test_mismatched.tsv", _PAIR, False), "entailment"),
                # The diagnostic set is beside the folders of the tasks and is answered by MNLI's model.
                Submission("AX.tsv", 1104, GlueFile("../diagnostic/diagnostic.tsv", _PAIR, False), "entailment"),
            ),
            no_label=("-",),
        ),
        _task(
            "qnli",
            "QNLI",
            ENTAILMENT,
            _files("question", "sentence", label="label"),
            ("accuracy",),
            5463,
            "entailment",
        ),
        _task("rte", "RTE", ENTAILMENT, _files(*_PAIR, label="label"), ("accuracy",), 3000, "not_entailment"),
        _task("wnli", "WNLI", BINARY, _files(*_PAIR, label="label"), ("accuracy",), 146, "0"),
    )
}
#: The tasks whose scores make the official average, all of them.
AVERAGED = tuple(TASKS)
#: The tasks that papers train: nothing can be learned from WNLI's 635 examples.
USUAL = tuple(name for name in TASKS if name != "wnli")


def task_named(name: str) -> GlueTask:
    """The task of a name in any usual spelling: ``cola``, ``SST-2``, ``sts_b``."""
    plain = name.lower().replace("-", "").replace("_", "").strip()
    if plain not in TASKS:
        raise MacaronError(f"no GLUE task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[plain]
