"""The reader of run folders. A run may have just begun, be stopped, damaged or finished."""

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeGuard

from macaron.errors import MacaronError
from macaron.evaluate.stored import FOLDER, StoredFile
from macaron.json_files import Record, parse_json, read_json
from macaron.limits import Between
from macaron.models.load import load_config, run_model
from macaron.models.presets import AnyConfig
from macaron.recipe import CONFIGURATIONS
from macaron.seal import fingerprint
from macaron.settings import OTHERS, load_toml
from macaron.train.settings import TaskName

#: Bytes of the largest JSON file of a run: translations with their counts.
_LARGEST = 1 << 29
#: The limit of numbers: larger ones, and those below its inverse, are damage.
_GREATEST = 1e100
_Number = Annotated[float, Between(-_GREATEST, _GREATEST)]
#: Keys whose values must be numbers.
COUNTS = ("update", "epoch", "seconds")


class _Start(TypedDict, total=False):  # of the environment at a start, as far as it is used
    update: int
    gpu: str | None
    machine: str
    processes: int
    packages: dict[str, str]
    command: list[str]


class _Summary(TypedDict, total=False):  # likewise
    seconds: _Number
    final_model: str
    candidates: dict[str, _Number | None]
    candidate_scores: dict[str, _Number]
    candidate_nll: dict[str, _Number | None]


class RunFolder:
    """The files of a run; missing ones are empty.

    :ivar settings: the resolved recipe
    :ivar origin: the file and the text of the settings
    :ivar summary: what the run wrote at its end
    :ivar model_folder: its final model, or its best checkpoint if it has none yet
    :ivar finished: it has ended and was not resumed since
    :ivar remarks: what could not be read
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        if not path.is_dir():
            raise MacaronError(f"{path}: no such folder. Give the folder of a run, as macaron train --out made it.")
        self.path, self.name = path, name or path.resolve().name
        self.remarks: list[str] = []
        sections, self.origin = load_toml(_recipe(path))
        self.settings = {name: section for name, section in sections.items() if isinstance(section, dict)}
        self.kind: TaskName = "pre-training" if "pretrain" in self.settings else "translation"
        if self.settings.get("train", {}).get("task") == "language-model":
            self.kind = "language-model"
        self.starts: list[Record] = self._json(path / "environment.json", list[Annotated[_Start, OTHERS]]) or []
        self.summary: Record = self._json(path / "summary.json", Annotated[_Summary, OTHERS]) or {}
        self.metrics = self._metrics()
        self.update = max((int(record["update"]) for record in self.metrics if "update" in record), default=0)
        ended = self.summary.get("update", self.update)
        self.finished = bool(self.summary) and is_number(ended) and ended >= self.update
        self.has_model = (path / "model" / "config.json").is_file()
        self.model_folder = run_model(path)
        model = self.model_folder or path / "model"
        self.config: Record = self._json(model / "config.json", Record) or {}
        self.tokenizer_settings: Record = self._json(model / "tokenizer_config.json", Record) or {}
        languages = [self.tokenizer_settings.get(f"{side}_lang") for side in ("source", "target")]
        self.languages = tuple(map(str, languages)) if all(languages) else ()

    @cached_property
    def model_config(self) -> AnyConfig:
        """The configuration of its model."""
        return load_config(self.model_folder or self.path, CONFIGURATIONS[self.kind])

    @cached_property
    def parameters(self) -> int | None:
        """Parameters of its model, or None."""
        from macaron.models.summary import count  # which imports torch

        try:
            return count(self.model_config) if self.model_folder else None
        except MacaronError:
            return None

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all files in the model folder: weights, configuration, tokenizer, search settings."""
        return fingerprint(self.model_folder) if self.model_folder else ""

    @cached_property
    def evaluations(self) -> list[Record]:
        """Scores of its present model, as `macaron.evaluate.stored` keeps them; of two measured alike the later one."""
        files = sorted(self.path.glob(f"{FOLDER}/*.json"), key=lambda file: (file.stat().st_mtime_ns, file))
        found: dict[str, Record] = {}
        for file in files:
            content: StoredFile | None = self._json(file, StoredFile)
            if content and content["scores"] and content["key"].get("model") == self.fingerprint:
                data = f"{content['data']}, {len(content['translations']):,} sentences"
                same = json.dumps([data, content["search"], [each["definition"] for each in content["scores"]]])
                found[same] = {"file": str(file.relative_to(self.path)), "data": data, "scores": content["scores"]}
        return sorted(found.values(), key=lambda each: str(each["file"]))

    def values(self, name: str, against: str = "update") -> list[tuple[float, float]]:
        """The finite values of a metric by update, or by another number. The later of two at the same x counts."""
        pairs = ((record.get(against), record.get(name)) for record in self.metrics)
        return sorted({float(x): float(y) for x, y in pairs if is_number(x) and is_number(y)}.items())

    def _json(self, file: Path, kind: Any) -> Any:
        try:
            return read_json(file, kind, largest=_LARGEST, finite=False)
        except FileNotFoundError:
            return None
        except MacaronError as error:
            self.remarks.append(f"{file.name} could not be read: {error}")
            return None

    def _metrics(self) -> list[Record]:
        """The records of metrics.jsonl, in ASCII. The last line of a run in progress may be incomplete: no damage."""
        records: list[Record] = []
        damaged, path = 0, self.path / "metrics.jsonl"
        for line in filter(bytes.strip, path.read_bytes().splitlines(True) if path.is_file() else ()):
            try:
                record = parse_json(line.decode(), path.name, Any, finite=False)
            except (MacaronError, UnicodeError):
                record = None
            if isinstance(record, dict) and all(is_number(record[name]) for name in COUNTS if name in record):
                records.append(record)
            elif line.endswith(b"\n") or not line.startswith(b"{") or not line.isascii():
                damaged += 1
        if damaged:
            self.remarks.append(f"{path.name}: {damaged} damaged line(s) are left out.")
        return records


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value read from JSON is a finite number, of which sums and squares of differences can be drawn."""
    counts = isinstance(value, int | float) and not isinstance(value, bool)
    return counts and (value == 0 or 1 / _GREATEST < abs(value) < _GREATEST)


def check_same_task(runs: Sequence[RunFolder]) -> None:
    """Refuse to compare runs of different tasks."""
    if len({run.kind for run in runs}) > 1:
        kinds = ", ".join(f"{run.path} ({run.kind})" for run in runs)
        raise MacaronError(f"runs of different tasks cannot be compared: {kinds}")


def _recipe(path: Path) -> Path:
    if (path / "recipe.toml").is_file():
        return path / "recipe.toml"
    if (path / "run.json").is_file() or (path / "settings.json").is_file():
        raise MacaronError(f"{path} is a folder of macaron glue or finetune: its scores are in results.json.")
    if (path / "config.json").is_file():
        raise MacaronError(f"{path} is a model folder: give the folder of its run, as macaron train --out made it.")
    raise MacaronError(f"{path} is not the folder of a run: it has no recipe.toml.")
