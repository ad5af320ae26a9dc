"""Finished runs, as comparisons need them: checked, with recipe, configuration and progress; grouped into kinds."""

import hashlib
import itertools
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from macaron.data.prepared import open_prepared
from macaron.errors import MacaronError, UsageError
from macaron.lab.run_folder import RunFolder, is_number
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.load import load_config
from macaron.models.summary import count
from macaron.ode import scheme as find_scheme
from macaron.recipe import Recipe, recipe_from
from macaron.train import stopping
from macaron.train.checkpoint import RunState, checkpoints, run_state
from macaron.train.settings import LIMITS

#: Hexadecimal digits of a digest of tokens.
TOKEN_DIGITS = 32
_COUNTS = ("update", "epoch", "seconds")
_CONFIGS = {each.model_type: each for each in (TranslationConfig, EncoderConfig)}
Ends = tuple[list[list[Any]], list[list[Any]]]
#: The control that theory asks for: half a G at both ends, whole steps between (see `macaron.lab.twins`).
CONTROL = "control"
#: Its prologue and epilogue, in an encoder and in a decoder.
CONTROL_ENDS: Ends = ([["G", 0.5]], [["F", 1.0], ["G", 0.5]])
CONTROL_DECODER_ENDS: Ends = ([["G", 0.5]], [["F", 1.0], ["H", 1.0], ["G", 0.5]])


