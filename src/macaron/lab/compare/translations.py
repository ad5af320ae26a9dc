"""Translations of the runs to compare: made once, stored in the run's folder, reused if nothing has changed."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
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
from macaron.files import write_text
from macaron.lab.compare.finished_run import FinishedRun

FORMAT = 1
FOLDER = "translations"
#: The formulas from sums of counts to scores; the counts are stored with the translations.
_FORMULAS: dict[str, Formula] = {
    "sacreBLEU": partial(bleu_formula, smoothing="exp"),
    "tokenised BLEU": partial(bleu_formula, smoothing="none"),
    "chrF2": chrf_formula,
}


@dataclass(frozen=True)
class Search:
    """Search settings for all runs; None means the model's own."""

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
        """The settings of a recipe that these override."""
        return frozenset(f"decode.{name}" for name in ("beam", "length_penalty") if getattr(self, name) is not None)


@dataclass(frozen=True)
class Translated:
    """The translations of a run and their scores.

    :param kept: the file they are stored in, if any
    :param reused: whether they were read from it
    """

    translations: list[str]
    scores: tuple[Score, ...]
    search: dict[str, Any]
    kept: Path | None
    reused: bool


def shared_definition(runs: Sequence[FinishedRun]) -> dict[str, bool]:
    """The tokenised BLEU of all runs: as `macaron evaluate` defines that of the first; caseless if any run is."""
    said = getattr(runs[0].model_config, "evaluation", None) or {}
    lower = caseless(runs) or bool(said.get("lower", True))
    return {"lower": lower, "compound_split": bool(said.get("compound_split", False))}


def caseless(runs: Sequence[FinishedRun]) -> bool:
    """Whether any of the models works on lower-cased tokens."""
    settings = [run.tokenizer_settings for run in runs]
    return any(each.get("pipeline") == "moses" and bool(each.get("lower", True)) for each in settings)


def translate_run(
    run: FinishedRun,
    data: PreparedData,
    split: Split,
    search: Search,
    definition: dict[str, bool],
    say: Callable[[str], None],
) -> Translated:
    """Translate and score a split as `macaron evaluate` does, or read what an earlier comparison stored."""
    key = _key(run, data, split, search, definition)
    path = run.path / FOLDER / f"{split}-{_digest(key)[:16]}.json"
    found = _load(path, key, data.manifest["splits"][split]["pairs"])
    if found is not None:
        say(f"{run.name}: translations of an earlier comparison ({path})")
        return found
    say(f"{run.name}: translating {data.manifest['splits'][split]['pairs']:,} sentences")
    translator = Translator(run.path, device=search.device, dtype=search.dtype)
    scored = evaluate_split(translator, data, split, **definition, **search.options())
    made = Translated(scored.translations, scored.evaluation.scores, scored.to_dict()["search"], path, False)
    return made if _save(path, key, made) else replace(made, kept=None)


def _key(
    run: FinishedRun, data: PreparedData, split: Split, search: Search, definition: dict[str, bool]
) -> dict[str, Any]:
    """Everything that the translations and their scores depend on."""
    text = [data.text(split, language) for language in data.languages]
    return {
        "model": run.fingerprint,
        "text": _digest([text, data.text_state(split), data.languages]),
        "search": {**asdict(search), "device": choose_device(search.device).type},
        "definition": definition,
        "versions": {"macaron": __version__, "torch": version("torch"), "sacrebleu": version("sacrebleu")},
    }


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def _save(path: Path, key: dict[str, Any], made: Translated) -> bool:
    """Store translations; False if the folder cannot be written, which costs time later but no result."""
    scores = [
        {
            "metric": each.metric,
            "score": each.score,
            "definition": each.definition,
            "rows": each.statistics.rows.tolist(),
        }
        for each in made.scores
    ]
    content = {"translations": made.translations, "search": made.search, "scores": scores}
    text = json.dumps({"format": FORMAT, "key": key, "digest": _digest(content), **content}, ensure_ascii=False)
    try:
        write_text(path, text + "\n")
    except MacaronError:
        return False
    return True


def _load(path: Path, key: dict[str, Any], sentences: int) -> Translated | None:
    """What was stored, if it is complete and has the same key."""
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


def require_same_languages(run: FinishedRun, data: PreparedData) -> None:
    """Refuse data of other languages than those of the model."""
    if run.languages and run.languages != data.languages:
        raise MacaronError(
            f"{run.path} translates from {run.languages[0]} to {run.languages[1]}, but {data.folder} holds "
            f"{data.source_lang} and {data.target_lang}: give the data that the runs were made for (--data)"
        )
