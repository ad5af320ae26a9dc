"""BPE-dropout (Provilkov et al., 2020) of prepared tokens: words are split anew, with some of the merges left out.

For each section of an epoch a word is split as often as it occurs, but at most `DRAWS` times, and each of its
occurrences takes one of these splits at random. (What stands between two spaces is one word, punctuation included.)
The result depends only on the tokens, the share of merges that is left out, and a seed.
"""

import json
from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from macaron.data.batching import Matrix, counting
from macaron.data.prepared import PairStore
from macaron.data.store import TokenList
from macaron.errors import require
from macaron.text.tokenizer import MacaronTokenizer

#: Splits of a word in a section, at most.
DRAWS = 16


class Merges:
    """The merges of a tokenizer as tables of ids; a pair of symbols without a merge has the rank ``none``."""

    def __init__(self, tokenizer: MacaronTokenizer) -> None:
        self.backend = tokenizer.backend_tokenizer
        content = json.loads(self.backend.to_str())
        kind = content["model"]["type"] + (" with a dictionary" if tokenizer.dictionary_size else "")
        require(
            kind == "BPE" and tokenizer.pipeline != "plain",
            "train.bpe_dropout needs a BPE that 'macaron prepare' has learned, but the tokenizer of these data is a "
            f"{kind} of another model: leave it out",
        )
        ids = self.backend.get_vocab()
        self.names = sorted(ids, key=ids.__getitem__)
        #: Stands between symbols that are not to be merged, and at the end of a row.
        self.wall = len(self.names)
        merges = content["model"]["merges"]
        self.none, self.made = len(merges), np.array([ids[left + right] for left, right in merges], np.int64)
        pairs = np.array([(ids[left], ids[right]) for left, right in merges], np.int64).reshape(-1, 2)
        keys = np.append(pairs[:, 0] * (self.wall + 1) + pairs[:, 1], np.iinfo(np.int64).max)
        self._order = np.argsort(keys)
        self._keys = keys[self._order]
        letters = [[index] for index in range(self.wall)]
        for (left, right), made in zip(pairs.tolist(), self.made.tolist(), strict=True):
            letters[made] = letters[left] + letters[right]
        #: The letters (or bytes) of every token.
        self.letters = TokenList(np.concatenate(letters), np.array(list(map(len, letters))))
        self.of_bytes, end = "ByteLevel" in str(content["pre_tokenizer"]), content["model"]["end_of_word_suffix"]
        alone = np.isin(np.arange(self.wall), [each["id"] for each in content["added_tokens"]])
        #: Whether a word begins, or ends, with a token wherever it stands.
        self.begins = alone | np.array([self.of_bytes and name.startswith("Ġ") for name in self.names])
        self.ends = alone | np.array([end is not None and name.endswith((end, "<0x20>")) for name in self.names])

    def _rank(self, left: Matrix, right: Matrix) -> Matrix:
        keys = left * (self.wall + 1) + right
        place = np.searchsorted(self._keys, keys)
        return np.where(self._keys[place] == keys, self._order[place], self.none)

    def apply(self, rows: Matrix, share: float, random: Generator) -> TokenList:
        """Merge rows (N, L) of letters.

        In each step every possible merge of a row is left out with probability ``share``, and the first of the others
        is applied; a row without others is done.
        """
        done, number = np.full_like(rows, self.wall), np.arange(len(rows))
        ranks = self._rank(rows[:, :-1], rows[:, 1:])
        while ranks.size:
            tried = np.where(random.random(ranks.shape, np.float32) < share, self.none, ranks)
            best = tried.argmin(1)
            rank = tried[np.arange(len(rows)), best]
            going = rank < self.none
            done[number[~going], : rows.shape[1]] = rows[~going]
            rows, ranks, number, best, rank = (each[going] for each in (rows, ranks, number, best, rank))
            row, pairs = np.arange(len(rows)), rows.shape[1] - 2
            rows[row, best] = self.made[rank]
            rows = rows[np.arange(pairs + 2) != best[:, None] + 1].reshape(len(row), pairs + 1)
            ranks = ranks[np.arange(pairs + 1) != best[:, None]].reshape(len(row), pairs)
            for column in (best - 1, best):  # the pairs with the new symbol
                there = (column >= 0) & (column < pairs)
                at, before = row[there], column[there]
                ranks[at, before] = self._rank(rows[at, before], rows[at, before + 1])
        done[number, : rows.shape[1]] = rows
        real = done < self.wall
        return TokenList(done[real], real.sum(1))


