"""The BPE of dictionary and codes equals subword-nmt's; trained ones are exact, sized and repeatable."""

import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.text import MacaronTokenizer
from macaron.text.subword import dictionary_bpe, train_byte_bpe
from macaron.text.vocabulary import SPECIALS, UNK, read_codes

Merges = Sequence[tuple[str, str]]


class PlainBpe:
    """subword-nmt's algorithm in plain Python: of all pairs in a word the best is merged, wherever it occurs."""

    def __init__(self, merges: Merges) -> None:
        self.ranks = {pair: rank for rank, pair in reversed(list(enumerate(merges)))}
        self.seen: dict[str, list[str]] = {}

    def symbols(self, word: str) -> list[str]:
        parts = [*word[:-1], word[-1] + "</w>"]
        while pairs := {pair for pair in pairwise(parts) if pair in self.ranks}:
            best = min(pairs, key=lambda pair: self.ranks[pair])
            merged: list[str] = []
            for part in parts:
                # A merged part cannot equal the left half of its own pair, so it is not merged again.
                if merged and (merged[-1], part) == best:
                    merged[-1] += part
                else:
                    merged.append(part)
            parts = merged
        return parts

    def pieces(self, line: str) -> list[str]:
        for word in line.split():
            if word not in self.seen:
                *inner, last = self.symbols(word)
                self.seen[word] = [part + "@@" for part in inner] + [last.removesuffix("</w>")]
        return [piece for word in line.split() for piece in self.seen[word]]


def tokenizer_of(tokens: Sequence[str], merges: Merges) -> MacaronTokenizer:
    tokens = [*SPECIALS["translation"], *tokens]
    backend = dictionary_bpe(tokens, merges)
    return MacaronTokenizer.from_backend(backend, pipeline="spaces", dictionary_size=len(tokens))


def lookup(pieces: Sequence[Sequence[str]], tokens: Sequence[str]) -> list[list[int]]:
    index = {token: i for i, token in enumerate(tokens, start=len(SPECIALS["translation"]))}
    return [[index.get(piece, UNK) for piece in line] for line in pieces]


@pytest.mark.parametrize("every", [30, pytest.param(3, marks=pytest.mark.slow)])
def test_real_text_as_subword_nmt_splits_it(every: int, shared: Path) -> None:
    folder = shared / "data" / "translation" / "iwslt14"
    merges = read_codes(folder / "bpe10k.codes")
    names = ("train.de", "train.en", "valid.de", "valid.en")
    lines = [line for name in names for line in read_lines(folder / f"{name}.xz")][::every]
    assert len(lines) > 100_000 // every
    plain = PlainBpe(merges)
    pieces = [plain.pieces(line) for line in lines]
    counts = Counter(piece for line in pieces for piece in line)
    for rarest in (1, 20):  # the second dictionary lacks pieces: ghosts and <unk>
        tokens = [token for token, count in counts.most_common() if count >= rarest]
        tokenizer = tokenizer_of(tokens, merges)
        expected = lookup(pieces, tokens)
        assert tokenizer.encode_lines(lines, add_special_tokens=False) == expected
        assert tokenizer.encode_lines(lines[::500]) == [[*ids, 2] for ids in expected[::500]]
        assert any(UNK in ids for ids in expected) == (rarest > 1)
        if rarest == 1:
            assert tokenizer.decode_lines(expected[::500]) == [" ".join(line.split()) for line in lines[::500]]


def learned(words: Sequence[str], count: int) -> Merges:
    """Learn merges as subword-nmt does: the most frequent pair of all, again and again."""
    merges: list[tuple[str, str]] = []
    for _ in range(count):
        split = [PlainBpe(merges).symbols(word) for word in words]
        pairs = Counter(pair for parts in split for pair in pairwise(parts))
        if not pairs:
            break
        merges.append(max(pairs, key=lambda pair: (pairs[pair], pair)))
    return merges


