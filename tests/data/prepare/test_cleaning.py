"""Lines are read as they are, pairs are dropped by the rule that says so, and copies are found."""

import gzip
import lzma
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron import files as files_module
from macaron.data.prepare import encoding
from macaron.data.prepare import roles as duplicates
from macaron.data.prepare.cleaning import AlignedFiles, Chunk, CleanedChunk, chunks, clean_pairs
from macaron.data.prepare.encoding import WordEncoder
from macaron.data.prepare.roles import DUPLICATE, OVERLAP, TRAIN, VALID
from macaron.data.settings import CorpusSettings, PairsSettings
from macaron.errors import MacaronError
from macaron.files import raw_lines
from macaron.text import MacaronTokenizer
from macaron.text.extension import repeated_words

SETTINGS = PairsSettings(
    source_lang="de", target_lang="en", out=Path("out"), train=(CorpusSettings("x"),), max_words=10
)


def clean(
    pairs: list[tuple[bytes | None, bytes | None]], strict: bool = False, keep_text: bool = False, **changes: object
) -> CleanedChunk:
    columns = [left for left, _ in pairs], [right for _, right in pairs]
    chunk = Chunk(AlignedFiles((Path("x.de"), Path("x.en"))), 1, columns)
    return clean_pairs(chunk, replace(SETTINGS, **changes), strict, keep_text)


def files(folder: Path, german: bytes, english: bytes) -> AlignedFiles:
    return AlignedFiles((write(folder / "x.de", german), write(folder / "x.en", english)))


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


# Reading


def test_lines_end_at_newline_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "\ufeffa\u2028b\r\n\x85c\x0bd\n\n\rlast".encode())
    assert list(raw_lines(path)) == ["a\u2028b".encode(), "\x85c\x0bd".encode(), b"", b"\rlast"]


@pytest.mark.parametrize(("ending", "compress"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files(tmp_path: Path, ending: str, compress: object) -> None:
    content = b"eins\nzwei\n"
    path = write(tmp_path / f"x{ending}", compress(content))
    assert list(raw_lines(path)) == [b"eins", b"zwei"]
    for damaged in (compress(content)[:-6], b"plain text\n", compress(content)[:12] + b"\xff" * 20):
        write(path, damaged)
        with pytest.raises(MacaronError, match=f"x{ending}: cannot be decompressed"):
            list(raw_lines(path))


def test_lines_without_end_do_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_LINE", 10)
    path = write(tmp_path / "x", b"short\n" + b"x" * 35 + b"\nagain\n" + b"y" * 10 + b"\n" + b"z" * 9 + b"\n")
    assert list(raw_lines(path)) == [b"short", None, b"again", None, b"z" * 9]


def test_utf16_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x", "Text".encode("utf-16"))
    with pytest.raises(MacaronError, match=r"UTF-16.*iconv"):
        list(raw_lines(path))


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 2), (4, 5)])
def test_misaligned_files(tmp_path: Path, left: int, right: int) -> None:
    here = files(tmp_path, b"a\n" * left, b"b\n" * right)
    with pytest.raises(MacaronError, match=rf"x\.de and .*x\.en are not aligned: they have {left} and {right} lines"):
        list(chunks(here, 2, 1 << 20))


def test_empty_files(tmp_path: Path) -> None:
    with pytest.raises(MacaronError, match=r"x\.de and .*x\.en: empty"):
        list(chunks(files(tmp_path, b"", b""), 2, 1 << 20))
    assert len(list(chunks(files(tmp_path, b"\n", b"\n"), 2, 1 << 20))) == 1  # a pair, to be dropped by its rule


