"""Texts for pre-training: pairs of spans of sentences, or single spans, cut from documents; and their masked words.

No span crosses the end of its document. All documents are processed in parallel, one step of each at a time: there is
no loop over sentences. Spans and masks are a function of the corpus and of a random generator.
"""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from macaron.data.batching import Indices, Lengths, counting

Flags = NDArray[np.bool_]
Random = np.random.Generator
#: Special tokens around a pair, ``<cls> A </s> B </s>``, and around a single span.
PAIR_SPECIALS, SPAN_SPECIALS = 3, 2
#: A long document is processed in several lanes at the same time, each this many sentences long.
STRIDE = 2048


class Corpus:
    """Sentence s is the tokens ``offsets[s]`` to ``offsets[s + 1]``, document d the sentences ``first[d]`` to
    ``end[d]``. None is empty.

    :param documents: the first sentence of each, then the number of sentences
    :param chosen: the documents of a section; None: all
    """

    def __init__(self, offsets: NDArray[Any], documents: NDArray[Any], chosen: Indices | None = None) -> None:
        # Views: memory-mapped arrays are not copied.
        self.offsets, self.documents = offsets.view(np.int64), documents.view(np.int64)
        self.first = self.documents[:-1] if chosen is None else self.documents[chosen]
        self.end = self.documents[1:] if chosen is None else self.documents[chosen + 1]
        self.count = len(self.first)

    def lanes(self) -> tuple[Indices, Indices, Indices]:
        """Stretches of documents: first sentence, end (exclusive), document."""
        pieces = -(-(self.end - self.first) // STRIDE)
        document = np.repeat(np.arange(self.count), pieces)
        begin = self.first[document] + counting(pieces) * STRIDE
        return begin, np.minimum(begin + STRIDE, self.end[document]), document


@dataclass(frozen=True)
class Spans:
    """Texts as positions in the flat store: A are the ``a_length`` tokens from ``a_start`` on, B likewise.

    ``follows`` is 1 if B really follows A, 0 if it is of another document, -1 if there is no B.
    """

    a_start: Indices
    a_length: Indices
    b_start: Indices
    b_length: Indices
    follows: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.a_start)

    @property
    def words(self) -> Indices:
        """Tokens of each text, without the special ones."""
        return self.a_length + self.b_length

    @property
    def lengths(self) -> Indices:
        """Tokens of each text, the special ones included."""
        return self.words + np.where(self.follows >= 0, PAIR_SPECIALS, SPAN_SPECIALS)


