"""Kinds of runs: those that differ in nothing but the seed. Their names, and the names of their schemes."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from macaron.errors import MacaronError
from macaron.lab.compare.finished_run import FinishedRun
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.ode import scheme as find_scheme

Ends = tuple[list[list[Any]], list[list[Any]]]
#: The control that theory asks for: half a G at both ends, whole steps between (see `macaron.lab.twins`).
CONTROL = "control"
#: Its prologue and epilogue, in an encoder and in a decoder.
CONTROL_ENDS: Ends = ([["G", 0.5]], [["F", 1.0], ["G", 0.5]])
CONTROL_DECODER_ENDS: Ends = ([["G", 0.5]], [["F", 1.0], ["H", 1.0], ["G", 0.5]])


@dataclass(frozen=True, eq=False)
class Kind:
    """Runs that differ in nothing but the seed."""

    label: str
    runs: tuple[FinishedRun, ...]

    @property
    def parameters(self) -> int:
        """Parameters of each of its models."""
        return self.runs[0].size


def open_runs(runs: Mapping[str, Path] | Sequence[Path]) -> list[FinishedRun]:
    """Read the runs to compare; their names are those given, or those of their folders."""
    if isinstance(runs, Mapping):
        named = [(str(name), Path(path)) for name, path in runs.items()]
    else:
        named = list(zip(_folder_names(runs), map(Path, runs), strict=True))
    resolved = [path.resolve() for _, path in named]
    for (_, path), place in zip(named, resolved, strict=True):
        if resolved.count(place) > 1:
            raise MacaronError(f"{path} is given twice: a run cannot be compared with itself")
    if len(named) < 2:
        raise MacaronError("give at least two runs to compare")
    found = [FinishedRun.open(path, name) for name, path in named]
    if len({run.kind for run in found}) > 1:
        kinds = ", ".join(f"{run.path} ({run.kind})" for run in found)
        raise MacaronError(f"runs of different tasks cannot be compared: {kinds}")
    return found


def _folder_names(paths: Sequence[Path]) -> list[str]:
    """The names of the folders, with as many parents as it takes to distinguish them."""
    parts = [Path(path).resolve().parts for path in paths]
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(each[-depth:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


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
    names = [run.name for run in runs]
    if len(names) == 1:
        return names[0]
    same = takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    return re.sub(r"(\W*seed\W*|[\W_]+)$", "", "".join(letters[0] for letters in same))


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
