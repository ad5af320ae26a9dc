"""Preparing plain text: documents stay apart and in order, whoever and however many do the work."""

import gzip
import json
import lzma
import shutil
import tracemalloc
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from macaron.data.prepare import encoding, prepare, roles
from macaron.data.prepare.cleaning import AlignedFiles, Chunk, chunks, clean_text
from macaron.data.prepare.job import CHUNKS, CleanedSplit, PrepareJob
from macaron.data.prepare.roles import TRAIN, VALID
from macaron.data.prepared import PreparedData, PreparedText, data_kind
from macaron.data.settings import PairsSettings, TextFileSettings, TextSettings
from macaron.errors import MacaronError
from macaron.processes import Progress, Workers
from macaron.recipe import data_recipe
from sealing import unseal

QUIET = Progress(quiet=True)
Document = list[list[str]]


def corpus(count: int = 40, first: int = 0) -> list[Document]:
    """Documents of one to three paragraphs of one to four sentences."""
    return [
        [[f"Mr. Smith {i} has {j} dogs and {k} cats." for k in range((i + j) % 4 + 1)] for j in range(i % 3 + 1)]
        for i in range(first, first + count)
    ]


def as_text(documents: list[Document]) -> str:
    return "\n\n".join("\n".join(" ".join(paragraph) for paragraph in document) for document in documents) + "\n"


def flat(documents: list[Document]) -> list[list[str]]:
    return [[sentence for paragraph in document for sentence in paragraph] for document in documents]


@pytest.fixture
def recipe(tmp_path: Path) -> TextSettings:
    (tmp_path / "a.txt").write_text(as_text(corpus()), encoding="utf-8")
    return TextSettings(
        out=tmp_path / "out", root=tmp_path, train=(TextFileSettings("a.txt"),), vocab_size=300, valid_every=10
    )


