"""The tokenizer class: text to ids and back, sentence pairs, saving, identity."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from macaron.errors import MacaronError
from macaron.seal import seal
from macaron.text import MacaronTokenizer, verify
from macaron.text.fingerprint import of_ids
from macaron.text.tokenizer import SETTINGS
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
    (ids,) = raw.encode_lines([text])
    assert ids[-1] == 2
    assert 2 not in ids[:-1]
    assert 3 not in ids
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
        assert tokenizer.decode_lines(ids) == [tokenizer.text_pipeline.decode(prepared)]
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


def test_a_vocabulary_with_a_gap_is_refused(raw: MacaronTokenizer, tmp_path: Path) -> None:
    raw.save_pretrained(tmp_path)
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    del content["model"]["vocab"]["÷"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    seal(tmp_path)
    with pytest.raises(MacaronError, match=rf"tokenizer\.json: damaged, of {len(raw)} ids {len(raw) - 1} have a token"):
        MacaronTokenizer.from_pretrained(tmp_path)


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
        tokenizer.decode_lines([ids])[0].encode("utf-8")


def test_cut_characters_become_replacement_characters(raw: MacaronTokenizer) -> None:
    (ids,) = raw.encode_lines(["😀"], add_special_tokens=False)
    assert "\ufffd" in raw.decode_lines([ids[:-1]])[0]


def test_lone_surrogates_are_refused(raw: MacaronTokenizer) -> None:
    with pytest.raises(MacaronError, match="surrogates"):
        raw.encode_lines(["good", "bad \ud800"])


def test_each_side_has_its_language() -> None:
    line = "Am 3. Mai, l'homme d'or."
    tokenizer = MacaronTokenizer.train(
        [line] * 3, 100, target_lines=[line] * 3, pipeline="moses", source_lang="de", target_lang="fr"
    )
    german, french = tokenizer.encode_lines([line], "source"), tokenizer.encode_lines([line], "target")
    assert tokenizer.decode_lines(german, state="moses") == ["am 3. mai , l &apos; homme d &apos; or ."]
    assert tokenizer.decode_lines(french, state="moses") == ["am 3 . mai , l&apos; homme d&apos; or ."]


def test_a_dictionary_alone_looks_words_up(tmp_path: Path) -> None:
    (tmp_path / "dict.txt").write_text("foo@@ 3\nbar 2\nbaz 1\n")
    tokenizer = MacaronTokenizer.from_fairseq_dict(tmp_path / "dict.txt")
    assert tokenizer.encode_lines(["  foo@@ bar\tbaz qux "]) == [[4, 5, 6, 3, 2]]
    assert tokenizer.decode_lines([[4, 5, 6, 2], [6, 4, 2]]) == ["foobar baz", "baz foo"]
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
    assert len(tokenizer) == 9
    assert tokenizer.encode_lines(["It's house."]) == [[4, 5, 6, 7, 8, 2]]
    assert tokenizer.decode_lines([[4, 5, 6, 7, 8, 2]]) == ["it's house."]
    # "ou" is a symbol of the merges that the dictionary lacks
    assert tokenizer.encode_lines(["oux"]) == [[3, 3, 2]]
    assert tokenizer.decode_lines([[3, 4, 2]]) == ["it"]  # a converted tokenizer leaves out what it does not know
    assert max(tokenizer.get_vocab().values()) == 8
    tokenizer.save_pretrained(tmp_path / "model")
    again = MacaronTokenizer.from_pretrained(tmp_path / "model")
    assert again.encode_lines(["It's oux house."]) == tokenizer.encode_lines(["It's oux house."])
    assert len(again) == 9


def test_special_tokens_are_recognised_only_where_that_is_asked_for(encoder: MacaronTokenizer) -> None:
    def ids(text: str, recognise: bool = True) -> list[int]:
        return encoder.encode_lines([text], add_special_tokens=False, recognise_specials=recognise)[0]

    assert ids("The <mask> is") == [*ids("The"), 4, *ids("is")]
    assert 4 not in ids("The <mask> is", recognise=False)
    moses = MacaronTokenizer.train(ENGLISH, 120, kind="encoder", pipeline="moses", source_lang="en")
    assert moses.encode_lines(["The <mask>."], recognise_specials=True)[0].count(4) == 1
    assert 4 not in moses.encode_lines(["The <mask>."])[0]


def test_other_segments_change_the_fingerprint_alone(encoder: MacaronTokenizer, tmp_path: Path) -> None:
    turned = encoder.changed(segments=(1, 0))
    assert (encoder.segments, turned.segments) == ([0, 1], [1, 0])
    assert turned.fingerprint() != encoder.fingerprint() == turned.changed(segments=(0, 1)).fingerprint()
    assert turned.encode_lines(ENGLISH) == encoder.encode_lines(ENGLISH)
    assert turned.model_max_length == 12


@pytest.mark.parametrize("name", ["raw", "moses", "encoder", "reference_encoder"])
def test_saved_and_loaded(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    tokenizer: MacaronTokenizer = request.getfixturevalue(name)
    tokenizer.save_pretrained(tmp_path / "a")
    again = MacaronTokenizer.from_pretrained(tmp_path / "a")
    again.save_pretrained(tmp_path / "b")
    files = ["digests.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == files
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()
    assert again.fingerprint() == tokenizer.fingerprint()
    assert again.text_pipeline == tokenizer.text_pipeline
    texts = [*GERMAN[:3], "tok1 tok2 <mask>"]
    assert again.encode_lines(texts) == tokenizer.encode_lines(texts)
    assert again.model_max_length == tokenizer.model_max_length


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


def test_fingerprint_stays_what_it_is() -> None:
    # Stored in model folders: if this changes, they can no longer be opened. Raise `format` knowingly.
    tokenizer = MacaronTokenizer.from_fairseq_dict(GOLDEN / "dict.txt")
    assert tokenizer.fingerprint() == FINGERPRINT


def test_the_fingerprint_covers_decoder_and_post_processor(raw: MacaronTokenizer, encoder: MacaronTokenizer) -> None:
    """All parts of tokenizer.json. A fingerprint of an earlier version knows only how text becomes ids."""
    for tokenizer in (raw, encoder):
        whole = json.loads(tokenizer.backend_tokenizer.to_str())
        shorter = [entry for entry in whole["post_processor"]["single"] if "Sequence" in entry]
        behaviour = json.dumps(whole["pre_tokenizer"]).replace("Isolated", "Removed")
        changes: list[dict[str, Any]] = [
            {"decoder": None},
            {"post_processor": None},
            {"post_processor": {**whole["post_processor"], "single": shorter}},
            {"normalizer": {"type": "Lowercase"}},
            {"model": {**whole["model"], "ignore_merges": True}},
            {"added_tokens": [{**token, "special": False} for token in whole["added_tokens"]]},
            *([{"pre_tokenizer": json.loads(behaviour)}] if "Isolated" in behaviour else []),
        ]
        expected = SimpleNamespace(vocab_size=len(tokenizer), tokenizer_fingerprint=tokenizer.fingerprint())
        earlier = SimpleNamespace(vocab_size=len(tokenizer), tokenizer_fingerprint=of_ids(tokenizer.fingerprint()))
        for change in changes:
            backend = Tokenizer.from_str(json.dumps({**whole, **change}))
            other = MacaronTokenizer(backend, **{name: getattr(tokenizer, name) for name in SETTINGS})
            with pytest.raises(MacaronError, match="not the one that this model was trained with"):
                verify(other, expected)
            if set(change) <= {"decoder", "post_processor"}:
                verify(other, earlier)
        verify(tokenizer, earlier)


FINGERPRINT = "276b0172a8f58fa01dfac2a5bce571c4330178943a32924fb6d7aa78d4b35011+08251ff8bd2f8b46"


def test_verify(raw: MacaronTokenizer) -> None:
    config = SimpleNamespace(vocab_size=len(raw), tokenizer_fingerprint=raw.fingerprint())
    verify(raw, config)
    verify(raw, SimpleNamespace(vocab_size=len(raw) + 8, tokenizer_fingerprint=None))
    with pytest.raises(MacaronError, match="belong"):
        verify(raw, SimpleNamespace(vocab_size=len(raw) - 1))
    with pytest.raises(MacaronError, match="trained with"):
        verify(MacaronTokenizer.from_fairseq_dict(GOLDEN / "dict.txt"), config)


@pytest.mark.parametrize("name", ["raw", "moses"])
def test_a_sentence_enters_two_files(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: MacaronTokenizer = request.getfixturevalue(name)
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and "macaron" in frame.f_code.co_filename:
            entered.add(Path(frame.f_code.co_filename).name)

    sys.setprofile(note)
    try:
        tokenizer.decode_lines(tokenizer.encode_lines(GERMAN[:1]))
    finally:
        sys.setprofile(None)
    entered.discard(Path(__file__).name)
    assert entered == {"tokenizer.py", "pipeline.py"}


FOREIGN: dict[str, Any] = {
    "normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000},
    "pre_tokenizer": {"type": "FixedLength", "length": 0},
    "decoder": {"type": "Strip", "content": "a", "start": 10**15, "stop": 0},
    "post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B", "type_id": 0}}]},
    "model": {"type": "Unigram", "unk_id": 0, "vocab": [["a", -1.0]]},
}


@pytest.mark.parametrize("part", [*FOREIGN, "prefix", "dropout"])
@pytest.mark.parametrize("name", ["raw", "moses", "encoder"])
def test_parts_of_other_tokenizers_are_refused(
    part: str, name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """With some of them `tokenizers` panics, or fills the memory."""
    tokenizer: MacaronTokenizer = request.getfixturevalue(name)
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "digests.json").unlink()
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    if part in FOREIGN:
        content[part] = FOREIGN[part]
    else:
        content["model"] |= {"continuing_subword_prefix": "x" * 1000} if part == "prefix" else {"dropout": 0.5}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"tokenizer\.json: it has parts that no tokenizer of Macaron has"):
        MacaronTokenizer.from_pretrained(tmp_path)


def test_a_language_is_a_code(raw: MacaronTokenizer, tmp_path: Path) -> None:
    """It is a part of the names of files."""
    raw.changed(source_lang="sr-Latn", target_lang="en_XX").save_pretrained(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(path.read_text().replace("sr-Latn", "/../../x"))
    (tmp_path / "digests.json").unlink()
    with pytest.raises(MacaronError, match=r"source_lang = '/\.\./\.\./x' is not a language code"):
        MacaronTokenizer.from_pretrained(tmp_path)


def test_text_room_is_light() -> None:
    program = (
        "import sys; from macaron.text import MacaronTokenizer; assert not {'transformers', 'torch'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
