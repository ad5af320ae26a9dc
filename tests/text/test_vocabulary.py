"""Dictionaries and codes files: read as fairseq and subword-nmt do; complaints name file and line."""

import gzip
from pathlib import Path

import pytest

from macaron.errors import MacaronError
from macaron.files import read_lines
from macaron.text.vocabulary import read_codes, read_dictionary

GOLDEN = Path(__file__).parent.parent / "golden"


def written(folder: Path, content: str | bytes, name: str = "dict.txt") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_specials_come_first() -> None:
    tokens = read_dictionary(GOLDEN / "dict.txt")
    assert len(tokens) == 50
    assert tokens[:5] == ["<s>", "<pad>", "</s>", "<unk>", "tok0"]
    encoder = read_dictionary(GOLDEN / "dict.bert.txt", "encoder")
    assert len(encoder) == 50
    assert encoder[3:7] == ["<unk>", "<mask>", "<cls>", "tok0"]


def test_padding_to_a_multiple() -> None:
    tokens = read_dictionary(GOLDEN / "dict.txt", pad_to_multiple=8)
    assert len(tokens) == 56
    assert tokens[50:] == [f"madeupword000{i}" for i in range(6)]


def test_odd_but_valid_tokens(tmp_path: Path) -> None:
    # Unicode's other line and word separators are characters here; \r\n ends a line like \n.
    path = written(tmp_path, "a\u2028b 3\r\n\u00a0 2\n@@ 1\n7 7\n")
    assert read_dictionary(path)[4:] == ["a\u2028b", "\u00a0", "@@", "7"]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "no tokens"),
        ("a 1\nb\n", "line 2: expected 'token count'"),
        ("a 1\nb x\n", "line 2: expected 'token count'"),
        ("a 1\nb -3\n", "line 2: expected 'token count'"),
        ("a 1\n\nb 1\n", "line 2"),
        (" 1\n", "line 1: expected 'token count', found ' 1'"),
        ("a b 1\n", "line 1: expected 'token count', found 'a b 1'"),
        ("a 1\nb 1\na 2\n", r"line 3: 'a' is there twice \(see line 1\)"),
        ("a 1\n<unk> 1\n", "line 2: '<unk>' is there twice .*special"),
        (b"a 1\n\xff\xfe 1\n", r"line 2: not valid UTF-8 \(byte 1"),
    ],
)
def test_bad_dictionaries(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(MacaronError, match=complaint) as caught:
        read_dictionary(path)
    assert str(path) in str(caught.value)


def test_codes(tmp_path: Path) -> None:
    path = written(tmp_path, "#version: 0.2\ne n</w>\nt h\ne n</w>\n")
    assert read_codes(path) == [("e", "n</w>"), ("t", "h")]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "line 1: expected '#version: 0.2', found ''"),
        ("#version: 0.2\n", "no merges"),
        ("e n</w>\nt h\n", "line 1: expected '#version: 0.2'"),
        ("#version: 0.1\ne n\n", "line 1: expected '#version: 0.2'"),
        ("#version: 0.2\nt h\nt\n", "line 3: expected two symbols"),
        ("#version: 0.2\na b c\n", "line 2: expected two symbols"),
        ("#version: 0.2\na</w> b\n", "line 2: </w> may only end"),
        (b"#version: 0.2\na \xc3\n", "line 2: not valid UTF-8"),
    ],
)
def test_bad_codes(tmp_path: Path, content: str | bytes, complaint: str) -> None:
    path = written(tmp_path, content, "codes")
    with pytest.raises(MacaronError, match=complaint) as caught:
        read_codes(path)
    assert str(path) in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(MacaronError, match="nowhere"):
        list(read_lines(tmp_path / "nowhere.txt"))
    with pytest.raises(MacaronError, match="directory"):
        list(read_lines(tmp_path))
    whole = gzip.compress(b"some text\n" * 1000)
    with pytest.raises(MacaronError, match="cannot be decompressed"):
        list(read_lines(written(tmp_path, whole[:-20], "cut.gz")))
    with pytest.raises(MacaronError, match="cannot be decompressed"):
        list(read_lines(written(tmp_path, "not xz", "wrong.xz")))
    assert list(read_lines(written(tmp_path, whole, "whole.gz"))) == ["some text"] * 1000
