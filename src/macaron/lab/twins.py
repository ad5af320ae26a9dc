"""Twins: one recipe, several schemes, several seeds; trained one after the other, then compared."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from macaron.data.prepared import read_manifest
from macaron.errors import Interrupted, MacaronError, UsageError
from macaron.lab.compare.comparison import write_comparison
from macaron.lab.compare.runs import CONTROL, CONTROL_DECODER_ENDS, CONTROL_ENDS
from macaron.lab.twins_processes import Meetings, first_process
from macaron.models.configuration import EncoderConfig, TranslationConfig
from macaron.models.summary import count
from macaron.nn.budget import TOLERANCE
from macaron.ode import scheme as find_scheme
from macaron.ode.catalogue import ALIASES
from macaron.recipe import ModelSettings, Recipe, configuration
from macaron.tasks.run import run as train_run

PAGE, NUMBERS = "comparison.html", "comparison.json"
#: What a twin's scheme decides: a recipe that says it itself would make all twins alike in it.
_DECIDED = ("decoder_scheme", "prologue", "epilogue", "decoder_prologue", "decoder_epilogue", "inner_sizes")


@dataclass(frozen=True)
class Twin:
    """One kind of network of a set: its name, its recipe with the first seed, its size."""

    name: str
    recipe: Recipe
    parameters: int

    def seeded(self, seed: int) -> Recipe:
        """The recipe of one of its runs."""
        return replace(self.recipe, train=replace(self.recipe.train, seed=seed))


@dataclass(frozen=True)
class Twins:
    """A set of runs in a folder: every kind with every seed.

    :param say: told what is going on
    """

    kinds: tuple[Twin, ...]
    seeds: int
    out: Path
    say: Callable[[str], None]

    def plan(self) -> list[tuple[Twin, int, Path]]:
        """All runs in the order in which they are trained: seed by seed, so that a set cut short is balanced."""
        return [
            (kind, seed, self.out / f"{kind.name.replace('/', '+')}-seed{seed}")
            for seed in range(1, self.seeds + 1)
            for kind in self.kinds
        ]

    def run(self) -> dict[str, Any] | None:
        """Train what is not yet trained, then write the comparison; only the first process of several returns one."""
        plan, meetings = self.plan(), Meetings()
        for number, (kind, seed, folder) in enumerate(plan, start=1):
            self._say(f"run {number} of {len(plan)}: {kind.name}, seed {seed} ({folder})")
            try:
                meetings.next()
                train_run(kind.seeded(seed), folder, resume=True, started=time.monotonic())
            except (Interrupted, KeyboardInterrupt) as stop:
                where = f": {str(stop).partition(';')[0]}" if str(stop) else ""
                raise Interrupted(
                    f"stopped in run {number} of {len(plan)}{where}; the same command goes on from there, and keeps "
                    "what is finished"
                ) from None
        if not first_process():
            return None
        data = self.kinds[0].recipe.data
        try:
            return write_comparison(
                [folder for _, _, folder in plan],
                data,
                self._split(data),
                self.out / PAGE,
                json_file=self.out / NUMBERS,
                say=self._say,
            )
        except KeyboardInterrupt:
            raise Interrupted(
                "stopped while comparing: all runs are finished; the same command compares them"
            ) from None

    def _split(self, data: Path) -> str:
        manifest = read_manifest(data)
        if manifest.get("kind", "pairs") == "text" or "test" in manifest["splits"]:
            return "test"
        self._say(f"{data} has no test sentences: the validation sentences are used")
        return "valid"

    def _say(self, text: str) -> None:
        if first_process():
            self.say(text)


def make_twins(
    recipe: Recipe,
    schemes: Sequence[str],
    seeds: int,
    out: Path,
    *,
    budget: int | None = None,
    allow_unequal: bool = False,
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
) -> Twins:
    """A set of twins, checked before anything is trained.

    :param schemes: names of the catalogue, aliases, ENCODER/DECODER for a decoder of its own, or ``control``
    :param seeds: seeds 1 to this are trained
    :param budget: updates of every run; by default the recipe's ``train.max_updates``
    :param allow_unequal: train also networks whose sizes differ by more than 0.5 %
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file: give a folder for the runs")
    names = [resolve(name) for name in schemes]
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise UsageError(f"--schemes names {repeated[0]!r} twice")
    if len(names) < 2:
        raise UsageError("--schemes needs at least two, separated by commas: lie-fg,strang-gfg")
    if seeds < 1:
        raise UsageError(f"--seeds must be at least 1, not {seeds}")
    recipe = with_budget(recipe, budget)
    said = [key for key in _DECIDED if recipe.model.changes.get(key) is not None]
    if said:
        raise MacaronError(f"the recipe sets model.{said[0]}, which the schemes of twins decide: leave it out there")
    vocabulary = int(read_manifest(recipe.data, recipe.kind)["vocab_size"])
    kinds = []
    for name in names:
        own = twin_recipe(recipe, name, vocabulary)
        kinds.append(Twin(name, own, count(configuration(own, vocabulary))))
    first = kinds[0]
    for kind in kinds:
        share = kind.parameters / first.parameters - 1
        if first_process():
            say(f"{kind.name}: {kind.parameters:,} parameters" + ("" if kind is first else f" ({100 * share:+.2f} %)"))
    unequal = [kind for kind in kinds if abs(kind.parameters / first.parameters - 1) > TOLERANCE]
    if unequal and not allow_unequal:
        share = 100 * (unequal[0].parameters / first.parameters - 1)
        raise MacaronError(
            f"{unequal[0].name} and {first.name} differ in size by {share:+.2f} %, and twins by at most "
            f"{100 * TOLERANCE:g} %: choose other schemes, a larger model.hidden_size, or --allow-unequal"
        )
    return Twins(tuple(kinds), seeds, out, say)


