"""The shipped demo corpus: written to a folder, reused, refused; the word-by-word baseline."""

import resource
import shutil
from pathlib import Path

import pytest

from macaron.errors import MacaronError
from macaron.shipped import FILES, word_by_word, write_demo_corpus


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "demo-corpus"
    assert write_demo_corpus(folder)
    return folder


@pytest.fixture
def corpus(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "demo-corpus"))


def shorten(path: Path, lines: int) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:lines]))


def test_files_are_written(written: Path) -> None:
    assert sorted(path.name for path in written.iterdir()) == sorted(FILES)
    lengths = [len((written / name).read_text(encoding="utf-8").splitlines()) for name in FILES]
    assert lengths == [100_000, 100_000, *[1000] * 6]
    assert (
        (written / "test.de")
        .read_text(encoding="utf-8")
        .startswith("Unsere Brüder müssen mit einem hungrigen Freund sprechen.\n")
    )


def test_the_same_corpus_is_reused(corpus: Path) -> None:
    before = (corpus / "train.de").stat().st_mtime_ns
    assert not write_demo_corpus(corpus)
    assert (corpus / "train.de").stat().st_mtime_ns == before


def test_a_shortened_corpus_is_reused(corpus: Path) -> None:
    for name in FILES:
        shorten(corpus / name, 30)
    assert not write_demo_corpus(corpus)
    assert (corpus / "train.de").read_bytes().count(b"\n") == 30


def test_an_incomplete_corpus_is_written_again(corpus: Path) -> None:
    whole = (corpus / "novel.en").read_bytes()
    (corpus / "novel.en").unlink()
    assert write_demo_corpus(corpus)
    assert (corpus / "novel.en").read_bytes() == whole


def test_another_corpus_is_refused(corpus: Path) -> None:
    lines = (corpus / "test.de").read_bytes().splitlines(keepends=True)
    (corpus / "test.de").write_bytes(b"".join(reversed(lines)))
    with pytest.raises(MacaronError, match=r"demo-corpus is not the demo corpus of this version: remove it"):
        write_demo_corpus(corpus)


def test_sides_of_different_lengths_are_refused(corpus: Path) -> None:
    shorten(corpus / "test.de", 30)
    with pytest.raises(MacaronError, match="is not the demo corpus of this version"):
        write_demo_corpus(corpus)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(MacaronError, match=r"thesis\.tex.*a folder of its own"):
        write_demo_corpus(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_corpus_is_written_completely_or_not_at_all(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(MacaronError, match=r"demo-corpus cannot be written: .* Free some space"):
            write_demo_corpus(tmp_path / "demo-corpus")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


def test_word_by_word(written: Path) -> None:
    for split in ("test", "novel"):
        made = word_by_word(split)
        assert len(made) == len((written / f"{split}.en").read_text(encoding="utf-8").splitlines())
    assert word_by_word("test")[0] == "Our brothers have along a hungry friend speak with."
