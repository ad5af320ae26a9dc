"""Twins: one recipe trained with several schemes, values of settings and seeds, then compared.

Under torchrun all processes train one run after the other, in one process group. ``jobs`` trains several at a time.
"""

import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from macaron import ode
from macaron.data.prepared import read_manifest
from macaron.errors import Interrupted, MacaronError, UsageError, same_command
from macaron.files import write_json, writing
from macaron.lab.compare.comparison import Result
from macaron.lab.compare.comparison_page import write_comparison
from macaron.lab.compare.finished_run import CONTROL, CONTROL_DECODER_ENDS, CONTROL_ENDS, TWIN, varied_label
from macaron.lab.together import train_together
from macaron.models.configuration import TranslationConfig
from macaron.models.presets import AnyConfig
from macaron.models.summary import count
from macaron.nn.budget import TOLERANCE
from macaron.processes import Workers
from macaron.recipe import ModelSettings, Recipe, configuration, recipe_from
from macaron.settings import load_toml, located
from macaron.tasks.auto import kept
from macaron.tasks.auto import resolve as resolve_auto
from macaron.tasks.run import pace_of
from macaron.tasks.run import run as train_run
from macaron.tasks.start import with_source
from macaron.train.distributed import join
from macaron.train.pace import fitted, trial_seconds

#: Kind, recipe and folder of runs.
Plan = list[tuple[str, Recipe, Path]]
PAGE, NUMBERS = "comparison.html", "comparison.json"
#: Settings that follow from a twin's scheme: a recipe must not set them.
_DECIDED = ("decoder_scheme", "prologue", "epilogue", "decoder_prologue", "decoder_epilogue", "inner_sizes")


@dataclass(frozen=True)
class Twins:
    """A set of runs: every kind with every seed.

    :param plan: kind, recipe and folder of all runs, in order of training: seed by seed, so a stopped set is balanced
    :param varied: the values of each kind in the settings that differ on purpose
    :param jobs: the number of runs that are trained at a time
    """

    plan: Plan
    out: Path
    say: Callable[[str], None]
    varied: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    jobs: int = 1

    def run(self) -> Result | None:
        """Train what is not yet trained, then write the comparison; only the first process of several returns one."""
        self.train()
        return self.compare(self.out / PAGE, self.out / NUMBERS) if first_process() else None

    def train(self) -> None:
        """Train what is not yet trained."""
        on_gpu = self.plan[0][1].train.wants_gpu(torch.cuda.is_available())
        with join(on_gpu), writing(self.out) if first_process() else nullcontext():
            for name, _, folder in self.plan if first_process() else ():
                if values := self.varied.get(name):
                    write_json(folder / TWIN, dict(values))
            if self.jobs > 1:
                with _continued(f"while training {self.jobs} runs at a time", "finished runs are kept"):
                    return train_together(self.plan, self.jobs, self.say)
            for number, (name, recipe, folder) in enumerate(self.plan, start=1):
                self.say(f"run {number} of {len(self.plan)}: {name}, seed {recipe.train.seed} ({folder})")
                with _continued(f"in run {number} of {len(self.plan)}", "finished runs are kept"):
                    train_run(recipe, folder, resume=True, started=time.monotonic())

    def compare(self, page: Path, numbers: Path | None = None) -> Result:
        """Write the comparison of all runs."""
        data, split = self.plan[0][1].data, "test"
        manifest = read_manifest(data)
        if manifest.get("kind", "pairs") == "pairs" and "test" not in manifest["splits"]:
            self.say(f"{data} has no test sentences: the validation sentences are used")
            split = "valid"
        # A single seed needs no name: the kinds are the runs.
        named = {name: folder for name, _, folder in self.plan}
        runs = named if len(named) == len(self.plan) else [folder for *_, folder in self.plan]
        with _continued("while comparing", "all runs are finished"):
            return write_comparison(runs, data, split, page, json_file=numbers, say=self.say)