def resolve(name: str) -> str:
    """The name of a scheme (ENCODER or ENCODER/DECODER) without aliases; a mistake offers what is near."""
    if name == CONTROL:
        return name
    encoder, slash, decoder = name.partition("/")
    if "H" in find_scheme(encoder).operators:
        raise UsageError(
            f"{encoder!r} is a decoder's scheme (it has cross-attention H): write ENCODER/{encoder}, such as "
            f"strang-gfg/{encoder}; alone, an encoder's scheme is lifted for the decoder by replacing F by F H"
        )
    if slash and "H" not in find_scheme(decoder).operators:
        raise UsageError(f"{decoder!r} has no cross-attention (H), which a decoder needs: {name}")
    return ALIASES.get(encoder, encoder) + slash + decoder


def twin_recipe(recipe: Recipe, name: str, vocabulary: int) -> Recipe:
    """A recipe for another scheme; everything else stays as it is."""
    changes = dict(recipe.model.changes)
    if name == CONTROL:
        changes |= control_changes(configuration(recipe, vocabulary))
    else:
        encoder, slash, decoder = name.partition("/")
        if slash and recipe.kind == "text":
            raise UsageError(f"{name}: a text encoder has no decoder; write {encoder}")
        changes |= {"scheme": encoder, **({"decoder_scheme": decoder} if slash else {})}
    return replace(recipe, model=ModelSettings(recipe.model.preset, changes))


def control_changes(config: TranslationConfig | EncoderConfig) -> dict[str, Any]:
    """The control of L layers: G/2 (F G)^(L-1) F G/2, which is ``lie-fg`` with half a G at both ends.

    Between its halves it is the Transformer; taken as a whole it is L steps of Strang's scheme whose neighbouring
    halves of G are one. What it does not gain over ``lie-fg``, Macaron cannot owe to the order of its scheme alone.
    """
    prologue, epilogue = CONTROL_ENDS
    changes: dict[str, Any] = {"scheme": "lie-fg", "prologue": prologue, "epilogue": epilogue}
    layers = ["num_hidden_layers"]
    if isinstance(config, TranslationConfig):
        changes |= {"decoder_prologue": CONTROL_DECODER_ENDS[0], "decoder_epilogue": CONTROL_DECODER_ENDS[1]}
        layers = ["encoder_layers", "decoder_layers"]
    for key in layers:
        if getattr(config, key) < 2:
            raise MacaronError(f"{CONTROL} needs at least 2 layers, and model.{key} is {getattr(config, key)}")
        changes[key] = getattr(config, key) - 1
    return changes


def with_budget(recipe: Recipe, updates: int | None) -> Recipe:
    """A recipe whose length is a number of updates: the one budget that does not depend on the machine."""
    if updates is not None:
        if updates < 1:
            raise UsageError(f"--budget must be at least 1 update, not {updates}")
        train = replace(recipe.train, max_updates=updates, max_epochs=None, max_minutes=None)
        return replace(recipe, train=train)
    if recipe.train.max_updates is None:
        raise MacaronError(
            "twins get equally many updates, but the recipe has no train.max_updates: give --budget UPDATES"
        )
    return recipe
