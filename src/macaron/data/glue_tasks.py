"""The tasks of GLUE as data: files, columns, labels, metrics and submission files, as in the archive."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from macaron.errors import MacaronError

Metric = Literal["matthews", "accuracy", "f1", "pearson", "spearman"]
#: Their usual names.
METRICS = {"matthews": "Matthews", "accuracy": "accuracy", "f1": "F1", "pearson": "Pearson", "spearman": "Spearman"}


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
    :param one_logit: the authors train these with one logit and binary cross-entropy
    :param symmetric: the order of the two texts has no meaning
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
    one_logit: bool = False
    symmetric: bool = False
    score_range: tuple[float, float] = (0.0, 0.0)
    torn: bool = False
    no_label: tuple[str, ...] = ()

    @property
    def regression(self) -> bool:
        """Whether a score is predicted, not a class."""
        return not self.labels

    @property
    def texts(self) -> int:
        """Texts of an example: one or two."""
        return len(self.train.columns) - 1


def _task(
    title: str,
    labels: tuple[str, ...],
    columns: tuple[str, ...],
    metrics: tuple[Metric, ...],
    rows: int,
    filler: str,
    other_folders: tuple[str, ...] = (),
    **options: Any,
) -> GlueTask:
    """A task whose files have the usual names, and a header."""
    return GlueTask(
        name=title.lower().replace("-", ""),
        title=title,
        folders=(title, *other_folders),
        labels=labels,
        train=GlueFile("train.tsv", columns, True),
        dev={"dev": GlueFile("dev.tsv", columns, True)},
        metrics=metrics,
        submission=(Submission(f"{title}.tsv", rows, GlueFile("test.tsv", columns[:-1], False), filler),),
        **options,
    )


BINARY = ("0", "1")
ENTAILMENT = ("not_entailment", "entailment")
_PAIR = ("sentence1", "sentence2")
_PAIR_LABEL = (*_PAIR, "label")
_NLI = (*_PAIR, "gold_label")
# CoLA's labelled files have no header: source, label, the linguists' mark, sentence. Its test file has one.
_COLA = (3, 1)
_MRPC = ("#1 String", "#2 String", "Quality")
_QQP = ("question1", "question2", "is_duplicate")
_SIMILAR: dict[str, Any] = {"one_logit": True, "symmetric": True}
_STSB: dict[str, Any] = {"symmetric": True, "score_range": (0.0, 5.0)}

TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        replace(
            _task("CoLA", BINARY, ("sentence", "label"), ("matthews",), 1063, "1", one_logit=True),
            train=GlueFile("train.tsv", _COLA, True, width=4),
            dev={"dev": GlueFile("dev.tsv", _COLA, True, width=4)},
        ),
        _task("SST-2", BINARY, ("sentence", "label"), ("accuracy",), 1821, "1", ("SST2", "SST")),
        _task("MRPC", BINARY, _MRPC, ("f1", "accuracy"), 1725, "1", **_SIMILAR),
        _task("STS-B", (), (*_PAIR, "score"), ("pearson", "spearman"), 1379, "2.5", ("STSB", "STS"), **_STSB),
        _task("QQP", BINARY, _QQP, ("f1", "accuracy"), 390965, "0", torn=True, **_SIMILAR),
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
        _task("QNLI", ENTAILMENT, ("question", "sentence", "label"), ("accuracy",), 5463, "entailment"),
        _task("RTE", ENTAILMENT, _PAIR_LABEL, ("accuracy",), 3000, "not_entailment"),
        _task("WNLI", BINARY, _PAIR_LABEL, ("accuracy",), 146, "0"),
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
