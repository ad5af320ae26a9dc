"""The reader of run folders. A run may have just begun, be stopped, damaged or finished."""

import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeGuard

from safetensors import SafetensorError, safe_open

from macaron.errors import MacaronError
from macaron.settings import read_toml

RunKind = Literal["translation", "pre-training", "fine-tuning", "GLUE"]
Record = dict[str, Any]
#: JSON files that a run writes about itself; any other with scores is an evaluation.
_OWN = {"summary.json", "environment.json", "settings.json", "results.json", "run.json"}
#: Kinds of runs that `macaron train` makes.
_TRAINED = ("translation", "pre-training")
#: Keys whose values must be numbers.
_COUNTS = ("update", "epoch", "seconds")


@dataclass(frozen=True)
class EvaluationFile:
    """A file written by ``macaron evaluate --json``: the data that were scored, and the scores."""

    file: str
    data: str
    scores: list[Record]


@dataclass(frozen=True, eq=False, kw_only=True)
class RunFolder:
    """The files of a run; missing ones are empty.

    :param metrics: the records of metrics.jsonl
    :param settings: the resolved recipe, or the settings of a fine-tuning
    :param settings_text: the same as text
    :param summary: what the run wrote at its end
    :param results: the finished runs of a GLUE folder
    :param starts: the environment at each start
    :param config: the model's config.json
    :param tokenizer_settings: the model's tokenizer_config.json
    :param damaged_lines: line numbers of metrics.jsonl that could not be read
    :param remarks: what could not be read
    """

    path: Path
    name: str
    kind: RunKind
    metrics: list[Record] = field(default_factory=list)
    settings: Record = field(default_factory=dict)
    settings_text: str = ""
    summary: Record = field(default_factory=dict)
    results: list[Record] = field(default_factory=list)
    starts: list[Record] = field(default_factory=list)
    config: Record = field(default_factory=dict)
    tokenizer_settings: Record = field(default_factory=dict)
    evaluations: list[EvaluationFile] = field(default_factory=list)
    damaged_lines: list[int] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, path: Path, name: str | None = None) -> "RunFolder":
        """Read a folder, or explain why it is not that of a run.

        :param name: what to call the run; by default the name of its folder
        """
        if not path.is_dir():
            raise MacaronError(f"{path}: no such folder. Give the folder of a run, as macaron train --out made it.")
        kind = _kind(path)
        remarks: list[str] = []
        settings, text = _settings(path, remarks)
        environment = _json(path / "environment.json", remarks) or _json(path / "run.json", remarks)
        starts = environment if isinstance(environment, list) else [environment]
        config, tokenizer = (_json(path / "model" / f"{file}.json", remarks) for file in ("config", "tokenizer_config"))
        metrics, damaged = _lines(path / "metrics.jsonl", remarks)
        return RunFolder(
            path=path,
            name=name or path.resolve().name,
            kind=kind,
            metrics=metrics,
            settings=settings,
            settings_text=text,
            summary=_summary(path / ("summary.json" if kind in _TRAINED else "results.json"), remarks),
            results=_lines(path / "results.jsonl", remarks)[0],
            starts=[start for start in starts if isinstance(start, dict) and start],
            config=config if isinstance(config, dict) else {},
            tokenizer_settings=tokenizer if isinstance(tokenizer, dict) else {},
            evaluations=_evaluations(path, remarks),
            damaged_lines=damaged,
            remarks=remarks,
        )

    @property
    def has_model(self) -> bool:
        """Whether there is a final model."""
        return (self.path / "model" / "config.json").is_file()

    @property
    def update(self) -> int:
        """The last update that was logged."""
        return max((int(record["update"]) for record in self.metrics if "update" in record), default=0)

    @property
    def finished(self) -> bool:
        """Whether it has ended and was not resumed since."""
        return bool(self.summary) and int(self.summary.get("update", self.update)) >= self.update

    @cached_property
    def parameters(self) -> int | None:
        """Parameters of the model, or of the last checkpoint, counted in the headers of the files."""
        newest = sorted((self.path / "checkpoints").glob("update-*/weights.safetensors"))[-1:]
        for file in (self.path / "model" / "model.safetensors", *newest):
            try:
                with safe_open(file, framework="numpy") as content:
                    return sum(math.prod(content.get_slice(name).get_shape()) for name in content.keys())  # noqa: SIM118
            except (OSError, SafetensorError):
                continue
        return None

    @property
    def languages(self) -> tuple[str, ...]:
        """Source and target language of a translation model."""
        found = [self.tokenizer_settings.get(f"{side}_lang") for side in ("source", "target")]
        return tuple(map(str, found)) if all(found) else ()

    def values(self, name: str, against: str = "update") -> list[tuple[float, float]]:
        """The finite values of a metric by update, or by another number. The later of two at the same x counts."""
        pairs = ((record.get(against), record.get(name)) for record in self.metrics)
        return sorted({float(x): float(y) for x, y in pairs if is_number(x) and is_number(y)}.items())

    def names(self) -> list[str]:
        """All metrics that have numbers, in order of appearance."""
        return list(dict.fromkeys(name for record in self.metrics for name in record if is_number(record[name])))


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value read from JSON is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _summary(path: Path, remarks: list[str]) -> Record:
    found = _json(path, remarks)
    if isinstance(found, dict):
        losses = found.get("candidates")
        numbers = [found[name] for name in ("update", "seconds", "updates") if name in found]
        numbers += [loss for loss in losses.values() if loss is not None] if isinstance(losses, dict) else []
        if all(map(is_number, numbers)):
            return found
    if found is not None:
        remarks.append("The summary of its end is damaged, and left out.")
    return {}