def read(data: PreparedText, split: str) -> list[list[str]]:
    """The documents of a split, as text."""
    store, documents = data.sentences(split), data.documents(split)
    sentences = data.tokenizer.decode_lines(store[i] for i in range(len(store)))
    return [sentences[int(a) : int(b)] for a, b in pairwise(documents)]


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which has times of files in it, and its digest."""
    aside = (folder / "prepared.json", folder / "digests.json")
    files = (path for path in sorted(folder.rglob("[!.]*")) if path.is_file() and path not in aside)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_everything_fits_together(recipe: TextSettings) -> None:
    outcome = prepare(recipe, workers=1)
    assert outcome.reason == "new"
    data = PreparedText.open(recipe.out)
    expected = flat(corpus())
    held = [index for index in range(40) if index % 10 == 9]
    assert read(data, "valid") == [expected[index] for index in held]
    assert read(data, "train") == [expected[index] for index in range(40) if index not in held]

    assert (data.splits, data.pipeline, data.lang) == (("train", "valid"), "raw", "en")
    assert len(data.tokenizer) == data.vocab_size
    assert data.tokenizer.fingerprint() == data.tokenizer_fingerprint
    assert data_kind(recipe.out) == "text"
    train = data.sentences("train")
    assert train.lengths().min() >= 1
    assert train.ids.min() >= 6  # no special tokens
    assert train[0].tolist() == data.tokenizer.encode_lines([expected[0][0]], add_special_tokens=False)[0]
    assert isinstance(data.documents("train"), np.memmap)
    assert data.documents("train").dtype == np.uint64
    sizes = data.manifest["splits"]["train"]
    assert sizes == {"documents": 36, "sentences": len(train), "tokens": train.tokens}
    assert not (recipe.out / "work").exists()
    assert sorted(path.name for path in recipe.out.glob("[!.]*")) == sorted(
        ["digests.json", "prepared.json", "tokenizer"]
        + [f"{split}.{ending}" for split in ("train", "valid") for ending in ("ids", "offsets", "documents")]
    )


def test_the_tokenizer_is_an_encoders(recipe: TextSettings, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    data = prepare(recipe, workers=1).data
    tokenizer = AutoTokenizer.from_pretrained(recipe.out / "tokenizer")
    assert (tokenizer.mask_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id) == (
        4,
        5,
        2,
        1,
    )
    both = tokenizer("two dogs", "a cat")
    a, b = data.tokenizer.encode_lines(["two dogs", "a cat"], add_special_tokens=False)
    assert both["input_ids"] == [5, *a, 2, *b, 2]
    assert both["token_type_ids"] == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    other = tokenizer.changed(segments=(1, 0))
    other.save_pretrained(tmp_path / "other")
    for turned in (other, AutoTokenizer.from_pretrained(tmp_path / "other")):
        assert turned("two dogs", "a cat")["input_ids"] == both["input_ids"]
        assert turned("two dogs", "a cat")["token_type_ids"] == [1] * (len(a) + 2) + [0] * (len(b) + 1)
        assert turned.fingerprint() == other.fingerprint() != data.tokenizer_fingerprint
    assert other.changed(segments=(0, 1)).fingerprint() == data.tokenizer_fingerprint


def test_moses(recipe: TextSettings) -> None:
    root = recipe.root
    (root / "tok.txt").write_text("he said &quot; no &quot; . she left .\n\nit &apos;s late .\n", encoding="utf-8")
    moses = replace(recipe, pipeline="moses", train=(TextFileSettings("tok.txt", "moses"), TextFileSettings("a.txt")))
    data = prepare(moses, workers=1).data
    documents = read(data, "train")
    assert documents[0] == ['he said "no".', "she left."]
    assert documents[1] == ["it's late."]
    assert documents[2][0] == "mr. smith 0 has 0 dogs and 0 cats."
    assert data.tokenizer.encode_lines(["She left."], add_special_tokens=False) == [data.sentences("train")[1].tolist()]


@pytest.mark.parametrize("pipeline", ["raw", "moses"])
@pytest.mark.parametrize("lines", [1, 7, 1000])
def test_workers_and_chunks_do_not_matter(
    recipe: TextSettings, pipeline: str, lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(recipe, pipeline=pipeline)
    prepare(recipe, workers=1)
    monkeypatch.setitem(CHUNKS, "text", (lines, 1 << 20))
    other = replace(recipe, out=recipe.out.with_name("other"))
    prepare(other, workers=2)
    assert contents(other.out) == contents(recipe.out)


def test_patterns_files_and_compression(recipe: TextSettings) -> None:
    documents = corpus()
    text = [as_text(documents[:13]), as_text(documents[13:29]), as_text(documents[29:])]
    (recipe.root / "p-0.txt").write_text(text[0])
    (recipe.root / "p-1.txt.gz").write_bytes(gzip.compress(text[1].encode()))
    (recipe.root / "p-2.txt.xz").write_bytes(lzma.compress(text[2].encode()))
    (recipe.root / "p-3.txt.part").write_text("an unfinished download")
    several = replace(recipe, train=(TextFileSettings("p-*"),), out=recipe.out.with_name("other"))
    prepare(recipe, workers=1)
    data = prepare(several, workers=1).data
    # The end of a file is the end of a document, and the whole is the same.
    assert contents(several.out) == contents(recipe.out)
    files = data.manifest["cleaning"]["files"]
    assert [Path(file["file"]).name for file in files] == ["p-0.txt", "p-1.txt.gz", "p-2.txt.xz"]
    assert [file["documents"] for file in files] == [13, 16, 11]
    twice = replace(several, train=(TextFileSettings("p-*"), TextFileSettings("p-0.txt")))
    with pytest.raises(MacaronError, match=r"p-0.txt is named twice in data.train, the second time by 'p-0.txt'"):
        prepare(twice, workers=1)


def test_blank_lines_marks_and_line_ends(recipe: TextSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(recipe, workers=1)
    monkeypatch.setitem(CHUNKS, "text", (3, 1 << 20))
    odd = as_text(corpus()).replace("\n\n", "\n \t\n\n\u00a0\n").replace("\n", "\r\n").replace(" has", "  \t has")
    (recipe.root / "a.txt").write_bytes(b"\xef\xbb\xbf\n\n" + odd.encode() + b"\n\n\n")
    other = replace(recipe, out=recipe.out.with_name("other"))
    prepare(other, workers=1)
    assert contents(other.out) == contents(recipe.out)


def test_what_is_dropped(recipe: TextSettings) -> None:
    odd = (
        b"Good one. "
        + b"X " * 600
        + b".\nBad \xff bytes.\nNUL \0 here.\n"
        + b"y" * (1 << 20)
        + b"\n\x01 \x02\n\nEnd.\n"
    )
    (recipe.root / "odd.txt").write_bytes(odd)
    recipe = replace(recipe, pipeline="moses", train=(TextFileSettings("odd.txt"),))
    data = prepare(recipe, workers=1).data
    cleaning = data.manifest["cleaning"]
    assert cleaning["dropped"] == {"bad bytes": 2, "long line": 1, "too long": 1, "nothing": 1}
    assert (cleaning["documents"], cleaning["paragraphs"], cleaning["sentences"]) == (2, 6, 2)


def test_nothing_changed_nothing_done(recipe: TextSettings) -> None:
    prepare(recipe, workers=1)
    before = (recipe.out / "prepared.json").stat().st_mtime_ns
    assert prepare(recipe, workers=1).reason is None
    moved = recipe.root / "elsewhere"
    moved.mkdir()
    shutil.copy(recipe.root / "a.txt", moved / "b.txt")
    same = replace(recipe, root=moved, train=(TextFileSettings("*.txt"),))
    assert prepare(same, workers=1).reason is None
    assert (recipe.out / "prepared.json").stat().st_mtime_ns == before

    assert prepare(replace(recipe, valid_every=5), workers=1).reason == "changed: valid_every"
    (recipe.out / "train.documents").write_bytes(b"1234567")
    assert "train.documents: damaged (7 bytes instead of" in (
        prepare(replace(recipe, valid_every=5), workers=1).reason or ""
    )
    (recipe.root / "a.txt").write_text(as_text(corpus(30)))
    assert prepare(replace(recipe, valid_every=5), workers=1).reason == "the input files have changed"
    moses = replace(recipe, valid_every=5, pipeline="moses")
    prepare(moses, workers=1)
    tokenised = replace(moses, train=(TextFileSettings("a.txt", "moses"),))
    assert prepare(tokenised, workers=1).reason == "the input files have changed"


def test_the_two_kinds_of_folders(recipe: TextSettings, tmp_path: Path) -> None:
    prepare(recipe, workers=1)
    for language in ("de", "en"):
        (tmp_path / f"t.{language}").write_text("".join(f"{language} word {i}\n" for i in range(20)))
    pairs = data_recipe(
        {"data": {"kind": "pairs", "source_lang": "de", "target_lang": "en", "out": str(tmp_path / "pairs"),
                  "root": str(tmp_path), "vocab_size": 300, "train": [{"path": "t"}]}}
    )  # fmt: skip
    assert isinstance(pairs, PairsSettings)
    prepare(pairs, workers=1)
    assert data_kind(pairs.out) == "pairs"
    with pytest.raises(MacaronError, match="holds documents, for pre-training; expected pairs of sentences"):
        PreparedData.open(recipe.out)
    with pytest.raises(MacaronError, match="holds pairs of sentences, for translation; expected documents"):
        PreparedText.open(pairs.out)
    with pytest.raises(MacaronError, match=r"out holds documents, for pre-training. Choose another path with --out"):
        prepare(replace(pairs, out=recipe.out), workers=1)
    with pytest.raises(MacaronError, match=r"pairs holds pairs of sentences, for translation. Choose another path"):
        prepare(replace(recipe, out=pairs.out), workers=1)
    with pytest.raises(MacaronError, match=r"no split 'test'; there is train, valid"):
        PreparedText.open(recipe.out).sentences("test")


def test_damaged_folders(recipe: TextSettings) -> None:
    prepare(recipe, workers=1)
    data = PreparedText.open(unseal(recipe.out))
    documents = (recipe.out / "train.documents").read_bytes()
    (recipe.out / "train.documents").write_bytes(documents[:-8] + documents[:8])
    with pytest.raises(MacaronError, match=r"train.documents: belongs to other sentences. Run 'macaron prepare' again"):
        data.documents("train")
    for suffix in ("ids", "offsets"):
        shutil.copy(recipe.out / f"valid.{suffix}", recipe.out / f"train.{suffix}")
    with pytest.raises(MacaronError, match=r"train\.ids: truncated: [\d,]+ bytes instead of"):
        data.sentences("train")
    manifest = json.loads((recipe.out / "prepared.json").read_text())
    (recipe.out / "prepared.json").write_text(json.dumps({**manifest, "kind": "pictures"}))
    with pytest.raises(MacaronError, match="holds 'pictures', which this version does not know"):
        data_kind(recipe.out)


def test_subwords_are_learned_without_what_is_held_out(recipe: TextSettings) -> None:
    """Words that only validation has must not have made it into the vocabulary."""
    words = ["trainingword" * 2, "heldoutword" * 2]
    documents = [[[" ".join([words[index % 10 == 9]] * 30) + "."]] for index in range(40)]
    (recipe.root / "a.txt").write_text(as_text(documents))
    tokenizer = prepare(recipe, workers=1).data.tokenizer
    learned, unknown = map(len, tokenizer.encode_lines(words, add_special_tokens=False))
    assert learned <= 2
    assert unknown > 8


#: Two are held out wherever as many are left: next sentences are validated with another document.
FEW = [(2, 200, [1]), (3, 200, [1]), (4, 200, [1, 2]), (5, 200, [1, 3]), (399, 200, [133, 266]), (4, 2, [1, 3])]


@pytest.mark.parametrize(("count", "every", "held"), FEW)
def test_at_least_one_document_each(recipe: TextSettings, count: int, every: int, held: list[int]) -> None:
    documents = [[[f"This is number {i}."]] for i in range(count)]
    (recipe.root / "a.txt").write_text(as_text(documents))
    data = prepare(replace(recipe, valid_every=every), workers=1).data
    assert read(data, "valid") == [flat(documents)[index] for index in held]
    assert len(read(data, "train")) == count - len(held)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "a.txt: empty. Give files with text, or leave them out."),
        (b"\n \n\n", "a.txt: empty"),
        (b"One. Two.\nThree.\n", r"a.txt: only one document\. .*Separate documents by blank lines"),
        (b"\n\nOne.\n\n\n\xff\n", "only one document"),
        (b"\xff\n\n\xfe\n", "a.txt: nothing is left to train on: of 2 paragraphs everything was dropped .2 bad bytes"),
        ("hello".encode("utf-16"), "this is UTF-16. Convert it"),
    ],
)
def test_texts_that_will_not_do(recipe: TextSettings, text: bytes, message: str) -> None:
    (recipe.root / "a.txt").write_bytes(text)
    with pytest.raises(MacaronError, match=message):
        prepare(recipe, workers=1)
    assert sorted(path.name for path in recipe.root.iterdir()) == ["a.txt"]


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_truncated_files(recipe: TextSettings, ending: str) -> None:
    whole = (gzip if ending == ".gz" else lzma).compress(as_text(corpus(400)).encode())
    (recipe.root / f"b.txt{ending}").write_bytes(whole[:-20])
    with pytest.raises(MacaronError, match=rf"b.txt{ending}: cannot be decompressed .* Fetch or copy the file again"):
        prepare(replace(recipe, train=(TextFileSettings(f"b.txt{ending}"),)), workers=1)
    with pytest.raises(MacaronError, match=r"these files are missing:\n  .*gone.txt\n  .*no-\*.txt"):
        prepare(replace(recipe, train=(TextFileSettings("gone.txt"), TextFileSettings("no-*.txt"))), workers=1)


@settings(max_examples=60)
@given(st.lists(st.sampled_from(["", "One. Two.", "Three.", " ", "\x00"]), max_size=12), st.integers(1, 5))
def test_documents_are_those_between_blank_lines(lines: list[str], size: int) -> None:
    """However the text is cut into chunks."""
    expected: list[int] = []
    open_document = False
    for line in lines:
        if not line.strip():
            open_document = False
        elif line != "\x00":
            count = len(line.split())
            expected = [*expected[:-1], expected[-1] + count] if open_document else [*expected, count]
            open_document = True
    split = CleanedSplit(Path("text"))
    chosen = TextSettings(out=Path("out"), train=(TextFileSettings("text"),))
    cuts = [lines[start : start + size] for start in range(0, len(lines), size)] or [[]]
    starts = b""
    for index, cut in enumerate(cuts):
        chunk = Chunk(AlignedFiles((Path("text"),)), 1, ([line.encode() for line in cut],), index == len(cuts) - 1)
        starts += split.add(clean_text(chunk, chosen), (0,))
    bounds = [*np.flatnonzero(list(starts)), len(starts)]
    assert np.diff(bounds).tolist() == expected
    assert split.counts["documents"] == len(expected)
    assert sum(part.rows for part in split.parts) == len(starts)


def test_the_roles_of_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "BLOCK", 3)
    (tmp_path / "starts").write_bytes(bytes([1, 0, 1, 1, 0, 0, 0, 0, 1]))
    roles.hold_out_documents(tmp_path, 2, 4)
    assert list((tmp_path / "roles").read_bytes()) == [TRAIN, TRAIN, VALID, TRAIN, TRAIN, TRAIN, TRAIN, TRAIN, VALID]


def test_chunks_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a").write_text(("x" * 999_999 + "\n") * 9 + "\n" * 12_000)
    found = list(chunks(AlignedFiles((tmp_path / "a",)), *CHUNKS["text"]))
    assert [chunk.last for chunk in found] == [False] * (len(found) - 1) + [True]
    assert max(sum(len(line or b"") for line in chunk.columns[0]) for chunk in found) < 3 << 20
    assert max(len(chunk.columns[0]) for chunk in found) <= 5_000
    assert sum(len(chunk.columns[0]) for chunk in found) == 12_009


@pytest.mark.slow
def test_memory_is_flat(recipe: TextSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNKS, "text", (200, 1 << 20))
    peaks = []
    for count in (2_000, 6_000):
        (recipe.root / "a.txt").write_text(as_text(corpus(500) * (count // 500)))
        folder = recipe.root / f"aside-{count}"
        folder.mkdir()
        (folder / "work").mkdir()
        tracemalloc.start()
        with Workers(1) as workers:
            job = PrepareJob(recipe, folder, workers, QUIET)
            train = job.clean("train", [AlignedFiles((recipe.root / "a.txt",))])
            assert job.choose(train, {})[VALID] > 0
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert train.counts["documents"] == count
    assert peaks[1] < 1.3 * peaks[0]


def test_subwords_are_learned_from_a_sample(recipe: TextSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_WORDS", 100)
    monkeypatch.setitem(CHUNKS, "text", (5, 1 << 20))
    data = prepare(recipe, workers=1).data
    subwords = data.manifest["subwords"]
    assert 0 < subwords["learned_from_sentences"] < subwords["of_sentences"] == len(data.sentences("train"))
