"""Texts cut from documents: never across their ends, never empty, never too long."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.data import pretraining_texts as module
from macaron.data.batching import pack_by_length, row_layouts
from macaron.data.pretraining_texts import Corpus, Spans, fit, sentence_pairs, single_spans, span_pairs

documents = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=15), min_size=2, max_size=8)
longest_texts = st.integers(8, 64)
seeds = st.integers(0, 2**31)


def corpus_of(lengths: list[list[int]]) -> Corpus:
    sentences = [length for document in lengths for length in document]
    counts = [len(document) for document in lengths]
    return Corpus(np.cumsum([0, *sentences]), np.cumsum([0, *counts]))


def document_of(corpus: Corpus, token: np.ndarray) -> np.ndarray:
    return np.searchsorted(corpus.offsets[corpus.documents], token, side="right") - 1


def check(corpus: Corpus, spans: Spans, longest: int) -> None:
    """Each span lies in one document; A and B of one where B follows, of two where not."""
    assert (spans.lengths <= longest).all()
    first, second = document_of(corpus, spans.a_start), document_of(corpus, spans.b_start)
    assert (first == document_of(corpus, spans.a_start + spans.a_length - 1)).all()
    assert (second == document_of(corpus, spans.b_start + spans.b_length - 1)).all()
    assert (spans.a_length >= 1).all()
    assert (spans.b_length >= 1).all()
    assert ((first == second) == (spans.follows == 1)).all()
    real = spans.follows == 1
    assert (spans.b_start >= spans.a_start + spans.a_length)[real].all()


@given(documents, longest_texts, st.floats(0, 1), seeds)
def test_pairs_of_spans(lengths, longest, short, seed):
    corpus = corpus_of(lengths)
    spans = span_pairs(corpus, longest, short, 0.5, np.random.default_rng(seed))
    check(corpus, spans, longest)
    again = span_pairs(corpus, longest, short, 0.5, np.random.default_rng(seed))
    assert all((getattr(spans, name) == getattr(again, name)).all() for name in Spans.__dataclass_fields__)


@given(documents, seeds)
def test_with_room_every_sentence_is_in_some_text(lengths, seed):
    """Where nothing has to be cut off, A and the Bs that follow are all of the corpus, each sentence once."""
    corpus = corpus_of(lengths)
    tokens = int(corpus.offsets[-1])
    spans = span_pairs(corpus, 2 * tokens + 3, 0.0, 0.5, np.random.default_rng(seed))
    seen = np.zeros(tokens, int)
    for start, length in zip(spans.a_start, spans.a_length, strict=True):
        seen[start : start + length] += 1
    for start, length, follows in zip(spans.b_start, spans.b_length, spans.follows, strict=True):
        seen[start : start + length] += follows
    assert (seen == 1).all()


@given(documents, longest_texts, seeds)
def test_pairs_of_sentences(lengths, longest, seed):
    corpus = corpus_of(lengths)
    spans = sentence_pairs(corpus, longest, 0.5, np.random.default_rng(seed))
    check(corpus, spans, longest)
    assert len(spans) == len(corpus.offsets) - 1


@given(documents, longest_texts, seeds)
def test_single_spans_are_every_token_once(lengths, longest, seed):
    corpus = corpus_of(lengths)
    spans = single_spans(corpus, longest, np.random.default_rng(seed))
    assert (spans.lengths <= longest).all()
    assert (spans.a_length >= 1).all()
    assert (document_of(corpus, spans.a_start) == document_of(corpus, spans.a_start + spans.a_length - 1)).all()
    ends = spans.a_start + spans.a_length
    assert (np.sort(spans.a_start)[1:] == np.sort(ends)[:-1]).all()
    assert (spans.a_start.min(), ends.max()) == (0, corpus.offsets[-1])


def test_a_long_document_is_walked_from_several_places(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "STRIDE", 3)
    corpus = corpus_of([[5] * 10, [4] * 3, [2]])
    begin, end, document = corpus.lanes()
    assert begin.tolist() == [0, 3, 6, 9, 10, 13]
    assert end.tolist() == [3, 6, 9, 10, 13, 14]
    assert document.tolist() == [0, 0, 0, 0, 1, 2]
    check(corpus, span_pairs(corpus, 16, 0.1, 0.5, np.random.default_rng(1)), 16)


def test_shares_and_lengths_on_an_ordinary_corpus():
    random = np.random.default_rng(4)
    corpus = corpus_of([random.integers(3, 40, random.integers(5, 60)).tolist() for _ in range(400)])
    spans = span_pairs(corpus, 128, 0.1, 0.5, random)
    assert (spans.follows == 1).mean() == pytest.approx(0.5, abs=0.07)
    assert (spans.lengths == 128).mean() > 0.7
    rows = pack_by_length(spans.lengths, 128, 4, random)
    assert spans.lengths.sum() / (rows.count * 128) > 0.97
    other = span_pairs(corpus, 128, 0.1, 0.5, random)
    assert len(other) != len(spans) or (other.a_start != spans.a_start).any()
    # A batch is rows of all kinds: full ones of one long text and those of several are not sorted apart.
    members = np.bincount(rows.row)
    assert (members > 1).any()
    halves = members[: rows.count // 2], members[rows.count // 2 :]
    assert halves[0].mean() == pytest.approx(halves[1].mean(), rel=0.1)


def test_short_pairs_are_made_on_purpose():
    """Of any length, as many as asked for; without any, all but the last of a document have the full one."""
    corpus = corpus_of([[10] * 300 for _ in range(20)])
    shares = [
        (span_pairs(corpus, 128, short, 0.5, np.random.default_rng(1)).lengths < 110).mean() for short in (0.0, 0.5)
    ]
    assert shares[0] < 0.1  # the ends of documents
    # Half of the pairs have a random length, which for about 17 of 20 of these is far from the longest.
    assert shares[1] == pytest.approx(0.5 * 17 / 20, abs=0.1)


def test_what_is_cut_off_is_at_both_ends():
    corpus = corpus_of([[60], [60], [60]] * 200)
    spans = sentence_pairs(corpus, 63, 0.5, np.random.default_rng(1))
    assert (spans.lengths == 63).all()
    for start, length in ((spans.a_start, spans.a_length), (spans.b_start, spans.b_length)):
        before = start % 60
        assert (length == 30).all()
        assert before.mean() == pytest.approx(15, abs=0.5)  # of the thirty that are too many
        assert before.std() > 2


def test_other_epochs_have_other_single_spans():
    corpus = corpus_of([[100] * 10, [7]])
    starts = {tuple(single_spans(corpus, 32, np.random.default_rng(seed)).a_start[:3]) for seed in range(20)}
    assert len(starts) > 10


@given(st.integers(1, 60), st.integers(1, 60), st.integers(2, 80))
def test_fitting_two_lengths(first, second, room):
    a, b = (int(each[0]) for each in fit(np.array([first]), np.array([second]), room))
    assert a >= 1
    assert b >= 1
    assert a + b == min(first + second, room)
    if first + second > room:  # the longer one gives first
        assert abs(a - b) <= 1 or (a, b) == (first, b) or (a, b) == (a, second)
    else:
        assert (a, b) == (first, second)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=300), seeds)
def test_packing(lengths, seed):
    lengths = np.array(lengths)
    rows = pack_by_length(lengths, 30, 30, np.random.default_rng(seed))
    assert sorted(rows.pairs.tolist()) == list(range(len(lengths)))
    assert (np.diff(rows.row) >= 0).all()
    assert set(rows.row.tolist()) == set(range(rows.count))
    held = np.bincount(rows.row, weights=lengths[rows.pairs])
    assert held.max() <= 30
    # Two rows that are at most half full would have been one.
    assert (held <= 15).sum() <= 1
    for most in (1, 3):
        few = pack_by_length(lengths, 30, most, np.random.default_rng(seed))
        assert sorted(few.pairs.tolist()) == list(range(len(lengths)))
        assert np.bincount(few.row).max() <= most
        assert np.bincount(few.row, weights=lengths[few.pairs]).max() <= 30


def test_recipes_of_rows():
    counts = np.bincount([10, 10, 6, 4, 4, 4, 3], minlength=11)
    assert sorted(row_layouts(counts, 10, 9)) == [(1, (3,)), (1, (4, 4)), (1, (6, 4)), (2, (10,))]
    assert sorted(row_layouts(counts, 10, 1)) == [(1, (3,)), (1, (6,)), (2, (10,)), (3, (4,))]


def test_nothing_to_pack():
    assert pack_by_length(np.empty(0, np.int64), 10, 3, np.random.default_rng(0)).count == 0
    with pytest.raises(ValueError, match="longer than a row"):
        pack_by_length(np.array([11]), 10, 3, np.random.default_rng(0))