def _kind(path: Path) -> RunKind:
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
        raise MacaronError(f"{path} is a model folder: give the folder of its run, as macaron train --out made it.")
    raise MacaronError(
        f"{path} is not the folder of a run: it has no recipe.toml, settings.json, run.json or metrics.jsonl."
    )


def _settings(path: Path, remarks: list[str]) -> tuple[Record, str]:
    if (path / "recipe.toml").is_file():
        return read_toml(path / "recipe.toml"), (path / "recipe.toml").read_text(encoding="utf-8")
    for name in ("settings.json", "run.json"):
        found = _json(path / name, remarks)
        if isinstance(found, dict):
            # "identity" of a GLUE folder is what all its runs share; its "model" is a digest of the weights.
            identity = found.get("identity")
            if isinstance(identity, dict):
                found = {**identity, "model": found.get("model"), "data": found.get("data")}
            return found, "".join(f"{key} = {json.dumps(value)}\n" for key, value in found.items())
    return {}, ""


def _json(path: Path, remarks: list[str]) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        remarks.append(f"{path.name} could not be read: {error}")
        return None


def _lines(path: Path, remarks: list[str]) -> tuple[list[Record], list[int]]:
    """The records of a file of JSON lines, and the numbers of damaged lines.

    The last line of a run in progress may be incomplete: it has no line end, and is no damage.
    """
    if not path.is_file():
        return [], []
    records, damaged = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(True), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict) and all(is_number(record[name]) for name in _COUNTS if name in record):
            records.append(record)
        elif line.strip() and line.endswith("\n"):
            damaged.append(number)
    if damaged:
        remarks.append(f"{path.name}: {len(damaged)} damaged line(s) are left out.")
    return records, damaged


def _evaluations(path: Path, remarks: list[str]) -> list[EvaluationFile]:
    found = []
    for file in sorted(file for file in path.glob("*.json") if file.name not in _OWN):
        content = _json(file, remarks)
        scores = content.get("scores") if isinstance(content, dict) else None
        if not isinstance(scores, list) or not scores:
            continue
        if all(isinstance(score, dict) and "metric" in score and is_number(score.get("score")) for score in scores):
            said, sentences = str(content.get("data", file.stem)), content.get("sentences")
            data = said if sentences is None else f"{said}, {sentences:,} sentences"
            found.append(EvaluationFile(file.name, data, scores))
    return found
