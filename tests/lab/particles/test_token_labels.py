"""Tokens as a reader sees them, for every kind of vocabulary."""

from pathlib import Path

from macaron.lab.particles.traced_model import TokenLabels
from macaron.text import MacaronTokenizer

LINES = ["the cat sits on the mat .", "where is the unterricht ?", "4 4 4"] * 5


def shown(tokenizer: MacaronTokenizer, text: str) -> list[str]:
    words = TokenLabels(tokenizer)
    return [words(token) for token in tokenizer.encode_lines([text])[0]]


def test_bytes():
    tokenizer = MacaronTokenizer.train(LINES, 280)
    found = shown(tokenizer, "the cat, sitzt 42 Türen.")
    assert found[0] == "the"
    assert found[-2:] == [".", "[end]"]
    assert "," in found
    assert found[found.index("4") + 1] == "·2"
    assert "[C3]" in found  # half of a letter that the vocabulary lacks
    assert "[00]" in shown(tokenizer, "the \x00 cat")
    assert not any(mark in word for word in found for mark in ("Ġ", "▁", "@@"))


def test_words_of_our_own_training():
    tokenizer = MacaronTokenizer.train(LINES, 1100, pipeline="spaces")
    found = shown(tokenizer, "the cats sit €")
    assert found[0] == "the"
    pieces = found[1 : found.index("s") + 1] if "s" in found else found[1:3]
    assert all(piece.endswith("·") for piece in pieces[:-1])
    assert not pieces[-1].endswith("·")
    assert "[E2]" in found
    assert not any(" " in word for word in found)


def test_a_fairseq_dictionary(tmp_path: Path):
    (tmp_path / "dict.txt").write_text("the 9\nunter@@ 5\nricht 4\n&apos;s 3\n@@ 1\n")
    (tmp_path / "codes").write_text(
        "#version: 0.2\nt h\nth e</w>\nu n\nt e\nte r\nun ter\nr i\nc h\nch t</w>\nri cht</w>\n"
    )
    looked_up = MacaronTokenizer.from_fairseq_dict(tmp_path / "dict.txt")
    assert shown(looked_up, "the unter@@ richt what @@") == ["the", "unter·", "richt", "[unknown]", "@@", "[end]"]
    split = MacaronTokenizer.from_fairseq_dict(
        tmp_path / "dict.txt", tmp_path / "codes", pipeline="moses", source_lang="de", target_lang="en"
    )
    assert shown(split, "The Unterricht")[:3] == ["the", "unter·", "richt"]
    assert TokenLabels(split)(7) == "'s"  # as it was before Moses escaped it


def test_special_tokens_and_rows_that_no_token_has():
    tokenizer = MacaronTokenizer.train(LINES, 280, kind="encoder")
    words = TokenLabels(tokenizer)
    (ids,) = tokenizer.encode_lines(["the <mask> sits"], recognise_specials=True)
    names = [words(token) for token in ids]
    assert (names[0], names[-1]) == ("[cls]", "[end]")
    assert "[mask]" in names
    assert words(1) == "[pad]"
    assert words(len(tokenizer) + 5) == f"[{len(tokenizer) + 5}]"
