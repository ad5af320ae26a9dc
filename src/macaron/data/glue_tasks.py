"""The tasks of GLUE as data: files, columns, labels, metrics and submission files (glue_tasks.toml)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from macaron.errors import MacaronError
from macaron.settings import build, load_toml

Metric = Literal["matthews", "accuracy", "f1", "pearson", "spearman"]
#: Their usual names.
METRICS = {"matthews": "Matthews", "accuracy": "accuracy", "f1": "F1", "pearson": "Pearson", "spearman": "Spearman"}


@dataclass(frozen=True)
class Submission:
    """A file of the submission.

    :param rows: examples of the official test set, numbered from 0
    :param filler: the answer if no model was trained; for WNLI the customary one
    :param test: the file with the examples
    """

    name: str
    rows: int
    filler: str
    test: str = "test.tsv"


@dataclass(frozen=True)
class GlueTask:
    """A task.

    :param folders: names of its folder, that of the archive first
    :param columns: names in the header of the texts, and of the label, which a test file lacks
    :param metrics: in the order in which they are printed
    :param labels: of its classes, in the order of their indices (the authors'); empty for a score
    :param indices: of the columns, from 0, where labelled files have no header
    :param width: columns of a line, likewise
    :param dev: the development sets by name; MNLI has two
    :param one_logit: the authors train these with one logit and binary cross-entropy
    :param symmetric: the order of the two texts has no meaning
    :param torn: a few lines of the official files are torn by line ends inside a text; they are skipped
    :param no_label: the label if the annotators did not agree; such lines are skipped
    """

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
    def name(self) -> str:
        """Its name in options and results."""
        return plain_name(self.title)

    @property
    def regression(self) -> bool:
        """Whether a score is predicted, not a class."""
        return not self.labels

    @property
    def texts(self) -> int:
        """Texts of an example: one or two."""
        return len(self.columns) - 1


def plain_name(name: str) -> str:
    """The name of a task in any usual spelling: ``cola``, ``SST-2``, ``sts_b``."""
    return name.lower().replace("-", "").replace("_", "").strip()


_FILE = Path(__file__).with_suffix(".toml")
TASKS = {name: build(GlueTask, task, str(_FILE), (name,)) for name, task in load_toml(_FILE)[0].items()}
#: The tasks that papers train: nothing can be learned from WNLI's 635 examples.
USUAL = tuple(name for name in TASKS if name != "wnli")


def task_named(name: str) -> GlueTask:
    """The task of a name in any usual spelling."""
    if plain_name(name) not in TASKS:
        raise MacaronError(f"no GLUE task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[plain_name(name)]
