"""Word vectors: counts as a plain loop counts them, exact singular vectors, translations beside each other."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.data.store import StoreWriter, TokenStore
from macaron.data.word_vectors import WINDOW, co_occurrences, word_vectors

VOCABULARY = 9
SHARE = 2 * sum(1 / distance for distance in range(1, WINDOW + 1))
sentence = st.lists(st.integers(0, VOCABULARY - 1), max_size=8)


def store(base: Path, sentences: list[list[int]], vocabulary: int = VOCABULARY) -> TokenStore:
    with StoreWriter(base, vocabulary) as writer:
        for each in sentences:
            writer.append(np.array(each, np.int64), np.array([len(each)]))
    return TokenStore(base, vocabulary, writer.sequences, writer.tokens)


def counted(sides: list[list[list[int]]]) -> np.ndarray:
    counts = np.zeros((VOCABULARY, VOCABULARY))
    for side in sides:
        for tokens in side:
            for i, one in enumerate(tokens):
                for j, other in enumerate(tokens):
                    if 0 < abs(i - j) <= WINDOW:
                        counts[one, other] += 1 / abs(i - j)
    if len(sides) == 2:
        for source, target in zip(*sides, strict=True):
            for one in source:
                for other in target:
                    counts[one, other] += SHARE / len(target)
                    counts[other, one] += SHARE / len(source)
    return counts


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(sentence, sentence), min_size=1, max_size=6), st.booleans())
def test_counts_are_those_of_a_plain_loop(pairs: list[tuple[list[int], list[int]]], two: bool):
    sides = [list(each) for each in zip(*pairs, strict=True)][: 1 + two]
    with TemporaryDirectory() as folder:
        counts, contexts = co_occurrences(tuple(store(Path(folder) / str(i), side) for i, side in enumerate(sides)))
    assert sorted(contexts.tolist()) == list(range(VOCABULARY))
    np.testing.assert_allclose(counts.numpy(), counted(sides)[:, contexts], rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def languages(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenStore, TokenStore]:
    """Sentences are parts of a circle of 100 words; word i of one language is word i + 100 of the other, reversed."""
    folder, draw = tmp_path_factory.mktemp("languages"), np.random.default_rng(1)
    source = [[int(start + step) % 100 for step in range(8)] for start in draw.integers(0, 100, 400)]
    target = [[token + 100 for token in each[::-1]] for each in source]
    return store(folder / "a", source, 210), store(folder / "b", target, 210)


def test_a_word_is_beside_its_translation(languages: tuple[TokenStore, TokenStore]):
    vectors = word_vectors(languages, 16, seed=1)
    assert vectors.shape == (210, 16)
    assert torch.equal(vectors[200:], torch.zeros(10, 16))  # these do not occur
    torch.testing.assert_close(vectors[:200].norm(dim=1), torch.ones(200))
    nearest = (vectors[:100] @ vectors[100:200].T).argmax(1)
    assert (nearest == torch.arange(100)).float().mean() > 0.9


def test_the_vectors_are_the_leading_singular_ones(languages: tuple[TokenStore, TokenStore]):
    counts = co_occurrences(languages)[0].double()
    contexts = counts.sum(0) ** 0.75
    ratios = counts / counts.sum(1, keepdim=True).clamp(min=1e-9) / (contexts / contexts.sum()).clamp(min=1e-12)
    left, values, _ = torch.linalg.svd(ratios.clamp(min=1).log())
    expected = torch.nn.functional.normalize((left[:, :12] * values[:12].sqrt())[:200], dim=1)
    vectors = word_vectors(languages, 12, seed=3)[:200].double()
    torch.testing.assert_close(vectors @ vectors.T, expected @ expected.T, atol=1e-4, rtol=0)
    # A vocabulary smaller than the model is wide has fewer dimensions; the model keeps what was drawn for the rest.
    assert word_vectors(languages, 512, seed=3).shape == (210, 210)


def test_the_same_seed_gives_the_same_vectors(languages: tuple[TokenStore, TokenStore]):
    assert torch.equal(word_vectors(languages, 8, seed=1), word_vectors(languages, 8, seed=1))
