"""The tokenizer class: text to ids and back, sentence pairs, saving, identity."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from macaron.errors import MacaronError
from macaron.text import MacaronTokenizer, verify
from macaron.text.vocabulary import UNK

GOLDEN = Path(__file__).parent.parent / "golden"
GERMAN = ["Das Haus ist groß, nicht wahr?", "Wir sehen zwei Häuser.", 'Er sagte: "Na, geht\'s?"'] * 4
ENGLISH = ["The house is big, isn't it?", "We see two houses.", 'He said: "Well, is it OK?"'] * 4


@pytest.fixture(scope="module")
def raw() -> MacaronTokenizer:
    return MacaronTokenizer.train(GERMAN, 320, target_lines=ENGLISH)


@pytest.fixture(scope="module")
def moses() -> MacaronTokenizer:
    return MacaronTokenizer.train(
        GERMAN, 200, target_lines=ENGLISH, pipeline="moses", source_lang="de", target_lang="en"
    )


@pytest.fixture(scope="module")
def encoder() -> MacaronTokenizer:
    return MacaronTokenizer.train(ENGLISH, 320, kind="encoder", model_max_length=12)


@pytest.fixture(scope="module")
def reference_encoder() -> MacaronTokenizer:
    return MacaronTokenizer.from_fairseq_dict(GOLDEN / "dict.bert.txt", kind="encoder")


@given(st.text())
@settings(max_examples=300, deadline=None)
@example(" leading,  double and trailing \t ")
@example("e\u0301 \u200b\u200d zero width \x00\x07\x1b[0m \u2028\u0085\r\n 👩‍👩‍👧 \U0010ffff")
@example("a </s> b <pad> <unk> <s>")
@example("\u00a0\u3000\ufeff")
def test_raw_text_survives_bit_for_bit(raw: MacaronTokenizer, text: str) -> None:
    ids = raw(text)["input_ids"]
    assert ids[-1] == 2
    assert 2 not in ids[:-1]
    assert 3 not in ids
    assert raw.decode(ids, skip_special_tokens=True) == text
    assert raw.encode_lines([text]) == [ids]
    assert raw.decode_lines([ids]) == [text]


@pytest.fixture(scope="module")
def complete() -> dict[tuple[str, bool], MacaronTokenizer]:
    """Vocabularies that are large enough to know every character, from text that has few."""
    both = {"pipeline": "moses", "source_lang": "de", "target_lang": "en"}
    return {
        (pipeline, flag): MacaronTokenizer.train(
            GERMAN, 1000, target_lines=ENGLISH, **both | {"pipeline": pipeline}, lower=flag, normalize=flag
        )
        for pipeline, flag in (("moses", True), ("moses", False), ("spaces", False))
    }


CONTROL = dict.fromkeys(range(0x20))


def characters(text: str) -> str:
    return "".join(text.split())


@given(st.text())
@settings(max_examples=400, deadline=None)
@example("1 . 2")
@example("[x] <b> a|b.")
@example("C++ # @user")
@example("naïve 日本語 x 語. 日")
@example("a</w>b </w> <0x41> <0xE6> <0x20> <unk> </s> &lt;&amp;lt; \U00020000 \U0010ffff")
@example("e\u0301 \u200b\u200d\u00a0 👩‍👩‍👧 \x00\x07\x7f\x85")
def test_no_character_is_lost(complete: dict[tuple[str, bool], MacaronTokenizer], text: str) -> None:
    for (pipeline, lower), tokenizer in complete.items():
        ids = tokenizer.encode_lines([text], "target")
        assert UNK not in ids[0]
        assert ids[0].count(2) == 1
        prepared = tokenizer.text_pipeline.encode(text, "target")
        assert tokenizer.decode_lines(ids, state="moses") == [prepared]
        assert tokenizer.decode(ids[0], skip_special_tokens=True) == tokenizer.text_pipeline.decode(prepared)
        wanted = text
        if pipeline == "moses":
            from sacremoses import MosesPunctNormalizer

            # Moses drops the control characters of ASCII; the normaliser is a step of its own.
            wanted = MosesPunctNormalizer("en").normalize(text) if lower else text
            wanted = re.sub(r"\s+", " ", wanted).translate(CONTROL)
            wanted = wanted.lower() if lower else wanted
        assert characters(tokenizer.decode_lines(ids)[0]) == characters(wanted)


def test_a_complete_vocabulary_is_saved_loaded_and_recognised(
    complete: dict[tuple[str, bool], MacaronTokenizer], tmp_path: Path
) -> None:
    text = "naïve 日本語 #1"
    for number, tokenizer in enumerate(complete.values()):
        tokenizer.save_pretrained(tmp_path / str(number))
        again = MacaronTokenizer.from_pretrained(tmp_path / str(number))
        assert again.fingerprint() == tokenizer.fingerprint()
        assert again.encode_lines([text]) == tokenizer.encode_lines([text])
        assert characters(again.decode_lines(again.encode_lines([text]))[0]) == characters(text)
        assert not again.show_unknown


def test_a_small_vocabulary_shows_what_it_does_not_know(moses: MacaronTokenizer, tmp_path: Path) -> None:
    moses.save_pretrained(tmp_path)
    for tokenizer in (moses, MacaronTokenizer.from_pretrained(tmp_path)):
        ids = tokenizer.encode_lines(["das haus # 東京", "haus"])
        assert tokenizer.decode_lines(ids)[0].count("<unk>") == 3
        assert tokenizer.decode_lines(ids)[1] == "haus"
        assert tokenizer.fingerprint() == moses.fingerprint()


@given(st.lists(st.integers(-100, 330), max_size=30))
@settings(deadline=None)
def test_decoding_never_raises(
    raw: MacaronTokenizer,
    moses: MacaronTokenizer,
    complete: dict[tuple[str, bool], MacaronTokenizer],
    ids: list[int],
) -> None:
    for tokenizer in (raw, moses, *complete.values()):
        for skip in (False, True):
            tokenizer.decode(ids, skip_special_tokens=skip).encode("utf-8")


def test_cut_characters_become_replacement_characters(raw: MacaronTokenizer) -> None:
    ids = raw("😀", add_special_tokens=False)["input_ids"]
    assert "\ufffd" in raw.decode(ids[:-1])


def test_lone_surrogates_are_refused(raw: MacaronTokenizer) -> None:
    with pytest.raises(MacaronError, match="surrogates"):
        raw.encode_lines(["good", "bad \ud800"])


def test_batches_and_tensors(raw: MacaronTokenizer) -> None:
    batch = raw(GERMAN[:3], text_target=ENGLISH[:3], padding=True, return_tensors="pt")
    lengths = torch.tensor([len(ids) for ids in raw.encode_lines(GERMAN[:3])])
    assert batch["attention_mask"].sum(1).equal(lengths)
    assert (batch["input_ids"] == raw.pad_token_id).sum(1).equal(lengths.max() - lengths)
    assert "token_type_ids" not in batch
    assert raw.decode(batch["input_ids"], skip_special_tokens=True) == GERMAN[:3]
    assert raw.decode(batch["labels"], skip_special_tokens=True) == ENGLISH[:3]
    assert raw.batch_decode(batch["labels"], skip_special_tokens=True) == ENGLISH[:3]


def test_truncation_keeps_the_end(raw: MacaronTokenizer) -> None:
    ids = raw(GERMAN[0], truncation=True, max_length=4)["input_ids"]
    assert len(ids) == 4
    assert ids[-1] == raw.eos_token_id
    assert len(raw.encode_lines(GERMAN[:1])[0]) > 4  # the setting of one call does not leak into the next


def test_offsets_count_the_given_text(raw: MacaronTokenizer) -> None:
    text = "Das Haus"
    encoded = raw(text, return_offsets_mapping=True, add_special_tokens=False)
    pieces = [text[start:end].strip() for start, end in encoded["offset_mapping"]]
    assert "".join(pieces) == "DasHaus"


def test_moses_text_in_and_out(moses: MacaronTokenizer) -> None:
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
    tokenizer = MacaronTokenizer.train(
        [line] * 3, 100, target_lines=[line] * 3, pipeline="moses", source_lang="de", target_lang="fr"
    )
    german, french = tokenizer.encode_lines([line], "source"), tokenizer.encode_lines([line], "target")
    assert tokenizer.decode_lines(german, state="moses") == ["am 3. mai , l &apos; homme d &apos; or ."]
    assert tokenizer.decode_lines(french, state="moses") == ["am 3 . mai , l&apos; homme d&apos; or ."]
    assert tokenizer(line)["input_ids"] == german[0]
    assert tokenizer(text_target=line)["input_ids"] == french[0]
    assert tokenizer(line)["input_ids"] == german[0]


def test_a_dictionary_alone_looks_words_up(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("foo@@ 3\nbar 2\nbaz 1\n")
    tokenizer = MacaronTokenizer.from_fairseq_dict(tmp_path / "dict.txt")
    assert tokenizer("  foo@@ bar\tbaz qux ")["input_ids"] == [4, 5, 6, 3, 2]
    assert tokenizer.decode([4, 5, 6, 2], skip_special_tokens=True) == "foobar baz"
    assert tokenizer.decode([6, 4, 2], skip_special_tokens=True) == "baz foo"
    with pytest.raises(MacaronError, match="codes"):
        MacaronTokenizer.from_fairseq_dict(tmp_path / "dict.txt", pipeline="moses", source_lang="de")
    with pytest.raises(MacaronError, match="pipeline"):
        MacaronTokenizer.from_fairseq_dict(tmp_path / "dict.txt", pipeline="raw")


def test_dictionary_and_codes_take_plain_text(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("it 3\n&apos;s 2\nh@@ 1\nouse 1\n. 1\n")
    (tmp_path / "codes").write_text("#version: 0.2\ni t</w>\n& a\n&a p\n&ap o\n&apo s\n&apos ;\n&apos; s</w>\n")
    with (tmp_path / "codes").open("a") as codes:
        codes.write("o u\ns e</w>\nou se</w>\n")
    tokenizer = MacaronTokenizer.from_fairseq_dict(
        tmp_path / "dict.txt", tmp_path / "codes", pipeline="moses", source_lang="en", target_lang="en"
    )
    assert len(tokenizer) == tokenizer.vocab_size == 9
    assert tokenizer("It's house.")["input_ids"] == [4, 5, 6, 7, 8, 2]
    assert tokenizer.decode([4, 5, 6, 7, 8, 2], skip_special_tokens=True) == "it's house."
    # "ou" is a symbol of the merges that the dictionary lacks
    assert tokenizer("oux")["input_ids"] == [3, 3, 2]
    assert tokenizer.decode_lines([[3, 4, 2]]) == ["it"]  # a converted tokenizer leaves out what it does not know
    assert max(tokenizer.get_vocab().values()) == 8
    tokenizer.save_pretrained(tmp_path / "model")
    again = MacaronTokenizer.from_pretrained(tmp_path / "model")
    assert again("It's oux house.")["input_ids"] == tokenizer("It's oux house.")["input_ids"]
    assert len(again) == 9


def test_encoder_pairs(encoder: MacaronTokenizer) -> None:
    single = encoder("The house")
    assert single["input_ids"][0] == encoder.cls_token_id == 5
    assert single["input_ids"][-1] == encoder.sep_token_id == 2
    assert set(single["token_type_ids"]) == {0}
    a, b = (encoder(text, add_special_tokens=False)["input_ids"] for text in ("The house", "is"))
    pair = encoder("The house", "is")
    assert pair["input_ids"] == [5, *a, 2, *b, 2]
    assert pair["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert len(encoder(ENGLISH[0], ENGLISH[1], truncation=True)["input_ids"]) == 12


def test_encoder_recognises_its_mask(encoder: MacaronTokenizer) -> None:
    before, after = (encoder(text, add_special_tokens=False)["input_ids"] for text in ("The", "xis"))
    masked = encoder("The <mask> is", add_special_tokens=False)["input_ids"]
    assert masked == [*before, 4, *encoder("is", add_special_tokens=False)["input_ids"]]
    assert after
    # In a corpus it is text.
    assert 4 not in encoder.encode_lines(["The <mask> is"])[0]


def test_an_encoder_with_moses_recognises_its_mask() -> None:
    """The pipeline must not take it apart: fill-mask needs it."""
    lines = ["The house is old, he said.", "It isn't in the U.S. any more."] * 20
    moses = MacaronTokenizer.train(lines, 120, kind="encoder", pipeline="moses", source_lang="en")

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


def test_encoder_segments_of_the_reference(reference_encoder: MacaronTokenizer) -> None:
    # Row by row what the authors' code has for these lengths: </s> belongs to the sentence it ends.
    first, second = ["tok1 tok2 tok3", "tok4"], ["tok5", "tok6 tok7"]
    batch = reference_encoder(first, second, padding="max_length", max_length=9)
    assert batch["input_ids"] == [[5, 7, 8, 9, 2, 11, 2, 1, 1], [5, 10, 2, 12, 13, 2, 1, 1, 1]]
    assert batch["token_type_ids"] == [[1, 1, 1, 1, 1, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0, 1, 1, 1]]


@pytest.mark.golden
def test_encoder_batch_of_the_reference(reference_encoder: MacaronTokenizer) -> None:
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
    tokenizer: MacaronTokenizer = request.getfixturevalue(name)
    tokenizer(["some text", "x"], padding=True, truncation=True, max_length=5)  # leaves nothing in the files
    tokenizer.save_pretrained(tmp_path / "a")
    again = MacaronTokenizer.from_pretrained(tmp_path / "a")
    again.save_pretrained(tmp_path / "b")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.text_pipeline == tokenizer.text_pipeline
    texts = [*GERMAN[:3], "tok1 tok2 <mask>"]
    assert dict(again(texts, texts, padding=True)) == dict(tokenizer(texts, texts, padding=True))
    assert again.model_max_length == tokenizer.model_max_length
    assert again.model_input_names == tokenizer.model_input_names


def test_fingerprint_tells_tokenizers_apart(raw: MacaronTokenizer) -> None:
    def trained(**settings: object) -> str:
        return MacaronTokenizer.train(GERMAN, 320, target_lines=ENGLISH, **settings).fingerprint()

    assert trained() == raw.fingerprint()
    words = {"pipeline": "moses", "source_lang": "de", "target_lang": "en"}
    prints = [
        trained(kind="encoder"),
        trained(kind="encoder", segments=(1, 0)),
        trained(**words),
        trained(**words | {"target_lang": "fr"}),
        trained(**words, lower=False),
        trained(**words, normalize=False),
        raw.fingerprint(),
    ]
    assert len(set(prints)) == len(prints)
    raw("text", padding="max_length", max_length=20)
    assert trained() == raw.fingerprint()


def test_fingerprint_stays_what_it_is() -> None:
    # Stored in model folders: if this changes, they can no longer be opened. Raise `format` knowingly.
    tokenizer = MacaronTokenizer.from_fairseq_dict(GOLDEN / "dict.txt")
    assert tokenizer.fingerprint() == FINGERPRINT


FINGERPRINT = "276b0172a8f58fa01dfac2a5bce571c4330178943a32924fb6d7aa78d4b35011"


def test_verify(raw: MacaronTokenizer) -> None:
    config = SimpleNamespace(vocab_size=len(raw), tokenizer_fingerprint=raw.fingerprint())
    verify(raw, config)
    verify(raw, SimpleNamespace(vocab_size=len(raw) + 8, tokenizer_fingerprint=None))
    with pytest.raises(MacaronError, match="belong"):
        verify(raw, SimpleNamespace(vocab_size=len(raw) - 1))
    with pytest.raises(MacaronError, match="trained with"):
        verify(MacaronTokenizer.from_fairseq_dict(GOLDEN / "dict.txt"), config)
