"""What a comparison knows of a run: read from its folder, and from nowhere else."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Any

from macaron.data.prepared import DataKind
from macaron.errors import MacaronError
from macaron.lab.curves import read_metrics
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.load import load_config
from macaron.models.summary import count
from macaron.ode import Scheme
from macaron.ode import scheme as find_scheme
from macaron.recipe import Recipe, recipe_from
from macaron.settings import read_toml
from macaron.train import stopping
from macaron.train.checkpoint import RunState, checkpoints, state_of
from macaron.train.settings import LIMITS

Ends = tuple[list[list[Any]], list[list[Any]]]
#: The control that theory asks for: halves of G at the ends, whole steps between (see `macaron.lab.twins`).
CONTROL = "control"
#: Its prologue and epilogue, in an encoder and in a decoder.
CONTROL_ENDS: Ends = ([["G", 0.5]], [["F", 1.0], ["G", 0.5]])
CONTROL_DECODER_ENDS: Ends = ([["G", 0.5]], [["F", 1.0], ["H", 1.0], ["G", 0.5]])
_CONFIGS = {each.model_type: each for each in (TranslationConfig, EncoderConfig)}


@dataclass(frozen=True, eq=False)
class Run:
    """A run that came to an end, with a model."""

    name: str
    path: Path
    recipe: Recipe
    config: TranslationConfig | EncoderConfig
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]
    progress: RunState
    identity: dict[str, str] | None
    starts: list[dict[str, Any]]

    @property
    def model(self) -> Path:
        """The model folder."""
        return self.path / "model"

    @property
    def kind(self) -> DataKind:
        """What it was trained on: pairs or text."""
        return self.recipe.kind

    @property
    def seed(self) -> int:
        """The seed of its recipe."""
        return self.recipe.train.seed

    @property
    def updates(self) -> int:
        """How many updates it made."""
        return int(self.summary["update"])

    @cached_property
    def parameters(self) -> int:
        """Parameters of the model."""
        return count(self.config)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of everything in the model folder: weights, configuration, tokenizer, how to decode."""
        digest = hashlib.sha256()
        for file in sorted(path for path in self.model.iterdir() if path.is_file()):
            with file.open("rb") as content:
                digest.update(f"{file.name}\n{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()

    @property
    def scheme_label(self) -> str:
        """What its network is called: the scheme, or ``control``."""
        config, name = self.config, scheme_text(self.config.scheme, short=True)
        ends = (config.prologue, config.epilogue)
        decoder_ends = (getattr(config, "decoder_prologue", None), getattr(config, "decoder_epilogue", None))
        if name == "lie-fg" and ends == CONTROL_ENDS and decoder_ends in ((None, None), CONTROL_DECODER_ENDS):
            return CONTROL
        if isinstance(config, TranslationConfig) and config.decoder_scheme is not None:
            name += f"/{scheme_text(config.decoder_scheme, short=True)}"
        return f"{name} with ends" if any((*ends, *decoder_ends)) else name

    @property
    def governing(self) -> str:
        """The limit that is the length of its schedule."""
        return next(name for name in LIMITS if getattr(self.recipe.train, name) is not None)

    @property
    def ended_by(self) -> str:
        """What ended it: the limit of its schedule, or whatever came before."""
        train, progress = self.recipe.train, self.progress
        if stopping.schedule_share(train, progress, progress.seconds) >= 1:
            return self.governing
        if train.patience and progress.validations_without_gain >= train.patience:
            return "patience"
        done = {"max_epochs": progress.epoch - 1, "max_minutes": progress.seconds / 60}
        for name, value in done.items():
            limit = getattr(train, name)
            if limit is not None and value >= limit:
                return name
        return "another end"

    @property
    def on_gpu(self) -> bool:
        """Whether any part of it was trained where there is a GPU, and was not told to leave it alone."""
        return self.recipe.train.device != "cpu" and any(start.get("gpu") for start in self.starts)


@dataclass(frozen=True, eq=False)
class Kind:
    """Runs that differ in nothing but the seed."""

    label: str
    runs: tuple[Run, ...]

    @property
    def parameters(self) -> int:
        """Parameters of each of its models."""
        return self.runs[0].parameters


def label_kinds(groups: Sequence[Sequence[Run]], named: bool) -> list[Kind]:
    """Kinds with names of their own: those given, or their schemes, or whatever tells them apart.

    :param named: whether the runs' names were given, and are not those of their folders
    """
    alone = all(len(runs) == 1 for runs in groups)
    schemes, names = [runs[0].scheme_label for runs in groups], [_common(runs) for runs in groups]
    choices = [names, schemes] if named and alone else [schemes, names]
    # Where neither tells all of them apart, both do.
    both = [
        scheme if schemes.count(scheme) == 1 else f"{scheme} ({name or runs[0].name})"
        for scheme, name, runs in zip(schemes, names, groups, strict=True)
    ]
    labels = next((each for each in choices if len(set(each)) == len(each) and all(each)), both)
    return [Kind(label, tuple(runs)) for label, runs in zip(labels, groups, strict=True)]


def _common(runs: Sequence[Run]) -> str:
    """What the names of runs begin with, without what is left of a number."""
    names = [run.name for run in runs]
    if len(names) == 1:
        return names[0]
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return re.sub(r"(\W*seed\W*|[\W_]+)$", "", "".join(letters[0] for letters in same))


def open_runs(runs: Mapping[str, Path] | Sequence[Path]) -> list[Run]:
    """Read the runs to compare; their names are those given, or those of their folders."""
    if isinstance(runs, Mapping):
        named = [(str(name), Path(path)) for name, path in runs.items()]
    else:
        paths = [Path(path) for path in runs]
        named = list(zip(_names(paths), paths, strict=True))
    seen: dict[Path, str] = {}
    for name, path in named:
        if path.resolve() in seen:
            raise MacaronError(f"{path} is given twice: a run cannot be compared with itself")
        seen[path.resolve()] = name
    if len(named) < 2:
        raise MacaronError("give at least two runs to compare")
    found = [open_run(name, path) for name, path in named]
    if len({run.kind for run in found}) > 1:
        what = {"pairs": "translation", "text": "pre-training"}
        kinds = ", ".join(f"{run.path} ({what[run.kind]})" for run in found)
        raise MacaronError(f"runs of different tasks cannot be compared: {kinds}")
    return found


def open_run(name: str, path: Path) -> Run:
    """Read a run's folder, or say why it cannot be compared."""
    if not path.is_dir():
        raise MacaronError(f"{path}: no such folder. Give the folders of runs, which macaron train writes.")
    if not (path / "recipe.toml").is_file():
        what = "a model folder" if (path / "config.json").is_file() else "not the folder of a run"
        raise MacaronError(f"{path}: {what}: there is no recipe.toml, without which nothing can be called fair")
    recipe = recipe_from(read_toml(path / "recipe.toml"), str(path / "recipe.toml"))
    if not (path / "model" / "config.json").is_file() or not (path / "summary.json").is_file():
        raise MacaronError(f"{path}: not finished, it has no model yet: go on with macaron train ... --resume")
    summary = _json(path / "summary.json")
    kept = checkpoints(path / "checkpoints")
    try:
        done = RunState(update=int(summary["update"]), epoch=int(summary["epoch"]), seconds=float(summary["seconds"]))
    except (KeyError, TypeError, ValueError):
        raise MacaronError(f"{path / 'summary.json'}: damaged; train the run again") from None
    progress = state_of(kept[-1]) if kept else done
    if progress.update != done.update:
        raise MacaronError(
            f"{path}: its model is of update {done.update:,}, but the run has gone on to {progress.update:,}: finish "
            "it with macaron train ... --resume"
        )
    identity = _json(kept[-1] / "state.json").get("identity") if kept else None
    starts = _json(path / "environment.json") if (path / "environment.json").is_file() else []
    return Run(
        name=name,
        path=path,
        recipe=recipe,
        config=_config(path / "model"),
        summary=summary,
        metrics=_metrics(path),
        progress=progress,
        identity=None if identity is None else {str(key): str(value) for key, value in identity.items()},
        starts=[start for start in (starts if isinstance(starts, list) else [starts]) if isinstance(start, dict)],
    )


def scheme_text(data: Any, short: bool = False) -> str:
    """A scheme by its name; with its sub-steps if it is none of the catalogue's, unless that is to be ``short``."""
    scheme = find_scheme(data)
    return scheme.name if short or _is_known(scheme) else json.dumps(scheme.to_dict(), sort_keys=True)


def _is_known(scheme: Scheme) -> bool:
    try:
        return find_scheme(scheme.name) == scheme
    except MacaronError:
        return False


def _names(paths: Sequence[Path]) -> list[str]:
    """The folders' names, with as many of their parents' as tell them apart."""
    parts = [path.resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(each[-depth:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def _config(folder: Path) -> TranslationConfig | EncoderConfig:
    kind = _json(folder / "config.json").get("model_type")
    if kind not in _CONFIGS:
        raise MacaronError(f"{folder}: a model of type {kind!r}, which this version does not know")
    config: TranslationConfig | EncoderConfig = load_config(folder, _CONFIGS[kind])
    return config


def _metrics(path: Path) -> list[dict[str, Any]]:
    try:
        records = read_metrics(path)
    except (OSError, ValueError) as error:
        raise MacaronError(f"{path / 'metrics.jsonl'}: cannot be read ({error}): there are no curves") from None
    for number, record in enumerate(records, start=1):
        if not isinstance(record, dict) or any(isinstance(record.get(name), str) for name in ("update", "seconds")):
            raise MacaronError(f"{path / 'metrics.jsonl'}:{number}: damaged: remove the line, or copy the run again")
    return records


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MacaronError(f"{path}: cannot be read ({error})") from None