@contextmanager
def _continued(where: str, done: str) -> Iterator[None]:
    """A context in which an interruption says how to go on."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt) as stop:
        at = f": {str(stop).partition(';')[0]}" if str(stop) else ""
        raise Interrupted(f"stopped {where}{at}; {done}. Continue with: {same_command()}") from None


@located
def make_twins(
    recipe: Recipe,
    schemes: Sequence[str] | Mapping[str, str],
    seeds: int,
    out: Path,
    *,
    variants: Sequence[tuple[Mapping[str, str], Recipe]] = (),
    jobs: int = 1,
    budget: int | None = None,
    most: int | None = None,
    allow_unequal: bool = False,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    pattern: str = "{name}-seed{seed}",
) -> Twins:
    """A set of twins, checked before anything is trained.

    :param schemes: names of the catalogue, aliases, ENCODER/DECODER for a decoder of its own, or ``control``; a mapping
        gives the twins other names; none: that of the recipe
    :param variants: the recipe with other values of settings, which are given by key; each is trained with all schemes
    :param jobs: runs that are trained at a time
    :param most: updates of each run, at most, where its only limit is minutes
    """
    if not first_process():
        say = lambda _: None  # noqa: E731
    if jobs > 1 and "RANK" in os.environ:
        raise UsageError("--jobs trains runs beside each other, torchrun one run in several processes: use one of them")
    resolved = [resolve(name) for name in (schemes.values() if isinstance(schemes, Mapping) else schemes)]
    repeated = [name for name in resolved if resolved.count(name) > 1]
    if repeated:
        raise UsageError(f"--schemes names {repeated[0]!r} twice")
    vocabulary = int(read_manifest(recipe.data, recipe.kind)["vocab_size"])
    names = dict(zip(schemes if isinstance(schemes, Mapping) else resolved, resolved, strict=True))
    recipes: dict[str, Recipe] = {}
    varied: dict[str, Mapping[str, str]] = {}
    for values, given in variants or [({}, recipe)]:
        settled = _settled(given, budget, bool(names), say if not recipes else lambda _: None)
        own = {name: _twin(settled, scheme, vocabulary) for name, scheme in names.items()} or {"": settled}
        for name, twin in own.items():
            label = varied_label(name, values)
            for other in (other for other, known in recipes.items() if known == twin):
                replaced = budget is not None and any(key.startswith("train.max_") for key in values)
                remedy = "--budget replaces all limits of a recipe" if replaced else "leave one out"
                raise UsageError(f"--vary gives {label} twice: {other} is the same run; {remedy}")
            recipes[label], varied[label] = twin, values
    sizes = {name: count(configuration(own, vocabulary)) for name, own in recipes.items()}
    first = next(iter(sizes))
    for name, size in sizes.items():
        share = size / sizes[first] - 1
        say(f"{name}: {size:,} parameters" + ("" if name == first else f" ({100 * share:+.2f} %)"))
        if abs(share) > TOLERANCE and not allow_unequal:
            raise MacaronError(
                f"{name} and {first} differ in size by {100 * share:+.2f} %, and twins by at most "
                f"{100 * TOLERANCE:g} %: choose other schemes, a larger model.hidden_size, or --allow-unequal"
            )
    plan = []
    for seed, (name, twin) in itertools.product(range(1, seeds + 1), recipes.items()):
        plain = re.sub(r"[^\w.+=-]+", "-", name.lower().replace("/", "+"))
        folder = out / pattern.format(name=plain, seed=seed)
        plan.append((name, replace(twin, train=replace(twin.train, seed=seed)), folder))
    return Twins(_fitted(plan, most, jobs, say), out, say, varied, jobs)


def _settled(recipe: Recipe, budget: int | None, schemes: bool, say: Callable[[str], None]) -> Recipe:
    """The recipe with what is chosen for it, and with the budget of updates."""
    if recipe.model.source is not None and schemes:
        raise UsageError("model.from: twins differ in their schemes, so they cannot start from one model")
    if budget is not None:  # what is chosen is chosen for it
        recipe = replace(recipe, train=replace(recipe.train, max_updates=budget, max_epochs=None, max_minutes=None))
    recipe = resolve_auto(with_source(recipe, None), recipe.train.wants_gpu(torch.cuda.is_available()), say)
    asked, recipe = recipe.train.warmup, with_budget(recipe, budget)
    if recipe.train.warmup != asked:
        say(f"train.warmup = {asked:,} would not end within the budget: {recipe.train.warmup:,} updates instead")
    said = [key for key in _DECIDED if recipe.model.changes.get(key) is not None]
    if said and schemes:
        raise MacaronError(f"the recipe sets model.{said[0]}, which follows from the schemes of twins: leave it out")
    return recipe


def resolve(name: str) -> str:
    """The name of a scheme (ENCODER or ENCODER/DECODER) without aliases; an unknown one is refused with near names."""
    if name == CONTROL:
        return name
    encoder, slash, decoder = name.partition("/")
    if "H" in ode.scheme(encoder).operators:
        raise UsageError(
            f"{encoder!r} is a decoder's scheme (it has cross-attention H): write ENCODER/{encoder}, such as "
            f"strang-gfg/{encoder}; alone, an encoder's scheme is lifted for the decoder by replacing F by F H"
        )
    if slash and "H" not in ode.scheme(decoder).operators:
        raise UsageError(f"{decoder!r} has no cross-attention (H), which a decoder needs: {name}")
    return ode.ALIASES.get(encoder, encoder) + slash + decoder


def _twin(recipe: Recipe, name: str, vocabulary: int) -> Recipe:
    """The recipe with another scheme; everything else is unchanged."""
    encoder, slash, decoder = name.partition("/")
    if slash and recipe.kind == "text":
        raise UsageError(f"{name}: a model of plain text has no encoder and decoder; write {encoder}")
    changes = {"scheme": encoder, **({"decoder_scheme": decoder} if slash else {})}
    if name == CONTROL:
        changes = control_changes(configuration(recipe, vocabulary))
    return replace(recipe, model=ModelSettings(recipe.model.preset, recipe.model.changes | changes))


def control_changes(config: AnyConfig) -> dict[str, Any]:
    """The control of L layers: G/2 (F G)^(L-1) F G/2, which is ``lie-fg`` with half a G at both ends.

    Between its ends it is the Transformer; as a whole it is L steps of Strang's scheme in which neighbouring halves of
    G are merged. A gain of Macaron that the control does not have cannot be due to the order of the scheme alone.
    """
    changes: dict[str, Any] = {"scheme": "lie-fg", **dict(zip(("prologue", "epilogue"), CONTROL_ENDS, strict=True))}
    layers = ["num_hidden_layers"]
    if isinstance(config, TranslationConfig):
        changes |= dict(zip(("decoder_prologue", "decoder_epilogue"), CONTROL_DECODER_ENDS, strict=True))
        layers = ["encoder_layers", "decoder_layers"]
    for key in layers:
        changes[key] = getattr(config, key) - 1
        if changes[key] < 1:
            raise MacaronError(f"{CONTROL} needs at least 2 layers, and model.{key} is {getattr(config, key)}")
    return changes


def with_budget(recipe: Recipe, updates: int | None) -> Recipe:
    """A recipe with a budget of updates, which replaces all its limits.

    A warm-up that would not end within it becomes a tenth of it.
    """
    if updates is None:
        return recipe
    warmup = recipe.train.warmup if recipe.train.warmup < updates else updates // 10
    train = replace(recipe.train, warmup=warmup, max_updates=updates, max_epochs=None, max_minutes=None)
    return replace(recipe, train=train)


def _fitted(plan: Plan, most: int | None, jobs: int, say: Callable[[str], None]) -> Plan:
    """A plan whose only limit is minutes, of each run: all get as many updates as the slowest twin makes in this time.

    The number is measured once, before the first run begins; then it is in the recipe of that run. Runs that will be
    trained at a time are also measured at a time, since they share the machine.
    """
    recipe, train = plan[0][1], plan[0][1].train
    minutes = train.max_minutes
    if minutes is None or train.max_updates is not None or train.max_epochs is not None:
        return plan
    if any(own.train.max_minutes != minutes for _, own, _ in plan):
        raise UsageError(
            "--vary train.max_minutes: all runs get as many updates as fit; vary train.max_updates instead"
        )
    begun = next((folder for *_, folder in plan if (folder / "recipe.toml").is_file()), None)
    if begun is not None:
        train = kept(recipe, recipe_from(*load_toml(begun / "recipe.toml"))).train
        say(f"{train.max_updates:,} updates of each run, as chosen when {begun} began")
    else:
        # The first runs are one of each kind; others fill the machine.
        kinds = len({name for name, *_ in plan})
        jobs = min(jobs, len(plan))
        beside = [own for _, own, _ in (*plan, *plan)][: -(-kinds // jobs) * jobs]
        with Workers(jobs, partial(_share_threads, jobs)) as workers:
            paces = list(workers.map(partial(pace_of, seconds=trial_seconds(minutes)), beside))
        given = {key for section, key in recipe.given if section == "train"}
        train = fitted(train, max(paces, key=lambda pace: pace.update), 0.0, given)
        train = replace(train, max_updates=min(train.max_updates or 1, most or sys.maxsize))
        seconds = " and ".join(f"{pace.update:.3f}" for pace in paces[:kinds])
        of = "" if most is None else f" of {most:,}"
        say(f"pace: {seconds} s per update; {train.max_updates:,}{of} updates of each run in {minutes:g} minutes")
    train, fitted_plan = replace(train, max_minutes=None), []
    for name, own, folder in plan:  # what it varies stays
        same = {key: new for key, new in vars(train).items() if getattr(own.train, key) == getattr(recipe.train, key)}
        fitted_plan.append((name, replace(own, train=replace(own.train, **same)), folder))
    return fitted_plan


def _share_threads(jobs: int, _: int) -> None:
    torch.set_num_threads(max(1, torch.get_num_threads() // jobs))


def first_process() -> bool:
    """Whether this process prints and writes."""
    return os.environ.get("RANK", "0") == "0"
