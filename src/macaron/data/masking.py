"""Masked words: which of a text's tokens are to be predicted, and what the model sees in their place.

Texts lie flat, one after the other. Everything is a function of the tokens and of a random generator, so that a run
that is resumed meets the same masks.
"""

import numpy as np
from numpy.typing import NDArray

from macaron.data.batching import Indices, Lengths

Flags = NDArray[np.bool_]
Random = np.random.Generator


def masked_counts(lengths: Lengths, ratio: float) -> Indices:
    """How many tokens of each text are to be predicted: its share, rounded, but at least one where there is any.

    :param lengths: of the texts, without special tokens
    """
    if not ratio:
        return np.zeros(len(lengths), np.int64)
    share = np.rint(ratio * lengths).astype(np.int64)
    return np.minimum(np.maximum(share, 1), lengths)


def choose(lengths: Lengths, counts: Indices, allowed: Flags, random: Random) -> Flags:
    """Choose tokens at random, in each text as many as ``counts`` says.

    :param lengths: of the texts
    :param allowed: for each token whether it may be chosen (special tokens may not); where a text has too few that
        may, all of them are
    :returns: for each token whether it is chosen
    """
    owner = np.repeat(np.arange(len(lengths)), lengths)
    # By text, and in each of them by chance; those that may not be chosen come last.
    key = owner + 0.5 * random.random(len(owner)) + np.where(allowed, 0.0, 0.5)
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    chosen = np.zeros(len(owner), np.bool_)
    chosen[np.argsort(key)[rank < counts[owner]]] = True
    return chosen & allowed


def corrupt(
    ids: Indices, chosen: Flags, mask: int, words: range, mask_share: float, random_share: float, random: Random
) -> Indices:
    """What the model sees: of the chosen tokens most are masked, some are replaced by any word, the rest stays.

    :param mask: the mask token
    :param words: the ids of words that may replace one
    :param mask_share: of the chosen ones
    :param random_share: likewise
    """
    places = np.flatnonzero(chosen)
    draw = random.random(len(places))
    replaced = places[(draw >= mask_share) & (draw < mask_share + random_share)]
    seen = ids.copy()
    seen[places[draw < mask_share]] = mask
    seen[replaced] = random.integers(words.start, words.stop, len(replaced))
    return seen