@dataclass(frozen=True, eq=False, kw_only=True)
class FinishedRun(RunFolder):
    """A run that has ended, with a model and a recipe.

    :param progress: where training ended
    :param identity: what its checkpoints record of the training data; None if they are gone
    """

    recipe: Recipe
    model_config: TranslationConfig | EncoderConfig
    progress: RunState
    identity: dict[str, str] | None

    @classmethod
    def open(cls, path: Path, name: str | None = None) -> "FinishedRun":
        """Read a run's folder, or explain why it cannot be compared."""
        found = RunFolder.open(path, name)
        if not (path / "recipe.toml").is_file():
            raise MacaronError(f"{path} has no recipe.toml: whether a comparison with it is fair cannot be checked")
        if not found.has_model or not (path / "summary.json").is_file():
            raise MacaronError(f"{path}: not finished, it has no model yet: go on with macaron train ... --resume")
        if not all(is_number(found.summary.get(key)) for key in _COUNTS):
            raise MacaronError(f"{path / 'summary.json'}: damaged; train the run again")
        if found.damaged_lines:
            line = f"{path / 'metrics.jsonl'}:{found.damaged_lines[0]}"
            raise MacaronError(f"{line}: damaged: remove the line, or copy the run again")
        done, kept = RunState(**{key: found.summary[key] for key in _COUNTS}), checkpoints(path / "checkpoints")
        progress = run_state(kept[-1]) if kept else done
        if progress.update != done.update:
            raise MacaronError(
                f"{path}: its model is of update {done.update:,}, but the run has gone on to {progress.update:,}: "
                "finish it with macaron train ... --resume"
            )
        model_type = found.config.get("model_type")
        if model_type not in _CONFIGS:
            raise MacaronError(f"{path / 'model'}: a model of type {model_type!r}, which this version does not know")
        identity = json.loads((kept[-1] / "state.json").read_text(encoding="utf-8")).get("identity") if kept else None
        return cls(
            **vars(found),
            recipe=recipe_from(found.settings, str(path / "recipe.toml")),
            model_config=load_config(path / "model", _CONFIGS[model_type]),
            progress=progress,
            identity=None if identity is None else {str(key): str(value) for key, value in identity.items()},
        )

    @property
    def data(self) -> Path:
        """The folder of its training data."""
        return self.recipe.data.resolve()

    @property
    def seed(self) -> int:
        """The seed of its recipe."""
        return self.recipe.train.seed

    @property
    def updates(self) -> int:
        """The number of updates."""
        return int(self.summary["update"])

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all files in the model folder: weights, configuration, tokenizer, search settings."""
        digest = hashlib.sha256()
        for file in sorted(path for path in (self.path / "model").iterdir() if path.is_file()):
            with file.open("rb") as content:
                digest.update(f"{file.name}\n{hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()

    @cached_property
    def data_digests(self) -> frozenset[str]:
        """Digests of its training data: the one in its checkpoints, and all of the data folder if it is one of those.

        One of 32 digits is of the tokens; one of 16, which version 0.1.0 recorded, of the lengths of sentences alone.
        """
        recorded = (self.identity or {}).get("training data")
        if recorded is None:
            return frozenset()
        found = folder_digests(self.data)
        return found if recorded in found else frozenset([recorded])

    @property
    def token_digest(self) -> str | None:
        """The digest of the tokens it was trained on, if it is known."""
        return next((digest for digest in self.data_digests if len(digest) == TOKEN_DIGITS), None)

    @property
    def final_loss(self) -> float:
        """The validation loss of the model that the run chose."""
        try:
            return float(self.summary["candidates"][self.summary["final_model"]])
        except (KeyError, TypeError, ValueError):
            raise MacaronError(f"{self.path / 'summary.json'}: damaged; train the run again") from None

    @property
    def governing(self) -> str:
        """The limit that sets the length of its schedule."""
        return next(name for name in LIMITS if getattr(self.recipe.train, name) is not None)

    @property
    def ended_by(self) -> str:
        """What ended it: the limit of its schedule, or an earlier stop."""
        train, progress = self.recipe.train, self.progress
        if stopping.shares(train, progress, progress.seconds)[0] >= 1:
            return self.governing
        if train.patience and progress.validations_without_gain >= train.patience:
            return "patience"
        done = {"max_epochs": progress.epoch - 1, "max_minutes": progress.seconds / 60}
        passed = (name for name, value in done.items() if (getattr(train, name) or math.inf) <= value)
        return next(passed, "another end")

    @property
    def on_gpu(self) -> bool:
        """Whether any part of it was trained on a GPU."""
        return self.recipe.train.device != "cpu" and any(start.get("gpu") for start in self.starts)


@cache
def folder_digests(folder: Path) -> frozenset[str]:
    """All digests of the training data in a prepared folder; none if it cannot be read."""
    try:
        data = open_prepared(folder)
        return frozenset([data.digest, data.legacy_lengths_digest()])
    except (MacaronError, OSError):
        return frozenset()


@dataclass(frozen=True, eq=False)
class Kind:
    """Runs that differ in nothing but the seed."""

    label: str
    runs: tuple[FinishedRun, ...]

    @cached_property
    def parameters(self) -> int:
        """Parameters of each of its models."""
        return count(self.runs[0].model_config)


def open_runs(runs: Mapping[str, Path] | Sequence[Path]) -> list[FinishedRun]:
    """Read the runs to compare; their names are those given, or those of their folders."""
    paths = [Path(path) for path in (runs.values() if isinstance(runs, Mapping) else runs)]
    if len(paths) < 2:
        raise UsageError("give at least two runs to compare")
    places = [path.resolve().parts for path in paths]
    for path, parts in zip(paths, places, strict=True):
        if places.count(parts) > 1:
            raise MacaronError(f"{path} is given twice: a run cannot be compared with itself")
    # Names of folders have as many parents as it takes to distinguish them.
    depth = next(n for n in itertools.count(1) if len({parts[-n:] for parts in places}) == len(places))
    names = runs if isinstance(runs, Mapping) else ["/".join(parts[-depth:]) for parts in places]
    found = [FinishedRun.open(path, name) for name, path in zip(names, paths, strict=True)]
    if len({run.kind for run in found}) > 1:
        kinds = ", ".join(f"{run.path} ({run.kind})" for run in found)
        raise MacaronError(f"runs of different tasks cannot be compared: {kinds}")
    return found


def label_kinds(groups: Sequence[Sequence[FinishedRun]], named: bool) -> list[Kind]:
    """Kinds with distinct labels: the given names, or their schemes, or both.

    :param named: whether the names of the runs were given, and are not those of their folders
    """
    alone = all(len(runs) == 1 for runs in groups)
    schemes, names = [scheme_label(runs[0].model_config) for runs in groups], [_common_name(runs) for runs in groups]
    choices = [names, schemes] if named and alone else [schemes, names]
    both = [
        scheme if schemes.count(scheme) == 1 else f"{scheme} ({name or runs[0].name})"
        for scheme, name, runs in zip(schemes, names, groups, strict=True)
    ]
    labels = next((each for each in choices if len(set(each)) == len(each) and all(each)), both)
    return [Kind(label, tuple(runs)) for label, runs in zip(labels, groups, strict=True)]


def _common_name(runs: Sequence[FinishedRun]) -> str:
    """The common beginning of the names of runs, without a trailing "seed" or punctuation."""
    if len(runs) == 1:
        return runs[0].name
    common = os.path.commonprefix([run.name for run in runs])  # noqa: RUF071 (letters, not parts of a path)
    return re.sub(r"(\W*seed\W*|[\W_]+)$", "", common)


def scheme_label(config: TranslationConfig | EncoderConfig) -> str:
    """The scheme of a network by name, or ``control``."""
    name, ends = scheme_text(config.scheme, short=True), (config.prologue, config.epilogue)
    decoder_ends = (getattr(config, "decoder_prologue", None), getattr(config, "decoder_epilogue", None))
    if name == "lie-fg" and ends == CONTROL_ENDS and decoder_ends in ((None, None), CONTROL_DECODER_ENDS):
        return CONTROL
    if isinstance(config, TranslationConfig) and config.decoder_scheme is not None:
        name += f"/{scheme_text(config.decoder_scheme, short=True)}"
    return f"{name} with ends" if any((*ends, *decoder_ends)) else name


def scheme_text(data: Any, short: bool = False) -> str:
    """A scheme by its name; unless ``short``, one that is not in the catalogue is given with its sub-steps."""
    scheme = find_scheme(data)
    try:
        known = short or find_scheme(scheme.name) == scheme
    except MacaronError:
        known = False
    return scheme.name if known else json.dumps(scheme.to_dict(), sort_keys=True)
