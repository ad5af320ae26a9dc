"""The tokenizer in transformers' interface: calls, batches, sentence pairs, offsets, saving."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.huggingface import HFTokenizer
from macaron.text import MacaronTokenizer

GOLDEN = Path(__file__).parent.parent / "golden"
GERMAN = ["Das Haus ist groß, nicht wahr?", "Wir sehen zwei Häuser.", 'Er sagte: "Na, geht\'s?"'] * 4
ENGLISH = ["The house is big, isn't it?", "We see two houses.", 'He said: "Well, is it OK?"'] * 4


@pytest.fixture(scope="module")
def raw() -> HFTokenizer:
    return HFTokenizer.train(GERMAN, 320, target_lines=ENGLISH)


@pytest.fixture(scope="module")
def moses() -> HFTokenizer:
    return HFTokenizer.train(GERMAN, 200, target_lines=ENGLISH, pipeline="moses", source_lang="de", target_lang="en")


@pytest.fixture(scope="module")
def encoder() -> HFTokenizer:
    return HFTokenizer.train(ENGLISH, 320, kind="encoder", model_max_length=12)


@pytest.fixture(scope="module")
def reference_encoder() -> HFTokenizer:
    return HFTokenizer.from_fairseq_dict(GOLDEN / "dict.bert.txt", kind="encoder")


@given(st.text())
@settings(max_examples=300, deadline=None)
@example(" leading,  double and trailing \t ")
@example("e\u0301 \u200b\u200d zero width \x00\x07\x1b[0m \u2028\u0085\r\n 👩‍👩‍👧 \U0010ffff")
@example("a </s> b <pad> <unk> <s>")
@example("\u00a0\u3000\ufeff")
def test_raw_text_survives_bit_for_bit(raw: HFTokenizer, text: str) -> None:
    ids = raw(text)["input_ids"]
    assert ids[-1] == 2
    assert 2 not in ids[:-1]
    assert 3 not in ids
    assert raw.decode(ids, skip_special_tokens=True) == text
    assert raw.encode_lines([text]) == [ids]
    assert raw.decode_lines([ids]) == [text]


@given(st.lists(st.integers(-100, 330), max_size=30))
@settings(deadline=None)
def test_decoding_never_raises(
    raw: HFTokenizer,
    moses: HFTokenizer,
    ids: list[int],
) -> None:
    for tokenizer in (raw, moses):
        for skip in (False, True):
            tokenizer.decode(ids, skip_special_tokens=skip).encode("utf-8")


def test_batches_and_tensors(raw: HFTokenizer) -> None:
    batch = raw(GERMAN[:3], text_target=ENGLISH[:3], padding=True, return_tensors="pt")
    lengths = torch.tensor([len(ids) for ids in raw.encode_lines(GERMAN[:3])])
    assert batch["attention_mask"].sum(1).equal(lengths)
    assert (batch["input_ids"] == raw.pad_token_id).sum(1).equal(lengths.max() - lengths)
    assert "token_type_ids" not in batch
    assert raw.decode(batch["input_ids"], skip_special_tokens=True) == GERMAN[:3]
    assert raw.decode(batch["labels"], skip_special_tokens=True) == ENGLISH[:3]
    assert raw.batch_decode(batch["labels"], skip_special_tokens=True) == ENGLISH[:3]


def test_truncation_keeps_the_end(raw: HFTokenizer) -> None:
    ids = raw(GERMAN[0], truncation=True, max_length=4)["input_ids"]
    assert len(ids) == 4
    assert ids[-1] == raw.eos_token_id
    assert len(raw.encode_lines(GERMAN[:1])[0]) > 4  # the setting of one call does not leak into the next


def test_offsets_count_the_given_text(raw: HFTokenizer) -> None:
    text = "Das Haus"
    encoded = raw(text, return_offsets_mapping=True, add_special_tokens=False)
    pieces = [text[start:end].strip() for start, end in encoded["offset_mapping"]]
    assert "".join(pieces) == "DasHaus"


def test_moses_text_in_and_out(moses: HFTokenizer) -> None:
    batch = moses(GERMAN[:3], text_target=ENGLISH[:3])
    assert moses.decode(batch["labels"], skip_special_tokens=True) == [line.lower() for line in ENGLISH[:3]]
    assert moses.encode_lines(ENGLISH[:3], "target") == batch["labels"]
    tokenised = moses.decode_lines(batch["input_ids"], "source", state="moses")
    assert tokenised[2] == "er sagte : &quot; na , geht &apos; s ? &quot;"
    assert moses.encode_lines(tokenised, state="moses") == batch["input_ids"]
    assert moses("東")["input_ids"] == [3, 2]
    assert moses.decode([3, 2], skip_special_tokens=True) == "<unk>"
    with pytest.raises(MacaronError, match="offsets"):
        moses("text", return_offsets_mapping=True)


def test_each_side_has_its_language() -> None:
    line = "Am 3. Mai, l'homme d'or."
    tokenizer = HFTokenizer.train(
        [line] * 3, 100, target_lines=[line] * 3, pipeline="moses", source_lang="de", target_lang="fr"
    )
    german, french = tokenizer.encode_lines([line], "source"), tokenizer.encode_lines([line], "target")
    assert tokenizer.decode_lines(german, state="moses") == ["am 3. mai , l &apos; homme d &apos; or ."]
    assert tokenizer.decode_lines(french, state="moses") == ["am 3 . mai , l&apos; homme d&apos; or ."]
    assert tokenizer(line)["input_ids"] == german[0]
    assert tokenizer(text_target=line)["input_ids"] == french[0]
    assert tokenizer(line)["input_ids"] == german[0]


def test_encoder_pairs(encoder: HFTokenizer) -> None:
    single = encoder("The house")
    assert single["input_ids"][0] == encoder.cls_token_id == 5
    assert single["input_ids"][-1] == encoder.sep_token_id == 2
    assert set(single["token_type_ids"]) == {0}
    a, b = (encoder(text, add_special_tokens=False)["input_ids"] for text in ("The house", "is"))
    pair = encoder("The house", "is")
    assert pair["input_ids"] == [5, *a, 2, *b, 2]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert len(encoder(ENGLISH[0], ENGLISH[1], truncation=True)["input_ids"]) == 12


def test_encoder_recognises_its_mask(encoder: HFTokenizer) -> None:
    before, after = (encoder(text, add_special_tokens=False)["input_ids"] for text in ("The", "xis"))
    masked = encoder("The <mask> is", add_special_tokens=False)["input_ids"]
    assert masked == [*before, 4, *encoder("is", add_special_tokens=False)["input_ids"]]
    assert after
    # In a corpus it is text.
    assert 4 not in encoder.encode_lines(["The <mask> is"])[0]


def test_an_encoder_with_moses_recognises_its_mask() -> None:
    """The pipeline must not take it apart: fill-mask needs it."""
    lines = ["The house is old, he said.", "It isn't in the U.S. any more."] * 20
    moses = HFTokenizer.train(lines, 120, kind="encoder", pipeline="moses", source_lang="en")

    def ids(text: str) -> list[int]:
        return moses(text, add_special_tokens=False)["input_ids"]

    assert ids("The <mask> is old.") == [*ids("The"), 4, *ids("is old.")]
    assert ids("<mask> isn't <mask>.") == [4, *ids("isn't"), 4, *ids(".")]
    # What stands around it is as it would be around a word.
    assert (
        ids("In the U.S. <mask> is old.")[: len(ids("in the u.s. house")) - len(ids("house"))]
        == ids("in the u.s. house")[: -len(ids("house"))]
    )
    assert ids(["The <mask>", "zqxexqz <mask>"])[1].count(4) == 1
    # In a corpus it is text.
    assert 4 not in moses.encode_lines(["The <mask> is"])[0]


def test_encoder_segments_of_the_reference(reference_encoder: HFTokenizer) -> None:
    # Row by row what the authors' code has for these lengths: </s> belongs to the sentence it ends.
    first, second = ["tok1 tok2 tok3", "tok4"], ["tok5", "tok6 tok7"]
    batch = reference_encoder(first, second, padding="max_length", max_length=9)
    assert batch["input_ids"] == [[5, 7, 8, 9, 2, 11, 2, 1, 1], [5, 10, 2, 12, 13, 2, 1, 1, 1]]
    assert batch["token_type_ids"] == [[1, 1, 1, 1, 1, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0, 1, 1, 1]]


@pytest.mark.golden
def test_encoder_batch_of_the_reference(reference_encoder: HFTokenizer) -> None:
    golden = np.load(GOLDEN / "bert_tiny_macaron" / "io.npz")
    first, second = [], []
    for row, length in zip(golden["src_tokens"], golden["src_lengths"], strict=True):
        middle = row.tolist().index(2)
        first.append(" ".join(reference_encoder.convert_ids_to_tokens(row[1:middle])))
        second.append(" ".join(reference_encoder.convert_ids_to_tokens(row[middle + 1 : length - 1])))
    batch = reference_encoder(first, second, padding=True, return_tensors="np")
    np.testing.assert_array_equal(batch["input_ids"], golden["src_tokens"])
    np.testing.assert_array_equal(batch["token_type_ids"], golden["segment"])


@pytest.mark.parametrize("name", ["raw", "moses", "encoder", "reference_encoder"])
def test_saved_and_loaded(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tokenizer: HFTokenizer = request.getfixturevalue(name)
    tokenizer(["some text", "x"], padding=True, truncation=True, max_length=5)  # leaves nothing in the files
    tokenizer.save_pretrained(tmp_path / "a")
    again = HFTokenizer.from_pretrained(tmp_path / "a")
    again.save_pretrained(tmp_path / "b")
    files = ["digests.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.text_pipeline == tokenizer.text_pipeline
    texts = [*GERMAN[:3], "tok1 tok2 <mask>"]
    assert dict(again(texts, texts, padding=True)) == dict(tokenizer(texts, texts, padding=True))
    assert again.model_max_length == tokenizer.model_max_length
    assert again.model_input_names == tokenizer.model_input_names


@pytest.mark.parametrize("name", ["raw", "moses", "encoder", "reference_encoder"])
def test_both_forms_write_and_read_the_same_files(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    theirs: HFTokenizer = request.getfixturevalue(name)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = MacaronTokenizer.from_pretrained(tmp_path / "theirs")
    assert ours.fingerprint() == theirs.fingerprint()
    ours.save_pretrained(tmp_path / "ours")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()
    again = HFTokenizer.wrap(ours)
    assert dict(again(GERMAN[:3])) == dict(theirs(GERMAN[:3]))
    assert again.encode_lines(GERMAN[:3]) == ours.encode_lines(GERMAN[:3])
