"""The queue: every sentence once, batches of one kind within their budget, and turns."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.serve.queue import BatchKind, Sentence, TurnQueue, Work

KINDS = [BatchKind("de-en", "translate", "{}"), BatchKind("en-de", "translate", "{}")]


@pytest.fixture(scope="module", autouse=True)
def loop():
    """Futures belong to a loop; none is awaited here."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def work(*lengths: int, kind: BatchKind = KINDS[0]) -> Work:
    return Work(kind, [Sentence(str(size), size, asyncio.get_event_loop().create_future()) for size in lengths])


def contents(batch: list[Sentence]) -> list[int]:
    return [each.length for each in batch]


requests = st.lists(st.tuples(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.sampled_from(KINDS)))


@given(requests, st.integers(1, 300))
def test_every_sentence_once_in_batches_of_one_kind(asked: list[tuple[list[int], BatchKind]], budget: int):
    queue, all_work = TurnQueue(), [work(*lengths, kind=kind) for lengths, kind in asked]
    owners = {sentence: each for each in all_work for sentence in each.waiting}
    for each in all_work:
        queue.add(each)
    seen: list[Sentence] = []
    while len(queue):
        front = next(iter(queue._line))
        before = queue.sentences
        kind, batch = queue.take(budget)
        assert {owners[sentence].kind for sentence in batch} == {kind}
        assert len(batch) == 1 or len(batch) * max(contents(batch)) <= budget
        assert any(owners[sentence] is front for sentence in batch)  # whose turn it is gets something
        assert queue.sentences == before - len(batch)
        seen += batch
    assert len(seen) == len(set(seen)) == len(owners)
    assert all(each.length == 0 for each in all_work)


@given(requests, st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_a_request_waits_one_batch_for_each_before_it(asked: list[tuple[list[int], BatchKind]], lengths: list[int]):
    queue, mine = TurnQueue(), work(*lengths)
    for some, kind in asked:
        queue.add(work(*some, kind=kind))
    queue.add(mine)
    wanted = set(mine.waiting)
    batches = 0
    while wanted == set(mine.waiting):
        queue.take(100)
        batches += 1
    assert batches <= len(asked) + 1


def test_a_long_document_and_a_short_sentence_share_a_batch():
    queue, document, short = TurnQueue(), work(*[30] * 1000), work(7)
    queue.add(document)
    queue.take(300)
    queue.add(short)
    assert 7 in contents(queue.take(300)[1])


def test_sentences_of_like_length_come_together():
    queue = TurnQueue()
    for length in (20, 3, 19, 40, 21, 18):
        queue.add(work(length))
    assert contents(queue.take(100)[1]) == [20, 19, 21, 18]
    assert contents(queue.take(100)[1]) == [3, 40]


def test_who_is_gone_takes_all_its_sentences_along():
    queue, mine, other = TurnQueue(), work(5, 6, 7), work(8)
    queue.add(mine)
    queue.add(other)
    queue.discard(mine)
    queue.discard(mine)
    assert (len(queue), queue.sentences) == (1, 1)
    queue.take(100)
    assert len(queue) == 0
    queue.add(work())
    assert len(queue) == 0


def test_what_is_ahead_of_a_request():
    queue = TurnQueue()
    queue.add(work(*[10] * 100))
    queue.add(work(7, 8, kind=KINDS[1]))
    # As many sentences of each as it has itself, be they longer or not.
    assert queue.ahead_of(work(5)) == {KINDS[0]: 10, KINDS[1]: 7.5}
    assert queue.ahead_of(work(*[5] * 20)) == {KINDS[0]: 200, KINDS[1]: 15}
    assert queue.ahead_of(work(*[5] * 200)) == {KINDS[0]: 1000, KINDS[1]: 15}
    short = work(30)
    queue.add(short)
    queue.discard(short)
    queue.add(work(40))
    assert queue.ahead_of(work(5)) == {KINDS[0]: 50, KINDS[1]: 7.5}
    while len(queue):
        queue.take(25)
    assert queue.ahead_of(work(5)) == {}