def test_chunks_hold_all_lines(tmp_path: Path) -> None:
    lines = [f"{'x' * (i % 7)}{i}".encode() for i in range(100)]
    content = b"\n".join(lines)
    here = files(tmp_path, content, content + b"\n")
    for limit in (8 << 20, 30):
        found = list(chunks(here, 7, limit))
        for column in (0, 1):
            assert [line for chunk in found for line in chunk.columns[column]] == lines
        sizes = [len(chunk.columns[0]) for chunk in found]
        assert [chunk.first_line for chunk in found] == list(np.cumsum([1, *sizes])[:-1])
        assert max(sizes) <= 7
        assert [chunk.last for chunk in found] == [False] * (len(found) - 1) + [True]


# Rules


@pytest.mark.parametrize(
    ("left", "right", "rule"),
    [
        (b"ein Haus", b"a house", None),
        (b"\xff\xfe", b"a house", "bad bytes"),
        (b"ein\0Haus", b"a house", "bad bytes"),
        (b"ein Haus", b"a \xc3", "bad bytes"),
        (b"", b"a house", "too short"),
        (b"ein Haus", "\u2003\t".encode(), "too short"),
        (b"x " * 11, b"x " * 11, "too long"),
        (b"x " * 10, b"x " * 10, None),
        (None, b"a house", "too long"),
        (b"x", b"x " * 6, None),
        (b"x", b"x " * 7, "ratio"),
        ("東京は大きい".encode(), b"Tokyo is really quite big", None),
        ("東京は大きいですねそう".encode(), b"Tokyo", "too long"),
    ],
)
def test_rules(left: bytes | None, right: bytes, rule: str | None) -> None:
    cleaned = clean([(left, right)])
    assert cleaned.dropped == ({rule: 1} if rule else {})
    assert cleaned.rows == (rule is None)


def test_a_ratio_of_zero_means_no_such_rule() -> None:
    assert clean([(b"x", b"x " * 9)], max_ratio=0.0, ratio_slack=0.0).rows == 1
    assert clean([(b"x x", b"x x x")], ratio_slack=0.0).rows == 1
    assert clean([(b"x x", b"x x x x")], ratio_slack=0.0).dropped == {"ratio": 1}


def test_text_goes_through_the_pipeline() -> None:
    pair = [(b"  Das Haus ", b"it's")]
    assert clean(pair).columns == (b" Das Haus\n", b" it's\n")
    moses = clean(pair, pipeline="moses", keep_text=True)
    assert moses.columns == (b"das haus\n", b"it &apos;s\n")
    assert moses.texts == (b"  Das Haus \n", b"it's\n")
    assert clean(pair, strict=True).columns == (b"   Das Haus \n", b" it's\n")


@pytest.mark.parametrize(("line", "message"), [(b"\xff", "UTF-8"), (b"a\0", "NUL"), (None, "longer than")])
def test_nothing_is_dropped_from_a_test_set(line: bytes | None, message: str) -> None:
    with pytest.raises(MacaronError, match=rf"x\.en, line 2: .*{message}.*remove it from both files"):
        clean([(b"a", b"b"), (b"a", line)], strict=True)
    assert clean([(b"", b"b " * 500)], strict=True).columns == (b"\n", b" " + b"b " * 500 + b"\n")


# Copies


def hashes(path: Path, pairs: list[tuple[int, int]]) -> Path:
    path.write_bytes(np.array(pairs, "<u8").reshape(-1, 2).tobytes())
    return path


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(2**63, 2**63 + 3)), max_size=60), st.integers(1, 30))
def test_the_first_of_equal_pairs_stays(pairs: list[tuple[int, int]], part: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "PART", part)
        patch.setattr(duplicates, "BLOCK", 7)
        # Spread over all bits, as real hashes are.
        path = hashes(Path(folder) / "h", [((a + 1) * 0xD1342543DE82EF95 % 2**64, b) for a, b in pairs])
        roles = np.full(len(pairs), TRAIN, np.uint8)
        duplicates.mark_duplicates(path, roles)
    expected = [DUPLICATE if pair in pairs[:i] else TRAIN for i, pair in enumerate(pairs)]
    assert roles.tolist() == expected