short_words = st.lists(st.text("abcde@", min_size=1, max_size=8), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(short_words, short_words, st.integers(1, 12), st.randoms(use_true_random=False))
def test_random_words_as_subword_nmt_splits_them(
    training: list[str],
    words: list[str],
    count: int,
    random: Random,
) -> None:
    merges = learned(training, count)
    plain = PlainBpe(merges)
    possible = sorted({piece for word in training for piece in plain.pieces(word)})
    tokens = [token for token in possible if random.random() < 0.8]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tokenizer = tokenizer_of(tokens, merges)
    if caught:  # codes for which equality is not promised
        return
    line = " ".join(words)
    assert tokenizer.encode_lines([line], add_special_tokens=False) == lookup([plain.pieces(line)], tokens)


def test_codes_whose_order_could_matter_are_pointed_out() -> None:
    merges = [("b", "c"), ("abc", "a"), ("a", "bc")]
    with pytest.warns(UserWarning, match="'abc' after merge 2"):
        dictionary_bpe([*SPECIALS["translation"], "a"], merges)


def test_a_dictionary_with_two_names_for_one_piece() -> None:
    with pytest.raises(MacaronError, match="same piece"):
        dictionary_bpe([*SPECIALS["translation"], "a", "a</w>@@"], [("a", "b")])


TEXT = ["Das Haus ist groß, nicht wahr?", "The house isn't small: 1999 people.", "naïve café 東京 😀"] * 3


def test_byte_bpe_holds_every_byte_and_the_size_asked_for() -> None:
    smallest = train_byte_bpe(TEXT, 260)
    assert smallest.get_vocab_size() == 260
    assert train_byte_bpe(TEXT, 280).get_vocab_size() == 280
    assert [smallest.id_to_token(i) for i in range(4)] == ["<s>", "<pad>", "</s>", "<unk>"]
    with pytest.raises(MacaronError, match="at least 262"):
        train_byte_bpe(TEXT, 261, "encoder")


@pytest.mark.parametrize(("pipeline", "size"), [("raw", 300), ("spaces", 300), ("spaces", 1000)])
def test_training_repeats_itself(pipeline: str, size: int) -> None:
    first, second = (MacaronTokenizer.train(iter(TEXT), size, pipeline=pipeline, pad_to_multiple=8) for _ in range(2))
    assert first.fingerprint() == second.fingerprint()
    assert len(first) % 8 == 0
    assert max(first.get_vocab().values()) == len(first) - 1


def test_words_do_not_merge_across_spaces_nor_numbers_at_all() -> None:
    tokenizer = MacaronTokenizer.train(["in the house 1999 don't"] * 50, 400)
    (ids,) = tokenizer.encode_lines(["in the house 1999 don't"], add_special_tokens=False)
    tokens = [tokenizer.backend_tokenizer.id_to_token(index) for index in ids]
    assert tokens == ["Ġin", "Ġthe", "Ġhouse", "Ġ1", "9", "9", "9", "Ġdon't"]


def test_words_that_look_like_special_tokens() -> None:
    text = "<s>x a</w>b <pad>y </s> <unk>"
    letters = " ".join(f"{letter}{letter}" for letter in "<s>/wapdunkbxy")
    tokenizer = MacaronTokenizer.train([text + " 𠀀z", letters] * 9, 200, pipeline="spaces")
    ids = tokenizer.encode_lines([text], add_special_tokens=False)[0]
    assert min(ids) > UNK
    assert tokenizer.decode_lines([ids]) == [text]
    assert tokenizer.encode_lines(["𠀀"]) == [[UNK, 2]]
    with pytest.raises(MacaronError, match="special token"):
        dictionary_bpe([*SPECIALS["translation"], "a"], [("<s", ">")])


def test_a_path_alone_is_not_taken_for_lines() -> None:
    with pytest.raises(MacaronError, match="expected lines of text"):
        MacaronTokenizer.train("corpus.de", 300)
