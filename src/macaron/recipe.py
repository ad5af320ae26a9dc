"""A recipe: one TOML file with everything that an experiment needs, read in this file for every verb.

Every verb checks the spelling of all sections and refuses an unknown key with its line. Missing keys are refused by the
verb that needs them: ``prepare`` needs ``[data]``, ``train`` needs ``data.out`` and the other sections. Nothing here
imports torch or transformers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from macaron.data.prepared import MANIFEST, DataKind, data_kind, read_manifest
from macaron.data.settings import CorpusSettings, PairsSettings, TextSettings
from macaron.errors import MacaronError, naming, nearest
from macaron.limits import LONGEST_TEXT, MOST_BEAMS, Between
from macaron.models.presets import AnyConfig, preset_names
from macaron.models.presets import preset as named_preset
from macaron.settings import KeyPath, Origin, build, check, convert, load_toml, located, mentions, to_data
from macaron.shipped import find
from macaron.train.settings import PretrainSettings, TaskName, TrainSettings

#: Instead of a preset: the model, and the settings of [train] that are not given, are chosen (`macaron.tasks.auto`).
AUTO = "auto"
#: The preset of a recipe that names none.
DEFAULT_PRESETS: dict[TaskName, str] = {
    "translation": "macaron-small",
    "pre-training": "macaron-bert-base",
    "language-model": "macaron-gpt-small",
}
#: The configuration of each task's models.
CONFIGURATIONS: dict[TaskName, type[AnyConfig]] = {
    task: type(named_preset(name)) for task, name in DEFAULT_PRESETS.items()
}
#: What is trained on each kind of data, unless train.task says otherwise.
PURPOSES: dict[DataKind, TaskName] = {"pairs": "translation", "text": "pre-training"}
KINDS: dict[TaskName, DataKind] = {"translation": "pairs", "pre-training": "text", "language-model": "text"}


@dataclass(frozen=True)
class ModelSettings:
    """The ``[model]`` section: a preset, and the fields of its configuration that differ.

    ``preset`` names a row of ``macaron models``; every other key is a field of the configuration, such as ``scheme``,
    ``dropout``, ``encoder_layers``. ``from`` is a model to start from, whose configuration is taken (`tasks.start`);
    a run also stores ``from_weights``, their digest.
    """

    preset: str
    changes: dict[str, Any] = field(default_factory=dict)
    source: str | None = None
    weights: str | None = None


@dataclass(frozen=True)
class DecodeSettings:
    """The ``[decode]`` section: how the model is used.

    Beam, length penalty and longest translation travel with the model (generation_config.json); compound_split and
    lower define its tokenised BLEU, in validations and for macaron evaluate.
    """

    beam: Annotated[int, Between(1, MOST_BEAMS)] = 5
    length_penalty: Annotated[float, Between(-1000, 1000)] = 1.0
    max_length: Annotated[int, Between(1, LONGEST_TEXT - 2)] = 200  # its start and end are stored, too
    compound_split: bool = False
    lower: bool = False


@dataclass(frozen=True)
class Recipe:
    """The sections that training reads; of ``[data]`` it needs the prepared folder, and the weights of corpora.

    ``task`` follows from train.task, the model or the data. Translation has ``[decode]``, pre-training ``[pretrain]``.
    ``weights`` are by path; ``given`` holds section and key of all settings that are not defaults of the toolkit;
    ``origin`` is for messages.
    """

    data: Path
    model: ModelSettings
    train: TrainSettings
    decode: DecodeSettings
    pretrain: PretrainSettings
    task: TaskName = "translation"
    weights: dict[str, float] = field(default_factory=dict)
    given: frozenset[tuple[str, str]] = field(default=frozenset(), compare=False)
    origin: Origin = field(default=Origin(), compare=False, repr=False)

    @property
    def kind(self) -> DataKind:
        """The kind of its data."""
        return KINDS[self.task]

    def to_data(self) -> dict[str, Any]:
        """The resolved recipe as plain data."""
        start = {"from": self.model.source, "from_weights": self.model.weights}
        own = [name for name, task in _OWN.items() if task == self.task]
        weighted = [{"path": path, "weight": weight} for path, weight in self.weights.items()]
        return {
            "data": {"out": str(self.data), **({"train": weighted} if weighted else {})},
            "model": to_data({**start, "preset": self.model.preset, **self.model.changes}),
            "train": to_data(self.train),
            **{name: to_data(getattr(self, name)) for name in own},
        }


_DATA: dict[DataKind, type[PairsSettings | TextSettings]] = {"pairs": PairsSettings, "text": TextSettings}
_SECTIONS: dict[str, type[Any]] = {"train": TrainSettings, "decode": DecodeSettings, "pretrain": PretrainSettings}
#: Sections that only recipes of a task have.
_OWN: dict[str, TaskName] = {"decode": "translation", "pretrain": "pre-training"}


def load_recipe(
    path: Path, assignments: Sequence[str] = (), source: Path | None = None, options: Mapping[str, str] | None = None
) -> Recipe:
    """Read a recipe for training; apply ``--set`` and options, {"--minutes 5": "train.max_minutes=5"}."""
    options = options or {}
    content, origin = load_content(path, [*assignments, *options.values()])
    named = {text.partition("=")[0]: option for option, text in options.items()}
    others = tuple(text for text in assignments if text.partition("=")[0].strip() not in named)
    if source is not None:
        named["model.from"] = f"--from {source}"
    origin = replace(origin, assignments=others, options=named)
    if source is not None and isinstance(content.setdefault("model", {}), dict):
        content["model"] |= {"from": str(source), "from_weights": None}
    return recipe_from(content, origin)


def load_data_recipe(
    path: Path, assignments: Sequence[str] = (), out: Path | None = None
) -> PairsSettings | TextSettings:
    """Read the ``[data]`` section of a recipe and apply ``--set`` assignments; see `load_content`."""
    return data_recipe(*load_content(path, assignments, out))


def recipe_from(content: Mapping[str, Any], origin: Origin | str = "") -> Recipe:
    """A recipe for training from plain data."""
    origin = Origin(origin) if isinstance(origin, str) else origin
    task, data, model = _check(content, origin)
    if "out" not in data:
        raise MacaronError(f"{origin.prefix()}missing key 'data.out', the folder that macaron prepare writes")
    sections = {name: build(cls, content.get(name, {}), origin, (name,)) for name, cls in _SECTIONS.items()}
    if task == "language-model":  # noted, since no section of its own tells it
        sections["train"] = replace(sections["train"], task=task)
    corpora = data.get("train", ()) if task == "translation" else ()
    built = convert(tuple[CorpusSettings, ...], corpora, origin, ("data", "train"))
    weights = {corpus.path: corpus.weight for corpus in built}
    given = frozenset((name, key) for name in content for key, value in content[name].items() if value is not None)
    recipe = Recipe(Path(data["out"]), model, **sections, task=task, weights=weights, given=given, origin=origin)
    if model.source is not None and recipe.train.embeddings == "counts":
        raise MacaronError(
            f"{origin.prefix(('train', 'embeddings'))}train.embeddings = 'counts' is for a new model, but this run "
            f"starts from {model.source}: leave it out"
        )
    if task != "translation":
        with origin.located():
            recipe.pretrain.check(recipe.train)
    return recipe


def data_recipe(content: Mapping[str, Any], origin: Origin | str = "") -> PairsSettings | TextSettings:
    """The ``[data]`` section of a recipe from plain data, complete."""
    origin = Origin(origin) if isinstance(origin, str) else origin
    task, data, _ = _check(content, origin)
    if "data" not in content:
        raise MacaronError(f"{origin.prefix()}there is no [data] section in this recipe")
    return build(_DATA[KINDS[task]], data, origin, ("data",))


def load_content(path: Path, assignments: Sequence[str], out: Path | None = None) -> tuple[dict[str, Any], Origin]:
    """The plain data of a recipe, a file or one that comes with Macaron; ``out`` is from ``macaron prepare --out``."""
    content, origin = load_toml(find(path), assignments)
    if out is not None and isinstance(content.setdefault("data", {}), dict):
        content["data"]["out"], origin = str(out), replace(origin, options={"data.out": f"--out {out}"})
    return content, origin


def _check(content: Mapping[str, Any], origin: Origin) -> tuple[TaskName, dict[str, Any], ModelSettings]:
    """Check the spelling and the types of all sections; return the recipe's task, [data] and [model]."""
    known = {"data", "model", *_SECTIONS}
    for name, section in content.items():
        if name not in known:
            homes = (("data", _DATA["pairs"]), ("data", _DATA["text"]), *_SECTIONS.items())
            meant = [f"{home}.{name}" for home, cls in homes if name in (each.name for each in fields(cls))]
            hint = f"; did you mean {meant[0]!r}?" if meant else nearest(name, known)
            raise MacaronError(f"{origin.prefix((name,))}unknown section {name!r}{hint}")
        if not isinstance(section, Mapping):
            raise MacaronError(f"{origin.prefix((name,))}[{name}] must be a section, not {section!r}")
    task = _task(content, origin)
    data = {key: value for key, value in content.get("data", {}).items() if key != "kind"}
    check(_DATA[KINDS[task]], data, origin, ("data",))
    data = {key: value for key, value in data.items() if value is not None}
    for name, cls in _SECTIONS.items():
        check(cls, content.get(name, {}), origin, (name,))
    changes = dict(content.get("model", {}))
    start = [convert(str | None, changes.pop(key, None), origin, ("model", key)) for key in ("from", "from_weights")]
    name = changes.pop("preset", None) or (AUTO if start[0] else DEFAULT_PRESETS[task])
    known_preset = DEFAULT_PRESETS[task] if name == AUTO else name
    check(type(_preset(known_preset, origin)), changes, origin, ("model",))
    model = ModelSettings(name, {key: value for key, value in changes.items() if value is not None}, *start)
    try:
        if model.source is None:  # otherwise the changes are those of a model that is not known yet
            named_preset(known_preset, **model.changes)
    except MacaronError as error:
        named: list[KeyPath] = [("model", key) for key in changes if mentions(error, key)]
        raise MacaronError(f"{origin.prefix(*(named or [('model',)]))}[model]: {error}") from None
    for name, other in _OWN.items():
        if name in content and other != task:
            raise MacaronError(f"{origin.prefix((name,))}[{name}] is for {other}; this recipe is for {task}")
    return task, data, model


