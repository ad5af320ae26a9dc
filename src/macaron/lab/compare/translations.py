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
from macaron.evaluate.evaluation import evaluate_split
from macaron.evaluate.statistics import Formula, Score, SentenceStatistics, bleu_formula, chrf_formula
from macaron.files import write_text
from macaron.lab.compare.finished_run import FinishedRun

FORMAT = 1
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
    lower = caseless(runs) or said.get("lower", True)
    return {"lower": bool(lower), "compound_split": bool(said.get("compound_split", False))}


def caseless(runs: Sequence[FinishedRun]) -> bool:
    """Whether any of the models works on lower-cased tokens."""
    return any(
        run.tokenizer_settings.get("pipeline") == "moses" and run.tokenizer_settings.get("lower", True) for run in runs
    )


def translate_run(
    run: FinishedRun,
    data: PreparedData,
    split: Split,
    search: Search,
    definition: dict[str, bool],
    say: Callable[[str], None],
) -> Translated:
    """Translate and score a split as `macaron evaluate` does, or read what an earlier comparison stored."""
    text = [data.text(split, language) for language in data.languages]
    tags = [data.tags(split)] if any(data.tags(split)) else []
    # Everything that the translations and their scores depend on.
    key = {
        "model": run.fingerprint,
        "text": _digest([text, data.text_state(split), data.languages, *tags]),
        "search": {**asdict(search), "device": choose_device(search.device).type},
        "definition": definition,
        "versions": {"macaron": __version__, "torch": version("torch"), "sacrebleu": version("sacrebleu")},
    }
    path = run.path / "translations" / f"{split}-{_digest(key)[:16]}.json"
    found = _load(path, key, len(text[0]))
    if found is not None:
        say(f"{run.name}: translations of an earlier comparison ({path})")
        return found
    say(f"{run.name}: translating {len(text[0]):,} sentences")
    translator = Translator(run.path, device=search.device, dtype=search.dtype)
    given = {name: getattr(search, name) for name in ("beam", "length_penalty", "batch_tokens")}
    options = {name: value for name, value in given.items() if value is not None}
    scored = evaluate_split(translator, data, split, **definition, **options)
    made = Translated(scored.translations, scored.scores, scored.to_dict()["search"], path, False)
    content = {
        "translations": made.translations,
        "search": made.search,
        "scores": [
            {
                "metric": each.metric,
                "score": each.score,
                "definition": each.definition,
                "rows": each.statistics.rows.tolist(),
            }
            for each in made.scores
        ],
    }
    stored = {"format": FORMAT, "key": key, "digest": _digest(content), **content}
    try:
        write_text(path, json.dumps(stored, ensure_ascii=False) + "\n")
    except MacaronError:  # a folder that cannot be written costs time later, but no result
        return replace(made, kept=None)
    return made


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def _load(path: Path, key: dict[str, Any], sentences: int) -> Translated | None:
    """What was stored, if it is complete and has the same key."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        content = {name: found[name] for name in ("translations", "search", "scores")}
        if found["format"] != FORMAT or found["key"] != key or found["digest"] != _digest(content):
            return None
        scores = [
            Score(
                metric=each["metric"],
                score=float(each["score"]),
                definition=str(each["definition"]),
                statistics=SentenceStatistics(np.array(each["rows"], dtype=np.int64), _FORMULAS[each["metric"]]),
            )
            for each in content["scores"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if {len(content["translations"]), *(len(score.statistics.rows) for score in scores)} != {sentences}:
        return None
    return Translated(content["translations"], tuple(scores), content["search"], path, True)
