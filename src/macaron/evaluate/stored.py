"""Translations and scores that stay: `macaron evaluate` and `macaron compare` keep them in the run's folder.

RUN/translations/test-0123456789abcdef.json    one file for each model, text, search and definition of the scores
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np

from macaron import __version__
from macaron.errors import MacaronError
from macaron.evaluate.scores import CASELESS, Formula, Score, SentenceStatistics, bleu_formula, chrf_formula
from macaron.evaluate.significance import Interval, bootstrap_interval
from macaron.files import write_text
from macaron.json_files import Real, Record, read_json
from macaron.settings import OTHERS

FORMAT = 1
#: Bytes of a file: some million sentences.
_LARGEST = 1 << 29
FOLDER = "translations"
#: The formulas from sums of counts to scores; the counts are stored with the translations.
_FORMULAS: dict[str, Formula] = {
    "sacreBLEU": partial(bleu_formula, smoothing="exp"),
    CASELESS: partial(bleu_formula, smoothing="exp"),
    "tokenised BLEU": bleu_formula,
    "chrF2": chrf_formula,
}


class _Ends(TypedDict):
    low: Real
    high: Real


class _StoredScore(TypedDict):
    metric: str
    score: Real
    definition: str
    interval: Annotated[_Ends, OTHERS]
    rows: list[Any]


class StoredFile(TypedDict):
    """The content of a file."""

    format: int
    data: str
    key: Record
    digest: str
    translations: list[str]
    search: Record
    scores: list[Annotated[_StoredScore, OTHERS]]


@dataclass(frozen=True)
class Search:
    """Search settings; None means the model's own."""

    beam: int | None = None
    length_penalty: float | None = None
    device: str = "auto"
    dtype: str | None = None
    batch_tokens: int | None = None
    int8: bool = False


@dataclass(frozen=True)
class Evaluation:
    """Translations of a test set, how they were searched, and their scores.

    :param definition: of the tokenised BLEU: ``lower``, ``compound_split``; ``caseless`` for a sacreBLEU without case
    """

    translations: list[str]
    search: dict[str, Any]
    scores: tuple[Score, ...]
    definition: Mapping[str, bool] = field(default_factory=dict)
    text: str = ""
    kept: Path | None = None
    reused: bool = False

    @cached_property
    def intervals(self) -> list[Interval]:
        """The 95 % confidence interval of each score."""
        return [bootstrap_interval(score.statistics) for score in self.scores]

    def to_dict(self) -> dict[str, Any]:
        """For JSON: the search; the number of sentences; per metric the score, its definition, its interval."""
        scored = zip(self.scores, self.intervals, strict=True)
        scores = [{**score.to_dict(), "interval": asdict(interval)} for score, interval in scored]
        return {"search": self.search, "sentences": len(self.translations), "scores": scores}

    def __str__(self) -> str:
        text = ""
        for score, interval in zip(self.scores, self.intervals, strict=True):
            text += f"{score.metric:14s} {score.score:6.2f}  {interval}  {score.definition}\n"
        return text + f"in brackets: {interval.level:.0%} bootstrap intervals, {interval.resamples} resamples"


@dataclass(frozen=True)
class Measurement:
    """Everything that translations and their scores depend on, and where they are stored.

    :param name: the beginning of the file's name: the split, or the file that was translated
    """

    run: Path
    name: str
    model: str
    text: str
    search: Search
    definition: Mapping[str, bool]

    @cached_property
    def key(self) -> dict[str, Any]:
        """As it is stored."""
        from macaron.device import choose_device

        device = "cpu" if self.search.int8 and self.search.device == "auto" else self.search.device
        return {
            "model": self.model,
            "text": self.text,
            "search": {**asdict(self.search), "device": choose_device(device).type},
            "definition": dict(self.definition),
            "versions": {"macaron": __version__, "torch": version("torch"), "sacrebleu": version("sacrebleu")},
        }

    @property
    def path(self) -> Path:
        """The file."""
        return self.run / FOLDER / f"{self.name}-{_digest(self.key)[:16]}.json"

    def load(self, sentences: int) -> Evaluation | None:
        """What is stored, if it is complete and of this many sentences."""
        try:
            found: StoredFile = read_json(self.path, StoredFile, largest=_LARGEST)
            content: dict[str, Any] = {name: found[name] for name in ("translations", "search", "scores")}
            if (found["format"], found["key"], found["digest"]) != (FORMAT, self.key, _digest(content)):
                return None
            rows = {each["metric"]: np.array(each["rows"], dtype=np.int64) for each in found["scores"]}
            complete = rows and len(rows) == len(found["scores"]) and rows.keys() <= _FORMULAS.keys()
            if not complete or {*map(len, rows.values()), len(found["translations"])} != {sentences}:
                return None
            scores = []
            for each in found["scores"]:
                counts = SentenceStatistics(rows[each["metric"]], _FORMULAS[each["metric"]])
                counts.score()  # with too few or too many columns it fails
                scores.append(Score(each["metric"], each["score"], each["definition"], counts))
        except (OSError, MacaronError, ValueError, OverflowError):
            return None
        made = Evaluation(found["translations"], found["search"], tuple(scores), self.definition, self.text)
        return replace(made, kept=self.path, reused=True)

    def store(self, scored: Evaluation, data: str) -> Evaluation:
        """Keep an evaluation; ``data`` says in words what was translated."""
        said = zip(scored.to_dict()["scores"], scored.scores, strict=True)
        scores = [{**each, "rows": score.statistics.rows.tolist()} for each, score in said]
        content = {"translations": scored.translations, "search": scored.search, "scores": scores}
        stored = {"format": FORMAT, "data": data, "key": self.key, "digest": _digest(content), **content}
        try:
            write_text(self.path, json.dumps(stored, ensure_ascii=False) + "\n")
        except MacaronError:  # a folder that cannot be written costs time later, but no result
            return scored
        return replace(scored, kept=self.path)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()