def _task(content: Mapping[str, Any], origin: Origin) -> TaskName:
    """The task of a recipe: that of train.task, of the model's preset, of the data, of a section."""
    data, preset = content.get("data", {}), content.get("model", {}).get("preset")
    kind: DataKind | None = convert(DataKind | None, data.get("kind"), origin, ("data", "kind"))
    given = convert(Literal[TaskName, "auto"] | None, content.get("train", {}).get("task"), origin, ("train", "task"))
    made = None if preset in (None, AUTO) else type(_preset(preset, origin))
    of_preset = next((task for task, config in CONFIGURATIONS.items() if config is made), None)
    task: TaskName | None = (None if given == AUTO else given) or of_preset or (kind and PURPOSES[kind])
    task = task or next((task for name, task in _OWN.items() if name in content), None)
    if task is None:
        only_out = set(data) == {"out"} and isinstance(data["out"], str)
        return PURPOSES[data_kind(data["out"]) if only_out and (Path(data["out"]) / MANIFEST).is_file() else "pairs"]
    if of_preset not in (None, task):
        where = origin.prefix(("train", "task"))
        raise MacaronError(
            f"{where}train.task = {task!r} does not fit model.preset = {preset!r}, which is for {of_preset}: take "
            f"model.preset = {DEFAULT_PRESETS[task]!r}"
        )
    if kind not in (None, KINDS[task]):
        where = origin.prefix(("train", "task"), ("data", "kind"), ("model", "preset"))
        what = f"model.preset = {preset!r} is for {task}, which" if of_preset else task
        raise MacaronError(f"{where}{what} needs data of kind {KINDS[task]!r}")
    return task


