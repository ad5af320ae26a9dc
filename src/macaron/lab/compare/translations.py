"""Translations of the runs to compare: made once, kept in the run's folder, used again only for exactly the same."""

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from macaron import __version__
from macaron.data.prepared import PreparedData, Split
from macaron.decode import Translator
from macaron.device import choose_device
from macaron.errors import MacaronError
from macaron.evaluate.model import evaluate_split
from macaron.evaluate.statistics import Formula, Score, SentenceStatistics, bleu_formula, chrf_formula
from macaron.lab.compare.runs import Run

FORMAT = 1
FOLDER = "translations"
#: From the sums of a metric's counts to its score; the counts are kept with the translations.
_FORMULAS: dict[str, Formula] = {
    "sacreBLEU": partial(bleu_formula, smoothing="exp"),
    "tokenised BLEU": partial(bleu_formula, smoothing="none"),
    "chrF2": chrf_formula,
}


@dataclass(frozen=True)
class Search:
    """How all runs are searched; what is None is the model's own."""

    beam: int | None = None
    length_penalty: float | None = None
    device: str = "auto"
    dtype: str | None = None
    batch_tokens: int | None = None

    def options(self) -> dict[str, Any]:
        """For `evaluate_split`."""
        given = {"beam": self.beam, "length_penalty": self.length_penalty, "batch_tokens": self.batch_tokens}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def settled(self) -> frozenset[str]:
        """The settings of a recipe that mean nothing any more."""
        return frozenset(f"decode.{name}" for name in ("beam", "length_penalty") if getattr(self, name) is not None)


@dataclass(frozen=True)
class Definition:
    """What all runs are scored by in tokenised BLEU."""

    lower: bool
    compound_split: bool


@dataclass(frozen=True)
class Translated:
    """The translations of a run, and what they score.

    :param kept: the file they are kept in, if any
    :param reused: whether they come from there
    """

    translations: list[str]
    scores: tuple[Score, ...]
    search: dict[str, Any]
    kept: Path | None
    reused: bool


def shared_definition(runs: Sequence[Run]) -> Definition:
    """How `macaron evaluate` would define the tokenised BLEU of the first run; lower-cased if any run has no case."""
    said = getattr(runs[0].config, "evaluation", None) or {}
    return Definition(caseless(runs) or bool(said.get("lower", True)), bool(said.get("compound_split", False)))


def caseless(runs: Sequence[Run]) -> bool:
    """Whether any of the models works on lower-cased tokens, so that case tells nothing about it."""
    settings = [_tokenizer_settings(run) for run in runs]
    return any(each.get("pipeline") == "moses" and bool(each.get("lower", True)) for each in settings)


def translate_run(
    run: Run, data: PreparedData, split: Split, search: Search, definition: Definition, say: Callable[[str], None]
) -> Translated:
    """Translate a split with a run's model and score it, as `macaron evaluate` does; or take what is kept."""
    key = _key(run, data, split, search, definition)
    path = run.path / FOLDER / f"{split}-{_digest(key)[:16]}.json"
    found = _load(path, key, data.manifest["splits"][split]["pairs"])
    if found is not None:
        say(f"{run.name}: translations of an earlier comparison ({path})")
        return found
    say(f"{run.name}: translating {data.manifest['splits'][split]['pairs']:,} sentences")
    translator = Translator(run.path, device=search.device, dtype=search.dtype)
    scored = evaluate_split(
        translator, data, split, lower=definition.lower, compound_split=definition.compound_split, **search.options()
    )
    made = Translated(scored.translations, scored.evaluation.scores, scored.to_dict()["search"], path, False)
    return made if _save(path, key, made) else Translated(made.translations, made.scores, made.search, None, False)


def _key(run: Run, data: PreparedData, split: Split, search: Search, definition: Definition) -> dict[str, Any]:
    """All that decides the translations and their scores."""
    text = [data.text(split, language) for language in data.languages]
    return {
        "model": run.fingerprint,
        "text": _digest([text, data.text_state(split), data.languages]),
        "search": {**asdict(search), "device": choose_device(search.device).type},
        "definition": asdict(definition),
        "versions": {"macaron": __version__, "torch": version("torch"), "sacrebleu": version("sacrebleu")},
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def _content(made: Translated) -> dict[str, Any]:
    scores = [
        {"metric": each.metric, "score": each.score, "definition": each.definition, "rows": rows}
        for each in made.scores
        for rows in [each.statistics.rows.tolist()]
    ]
    return {"translations": made.translations, "search": made.search, "scores": scores}


def _save(path: Path, key: dict[str, Any], made: Translated) -> bool:
    """Keep translations; where the folder cannot be written, nothing is lost but time."""
    content = _content(made)
    aside = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(exist_ok=True)
        text = json.dumps({"format": FORMAT, "key": key, "digest": _digest(content), **content}, ensure_ascii=False)
        aside.write_text(text + "\n", encoding="utf-8")
        os.replace(aside, path)
    except OSError:
        with suppress(OSError):
            aside.unlink()
        return False
    return True


def _load(path: Path, key: dict[str, Any], sentences: int) -> Translated | None:
    """What was kept, if it is whole and was made in exactly this way."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        content = {name: found[name] for name in ("translations", "search", "scores")}
        if found["format"] != FORMAT or found["key"] != key or found["digest"] != _digest(content):
            return None
        scores = tuple(_score(each) for each in content["scores"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if {len(content["translations"]), *(len(score.statistics) for score in scores)} != {sentences}:
        return None
    return Translated(content["translations"], scores, content["search"], path, True)


def _score(kept: dict[str, Any]) -> Score:
    rows = np.array(kept["rows"], dtype=np.int64)
    statistics = SentenceStatistics(rows, _FORMULAS[kept["metric"]])
    return Score(kept["metric"], float(kept["score"]), str(kept["definition"]), statistics)


def require_same_languages(run: Run, data: PreparedData) -> None:
    """Refuse data of other languages than those a model translates between."""
    settings = _tokenizer_settings(run)
    languages = (settings.get("source_lang"), settings.get("target_lang"))
    if None not in languages and languages != data.languages:
        raise MacaronError(
            f"{run.path} translates from {languages[0]} to {languages[1]}, but {data.folder} holds "
            f"{data.source_lang} and {data.target_lang}: give the data that the runs were made for (--data)"
        )


def _tokenizer_settings(run: Run) -> dict[str, Any]:
    path = run.model / "tokenizer_config.json"
    try:
        settings: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MacaronError(f"{path}: cannot be read ({error}). Copy the folder again.") from None
    return settings
