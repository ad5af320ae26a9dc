"""An extended tokenizer keeps every id, and its new pieces stand for the old ones that they replace."""

import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.text import MacaronTokenizer
from macaron.text.extension import extended, extends, origins
from macaron.text.vocabulary import FILLER, UNK

SYLLABLES = ("ba", "na", "ko", "ri", "shu", "mi", "to", "ze", "pla", "gru")
MOSES: dict[str, Any] = {"pipeline": "moses", "source_lang": "en", "target_lang": "en"}
SETTINGS: list[dict[str, Any]] = [
    {"vocab_size": 300},
    {"vocab_size": 300, "kind": "encoder"},
    {"vocab_size": 1000, **MOSES},  # letters that it lacks are bytes
    {"vocab_size": 60, **MOSES},  # ... are unknown
]


def lines(seed: int, ending: str = "") -> list[str]:
    generator = random.Random(seed)
    words = ["".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) for _ in range(40)]
    words = [word + generator.choice(["", ending]) for word in words]
    return [" ".join(generator.choices(words, k=8)) + generator.choice(["", ",", "!?"]) for _ in range(150)]


def counts(tokenizer: MacaronTokenizer, text: list[str]) -> Counter[str]:
    return Counter(word for line in text for word in tokenizer.text_pipeline.encode(line).split())


def codes_tokenizer(folder: Path) -> MacaronTokenizer:
    """A dictionary that lacks some pieces of its codes."""
    (folder / "codes").write_text("#version: 0.2\nb a\nn a</w>\nba na</w>\nk o\nr i</w>\nko ri</w>\ns h\n")
    letters = [f"{letter}@@ 9" for letter in "bankorishumtzeplg"] + [f"{letter} 9" for letter in "aioue,!?"]
    (folder / "dict.txt").write_text("\n".join(["bana 5", "ba@@ 5", "na 4", "ko@@ 3", *letters]) + "\n")
    return MacaronTokenizer.from_fairseq_dict(folder / "dict.txt", folder / "codes", **MOSES)


@pytest.fixture(scope="module", params=[*range(len(SETTINGS)), "codes"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """A tokenizer and its extension by 50 subwords."""
    if request.param == "codes":
        old = codes_tokenizer(tmp_path_factory.mktemp("codes"))
    else:
        old = MacaronTokenizer.train(lines(1), pad_to_multiple=8, **SETTINGS[request.param])
    return old, extended(old, counts(old, lines(2, "жü")), 50, 8)


def expanded(ids: list[int], parts: dict[int, list[int]]) -> list[int]:
    return [part for index in ids for part in parts.get(index, [index])]


def test_ids_are_kept_and_new_ones_follow(pair: Any):
    old, new = pair
    assert extends(new, old)
    assert extends(old, old)
    assert not extends(old, new)
    vocabulary = new.get_vocab()
    assert {token: vocabulary[token] for token in old.get_vocab()} == old.get_vocab()
    added = [token for token, index in vocabulary.items() if index >= len(old)]
    assert sum(not token.startswith(FILLER) for token in added) == 50
    assert len(new) % 8 == 0
    assert sorted(vocabulary.values()) == list(range(len(new)))


def test_new_pieces_stand_for_old_ones(pair: Any):
    """Of old and of new text; so text without a new piece is split as before."""
    old, new = pair
    parts = origins(old, new)
    assert parts.keys() == set(range(len(old), len(new)))
    for text, shorter in ((lines(1), False), (lines(2, "жü"), True), (["</s> <0x41> <unk>"], False)):
        before, after = old.encode_lines(text), new.encode_lines(text)
        if old.dictionary_size is None:  # letters that a dictionary knows only at one place are unknown at others
            unknown = [[index for index in line if index != UNK] for line in before]
            found = [[index for index in expanded(line, parts) if index != UNK] for line in after]
            assert found == unknown
            assert all((line == same) or max(same) >= len(old) for line, same in zip(before, after, strict=True))
        assert not shorter or sum(map(len, after)) < 0.8 * sum(map(len, before))


def test_text_comes_back(pair: Any):
    old, new = pair
    if old.show_unknown or old.dictionary_size is not None:
        return
    text = [*lines(1), *lines(2, "жü"), "ordinary Text, «quoted» 12.5 €"]
    assert new.decode_lines(new.encode_lines(text)) == old.decode_lines(old.encode_lines(text))


@given(st.text(max_size=30))
def test_any_text_comes_back(text: str):
    new = _small()
    assert new.decode_lines(new.encode_lines([text])) == [text]


@cache
def _small() -> MacaronTokenizer:
    old = MacaronTokenizer.train(lines(1), 300)
    return extended(old, counts(old, lines(2, "ü")), 30)


def test_it_repeats_and_is_stored(pair: Any, tmp_path: Path):
    old, new = pair
    again = extended(old, counts(old, lines(2, "жü")), 50, 8)
    assert again.fingerprint() == new.fingerprint() != old.fingerprint()
    new.save_pretrained(tmp_path)
    assert MacaronTokenizer.from_pretrained(tmp_path).fingerprint() == new.fingerprint()
    # Extended twice, it still is an extension.
    twice = extended(new, counts(new, lines(3)), 20, 8)
    assert extends(twice, new)
    assert extends(twice, old)


def test_tags_are_added_and_kept(pair: Any):
    old, new = pair
    tagged = extended(old, {}, 0, 8, ["<law>"])
    assert extends(tagged, old)
    assert tagged.tags == ["<law>"]
    index = tagged.get_vocab()["<law>"]
    assert index == len(old) == tagged.backend_tokenizer.token_to_id("<law>")
    assert not any(origins(old, tagged).values())
    more = extended(tagged, counts(old, lines(2, "жü")), 50, 8, ["<law>", "<news>"])
    assert more.tags == ["<law>", "<news>"]
    assert extends(more, tagged)
    assert more.get_vocab()["<law>"] == index
    text = ["ba <law> naka", *lines(1)]
    # In text a tag is text, before and after.
    assert tagged.encode_lines(text) == old.encode_lines(text)
    if old.dictionary_size is None:
        assert more.decode_lines(more.encode_lines(lines(1))) == old.decode_lines(old.encode_lines(lines(1)))
    with pytest.raises(MacaronError, match="is the name of a special token"):
        extended(old, {}, 0, 8, ["<unk>"])
    assert new.tags == []


def test_another_tokenizer_is_no_extension():
    one, other = (MacaronTokenizer.train(lines(seed), 300) for seed in (1, 5))
    assert not extends(other, one)
    lower, cased = (MacaronTokenizer.train(lines(1), 300, lower=lower, **MOSES) for lower in (True, False))
    assert not extends(cased, lower)
    german = lower.changed(source_lang="de")
    assert extends(german, lower)


def test_a_dictionary_of_words_cannot_be_extended(tmp_path: Path):
    (tmp_path / "dict.txt").write_text("foo 3\nba@@ 2\n")
    old = MacaronTokenizer.from_fairseq_dict(tmp_path / "dict.txt")
    with pytest.raises(MacaronError, match="looks words up in a dictionary"):
        extended(old, {"foo": 3}, 5)
