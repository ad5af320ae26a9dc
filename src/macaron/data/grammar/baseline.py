"""The baseline of the demo: each German word replaced by its usual English words, the order left as it is.

It is meant to be as good as a translation without reordering and context can be. Which English words belong to a
German one is learned from pairs by IBM model 1 (Brown et al. 1993), with the inflected forms of the lexicon added as
pairs of their own, so that every form has a translation. A German word may become several English ones (aufsteht:
gets up) or none at all (the comma before a relative clause, sich).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cache, cmp_to_key
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from macaron.data.grammar.corpus import Pair, generate
from macaron.data.grammar.paradigms import forms
from macaron.data.grammar.text import finish

_TOKEN = re.compile(r"[\w'-]+|,")
_ITERATIONS = 8
# A German word keeps its best English word if that explains it in 3 of 10 occurrences, and every further one that
# does in 5 of 10: the values with the highest BLEU on generated sentences.
_FIRST, _FURTHER = 0.3, 0.5


class WordByWord:
    """A dictionary from German words to sequences of English ones."""

    def __init__(self, dictionary: Mapping[str, tuple[str, ...]]) -> None:
        self.dictionary = dict(dictionary)

    @classmethod
    def learn(cls, pairs: Iterable[Pair]) -> "WordByWord":
        """Learn the dictionary from German-English pairs and the forms of the lexicon."""
        corpus = [(_tokens(source), _tokens(target)) for source, target in pairs]
        corpus += [([german], english.split()) for german, english in forms()]
        occurrences = Counter(word for source, _ in corpus for word in source)
        shares: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for (german, english), expected in _alignments(corpus):
            if expected >= _FIRST * occurrences[german]:
                shares[german].append((expected / occurrences[german], english))
        chosen: dict[str, tuple[str, ...]] = dict.fromkeys(occurrences, ())
        for word, candidates in shares.items():
            first, *further = sorted(candidates, reverse=True)
            chosen[word] = (first[1], *(english for share, english in further if share >= _FURTHER))
        return cls(_in_order(chosen, corpus))

    def translate(self, sentence: str) -> str:
        """The sentence word by word; words that are not in the dictionary stay as they are."""
        words = [word for token in self._known(sentence) for word in self.dictionary.get(token, (token,))]
        return finish(words, sentence[-1]) if words else sentence

    def _known(self, sentence: str) -> list[str]:
        tokens = _TOKEN.findall(sentence)
        lowered = _lower_first(tokens[0]) if tokens else ""
        return [lowered, *tokens[1:]] if lowered in self.dictionary else tokens


def word_by_word(sentence: str) -> str:
    """A word-by-word translation of a German sentence of the grammar."""
    return _default().translate(sentence)


@cache
def _default() -> WordByWord:
    return WordByWord.learn(generate(20_000, seed=0))


def _lower_first(word: str) -> str:
    return word if word == "I" else word[0].lower() + word[1:]


def _tokens(sentence: str) -> list[str]:
    """Words and commas; the capital of the first word goes, since most words have none elsewhere."""
    tokens = _TOKEN.findall(sentence)
    return [_lower_first(tokens[0]), *tokens[1:]]


def _alignments(corpus: list[tuple[list[str], list[str]]]) -> list[tuple[tuple[str, str], float]]:
    """Expected number of times that an English word comes from a German one, by IBM model 1 with a null word."""
    german: dict[str, int] = {"": 0}
    english: dict[str, int] = {}
    sources: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int64]] = []
    for source, target in corpus:
        from_ = np.array([0, *(german.setdefault(word, len(german)) for word in source)])
        to = np.array([english.setdefault(word, len(english)) for word in target])
        sources.append(np.tile(from_, len(to)))
        targets.append(np.repeat(to, len(from_)))
    widths = np.repeat([len(source) + 1 for source, _ in corpus], [len(target) for _, target in corpus])
    place = np.repeat(np.arange(len(widths)), widths)  # which English position a link belongs to
    key = np.concatenate(sources) * len(english) + np.concatenate(targets)
    kinds, link = np.unique(key, return_inverse=True)
    owner = kinds // len(english)
    translation = np.ones(len(kinds))
    for _ in range(_ITERATIONS):
        share = translation[link]
        share /= np.bincount(place, share)[place]
        expected = np.bincount(link, share)
        translation = expected / np.bincount(owner, expected)[owner]
    names, words = list(german), list(english)
    pairs = ((names[kind // len(english)], words[kind % len(english)]) for kind in kinds.tolist())
    return [(pair, count) for pair, count in zip(pairs, expected.tolist(), strict=True) if pair[0]]


def _in_order(
    chosen: Mapping[str, tuple[str, ...]], corpus: list[tuple[list[str], list[str]]]
) -> dict[str, tuple[str, ...]]:
    """Put the English words of each German one into the order in which they mostly stand."""
    several = {word: translation for word, translation in chosen.items() if len(translation) > 1}
    before: Counter[tuple[str, str, str]] = Counter()
    for source, target in corpus:
        place = {word: i for i, word in reversed(list(enumerate(target)))}
        for word in source:
            for a, b in permutations(several.get(word, ()), 2):
                if a in place and b in place and place[a] < place[b]:
                    before[word, a, b] += 1

    def arrange(word: str) -> tuple[str, ...]:
        def later(a: str, b: str) -> int:
            return before[word, b, a] - before[word, a, b]

        return tuple(sorted(chosen[word], key=cmp_to_key(later)))

    return {word: arrange(word) if word in several else translation for word, translation in chosen.items()}
