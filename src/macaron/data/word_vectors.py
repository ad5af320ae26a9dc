"""Word vectors from co-occurrence counts, computed in seconds: embeddings begin with them (``train.embeddings``).

The vectors are the leading singular vectors of positive pointwise mutual information (Levy and Goldberg 2014). A word
co-occurs with its neighbours, and with the words of the translation: the two get similar vectors.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from macaron.data.batching import counting
from macaron.data.store import TokenStore

#: Neighbours of a word on either side; one at distance d counts 1 / d.
WINDOW = 5
#: What all words of the translation count together: as much as the neighbours.
_SHARE = 2 * sum(1 / distance for distance in range(1, WINDOW + 1))
#: Pairs with a longer target say little about which words belong together.
_LONGEST = 50
#: Tokens of a store that are counted, roughly, evenly spread; sentences that are read at a time.
_TOKENS, _BLOCK = 40_000_000, 8192
#: Counts in memory at most: the contexts are the most frequent words.
_COUNTS, _CONTEXTS = 1 << 27, 8192
#: Frequent contexts count less (Levy, Goldberg and Dagan 2015).
_SMOOTHING = 0.75

Ids = NDArray[np.int64]
Weights = NDArray[np.float32]
#: Ids of all sentences, and the lengths of the sentences.
Sentences = tuple[Ids, Ids]


def word_vectors(stores: tuple[TokenStore, ...], size: int, seed: int) -> Tensor:
    """Vectors of length 1, in the order of the ids: (V, at most ``size``). Tokens that do not occur have zeros."""
    counts, _ = co_occurrences(stores)
    # Positive pointwise mutual information, in place.
    contexts = counts.sum(0).pow(_SMOOTHING)
    counts /= counts.sum(1, keepdim=True).clamp(min=1e-9)
    counts /= (contexts / contexts.sum()).clamp(min=1e-12)
    counts.clamp_(min=1).log_()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        left, values, _ = torch.svd_lowrank(counts, min(size + 16, *counts.shape), niter=3)
    return torch.nn.functional.normalize((left * values.sqrt())[:, :size], dim=1)


def co_occurrences(stores: tuple[TokenStore, ...]) -> tuple[Tensor, Ids]:
    """How often tokens and contexts occur together, by distance: (V, C); and the ids of the contexts, (C,)."""
    vocabulary = stores[0].vocab_size
    counted = (np.bincount(ids, minlength=vocabulary) for block in _blocks(stores) for ids, _ in block)
    frequencies = sum(counted, np.zeros(vocabulary, np.int64))
    width = max(1, min(vocabulary, _CONTEXTS, _COUNTS // vocabulary))
    contexts = np.argsort(-frequencies, kind="stable")[:width]  # the most frequent tokens
    columns = np.full(vocabulary, -1)
    columns[contexts] = np.arange(width)
    counts = torch.zeros(vocabulary * width)
    for block in _blocks(stores):
        for tokens, others, weights in _together(block):
            found = columns[others]
            kept = found >= 0
            cells = torch.from_numpy(tokens[kept] * width + found[kept])
            counts.index_add_(0, cells, torch.from_numpy(weights[kept]))
    return counts.view(vocabulary, width), contexts


def _blocks(stores: tuple[TokenStore, ...]) -> Iterator[list[Sentences]]:
    step = _BLOCK * math.ceil(max(store.tokens for store in stores) / _TOKENS)
    for start in range(0, len(stores[0]), max(step, 1)):
        block = []
        for store in stores:
            offsets = store.offsets[start : start + _BLOCK + 1].astype(np.int64)
            block.append((store.ids[offsets[0] : offsets[-1]].astype(np.int64), np.diff(offsets)))
        yield block


def _together(block: list[Sentences]) -> Iterator[tuple[Ids, Ids, Weights]]:
    """Tokens, others that occur together with them, and what each of these counts."""
    for ids, lengths in block:
        sentence = np.repeat(np.arange(len(lengths)), lengths)
        for distance in range(1, WINDOW + 1):
            same = sentence[:-distance] == sentence[distance:]
            left, right = ids[:-distance][same], ids[distance:][same]
            weights = np.full(len(left), 1 / distance, np.float32)
            yield left, right, weights
            yield right, left, weights
    if len(block) == 1:
        return
    # Every word of a sentence with every word of its translation.
    (given, given_lengths), (wanted, wanted_lengths) = block
    pair = np.repeat(np.arange(len(given_lengths)), given_lengths)
    place = counting(given_lengths)
    lengths, first = wanted_lengths[pair], (np.cumsum(wanted_lengths) - wanted_lengths)[pair]
    short = lengths <= _LONGEST
    for shift in range(min(int(wanted_lengths.max(initial=0)), _LONGEST)):
        chosen = short & (lengths > shift)
        words = wanted[first[chosen] + (place[chosen] + shift) % lengths[chosen]]
        yield given[chosen], words, (_SHARE / lengths[chosen]).astype(np.float32)
        yield words, given[chosen], (_SHARE / given_lengths[pair[chosen]]).astype(np.float32)