def single_spans(corpus: Corpus, longest: int, random: Random, special: int = SPAN_SPECIALS) -> Spans:
    """Every token of the corpus once, in spans as long as ``longest`` allows; sentences may be cut.

    The first span of a long document is shortened at random, so epochs have different spans.

    :param longest: tokens of a text, ``special`` ones included
    """
    room = longest - special
    begin, end = corpus.offsets[corpus.first], corpus.offsets[corpus.end]
    tokens = end - begin
    shortened = random.integers(1, room + 1, len(tokens))
    first = np.where(tokens > room, shortened, tokens)
    pieces = 1 + -(-(tokens - first) // room)
    number = counting(pieces)
    start = np.repeat(begin, pieces) + np.where(number, np.repeat(first, pieces) + (number - 1) * room, 0)
    stop = np.minimum(start + np.where(number, room, np.repeat(first, pieces)), np.repeat(end, pieces))
    return Spans(start, stop - start, start, np.zeros_like(start), np.full(len(start), -1, np.int8))


def span_pairs(corpus: Corpus, longest: int, short_share: float, next_share: float, random: Random) -> Spans:
    """Pairs of spans of sentences, as in BERT.

    Sentences are collected until there are enough; a random number of them are A, at least one. B are the rest, or as
    many tokens from a random position of another document, and then the rest is used again. If a document has only one
    sentence left, B is of another one.

    :param short_share: the share of pairs that get a random, shorter length, since tasks have shorter texts, too
    :param next_share: the share of pairs with the real B, if there is one
    """
    offsets, first, last, room = corpus.offsets, corpus.first, corpus.end, longest - PAIR_SPECIALS
    here, end, document = corpus.lanes()
    found: list[Spans] = []
    while len(here):
        size = len(here)
        short = random.random(size) < short_share
        goal = np.where(short, random.integers(2, room + 1, size), room)
        stop = np.minimum(np.searchsorted(offsets, offsets[here] + goal), end)
        several = stop - here > 1
        cut = np.where(several, here + 1 + _below(stop - here - 1, random), stop)
        follows = several & (random.random(size) < next_share)

        other = _other(document, corpus.count, random)
        begin = first[other] + _below(last[other] - first[other], random)
        wanted = np.maximum(goal - (offsets[cut] - offsets[here]), 1)
        finish = np.minimum(np.searchsorted(offsets, offsets[begin] + wanted), last[other])

        second = offsets[np.where(follows, cut, begin)], offsets[np.where(follows, stop, finish)]
        found.append(_fitted((offsets[here], offsets[cut]), second, follows, room, random))
        here = np.where(follows, stop, cut)
        going = here < end
        here, end, document = here[going], end[going], document[going]
    return Spans(*(np.concatenate([getattr(part, each.name) for part in found]) for each in fields(Spans)))


def sentence_pairs(corpus: Corpus, longest: int, next_share: float, random: Random) -> Spans:
    """Pairs of single sentences, each with the next one or one of another document."""
    offsets, first, last = corpus.offsets, corpus.first, corpus.end
    document = np.repeat(np.arange(corpus.count), last - first)
    sentence = np.repeat(first, last - first) + counting(last - first)
    follows = (sentence + 1 < last[document]) & (random.random(len(sentence)) < next_share)
    other = _other(document, corpus.count, random)
    second = np.where(follows, sentence + 1, first[other] + _below(last[other] - first[other], random))
    one, two = ((offsets[each], offsets[each + 1]) for each in (sentence, second))
    return _fitted(one, two, follows, longest - PAIR_SPECIALS, random)


def fit(first: Lengths, second: Lengths, room: int) -> tuple[Indices, Indices]:
    """Shorten two lengths so that they fit together: the longer one down to the shorter, then both equally."""
    fitting = np.minimum(first, np.maximum(room // 2, room - second))
    return fitting, np.minimum(second, room - fitting)


def _fitted(
    one: tuple[Indices, Indices], two: tuple[Indices, Indices], follows: NDArray[np.bool_], room: int, random: Random
) -> Spans:
    """Pairs of spans (start, stop); excess tokens are removed at both ends, at random."""
    lengths = one[1] - one[0], two[1] - two[0]
    fitting = fit(*lengths, room)
    starts = [
        start + random.binomial(length - kept, 0.5)
        for (start, _), length, kept in zip((one, two), lengths, fitting, strict=True)
    ]
    return Spans(starts[0], fitting[0], starts[1], fitting[1], follows.astype(np.int8))


def _other(document: Indices, count: int, random: Random) -> Indices:
    other = random.integers(0, count - 1, len(document))
    return other + (other >= document)


def _below(limits: Indices, random: Random) -> Indices:
    """A random number from 0 to below each limit (0 where that is 0)."""
    return (random.random(len(limits)) * limits).astype(np.int64)


def masked_counts(lengths: Lengths, ratio: float) -> Indices:
    """The number of tokens to predict in each text: its share, rounded, but at least one if the text is not empty."""
    if not ratio:
        return np.zeros(len(lengths), np.int64)
    share = np.rint(ratio * lengths).astype(np.int64)
    return np.minimum(np.maximum(share, 1), lengths)


def choose(lengths: Lengths, counts: Indices, allowed: Flags, random: Random) -> Flags:
    """Choose ``counts`` tokens of each text at random; texts are concatenated.

    :param allowed: for each token whether it may be chosen (special tokens may not); all of them are chosen if a text
        has too few
    :returns: for each token whether it is chosen
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    # Sorted by text, in each text at random; tokens that may not be chosen come last.
    key = owner + 0.5 * random.random(len(owner)) + np.where(allowed, 0.0, 0.5)
    # `counting` is the rank of a token in its text.
    chosen = np.zeros(len(owner), np.bool_)
    chosen[np.argsort(key)[counting(lengths) < counts[owner]]] = True
    return chosen & allowed


def corrupt(
    ids: Indices, chosen: Flags, mask: int, words: range, mask_share: float, random_share: float, random: Random
) -> Indices:
    """The model's input: of the chosen tokens most are masked, some replaced by a random word, the others unchanged.

    :param words: the ids of words that may replace a token
    """
    positions = np.flatnonzero(chosen)
    draw = random.random(len(positions))
    replaced = positions[(draw >= mask_share) & (draw < mask_share + random_share)]
    seen = ids.copy()
    seen[positions[draw < mask_share]] = mask
    seen[replaced] = random.integers(words.start, words.stop, len(replaced))
    return seen