class SplitWords:
    """The words of some pairs, to be split again and again."""

    def __init__(self, merges: Merges, pairs: PairStore) -> None:
        self.merges = merges
        ids = np.append(pairs.source.ids, pairs.target.ids)
        lengths = np.append(pairs.source.lengths(), pairs.target.lengths())
        opens = np.append(True, merges.ends[ids[:-1]]) | merges.begins[ids]
        places = np.append(np.flatnonzero(opens), len(ids))
        starts, sizes = places[:-1], np.diff(places)
        # Words are told apart by polynomials with random coefficients, modulo 2^64.
        values = np.random.default_rng(0).integers(0, 1 << 64, merges.wall, np.uint64)
        powers = np.cumprod(np.full(int(sizes.max()), 0x9E3779B97F4A7C15, np.uint64))
        keys = np.add.reduceat(values[ids] * powers[counting(sizes)], starts)
        _, example, self.word, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        #: The first word of each sequence, the letters of each word, and how often it is split.
        self.first = np.searchsorted(starts, np.cumsum(lengths) - lengths)
        self.letters = self._letters(TokenList(TokenList(ids, sizes).take(example), sizes[example]))
        self.draws, self.dtype = np.minimum(counts, DRAWS), ids.dtype

    def _letters(self, words: TokenList) -> TokenList:
        """The letters of each word, with walls between the pieces that are split each for itself."""
        merges = self.merges
        sizes = np.add.reduceat(merges.letters.lengths()[words.ids], words.offsets[:-1].astype(np.int64))
        begins, walls = np.cumsum(sizes) - sizes, []
        for word in np.flatnonzero(words.lengths() > 1).tolist() if merges.of_bytes else ():
            text = merges.backend.decoder.decode([merges.names[each] for each in words[word]])
            pieces = merges.backend.pre_tokenizer.pre_tokenize_str(text)
            walls += [(begins[word] + end, word) for end in np.cumsum([len(piece) for piece, _ in pieces])[:-1]]
        places, owners = np.array(walls, np.int64).reshape(-1, 2).T
        letters = np.insert(merges.letters.take(words.ids).astype(np.int64), places, merges.wall)
        return TokenList(letters, sizes + np.bincount(owners, minlength=len(sizes)))

    def draw(self, share: float, seed: Sequence[int]) -> PairStore:
        """The pairs, split anew.

        :param share: the probability that a possible merge is left out
        """
        random, sizes = np.random.default_rng(seed), self.letters.lengths()
        order = np.argsort(sizes, kind="stable")  # words of as many letters are split together
        owner = np.repeat(order, self.draws[order])
        parts = np.split(owner, np.flatnonzero(np.diff(sizes[owner])) + 1)
        rows = (self.letters.take(part).reshape(len(part), -1) for part in parts)
        splits = [self.merges.apply(each, share, random) for each in rows]
        lengths = np.concatenate([each.lengths() for each in splits])
        table = TokenList(np.concatenate([each.ids for each in splits]).astype(self.dtype), lengths)
        place = np.empty_like(order)
        place[order] = np.cumsum(self.draws[order]) - self.draws[order]
        chosen = place[self.word] + (random.random(len(self.word), np.float32) * self.draws[self.word]).astype(np.int64)
        of_sides = np.add.reduceat(lengths[chosen], self.first).reshape(2, -1)
        halves = np.split(table.take(chosen), [int(of_sides[0].sum())])
        return PairStore(*(TokenList(*each) for each in zip(halves, of_sides, strict=True)))
