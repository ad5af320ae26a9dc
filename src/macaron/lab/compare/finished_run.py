"""Finished runs, as comparisons need them: checked, with recipe, configuration and progress; grouped into kinds."""

import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from macaron import ode
from macaron.errors import MacaronError, UsageError, resume_command
from macaron.lab.run_folder import COUNTS, RunFolder, check_same_task, is_number
from macaron.models.configuration import TranslationConfig
from macaron.models.presets import AnyConfig
from macaron.models.summary import count
from macaron.recipe import recipe_from
from macaron.train import stopping
from macaron.train.checkpoint import RunState, checkpoints, load
from macaron.train.settings import LIMITS

#: What `macaron twins --vary` leaves in the folder of a run: the settings that differ on purpose, with its values.
TWIN = "twin.json"
#: The control that the theory requires: half a G at both ends, whole steps between (see `macaron.lab.twins`).
CONTROL = "control"
#: Its prologue and epilogue, in an encoder and in a decoder.
CONTROL_ENDS: tuple[list[Any], list[Any]] = ([["G", 0.5]], [["F", 1.0], ["G", 0.5]])
CONTROL_DECODER_ENDS: tuple[list[Any], list[Any]] = ([["G", 0.5]], [["F", 1.0], ["H", 1.0], ["G", 0.5]])


class FinishedRun(RunFolder):
    """A run that has ended, with a model and a recipe.

    :ivar final_loss: the validation loss of the model that the run chose: of its objective, with label smoothing
    :ivar final_nll: likewise its negative log-likelihood, which does not depend on the objective; NaN if not recorded
    :ivar varied: the settings that it was trained to differ in from its twins, with its values
    :ivar progress: where training ended
    :ivar identity: what its checkpoints record of the training data; empty if they are gone
    """

    def __init__(self, path: Path, name: str | None = None) -> None:
        """Read a run's folder, or explain why it cannot be compared."""
        super().__init__(path, name)
        if not self.has_model or not (path / "summary.json").is_file():
            raise MacaronError(f"{path}: not finished, it has no final model yet: continue with {resume_command(path)}")
        losses, likelihoods = (self.summary.get(name, {}) for name in ("candidates", "candidate_nll"))
        self.final_loss: float = losses.get(self.summary.get("final_model"), math.nan)
        self.final_nll: float = likelihoods.get(self.summary.get("final_model"), math.nan)
        if not all(map(is_number, (self.final_loss, *(self.summary.get(key) for key in COUNTS)))):
            raise MacaronError(f"{path / 'summary.json'}: damaged; train the run again")
        self.progress = RunState(**{key: self.summary[key] for key in COUNTS})
        self.identity: dict[str, str] = {}
        if kept := checkpoints(path / "checkpoints"):
            last = load(kept[-1], weights=False, moments=False)
            self.progress, self.identity = last.state, {key: str(value) for key, value in last.identity.items()}
        if self.progress.update != self.summary["update"]:
            raise MacaronError(
                f"{path}: its model is of update {self.summary['update']:,}, but the run has gone on to "
                f"{self.progress.update:,}: finish it with {resume_command(path)}"
            )
        self.recipe = recipe_from(self.settings, self.origin)
        self.seed = self.recipe.train.seed
        self.varied: dict[str, str] = self._json(path / TWIN, dict[str, str]) or {}

    def varies(self, key: str) -> bool:
        """Whether it is one of twins that differ in this setting on purpose. A preset is many settings of a model."""
        names = [*self.varied, *(["model"] if "model.preset" in self.varied else [])]
        return any(f"{key}.".startswith(f"{name}.") or f"{name}.".startswith(f"{key}.") for name in names)

    @property
    def data_digest(self) -> str | None:
        """The digest of the tokens it was trained on; None if it is not known."""
        return self.identity.get("training data")

    @property
    def governing(self) -> str:
        """The limit that sets the length of its schedule."""
        return next(name for name in LIMITS if getattr(self.recipe.train, name) is not None)

    @property
    def ended_by(self) -> str:
        """What ended it: the limit of its schedule, another one, or patience."""
        train, progress = self.recipe.train, self.progress
        given = (name for name in LIMITS if getattr(train, name) is not None)
        shares = zip(given, stopping.shares(train, progress, progress.seconds), strict=True)
        return next((name for name, share in shares if share >= 1), "patience" if train.patience else "unknown reason")


@dataclass(frozen=True, eq=False)
class Kind:
    """Runs that differ in nothing but the seed."""

    label: str
    runs: tuple[FinishedRun, ...]
    parameters: int


def open_runs(runs: Mapping[str, Path] | Sequence[Path]) -> list[FinishedRun]:
    """Read the runs to compare; their names are those given, or those of their folders."""
    paths = [Path(path) for path in (runs.values() if isinstance(runs, Mapping) else runs)]
    if len(paths) < 2:
        raise UsageError("give at least two runs to compare")
    places = [path.resolve() for path in paths]
    for path, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise MacaronError(f"{path} is given twice: a run cannot be compared with itself")
    folders = [place.name for place in places]
    names = runs if isinstance(runs, Mapping) else folders if len(set(folders)) == len(folders) else map(str, paths)
    found = [FinishedRun(path, name) for name, path in zip(names, paths, strict=True)]
    check_same_task(found)
    return found


def label_kinds(groups: Sequence[Sequence[FinishedRun]], named: bool) -> list[Kind]:
    """Kinds with distinct labels: the given names, what twins vary, their schemes, or schemes with names."""
    schemes = [scheme_label(runs[0].model_config) for runs in groups]
    names = [_common_name([run.name for run in runs]) for runs in groups]
    alone = all(len(runs) == 1 for runs in groups)
    kinds = [(scheme, runs[0].varied) for scheme, runs in zip(schemes, groups, strict=True)]
    alike = len(set(schemes)) == 1 or any("model.scheme" in varied for _, varied in kinds)
    varied = [varied_label("" if alike else scheme, values) for scheme, values in kinds]
    choices = [names, schemes] if named and alone else [varied, schemes, names]
    both = [
        scheme if schemes.count(scheme) == 1 else f"{scheme} ({name or runs[0].name})"
        for scheme, name, runs in zip(schemes, names, groups, strict=True)
    ]
    labels = next((each for each in choices if len(set(each)) == len(each) and all(each)), both)
    return [Kind(label, tuple(runs), count(runs[0].model_config)) for label, runs in zip(labels, groups, strict=True)]


def varied_label(scheme: str, values: Mapping[str, str]) -> str:
    """The name of a twin: its scheme, unless that is empty, and its values of other settings."""
    return ", ".join(filter(None, [scheme, *(f"{key.rpartition('.')[2]}={value}" for key, value in values.items())]))


def _common_name(names: Sequence[str]) -> str:
    """The common beginning of several names, without a trailing "seed" or punctuation."""
    common = os.path.commonprefix(names)  # noqa: RUF071 (letters, not parts of a path)
    return common if len(names) == 1 else re.sub(r"(\W*seed\W*|[\W_]+)$", "", common)


def scheme_label(config: AnyConfig) -> str:
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
    scheme = ode.scheme(data)
    known = short or (scheme.name in ode.names() and ode.scheme(scheme.name) == scheme)
    return scheme.name if known else json.dumps(scheme.to_dict(), sort_keys=True)
