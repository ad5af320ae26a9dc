"""Where two kinds differ: by the length of a sentence, and by how often a word was seen in training."""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers.models import WordLevel

from macaron.data.prepared import PreparedData, Split
from macaron.data.store import TokenStore
from macaron.evaluate.significance import Interval, bootstrap_interval, paired_bootstrap
from macaron.evaluate.statistics import SentenceStatistics
from macaron.lab.compare.significance import LEVEL, TRIALS, paired, pooled
from macaron.text.tokenizer import MacaronTokenizer
from macaron.text.vocabulary import CONTINUED

#: Occurrences of a word in the training data: the first of each class.
CLASSES = (0, 1, 5, 25, 100, 1000)
#: Classes of length, of about as many sentences each.
LENGTHS = 5
#: Sentences or words that a class must have before anything is said of a difference in it.
LEAST = 30
_WORD = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[^\w\s]|_")
_CHUNK = 50_000


@dataclass(frozen=True)
class Part:
    """A part of the test set: what each kind scores in it, and by how much each differs from the first.

    :param size: how many sentences or words it has
    :param differences: of each kind but the first; intervals that hold for all parts together with 95 % (Bonferroni);
        none in a part that is too small
    """

    name: str
    size: int
    scores: tuple[float, ...]
    intervals: tuple[Interval, ...]
    differences: tuple[Interval | None, ...]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "size": self.size,
            "scores": list(self.scores),
            "intervals": [[each.low, each.high] for each in self.intervals],
            "differences": [None if each is None else [each.low, each.high] for each in self.differences],
        }


def by_length(
    lengths: Sequence[int], kinds: Sequence[Sequence[SentenceStatistics]], trials: int = TRIALS
) -> list[Part]:
    """Scores by length of the source.

    :param lengths: words of each source
    :param kinds: for each kind the statistics of its runs
    """
    sizes = np.array(lengths)
    parts = []
    for low, high in length_classes(lengths):
        inside = (sizes >= low) & (sizes <= high)
        name = f"{low} words" if low == high else f"{low} to {high} words"
        parts.append((name, int(inside.sum()), [[_only(run, inside) for run in kind] for kind in kinds]))
    return _parts(parts, trials)


def length_classes(lengths: Sequence[int], classes: int = LENGTHS) -> list[tuple[int, int]]:
    """The first and last length of classes that hold about equally many sentences; none is empty."""
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, classes + 1)[1:], method="inverted_cdf")).astype(int)
    found, low = [], int(min(lengths))
    for high in edges.tolist():
        found.append((low, high))
        above = [length for length in lengths if length > high]
        low = min(above, default=high + 1)
    return found


def by_frequency(
    counts: Counter[str],
    references: Sequence[Sequence[str]],
    kinds: Sequence[Sequence[Sequence[Sequence[str]]]],
    trials: int = TRIALS,
) -> list[Part]:
    """F1 of the words of each class of frequency: those of the reference that were found, those found rightly.

    :param counts: how often each word was seen in training
    :param kinds: for each kind and each of its runs the words of every translation
    """
    rows = [[word_matches(counts, run, references) for run in kind] for kind in kinds]
    parts = []
    for i, first in enumerate(CLASSES):
        size = int(rows[0][0][:, i, 2].sum())
        if not size:
            continue
        last = CLASSES[i + 1] - 1 if i + 1 < len(CLASSES) else None
        name = "never" if first == 0 else f"{first:,} or more" if last is None else f"{first} to {last}"
        statistics = [[SentenceStatistics(run[:, i], f1_formula) for run in kind] for kind in rows]
        parts.append((name, size, statistics))
    return _parts(parts, trials)


def word_matches(
    counts: Counter[str], translations: Sequence[Sequence[str]], references: Sequence[Sequence[str]]
) -> NDArray[np.int64]:
    """For each sentence and class of frequency: words matched, of the translation, of the reference; (S, C, 3)."""
    rows = np.zeros((len(references), len(CLASSES), 3), dtype=np.int64)
    for row, translation, reference in zip(rows, translations, references, strict=True):
        ours, theirs = Counter(translation), Counter(reference)
        for column, words in enumerate((ours & theirs, ours, theirs)):
            for word, count in words.items():
                row[_class_of(counts[word]), column] += count
    return rows


def f1_formula(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """F1 (...) in [0, 100] of summed counts (..., 3): matched, of the translation, of the reference."""
    both = sums[..., 1] + sums[..., 2]
    return np.asarray(np.divide(200.0 * sums[..., 0], both, out=np.zeros_like(both), where=both > 0))


class Words:
    """The words of texts in the target language, in the form in which the training data holds them.

    Plain text is split into words and punctuation; where a pipeline makes tokens, these are the words.
    """

    def __init__(self, data: PreparedData, split: Split) -> None:
        self.tokenizer: MacaronTokenizer = data.tokenizer
        self.state = data.text_state(split)
        self.plain = self.tokenizer.text_pipeline.name == "raw"

    def of(self, lines: Sequence[str]) -> list[list[str]]:
        """The words of each line."""
        pipeline = self.tokenizer.text_pipeline
        return [self.split(pipeline.encode(line, "target", self.state)) for line in lines]

    def split(self, prepared: str) -> list[str]:
        """The words of prepared text."""
        return _WORD.findall(prepared) if self.plain else prepared.split()

    def counts(self, store: TokenStore) -> Counter[str]:
        """How often each word occurs in a token store."""
        found: Counter[str] = Counter()
        for lines in self._prepared(store):
            for line in lines:
                found.update(self.split(line))
        return found

    def _prepared(self, store: TokenStore) -> Iterator[list[str]]:
        backend = self.tokenizer.backend_tokenizer
        pieces = isinstance(backend.model, WordLevel)
        for start in range(0, len(store), _CHUNK):
            places = store.offsets[start : start + _CHUNK + 1].tolist()
            flat = store.ids[places[0] : places[-1]].tolist()
            ids = [flat[a - places[0] : b - places[0]] for a, b in pairwise(places)]
            lines = backend.decode_batch(ids, skip_special_tokens=True)
            yield [(line + " ").replace(CONTINUED + " ", "") for line in lines] if pieces else lines


def _class_of(count: int) -> int:
    return bisect_right(CLASSES, count) - 1


def _only(statistics: SentenceStatistics, inside: NDArray[np.bool_]) -> SentenceStatistics:
    return SentenceStatistics(statistics.rows[inside], statistics.formula)


def _parts(found: Sequence[tuple[str, int, Sequence[Sequence[SentenceStatistics]]]], trials: int) -> list[Part]:
    enough = sum(size >= LEAST for _, size, _ in found)
    return [_part(name, size, kinds, enough, trials) for name, size, kinds in found]


def _part(name: str, size: int, kinds: Sequence[Sequence[SentenceStatistics]], of: int, trials: int) -> Part:
    whole = [pooled(runs) for runs in kinds]
    differences: list[Interval | None] = []
    level = 1 - (1 - LEVEL) / max(of * (len(kinds) - 1), 1)
    for runs in kinds[1:]:
        # The ends of so wide an interval are rare: they take many resamples to be found twice in the same place.
        compared = paired_bootstrap(*paired(kinds[0], runs), resamples=trials, level=level) if size >= LEAST else None
        differences.append(None if compared is None else compared.interval)
    return Part(
        name=name,
        size=size,
        scores=tuple(each.score() for each in whole),
        intervals=tuple(bootstrap_interval(each) for each in whole),
        differences=tuple(differences),
    )
