"""The demo corpus: distinct German-English pairs from the grammar, split for training and for honest testing."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from demo_grammar.english import english
from demo_grammar.german import german
from demo_grammar.heldout import Kind, held_out
from demo_grammar.meaning import Sentence
from demo_grammar.sentences import SentenceSampler
from macaron.errors import MacaronError

SHORTEST, LONGEST = 4, 16
Pair = tuple[str, str]
_WORD = re.compile(r"[\w'-]+")
# How many sentences may be tried for each novel one before the training set counts as too small.
_PATIENCE = 400


def words(text: str) -> list[str]:
    """The words of a sentence without punctuation."""
    return _WORD.findall(text)


def sentences(seed: int) -> Iterator[tuple[Sentence, str, str]]:
    """Endless meanings with their German and English, of 4 to 16 German words, no German sentence twice."""
    sampler = SentenceSampler(seed)
    seen: set[str] = set()
    while True:
        sentence = sampler.sentence()
        source = german(sentence)
        if source not in seen and SHORTEST <= source.count(" ") + 1 <= LONGEST:
            seen.add(source)
            yield sentence, source, english(sentence)


def generate(n: int, seed: int) -> Iterator[Pair]:
    """`n` German-English pairs, distinct in German; the same for the same seed on every platform."""
    for _, (_, source, target) in zip(range(n), sentences(seed), strict=False):
        yield source, target


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs for training, validation and test, and `novel` ones: combinations that the other three never show."""

    train: tuple[Pair, ...]
    valid: tuple[Pair, ...]
    test: tuple[Pair, ...]
    novel: tuple[Pair, ...]

    def splits(self) -> dict[str, tuple[Pair, ...]]:
        """The splits by name."""
        return {"train": self.train, "valid": self.valid, "test": self.test, "novel": self.novel}


def demo_corpus(
    n_train: int = 100_000, n_valid: int = 1000, n_test: int = 1000, n_novel: int = 1000, seed: int = 1
) -> DemoCorpus:
    """The corpus of the demo. No source sentence is in two splits; test and valid do not depend on `n_train`.

    `novel` sentences have at least one held-out combination (see `demo_grammar.heldout`), a third of them
    for each of the three rules, and every one of their words occurs in training.
    """
    stream = sentences(seed)
    regular: list[Pair] = []
    candidates: list[tuple[Kind, str, str]] = []
    while len(regular) < n_test + n_valid + n_train:
        sentence, source, target = next(stream)
        held = held_out(sentence)
        if held:
            candidates.append((held[0][0], source, target))
        else:
            regular.append((source, target))
    test, valid = regular[:n_test], regular[n_test : n_test + n_valid]
    train = regular[n_test + n_valid :]
    novel = _novel(candidates, stream, train, n_novel)
    return DemoCorpus(tuple(train), tuple(valid), tuple(test), tuple(novel))


def _novel(
    candidates: list[tuple[Kind, str, str]],
    stream: Iterator[tuple[Sentence, str, str]],
    train: list[Pair],
    n_novel: int,
) -> list[Pair]:
    known = tuple({word.lower() for pair in train for word in words(pair[side])} for side in (0, 1))
    room: dict[Kind, int] = {"adjective": n_novel // 3, "case": n_novel // 3, "verb": n_novel - 2 * (n_novel // 3)}

    def more() -> Iterator[tuple[Kind, str, str]]:
        yield from candidates
        for sentence, source, target in stream:
            held = held_out(sentence)
            if held:
                yield held[0][0], source, target

    novel: list[Pair] = []
    for tried, (kind, source, target) in enumerate(more()):
        if len(novel) == n_novel:
            break
        if tried > _PATIENCE * n_novel + len(candidates):
            raise MacaronError(
                f"only {len(novel)} of {n_novel} novel sentences use words of the {len(train)} training sentences: "
                "raise n_train or lower n_novel"
            )
        if room[kind] and all(
            word.lower() in vocabulary
            for vocabulary, text in zip(known, (source, target), strict=True)
            for word in words(text)
        ):
            room[kind] -= 1
            novel.append((source, target))
    return novel
