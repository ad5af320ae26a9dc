"""The demo's baseline, which replaces each German word by its usual English words, and its dictionary.

It should be as good as a translation without reordering and context can be. The English words of a German one are
learned from pairs by IBM model 1 (Brown et al. 1993). The inflected forms of the lexicon are added as pairs, so that
every form has a translation. A German word may become several English ones (aufsteht: gets up) or none (the comma
before a relative clause, sich).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import cmp_to_key
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from demo_grammar.corpus import Pair
from demo_grammar.paradigms import forms
from demo_grammar.spelling import sentence_text, words_and_commas

_ITERATIONS = 8
# A German word keeps its best English word if that explains it in 3 of 10 occurrences, and every further one that
# does in 5 of 10: the values with the highest BLEU on generated sentences.
_FIRST, _FURTHER = 0.3, 0.5


class WordByWord:
    """The demo's baseline: each German word is replaced by its usual English words; the order stays German.

    :param dictionary: English words by German word, learned by `learn_dictionary`; there may be none
    """

    def __init__(self, dictionary: Mapping[str, Iterable[str]]) -> None:
        self.dictionary = {word: tuple(translation) for word, translation in dictionary.items()}

    def translate(self, sentence: str) -> str:
        """Translate a sentence word by word; unknown words are copied."""
        tokens = words_and_commas(sentence)
        if tokens and tokens[0] not in self.dictionary:  # a noun, or unknown: it keeps its capital
            tokens = words_and_commas(sentence, lower_first=False)
        words = [word for token in tokens for word in self.dictionary.get(token, (token,))]
        return sentence_text(words, sentence[-1]) if words else sentence


def learn_dictionary(pairs: Iterable[Pair]) -> dict[str, tuple[str, ...]]:
    """English words by German word, learned from German-English pairs and the forms of the lexicon."""
    corpus = [(words_and_commas(source), words_and_commas(target)) for source, target in pairs]
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
    return _in_order(chosen, corpus)


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
