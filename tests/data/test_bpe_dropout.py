"""BPE-dropout: stored tokens without it, letters with nothing else, and in between the probabilities of the paper."""

import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import macaron.data
from macaron.data import bpe_dropout
from macaron.data.bpe_dropout import Merges, SplitWords
from macaron.data.prepared import PairStore
from macaron.data.store import TokenList, TokenStore
from macaron.errors import MacaronError
from macaron.text import MacaronTokenizer
from macaron.text.vocabulary import EOS

GOLDEN = Path(__file__).parents[1] / "golden"
HARD = [
    "  Two  spaces,\ttabs \t and\u00a0no-break spaces   ",
    "don't can’t 'tis rock 'n' roll 'n 1990s 12345 3.14 -- ... ?!",
    "Ü ü Häuser é e\u0301 naïve 日本語 🙂🙂 ﬁ <s> </s> <mask> <unk> <0x41> @@ </w>",
    "a b c aa bb abc aaaaaaaa aaaaaaaaaaaaaaaa",
    "Ġ ġ Ä Ĝ ▁ ##ing",
]


def side(tokenizer: MacaronTokenizer, lines: list[str]) -> TokenList:
    encoded = [np.array(ids, np.uint16) for ids in tokenizer.encode_lines(lines)]
    return TokenList(np.concatenate(encoded), np.array([len(each) for each in encoded]))


def sequences(found: TokenStore) -> list[list[int]]:
    return [found[i].tolist() for i in range(len(found))]


def drawn(tokenizer: MacaronTokenizer, pairs: Sequence[TokenList], share: float, *seed: int) -> list[TokenStore]:
    found = SplitWords(Merges(tokenizer), PairStore(*pairs)).draw(share, seed)
    return [found.source, found.target]


def trained(pipeline: str, size: int, lines: list[str]) -> MacaronTokenizer:
    languages = {"source_lang": "de", "target_lang": "en"} if pipeline == "moses" else {}
    settings: dict[str, Any] = {"pipeline": pipeline, **languages}
    return MacaronTokenizer.train(lines, size, **settings)


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    with tarfile.open(Path(macaron.data.__file__).parent / "demo_corpus.tar.bz2") as archive:
        names = [name for name in archive.getnames() if Path(name).name in ("train.de", "train.en")]
        return [line for name in names for line in archive.extractfile(name).read().decode().splitlines()]  # type: ignore[union-attr]


@pytest.fixture(scope="module", params=["raw 700", "moses 1500", "moses 300", "spaces 1200"])
def tokenizer(request: pytest.FixtureRequest, corpus: list[str]) -> MacaronTokenizer:
    """Bytes; words with and without bytes for unknown letters."""
    pipeline, size = request.param.split()
    return trained(pipeline, int(size), [*corpus[:1000], *corpus[-1000:], *HARD[1:2] * 3])


def test_without_dropout_it_is_what_is_stored(tokenizer: MacaronTokenizer, corpus: list[str]):
    sides = side(tokenizer, [*corpus[:1500], *HARD]), side(tokenizer, [*corpus[-1500:], *HARD[::-1]])
    found = drawn(tokenizer, sides, 0.0, 1, 1)
    assert [sequences(each) for each in found] == [sequences(each) for each in sides]


@pytest.mark.slow
def test_without_dropout_it_is_what_is_stored_of_the_whole_demo_corpus(tokenizer: MacaronTokenizer, corpus: list[str]):
    half = len(corpus) // 2
    sides = side(tokenizer, corpus[:half]), side(tokenizer, corpus[half:])
    for one, other in zip(drawn(tokenizer, sides, 0.0, 1, 1), sides, strict=True):
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.offsets, other.offsets)


def test_with_dropout_of_everything_letters_are_left(tokenizer: MacaronTokenizer, corpus: list[str]):
    lines = [*corpus[:200], *HARD]
    sides = (side(tokenizer, lines),) * 2
    backend = tokenizer.backend_tokenizer
    model = json.loads(backend.to_str())["model"]
    made = {left + right for left, right in model["merges"]}
    for found, stored in zip(drawn(tokenizer, sides, 1.0, 1, 1), sides, strict=True):
        assert not {backend.id_to_token(index) for index in set(found.ids.tolist())} & made
        assert tokenizer.decode_lines(sequences(found)) == tokenizer.decode_lines(sequences(stored))


@settings(max_examples=40)
@given(st.lists(st.text(), min_size=1, max_size=8), st.floats(0, 1), st.integers(0, 5))
def test_the_text_stays(lines: list[str], share: float, seed: int):
    tokenizer = RAW
    stored = side(tokenizer, lines)
    for found in drawn(tokenizer, (stored, stored), share, seed):
        assert tokenizer.decode_lines(sequences(found)) == tokenizer.decode_lines(sequences(stored))
        assert [ids[-1] for ids in sequences(found)] == [EOS] * len(lines)