def _preset(name: Any, origin: Origin) -> AnyConfig:
    if name not in preset_names():
        where = origin.prefix(("model", "preset"))
        raise MacaronError(f"{where}no preset {name!r} for model.preset{nearest(str(name), preset_names())}")
    return named_preset(name)


@located
def manifest(recipe: Recipe) -> dict[str, Any]:
    """The prepared.json of a recipe's data, which must be of its kind."""
    with naming("data.out"):
        found = read_manifest(recipe.data)
    held: DataKind = found.get("kind", "pairs")
    if held != recipe.kind:
        raise MacaronError(
            f"data.out: {recipe.data} holds data for {PURPOSES[held]}, but the recipe (model.preset = "
            f"{recipe.model.preset!r}) is for {recipe.task}. Give other data, or take model.preset = "
            f"{DEFAULT_PRESETS[PURPOSES[held]]!r}."
        )
    return found


@located
def configuration(recipe: Recipe, vocab_size: int) -> AnyConfig:
    """The configuration of a recipe's model, for data with this vocabulary."""
    changes = {"vocab_size": vocab_size, **recipe.model.changes}
    if recipe.model.source is not None:  # the vocabulary of its model, or of the data if that was extended
        changes["vocab_size"] = max(vocab_size, changes["vocab_size"])
    with naming("[model]"):
        config = named_preset(recipe.model.preset, **changes)
    if config.vocab_size < vocab_size:
        raise MacaronError(f"model.vocab_size {config.vocab_size} is less than the data's {vocab_size}: leave it out")
    return config
