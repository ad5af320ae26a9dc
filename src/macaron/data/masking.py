"""Masked words: which tokens of a text are predicted, and what the model sees instead.

Texts are concatenated. Everything is a function of the tokens and of a random generator, so a resumed run draws the
same masks.
"""

import numpy as np
from numpy.typing import NDArray

from macaron.data.batching import Indices, Lengths, counting

Flags = NDArray[np.bool_]
Random = np.random.Generator


def masked_counts(lengths: Lengths, ratio: float) -> Indices:
    """The number of tokens to predict in each text: its share, rounded, but at least one if the text is not empty.

    :param lengths: of the texts, without special tokens
    """
    if not ratio:
        return np.zeros(len(lengths), np.int64)
    share = np.rint(ratio * lengths).astype(np.int64)
    return np.minimum(np.maximum(share, 1), lengths)


def choose(lengths: Lengths, counts: Indices, allowed: Flags, random: Random) -> Flags:
    """Choose ``counts`` tokens of each text at random.

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
    :param mask_share: of the chosen ones
    :param random_share: likewise
    """
    positions = np.flatnonzero(chosen)
    draw = random.random(len(positions))
    replaced = positions[(draw >= mask_share) & (draw < mask_share + random_share)]
    seen = ids.copy()
    seen[positions[draw < mask_share]] = mask
    seen[replaced] = random.integers(words.start, words.stop, len(replaced))
    return seen