RAW = trained("raw", 330, [*HARD, "Das Haus ist groß, nicht wahr?", "The house is big, isn't it?"] * 3)


def probabilities(
    symbols: tuple[str, ...], ranks: dict[tuple[str, str], int], share: float
) -> Counter[tuple[str, ...]]:
    """Algorithm 1 of the paper, for all chances: possible merges are left out, the best of the others is applied."""
    places = [i for i in range(len(symbols) - 1) if (symbols[i], symbols[i + 1]) in ranks]
    places.sort(key=lambda i: (ranks[symbols[i], symbols[i + 1]], i))
    found = Counter({symbols: share ** len(places)})
    for better, i in enumerate(places):
        merged = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
        for result, chance in probabilities(merged, ranks, share).items():
            found[result] += share**better * (1 - share) * chance
    return found


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_splits_have_the_probabilities_of_the_paper(share: float, monkeypatch: pytest.MonkeyPatch):
    times = 40_000
    monkeypatch.setattr(bpe_dropout, "DRAWS", times)
    words = ["lower", "lowest", "slowly", "aaaaa"]
    tokenizer = trained("spaces", 60, ["low lower lowest slow slowly slow aaaa aaaaa aaa"] * 4)
    content = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    ranks = {(left, right): rank for rank, (left, right) in enumerate(content["merges"])}
    for word in words:
        stored = side(tokenizer, [word] * times)
        found = drawn(tokenizer, (stored, stored), share, 3)[0]
        tokens = (tuple(map(tokenizer.backend_tokenizer.id_to_token, ids[:-1])) for ids in sequences(found))
        expected = probabilities((*word[:-1], word[-1] + " "), ranks, share)
        assert sum(expected.values()) == pytest.approx(1)
        assert len(expected) > 3
        seen = Counter(tokens)
        assert seen.keys() <= expected.keys()
        for split, chance in expected.items():
            # The occurrences take draws by chance: at most twice the variance of independent ones.
            deviation = (2 * times * chance * (1 - chance)) ** 0.5
            assert abs(seen[split] - times * chance) < 5 * deviation + 1, (word, split)


def test_occurrences_share_few_splits(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bpe_dropout, "DRAWS", 3)
    stored = side(RAW, ["house"] * 500)
    splits = {tuple(ids) for found in drawn(RAW, (stored, stored), 0.5, 1) for ids in sequences(found)}
    assert 1 < len(splits) <= 3


def test_a_function_of_the_seed(corpus: list[str]):
    sides = side(RAW, corpus[:100]), side(RAW, corpus[-100:])
    words = SplitWords(Merges(RAW), PairStore(*sides))
    one, same, other = (
        [sequences(each) for each in (found.source, found.target)]
        for found in (words.draw(0.3, [1, epoch]) for epoch in (1, 1, 2))
    )
    assert one == same
    assert one[0] != other[0]
    assert one[1] != other[1]
    assert [sequences(each) for each in drawn(RAW, sides, 0.3, 1, 2)] == other


def converted() -> Iterable[tuple[MacaronTokenizer, str]]:
    dictionary = GOLDEN / "dict.txt"
    yield MacaronTokenizer.from_fairseq_dict(dictionary), "WordLevel"
    yield MacaronTokenizer.from_fairseq_dict(GOLDEN / "dict.bert.txt", kind="encoder"), "WordLevel"


def test_other_tokenizers_are_refused_by_name(tmp_path: Path):
    for tokenizer, name in converted():
        with pytest.raises(MacaronError, match=rf"train.bpe_dropout needs a BPE .* is a {name} of another model"):
            Merges(tokenizer)
    (tmp_path / "codes").write_text("#version: 0.2\nl o\nlo w</w>\n")
    (tmp_path / "dict").write_text("low 3\nl@@ 2\n")
    with pytest.raises(MacaronError, match="is a BPE with a dictionary of another model"):
        Merges(MacaronTokenizer.from_fairseq_dict(tmp_path / "dict", tmp_path / "codes"))


def test_a_vocabulary_without_merges():
    tokenizer = trained("raw", 260, ["abc"])
    stored = side(tokenizer, ["abc abc", "d"])
    found = drawn(tokenizer, (stored, stored), 0.5, 1)
    assert [sequences(each) for each in found] == [sequences(stored)] * 2
    assert found[0].take(np.array([1, 0])).tolist() == sequences(stored)[1] + sequences(stored)[0]