def test_overlap_and_held_out_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "BLOCK", 3)
    pairs = [(1, 1), (2, 1), (3, 1), (1, 2), (4, 1), (5, 1), (2, 2), (6, 1), (7, 1)]
    path = hashes(tmp_path / "h", pairs)
    given_test = hashes(tmp_path / "test", [(1, 1), (9, 9)])
    roles = np.full(len(pairs), TRAIN, np.uint8)
    duplicates.mark_overlap(path, roles, duplicates.sorted_keys(given_test, True), True)
    assert [int(role) for role in roles] == [OVERLAP] + [TRAIN] * 8
    duplicates.mark_overlap(path, roles, duplicates.sorted_keys(given_test, False), False)
    assert [int(role) for role in roles] == [OVERLAP, TRAIN, TRAIN, OVERLAP] + [TRAIN] * 5
    duplicates.hold_out(roles, 5)  # of 2, 3, 4, 5, 6, 7, 8 the fifth: (2, 2)
    assert roles[6] == VALID
    assert int((roles == VALID).sum()) == 1
    forbidden = duplicates.sorted_keys(path, False, roles)
    duplicates.mark_overlap(path, roles, forbidden, False)
    assert [int(role) for role in roles] == [OVERLAP, OVERLAP, TRAIN, OVERLAP, TRAIN, TRAIN, VALID, TRAIN, TRAIN]


# Subwords from counts


@pytest.mark.parametrize("pipeline", ["raw", "moses"])
def test_counts_give_the_same_vocabulary_as_text(pipeline: str) -> None:
    lines = ["das haus ist groß , nicht wahr ?", "the house is not small : 1999 people", "das haus das haus"] * 40
    counts: dict[str, int] = {}
    for word in " ".join(lines).split():
        counts[word] = counts.get(word, 0) + 1
    raw = pipeline == "raw"
    settings = {"pipeline": pipeline, "source_lang": "de", "target_lang": "en", "prepared": True}
    from_text = MacaronTokenizer.train([" " + line if raw else line for line in lines], 320, **settings)
    from_counts = MacaronTokenizer.train(repeated_words(counts, raw), 320, **settings)
    assert from_text.fingerprint() == from_counts.fingerprint()


def test_every_word_is_repeated_as_often_as_it_was_counted() -> None:
    counts = {"a": 10_000, "b" * 5000: 2, "c": 1}
    lines = list(repeated_words(counts, raw=False))
    assert {word: " ".join(lines).split().count(word) for word in counts} == counts
    assert max(map(len, lines)) < 15_000


# Ids

TOKENIZERS = {
    (name, size): MacaronTokenizer.train(
        ["a  b   the house's 1999 </s> ...\t\u00a0 x y", "the  house"] * 20,
        size,
        pipeline=name,
        source_lang="de",
        target_lang="en",
    )
    for name, size in (("raw", 290), ("spaces", 290), ("spaces", 1000))
}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.text(st.sampled_from("a b'\u00a0\t1.ä東 \u2028 \u0301 the</s>"), max_size=14), max_size=6))
@pytest.mark.parametrize(("pipeline", "size"), TOKENIZERS)
def test_ids_are_the_tokenizers(pipeline: str, size: int, lines: list[str]) -> None:
    tokenizer = TOKENIZERS[pipeline, size]
    prepared = [tokenizer.text_pipeline.encode(line) for line in lines]
    encoder = WordEncoder(tokenizer)
    expected = tokenizer.encode_lines(lines)
    for _ in range(2):  # what is remembered is no other
        ids, lengths = encoder.encode(prepared)
        assert lengths.tolist() == [len(line) for line in expected]
        assert ids.tolist() == [index for line in expected for index in line]


def test_a_worker_forgets_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_KNOWN", 5)
    tokenizer = TOKENIZERS["raw", 290]
    encoder = WordEncoder(tokenizer)
    for line in ("a b c", "d e f", "a b c d e f g h", "a b"):
        assert encoder.encode([" " + line])[0].tolist() == tokenizer.encode_lines([line])[0]
