"""Whether a comparison of runs is fair: the differences of their recipes, data and ends, and what each means."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from macaron.errors import MacaronError, UsageError, nearest
from macaron.lab.compare.finished_run import FinishedRun, Kind, scheme_text
from macaron.models.configuration import TranslationConfig
from macaron.settings import load_toml
from macaron.text.fingerprint import of_ids

#: What a difference means: it is the subject of the comparison; it makes it unfair; it has no influence.
Effect = Literal["compared", "unfair", "harmless"]

#: What a difference in a setting means, see fairness.toml.
_TABLE = {name: frozenset(keys["keys"]) for name, keys in load_toml(Path(__file__).with_suffix(".toml"))[0].items()}
UNKNOWN = "not known"


@dataclass(frozen=True)
class Difference:
    """A setting in which two kinds differ."""

    key: str
    first: str
    second: str
    effect: Effect


@dataclass(frozen=True)
class Fairness:
    """Whether two kinds may be compared.

    :param same_data: whether the training data are known to be the same, if they do not make it unfair
    """

    differences: tuple[Difference, ...] = ()
    unfair: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    same_data: bool = True


@dataclass(frozen=True)
class Question:
    """What is compared: settings that differ on purpose, and search settings that the command sets for all runs."""

    vary: frozenset[str] = frozenset()
    searched: frozenset[str] = frozenset()

    def effect(self, key: str, runs: Sequence[FinishedRun]) -> Effect:
        """What a difference in this setting means for these runs."""
        if key in _TABLE["compared"] or key in self.vary or all(run.varies(key) for run in runs):
            return "compared"
        harmless = key in _TABLE["harmless"] | self.searched or all(_without_influence(run, key) for run in runs)
        return "harmless" if harmless else "unfair"


def settings_of(run: FinishedRun) -> dict[str, Any]:
    """All settings of a run as ``section.key``, defaults and presets resolved."""
    recipe, config, identity = run.recipe.to_data(), run.model_config, run.identity
    found = {f"model.{name}": value for name, value in config.to_dict().items() if name not in _TABLE["none"]}
    found["model.scheme"] = scheme_text(config.scheme)
    if isinstance(config, TranslationConfig):
        # A decoder's scheme that is not given follows from the encoder's: its name is enough.
        found["model.decoder_scheme"] = scheme_text(config.decoder_scheme_value(), short=config.decoder_scheme is None)
    for section in ("train", "decode", "pretrain"):
        found |= {f"{section}.{key}": value for key, value in recipe.get(section, {}).items()}
    on_gpu = run.recipe.train.device != "cpu" and any(start.get("gpu") for start in run.starts)
    if found["train.precision"] == "auto":
        found["train.precision"] = "bfloat16" if on_gpu else "float32"
    found["train.batching"] = identity.get("batching", "pack" if run.recipe.train.packs(on_gpu) else "bucket")
    if run.recipe.model.source is not None:
        found["model.from"] = run.recipe.model.weights  # two paths may be the same model
    if "weights" in identity:
        found["data.weights"] = identity["weights"]
    found["data.tokenizer"] = of_ids(config.tokenizer_fingerprint or identity.get("tokenizer", UNKNOWN))
    found["data.training data"] = run.data_digest or UNKNOWN
    return found


def differences(first: FinishedRun, second: FinishedRun, question: Question) -> list[Difference]:
    """Every setting in which two runs differ."""
    ours, theirs = settings_of(first), settings_of(second)
    found = []
    for key in sorted(set(ours) | set(theirs)):
        one, other = ours.get(key), theirs.get(key)
        if one != other and UNKNOWN not in (one, other):
            found.append(Difference(key, _shown(one), _shown(other), question.effect(key, (first, second))))
    return found


def group(runs: Sequence[FinishedRun], question: Question) -> list[list[FinishedRun]]:
    """Group runs into kinds: those that differ in nothing that matters but the seed."""
    known = sorted({key for run in runs for key in settings_of(run)})
    for key in sorted(question.vary.difference(known)):
        raise UsageError(f"--vary {key}: no such setting{nearest(key, known)}")
    kinds: list[list[FinishedRun]] = []
    for run in runs:
        for kind in kinds:
            matter = [each for each in differences(kind[0], run, question) if each.effect != "harmless"]
            if all(each.key == "train.seed" for each in matter):
                _refuse_repeated(kind, run)
                kind.append(run)
                break
        else:
            kinds.append([run])
    if len(kinds) == 1:
        raise MacaronError(
            f"all {len(runs)} runs are of one kind: they differ in nothing but the seed, so there is nothing to compare"
        )
    return kinds


def fairness(first: Kind, second: Kind, question: Question) -> Fairness:
    """Whether two kinds may be compared."""
    runs = [*first.runs, *second.runs]
    cautions: list[str] = []
    found = {each.key: each for a in first.runs for b in second.runs for each in differences(a, b, question)}
    if len(runs) > 2:
        found.pop("train.seed", None)  # there are several on either side
    worse = [each for each in found.values() if each.effect == "unfair"]
    unfair = [f"{each.key} is {each.first} for {first.label} and {each.second} for {second.label}" for each in worse]
    objective = [each.key for each in found.values() if each.key.startswith("pretrain.") and each.effect == "compared"]
    unfair += [f"{key} changes what the validation loss measures" for key in objective]
    if meant := [key for key in found if key in question.vary or all(run.varies(key) for run in runs)]:
        cautions.append(f"varied on purpose (--vary): {', '.join(meant)}")
    same = len({run.progress.update for run in runs}) == 1
    for run in runs:
        if (reason := run.ended_by) != run.governing:
            of = f" of {run.recipe.train.max_updates:,}" if run.recipe.train.max_updates else ""
            made = f"{run.progress.update:,}{of} updates"
            said = f"{run.name} was stopped after {made}, before its schedule ended ({reason})"
            (cautions if same or reason == "patience" else unfair).append(said)
    starts = [start for run in runs for start in run.starts]
    if not same and any(run.governing == "max_minutes" for run in runs):
        made = ", ".join([f"{run.name} {run.progress.update:,}" for run in runs])
        machines = {(start.get("gpu"), start.get("machine"), start.get("processes")) for start in starts}
        said = "the budget is time, not updates, so the machine's speed is compared too"
        if len(machines) > 1:
            said = "the budget is time, and the runs had different machines"
        (unfair if len(machines) > 1 else cautions).append(f"{said} (updates: {made})")
    if unverified := [run.name for run in runs if run.data_digest is None]:
        cautions.append(
            f"cannot verify that the training data are the same for {', '.join(unverified)} (checkpoints are gone)"
        )
    cautions += [f"{run.name}: {remark}" for run in runs for remark in run.remarks]
    packages = [item for start in starts for item in start.get("packages", {}).items()]
    versions = {name: sorted({version for other, version in packages if other == name}) for name, _ in sorted(packages)}
    differing = [f"{name} {' / '.join(several)}" for name, several in versions.items() if len(several) > 1]
    if differing:
        cautions.append(f"the runs were made with different versions: {', '.join(differing)}")
    if len({run.summary.get("final_model") for run in runs}) > 1:
        chosen = ", ".join([f"{run.name}: {run.summary.get('final_model')}" for run in runs])
        cautions.append(f"the final models were chosen differently, each by its validation loss ({chosen})")
    return Fairness(tuple(found.values()), tuple(unfair), tuple(cautions), not unverified)


def _without_influence(run: FinishedRun, key: str) -> bool:
    """Whether this run would have been the same with any other value of a setting."""
    match key:
        case "train.max_epochs" | "train.max_minutes" | "train.patience":
            return key.removeprefix("train.") not in (run.governing, run.ended_by)
        case "train.checkpoint_every":
            return run.recipe.train.average == 0
        case "train.validate_every":
            # These final models do not depend on when the run was validated.
            return run.summary.get("final_model") in ("last", "running mean") and run.ended_by != "patience"
        case "train.row_tokens":
            return run.recipe.kind == "pairs" and run.identity.get("batching") == "bucket"
    return False


def _refuse_repeated(kind: Sequence[FinishedRun], run: FinishedRun) -> None:
    for other in kind:
        seeds = f"({run.seed})" if run.seed == other.seed else f"({other.seed} and {run.seed})"
        said = f"have the same recipe and the same seed {seeds}: they would count as two results"
        if other.seed != run.seed:
            said = f"hold the same model, though their seeds differ {seeds}: one of them is a copy"
        if other.seed == run.seed or other.fingerprint == run.fingerprint:
            raise MacaronError(f"{other.path} and {run.path} {said}. Leave one out.")


def _shown(value: Any) -> str:
    text = "–" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text[:12] if len(text) == 64 else text
