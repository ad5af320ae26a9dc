"""What lies in a run's folder, read as far as it is there: a run may be young, stopped or damaged."""

import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeGuard

from macaron.errors import MacaronError
from macaron.settings import read_toml

Kind = Literal["translation", "pre-training", "fine-tuning", "GLUE"]
Record = dict[str, Any]
#: JSON files that a run writes about itself; any other with scores is an evaluation.
_OWN = {"summary.json", "environment.json", "settings.json", "results.json", "run.json"}
#: What must be a number wherever it is written.
_COUNTS = ("update", "epoch")


@dataclass(frozen=True)
class Evaluation:
    """A file that ``macaron evaluate --json`` made: what was scored, and the scores."""

    file: str
    data: str
    scores: list[Record]


@dataclass(frozen=True)
class RunFolder:
    """A run as its folder has it; what is not there is empty.

    :param metrics: the lines of metrics.jsonl
    :param recipe: the resolved recipe, or the settings of a fine-tuning
    :param recipe_text: the same as it is written
    :param summary: what the end of the run wrote
    :param results: of a GLUE folder: the finished runs
    :param starts: the environment at each start
    :param remarks: what could not be read
    """

    path: Path
    kind: Kind
    metrics: list[Record] = field(default_factory=list)
    recipe: Record = field(default_factory=dict)
    recipe_text: str = ""
    summary: Record = field(default_factory=dict)
    results: list[Record] = field(default_factory=list)
    starts: list[Record] = field(default_factory=list)
    config: Record = field(default_factory=dict)
    languages: tuple[str, ...] = ()
    parameters: int | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Read a folder, or say why it is not that of a run."""
        if not path.is_dir():
            raise MacaronError(f"{path}: no such folder. Give the folder of a run, as macaron train --out made it.")
        kind = _kind(path)
        remarks: list[str] = []
        recipe, text = _recipe(path, remarks)
        environment = _json(path / "environment.json", remarks) or _json(path / "run.json", remarks)
        starts = environment if isinstance(environment, list) else [environment]
        summary = _json(path / ("summary.json" if kind in ("translation", "pre-training") else "results.json"), remarks)
        if summary is not None and not _is_summary(summary):
            remarks.append("The summary of its end is damaged, and left out.")
        summary = summary if _is_summary(summary) else {}
        config = _json(path / "model" / "config.json", remarks)
        return cls(
            path=path,
            kind=kind,
            metrics=_lines(path / "metrics.jsonl", remarks),
            recipe=recipe,
            recipe_text=text,
            summary=summary,
            results=_lines(path / "results.jsonl", remarks),
            starts=[start for start in starts if isinstance(start, dict) and start],
            config=config if isinstance(config, dict) else {},
            languages=_languages(path, remarks),
            parameters=_parameters(path),
            evaluations=_evaluations(path, remarks),
            remarks=remarks,
        )

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.path.resolve().name

    @property
    def has_model(self) -> bool:
        """Whether there is a final model."""
        return (self.path / "model" / "config.json").is_file()

    @property
    def update(self) -> int:
        """The last update that anything was written about."""
        return max((int(record["update"]) for record in self.metrics if "update" in record), default=0)

    @property
    def finished(self) -> bool:
        """Whether it came to its end, and has not gone on since."""
        return bool(self.summary) and int(self.summary.get("update", self.update)) >= self.update

    def values(self, name: str, against: str = "update") -> list[tuple[float, float]]:
        """What was written under a name, in order, against updates or something else; only what is finite."""
        points: dict[float, float] = {}
        for record in self.metrics:
            x, y = record.get(against), record.get(name)
            if _is_number(x) and _is_number(y):
                points[float(x)] = float(y)  # a value that was written twice: the later one
        return sorted(points.items())

    def names(self) -> list[str]:
        """Everything that has numbers, in the order in which it first appears."""
        return list(
            dict.fromkeys(name for record in self.metrics for name, value in record.items() if _is_number(value))
        )


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_summary(found: Any) -> bool:
    numbers = ("update", "seconds", "updates")
    if not isinstance(found, dict) or not all(_is_number(found[name]) for name in numbers if name in found):
        return False
    losses = found.get("candidates")
    return not isinstance(losses, dict) or all(loss is None or _is_number(loss) for loss in losses.values())


def _kind(path: Path) -> Kind:
    if (path / "results.jsonl").is_file() or (path / "run.json").is_file():
        return "GLUE"
    if (path / "settings.json").is_file():
        return "fine-tuning"
    if (path / "recipe.toml").is_file():
        return "pre-training" if "pretrain" in read_toml(path / "recipe.toml") else "translation"
    if (path / "metrics.jsonl").is_file():
        text = (path / "metrics.jsonl").read_text(encoding="utf-8", errors="replace")
        return "pre-training" if '"mlm"' in text else "translation"
    if (path / "config.json").is_file():
        raise MacaronError(f"{path} is a model folder; a report is of a run, the folder that macaron train --out made.")
    raise MacaronError(
        f"{path} is not the folder of a run: it has no recipe.toml, settings.json, run.json or metrics.jsonl."
    )


def _recipe(path: Path, remarks: list[str]) -> tuple[Record, str]:
    if (path / "recipe.toml").is_file():
        return read_toml(path / "recipe.toml"), (path / "recipe.toml").read_text(encoding="utf-8")
    for name in ("settings.json", "run.json"):
        found = _json(path / name, remarks)
        if isinstance(found, dict):
            # In a GLUE folder "identity" is what all its runs share, its model a digest of the weights.
            chosen, identity = found, found.get("identity")
            if isinstance(identity, dict):
                chosen = {**identity, "model": found.get("model"), "data": found.get("data")}
            return chosen, "".join(f"{key} = {json.dumps(value)}\n" for key, value in chosen.items())
    return {}, ""


def _json(path: Path, remarks: list[str]) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        remarks.append(f"{path.name} could not be read: {error}")
        return None


def _lines(path: Path, remarks: list[str]) -> list[Record]:
    """The records of a file of JSON lines. The last line of a run that still writes may be half a line."""
    if not path.is_file():
        return []
    records, torn = [], 0
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and all(_is_number(record[name]) for name in _COUNTS if name in record):
            records.append(record)
        elif line.strip() and number < len(lines):
            torn += 1
    if torn:
        remarks.append(f"{path.name}: {torn} damaged line(s) are left out.")
    return records


def _evaluations(path: Path, remarks: list[str]) -> list[Evaluation]:
    found = []
    for file in sorted(path.glob("*.json")):
        if file.name in _OWN:
            continue
        content = _json(file, remarks)
        scores = content.get("scores") if isinstance(content, dict) else None
        if (
            isinstance(scores, list)
            and scores
            and all(isinstance(s, dict) and "metric" in s and _is_number(s.get("score")) for s in scores)
        ):
            sentences = content.get("sentences")
            said = str(content.get("data", file.stem))
            found.append(
                Evaluation(file.name, said if sentences is None else f"{said}, {sentences:,} sentences", scores)
            )
    return found


def _languages(path: Path, remarks: list[str]) -> tuple[str, ...]:
    settings = _json(path / "model" / "tokenizer_config.json", remarks)
    found = [settings.get(f"{side}_lang") for side in ("source", "target")] if isinstance(settings, dict) else []
    return tuple(str(each) for each in found) if all(found) else ()


def _parameters(path: Path) -> int | None:
    """Parameters of the model, or of the last checkpoint: counted in the headers of the files, no weight is read."""
    newest = sorted((path / "checkpoints").glob("update-*/weights.safetensors"))[-1:]
    for file in (path / "model" / "model.safetensors", *newest):
        try:
            with file.open("rb") as content:
                (length,) = struct.unpack("<Q", content.read(8))
                header = json.loads(content.read(length))
            return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
        except (OSError, ValueError, struct.error, KeyError, TypeError, MemoryError):
            continue
    return None
