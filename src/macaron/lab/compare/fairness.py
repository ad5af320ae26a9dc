"""Whether runs may be compared: every difference of their recipes, data and ends, and what it means."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from macaron.errors import MacaronError, UsageError, nearest
from macaron.lab.compare.runs import Kind, Run, scheme_text
from macaron.lab.compare.training_data import tokens_differ, unseen
from macaron.models.configuration import TranslationConfig
from macaron.nn.budget import TOLERANCE

#: What a difference means: it is what is compared; it makes the comparison unfair; it changes nothing.
Effect = Literal["compared", "unfair", "harmless"]

#: The shape of a network: what schemes differ in. Whether the sizes agree is asked of the parameters.
_SHAPE = (
    *("scheme", "decoder_scheme", "prologue", "epilogue", "decoder_prologue", "decoder_epilogue", "integrator"),
    *("tying", "inner_sizes", "intermediate_size", "encoder_layers", "decoder_layers", "num_hidden_layers"),
)
COMPARED = frozenset({"train.seed", *(f"model.{name}" for name in _SHAPE)})
#: What transformers adds, and what is asked elsewhere: of the data, of the search.
_NO_SETTINGS = (
    *("architectures", "dtype", "transformers_version", "tokenizer_fingerprint", "evaluation", "model_type"),
    *("use_cache", "_name_or_path", "return_dict"),
)
#: They change what is watched and where it runs, at most the rounding.
_WATCHING = ("log_every", "keep", "tensorboard", "bleu_sentences", "device", "compile", "distributed")
_HARMLESS = frozenset({"pretrain.attention", *(f"train.{name}" for name in _WATCHING)})
#: They define a score; all runs are scored by one definition, the first one's.
_DEFINITION = frozenset({"decode.lower", "decode.compound_split"})
#: Final models that do not depend on when the run was validated.
_OF_THE_END = ("last", "running mean")
_TRAINING_DATA = "data.training data"
UNKNOWN = "not known: its checkpoints are gone"


@dataclass(frozen=True)
class Difference:
    """A setting in which two kinds differ."""

    key: str
    first: str
    second: str
    effect: Effect

    def to_dict(self) -> dict[str, str]:
        """For JSON."""
        return {"key": self.key, "first": self.first, "second": self.second, "effect": self.effect}


@dataclass(frozen=True)
class Fairness:
    """Whether two kinds may be compared.

    :param unfair: sentences that say why not
    :param cautions: what a reader should know though it forbids nothing
    """

    differences: tuple[Difference, ...] = ()
    unfair: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "fair": not self.unfair,
            "unfair": list(self.unfair),
            "cautions": list(self.cautions),
            "differences": [each.to_dict() for each in self.differences],
        }


@dataclass(frozen=True)
class Question:
    """What is asked: which settings are compared on purpose, which the search was given for all runs."""

    vary: frozenset[str] = frozenset()
    searched: frozenset[str] = field(default_factory=frozenset)

    def effect(self, key: str, runs: Sequence[Run]) -> Effect:
        """What a difference in this setting means for these runs."""
        if key in COMPARED or key in self.vary:
            return "compared"
        if key in _HARMLESS or key in _DEFINITION or key in self.searched:
            return "harmless"
        return "harmless" if all(_without_influence(run, key) for run in runs) else "unfair"


def check_vary(vary: Collection[str], runs: Sequence[Run]) -> frozenset[str]:
    """The settings that are to be compared, which must be settings."""
    known = sorted({key for run in runs for key in settings_of(run)})
    for key in vary:
        if key not in known:
            raise UsageError(f"--vary {key}: no such setting{nearest(key, known)}")
    return frozenset(vary)


def settings_of(run: Run) -> dict[str, Any]:
    """All settings that were in force, defaults and presets resolved, as ``section.key``."""
    recipe, config = run.recipe.to_data(), run.config
    found: dict[str, Any] = {}
    for name, value in config.to_dict().items():
        if name not in _NO_SETTINGS:
            found[f"model.{name}"] = value
    found["model.scheme"] = scheme_text(config.scheme)
    if isinstance(config, TranslationConfig):
        # Unless it is given, it follows from the encoder's, and its name says enough.
        found["model.decoder_scheme"] = scheme_text(config.decoder_scheme_value(), short=config.decoder_scheme is None)
    for section in ("train", "decode", "pretrain"):
        found |= {f"{section}.{key}": value for key, value in recipe.get(section, {}).items()}
    if found["train.precision"] == "auto":
        found["train.precision"] = "bfloat16" if run.on_gpu else "float32"
    identity = run.identity or {}
    if found["train.batching"] == "auto":
        found["train.batching"] = "pack" if run.recipe.train.packs(run.on_gpu) else "bucket"
    found["train.batching"] = identity.get("batching", found["train.batching"])
    found["data.tokenizer"] = config.tokenizer_fingerprint or identity.get("tokenizer", UNKNOWN)
    found[_TRAINING_DATA] = identity.get("training data", UNKNOWN)
    return found


def differences(first: Run, second: Run, question: Question) -> list[Difference]:
    """Every setting in which two runs differ."""
    ours, theirs = settings_of(first), settings_of(second)
    found = []
    for key in sorted(set(ours) | set(theirs)):
        one, other = ours.get(key), theirs.get(key)
        if one != other and UNKNOWN not in (one, other):
            found.append(Difference(key, _shown(one), _shown(other), question.effect(key, (first, second))))
    same = ours[_TRAINING_DATA] == theirs[_TRAINING_DATA] != UNKNOWN
    # Sentences of the same lengths may have other words, or the same words in another order.
    if same and (tokens := tokens_differ(first, second)) is not None:
        found.append(Difference(_TRAINING_DATA, *tokens, question.effect(_TRAINING_DATA, (first, second))))
    return found


def group(runs: Sequence[Run], question: Question) -> list[list[Run]]:
    """Runs of one kind together: those that differ in nothing that matters but the seed."""
    kinds: list[list[Run]] = []
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
    found = {each.key: each for a in first.runs for b in second.runs for each in differences(a, b, question)}
    if len(runs) > 2:
        found.pop("train.seed", None)  # there are several on either side
    unfair = [
        f"{each.key} is {each.first} for {first.label} and {each.second} for {second.label}"
        for each in found.values()
        if each.effect == "unfair"
    ]
    stopped, cautions = _ends(runs)
    unfair += stopped
    unverified = [run.name for run in runs if run.identity is None]
    if unverified:
        cautions.append(f"that the training data are the same cannot be verified for {_list(unverified)} ({UNKNOWN})")
    if hidden := [run.name for run in unseen(runs)]:
        cautions.append(
            "of the training data only the tokenizer and the lengths of all sentences could be compared for "
            f"{_list(hidden)}: the folder that the recipe names is gone, or has other data by now"
        )
    cautions += _environments(runs)
    if len({run.summary.get("final_model") for run in runs}) > 1:
        chosen = _list([f"{run.name}: {run.summary.get('final_model')}" for run in runs])
        cautions.append(f"the final models were chosen differently, each by its validation loss ({chosen})")
    return Fairness(tuple(found.values()), tuple(unfair), tuple(cautions))


def unequal(first: Kind, second: Kind) -> str | None:
    """What to say where the second kind is of another size than the first."""
    share = second.parameters / first.parameters - 1
    if abs(share) <= TOLERANCE:
        return None
    return (
        f"{second.label} has {100 * abs(share):.2f} % {'more' if share > 0 else 'fewer'} parameters than {first.label}"
    )


def _without_influence(run: Run, key: str) -> bool:
    """Whether a setting left this run as it would have been with any other value."""
    train, at_end = run.recipe.train, run.summary.get("final_model") in _OF_THE_END
    match key:
        case "train.max_epochs" | "train.max_minutes" | "train.patience":
            name = key.removeprefix("train.")
            return name not in (run.governing, run.ended_by)
        case "train.checkpoint_every":
            return train.average == 0
        case "train.validate_every":
            return at_end and run.ended_by != "patience"
        case "train.row_tokens":
            return run.kind == "pairs" and (run.identity or {}).get("batching") == "bucket"
    return False


def _ends(runs: Sequence[Run]) -> tuple[list[str], list[str]]:
    """What the ends of the runs say against a comparison, and what they only remark."""
    unfair: list[str] = []
    cautions: list[str] = []
    same = len({run.updates for run in runs}) == 1
    for run in runs:
        train, reason = run.recipe.train, run.ended_by
        if reason == run.governing:
            continue
        whole = f" of {train.max_updates:,}" if train.max_updates else ""
        said = f"{run.name} was stopped after {run.updates:,}{whole} updates, before its schedule ended ({reason})"
        (cautions if same or reason == "patience" else unfair).append(said)
    timed = [run for run in runs if run.governing == "max_minutes"]
    if timed and not same:
        made = _list([f"{run.name} {run.updates:,}" for run in runs])
        machines = {
            (start.get("gpu"), start.get("machine"), start.get("processes")) for run in runs for start in run.starts
        }
        if len(machines) > 1:
            unfair.append(f"the budget is time, and the runs had different machines (updates: {made})")
        else:
            cautions.append(
                f"the budget is time, not updates, so the machine's speed is compared too (updates: {made})"
            )
    return unfair, cautions


def _environments(runs: Sequence[Run]) -> list[str]:
    versions: dict[str, set[str]] = {}
    for run in runs:
        for start in run.starts:
            for package, version in start.get("packages", {}).items():
                versions.setdefault(package, set()).add(str(version))
    differing = [f"{package} {' / '.join(sorted(each))}" for package, each in sorted(versions.items()) if len(each) > 1]
    return [f"the runs were made with different versions: {', '.join(differing)}"] if differing else []


def _refuse_repeated(kind: Sequence[Run], run: Run) -> None:
    for other in kind:
        if other.seed == run.seed:
            raise MacaronError(
                f"{other.path} and {run.path} have the same recipe and the same seed ({run.seed}): a second one would "
                "count what is known already. Leave one out."
            )
        if other.fingerprint == run.fingerprint:
            raise MacaronError(
                f"{other.path} and {run.path} hold the very same model, though their seeds differ ({other.seed} and "
                f"{run.seed}): one of them is a copy. Leave it out."
            )


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str):
        return value[:12] if len(value) == 64 else value
    return json.dumps(value)


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
