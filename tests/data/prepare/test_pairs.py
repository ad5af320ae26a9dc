"""Preparing a corpus: what is stored is what the tokenizer says, whoever and however many do the work."""

import gzip
import json
import lzma
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from macaron.data.prepare import encoding, prepare
from macaron.data.prepare.job import CHUNKS, PrepareJob
from macaron.data.prepared import PreparedData
from macaron.data.settings import CorpusSettings, PairsSettings
from macaron.errors import MacaronError
from macaron.processes import Progress
from sealing import unseal

GERMAN = ["Haus", "Baum", "Hund", "Katze", "Straße", "Kind", "Wagen", "Tür", "Buch", "Vogel"]
ENGLISH = ["house", "tree", "dog", "cat", "street", "child", "car", "door", "book", "bird"]


def sentences(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    draw = random.Random(seed)
    german, english = [], []
    for _ in range(count):
        words = [draw.randrange(10) for _ in range(draw.randint(3, 9))]
        number = draw.randrange(10_000)
        german.append(f"Da sind {' und '.join(GERMAN[i] for i in words)}, {number}.")
        english.append(f"There are {' and '.join(ENGLISH[i] for i in words)}, {number}.")
    return german, english


def write(prefix: Path, german: list[str], english: list[str]) -> None:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    for language, lines in (("de", german), ("en", english)):
        text = "".join(line + "\n" for line in lines)
        prefix.with_name(f"{prefix.name}.{language}").write_bytes(text.encode("utf-8", "surrogateescape"))


def test_words_of_thousands_of_letters_are_no_source_of_subwords(tmp_path: Path):
    """The trainer's time grows with the square of their length."""
    found = []
    for name in ("short", "long"):
        german, english = sentences(100)
        if name == "long":
            german, english = [*german, "x" * 300_000], [*english, "y" * 300_000]
        write(tmp_path / name, german, english)
        settings = PairsSettings(
            out=tmp_path / f"{name}-data",
            root=tmp_path,
            source_lang="de",
            target_lang="en",
            vocab_size=300,
            valid_every=0,
            train=(CorpusSettings(name),),
        )
        data = prepare(settings, workers=1).data
        found.append((len(data.pairs("train")), data.tokenizer_fingerprint))
    assert found[1] == (found[0][0] + 1, found[0][1])


@pytest.fixture
def recipe(tmp_path: Path) -> PairsSettings:
    german, english = sentences(300)
    # A duplicate, a bad line, one too short, one whose source is in the test set.
    german += [german[0], "kaputt \udcff", "", "Ganz neu"]
    english += [english[0], "broken", "empty", "Something else"]
    write(tmp_path / "train", german, english)
    write(tmp_path / "valid", *sentences(20, seed=1))
    write(tmp_path / "test", ["Ganz neu", "</s> & <unk>", "", " Rand "], ["Quite new", "</s>", "x", "edge"])
    return PairsSettings(
        source_lang="de",
        target_lang="en",
        out=tmp_path / "out",
        root=tmp_path,
        train=(CorpusSettings("train"),),
        valid=(CorpusSettings("valid"),),
        test=(CorpusSettings("test"),),
        vocab_size=400,
    )


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the manifest, which has times of files in it, and its digest."""
    aside = (folder / "prepared.json", folder / "digests.json")
    files = (path for path in sorted(folder.rglob("[!.]*")) if path.is_file() and path not in aside)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_everything_fits_together(recipe: PairsSettings) -> None:
    outcome = prepare(recipe, workers=1)
    data = PreparedData.open(recipe.out)
    assert outcome.reason is not None
    assert data.languages == ("de", "en")
    assert data.splits == ("train", "valid", "test")
    assert data.tokenizer.fingerprint() == data.tokenizer_fingerprint
    assert len(data.tokenizer) == data.vocab_size == 352  # so small a corpus has no more merges
    cleaning = data.manifest["cleaning"]
    assert cleaning["read"] == 304
    assert cleaning["dropped"] == {
        "bad bytes": 1,
        "too short": 1,
        "too long": 0,
        "ratio": 0,
        "duplicate": 1,
        "overlap": 1,
    }
    assert cleaning["kept"] == len(data.pairs("train")) == 300

    german, english = sentences(300)
    train = data.pairs("train")
    assert [ids.tolist() for ids in map(train.source.__getitem__, range(300))] == data.tokenizer.encode_lines(german)
    assert [train.target[i].tolist() for i in range(300)] == data.tokenizer.encode_lines(english, "target")
    assert all(train.source[i][-1] == 2 for i in range(300))
    assert train.source.lengths().tolist() == [len(train.source[i]) for i in range(300)]

    test = data.pairs("test")
    assert data.text("test", "de") == ["Ganz neu", "</s> & <unk>", "", " Rand "]
    assert [test.source[i].tolist() for i in range(4)] == data.tokenizer.encode_lines(data.text("test", "de"))
    assert test.source[2].tolist() == [2]
    assert data.text_state("test") == "raw"
    assert not (recipe.out / "work").exists()


def test_moses_text_is_tokenised_once(tmp_path: Path, recipe: PairsSettings) -> None:
    write(tmp_path / "tok", ["das ist &quot; gut &quot; ."] * 3 + ["noch eins"], ["it &apos;s fine ."] * 3 + ["one"])
    corpora = (CorpusSettings("tok", state="moses"),)
    moses = replace(
        recipe, pipeline="moses", train=(*corpora, CorpusSettings("train")), valid=corpora, remove_overlap="none"
    )
    data = prepare(moses, workers=1).data
    tokenizer = data.tokenizer
    assert data.text("valid", "de")[0] == "das ist &quot; gut &quot; ."
    assert data.text_state("valid") == "moses"
    assert data.text_state("test") == "raw"
    tokenised = ["das ist &quot; gut &quot; ."]
    assert data.pairs("train").source[0].tolist() == tokenizer.encode_lines(tokenised, state="moses")[0]
    assert data.pairs("train").source[0].tolist() == tokenizer.encode_lines(['Das ist "gut".'])[0]
    assert tokenizer.decode_lines([data.pairs("train").target[0]]) == ["it's fine."]


@pytest.mark.parametrize("pipeline", ["raw", "moses"])
def test_the_number_of_workers_does_not_matter(
    recipe: PairsSettings, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CHUNKS, "pairs", (23, 1 << 20))
    results = {}
    for workers in (1, 2):
        out = recipe.out.with_name(f"out{workers}")
        prepare(replace(recipe, out=out, pipeline=pipeline, valid=(), valid_every=7), workers=workers)
        results[workers] = contents(out)
    assert results[1] == results[2]
    assert len(results[1]) > 10


def test_plain_gz_and_xz_are_the_same(recipe: PairsSettings) -> None:
    prepare(recipe, workers=1)
    expected = contents(recipe.out)
    for ending, compress in ((".gz", gzip.compress), (".xz", lzma.compress)):
        root = recipe.root / ending[1:]
        root.mkdir()
        for name in ("train", "valid", "test"):
            for language in ("de", "en"):
                content = (recipe.root / f"{name}.{language}").read_bytes()
                (root / f"{name}.{language}{ending}").write_bytes(compress(content))
        out = recipe.out.with_name(f"out{ending}")
        prepare(replace(recipe, root=root, out=out), workers=1)
        assert contents(out) == expected


def test_line_ends_and_marks_do_not_matter(recipe: PairsSettings) -> None:
    prepare(recipe, workers=1)
    expected = contents(recipe.out)
    for path in recipe.root.glob("*.??"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    prepare(recipe, workers=1)
    assert contents(recipe.out) == expected


def test_other_separators_of_unicode_split_no_line(recipe: PairsSettings) -> None:
    odd = "eins\u2028zwei\x85drei\x0bvier\x1cfünf"
    write(recipe.root / "test", [odd], [odd])
    data = prepare(recipe, workers=1).data
    assert data.text("test", "en") == [odd]
    assert data.tokenizer.decode_lines([data.pairs("test").source[0]]) == [odd]


def test_a_rerun_does_nothing_until_something_changes(
    recipe: PairsSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(recipe, workers=1).reason == "new"
    before = {path: path.stat().st_mtime_ns for path in recipe.out.rglob("[!.]*")}
    with monkeypatch.context() as patch:
        patch.setattr(PrepareJob, "run", lambda *_: pytest.fail("prepared again"))
        assert prepare(recipe, workers=2).reason is None
        (recipe.root / "train.de").touch()  # another time, the same contents
        assert prepare(recipe, workers=1).reason is None
        elsewhere = recipe.root / "elsewhere"
        elsewhere.mkdir()
        for path in recipe.root.glob("*.??"):
            (elsewhere / path.name).write_bytes(path.read_bytes())
        assert prepare(replace(recipe, root=elsewhere), workers=1).reason is None
    assert before == {path: path.stat().st_mtime_ns for path in recipe.out.rglob("[!.]*")}

    assert prepare(replace(recipe, test=recipe.valid, valid=recipe.test), workers=1).reason is not None
    assert prepare(replace(recipe, max_words=9), workers=1).reason == "changed: max_words"
    assert prepare(recipe, workers=1).reason == "changed: max_words"
    write(recipe.root / "valid", ["Neu"], ["New"])
    assert prepare(recipe, workers=1).reason == "the input files have changed"
    (recipe.out / "train.de.ids").write_bytes(b"")
    assert "train.de.ids: damaged (0 bytes instead of" in (prepare(recipe, workers=1).reason or "")
    (recipe.out / "valid.en").unlink()
    assert "valid.en" in (prepare(recipe, workers=1).reason or "")
    (recipe.out / "tokenizer" / "tokenizer.json").unlink()
    assert "tokenizer.json: damaged (missing" in (prepare(recipe, workers=1).reason or "")
    assert prepare(recipe, workers=1).reason is None
    for name in ("prepared.json", "digests.json"):
        (recipe.out / name).write_text("{")
        prepare(recipe, workers=1, progress=Progress())
        assert f"{recipe.out} is prepared again: written by another version, or damaged" in capsys.readouterr().err


def test_somebody_elses_folder_is_left_alone(recipe: PairsSettings) -> None:
    recipe.out.mkdir()
    prepare(recipe, workers=1)  # an empty one may be used
    other = recipe.out.with_name("other")
    other.mkdir()
    (other / "thesis.tex").write_text("years of work")
    with pytest.raises(MacaronError, match="was not written by 'macaron prepare'"):
        prepare(replace(recipe, out=other), workers=1)
    assert (other / "thesis.tex").exists()


def test_every_nth_pair_is_held_out(recipe: PairsSettings) -> None:
    german, english = sentences(300)
    data = prepare(replace(recipe, valid=(), valid_every=23, remove_overlap="none"), workers=1).data
    kept = [*german, "Ganz neu"]
    assert data.text("valid", "de") == kept[22::23]
    assert data.text("valid", "en") == [*english, "Something else"][22::23]
    assert data.manifest["cleaning"]["held_out"] == len(data.pairs("valid")) == 13
    assert len(data.pairs("train")) == 301 - 13
    assert [data.pairs("valid").source[i].tolist() for i in range(13)] == data.tokenizer.encode_lines(kept[22::23])
    with pytest.raises(MacaronError, match="leaves nothing to validate on"):
        prepare(replace(recipe, valid=(), valid_every=5000), workers=1)


def test_held_out_sources_are_not_trained_on(recipe: PairsSettings) -> None:
    german = ["eins", "zwei", "zwei", "drei", "vier", "fünf", "drei", "sechs", "sieben", "acht"]
    write(recipe.root / "train", german, [f"{word} {i}" for i, word in enumerate(german)])
    for overlap, left in (("source", 3), ("pair", 5), ("none", 5)):
        data = prepare(replace(recipe, valid=(), valid_every=2, remove_overlap=overlap, vocab_size=264), workers=1).data
        assert data.text("valid", "de") == german[1::2]
        assert len(data.pairs("train")) == left


def test_big_corpora_are_sampled_for_subwords(recipe: PairsSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MAX_WORDS", 1000)
    monkeypatch.setitem(CHUNKS, "pairs", (20, 1 << 20))
    fingerprints = set()
    for workers in (1, 2):
        data = prepare(replace(recipe, out=recipe.out.with_name(f"s{workers}")), workers=workers).data
        fingerprints.add(data.tokenizer_fingerprint)
        assert data.manifest["subwords"]["learned_from_pairs"] < data.manifest["subwords"]["of_pairs"] == 300
    assert len(fingerprints) == 1


# Mistakes


def test_all_missing_files_are_named(recipe: PairsSettings) -> None:
    (recipe.root / "valid.de").unlink()
    broken = replace(recipe, test=(CorpusSettings("nowhere/test"),))
    with pytest.raises(MacaronError) as caught:
        prepare(broken, workers=1)
    message = str(caught.value)
    for name in ("valid.de", "nowhere/test.de", "nowhere/test.en"):
        assert f"{recipe.root / name} (also tried: .gz, .xz)" in message
    assert "valid.en" not in message
    assert not recipe.out.exists()
    with pytest.raises(MacaronError, match="give the prefix of both files, without the ending"):
        prepare(replace(recipe, train=(CorpusSettings("train.de"),)), workers=1)


@pytest.mark.parametrize(
    ("german", "english", "message"),
    [
        (["a", "b"], ["a"], r"train\.de and .*train\.en are not aligned: they have 2 and 1 lines"),
        ([], [], ": empty"),
        (["", "\udcff"], ["x", "y"], "nothing is left to train on: of 2 pairs.*1 too short, 1 bad bytes"),
    ],
)
def test_bad_training_files(recipe: PairsSettings, german: list[str], english: list[str], message: str) -> None:
    write(recipe.root / "train", german, english)
    with pytest.raises(MacaronError, match=message):
        prepare(recipe, workers=1)
    assert sorted(path.name for path in recipe.root.iterdir() if not path.name.startswith("t")) == [
        "valid.de",
        "valid.en",
    ]


def test_bad_bytes_in_a_test_set_are_refused(recipe: PairsSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHUNKS, "pairs", (1, 1 << 20))
    write(recipe.root / "test", ["gut", "schlecht \udcff"], ["good", "bad"])
    for workers in (1, 2):
        with pytest.raises(MacaronError, match=r"test\.de, line 2: not valid UTF-8"):
            prepare(recipe, workers=workers)


def test_a_failure_leaves_the_older_folder_as_it_was(recipe: PairsSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(recipe, workers=1)
    before = contents(recipe.out)
    for error in (OSError(28, "No space left on device"), KeyboardInterrupt()):
        with monkeypatch.context() as patch:

            def fail(*_: object, error: BaseException = error) -> None:
                raise error

            patch.setattr(PrepareJob, "encode", fail)
            expected = MacaronError if isinstance(error, OSError) else KeyboardInterrupt
            with pytest.raises(expected) as caught:
                prepare(replace(recipe, vocab_size=300), workers=1)
            assert expected is KeyboardInterrupt or "No space left on device" in str(caught.value)
        assert contents(recipe.out) == before
        assert not list(recipe.root.glob(".*"))


def test_what_a_killed_process_left_is_cleared_away(recipe: PairsSettings) -> None:
    leftover = recipe.out.with_name(".out.partial")
    leftover.mkdir()
    (leftover / "train.de.ids").write_bytes(b"half")
    prepare(recipe, workers=1)
    assert not leftover.exists()
    assert PreparedData.open(recipe.out).splits


def test_two_at_once_are_refused(recipe: PairsSettings) -> None:
    code = (
        "import sys, time; from pathlib import Path; from macaron.files import atomic_folder\n"
        "with atomic_folder(Path(sys.argv[1])):\n    print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(recipe.out)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(MacaronError, match=r"being written by process \d+"):
            prepare(recipe, workers=1)
        other.communicate()
    prepare(recipe, workers=1)


def test_a_damaged_tokenizer_is_named_and_prepared_again(recipe: PairsSettings) -> None:
    prepare(recipe, workers=1)
    file = recipe.out / "tokenizer" / "tokenizer.json"
    whole = file.read_bytes()
    for damaged in (b"{", b"\xff", whole.replace(b'"BPE"', b'"EPB"')):
        file.write_bytes(damaged)
        with pytest.raises(
            MacaronError, match=r"tokenizer: the tokenizer cannot be read .*Run 'macaron prepare' again"
        ):
            _ = PreparedData.open(recipe.out).tokenizer
        assert "cannot be read" in str(prepare(recipe, workers=1).reason)
        assert file.read_bytes() == whole


def test_foreign_stores_are_refused(recipe: PairsSettings) -> None:
    data = prepare(recipe, workers=1).data
    unseal(recipe.out)
    for suffix in ("ids", "offsets"):
        (recipe.out / f"valid.de.{suffix}").write_bytes((recipe.out / f"test.de.{suffix}").read_bytes())
    with pytest.raises(MacaronError, match=r"valid\.de\.ids: truncated: [\d,]+ bytes instead of"):
        data.pairs("valid")
    manifest = json.loads((recipe.out / "prepared.json").read_text())
    (recipe.out / "prepared.json").write_text(json.dumps({**manifest, "vocab_size": 1}))
    with pytest.raises(MacaronError, match=r"tokenizer: not the tokenizer that prepared\.json names"):
        _ = PreparedData.open(recipe.out).tokenizer
    with pytest.raises(MacaronError, match="no split 'dev'; there is train, valid, test"):
        data.pairs("dev")
    with pytest.raises(MacaronError, match=r"test\.fr: No such file"):
        data.text("test", "fr")
    with pytest.raises(MacaronError, match=r"train\.de: No such file"):
        data.text("train", "de")
    with pytest.raises(MacaronError, match=r"Is .* a folder that 'macaron prepare' wrote"):
        PreparedData.open(recipe.root)
    manifest = json.loads((recipe.out / "prepared.json").read_text())
    (recipe.out / "prepared.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(MacaronError, match="format 99"):
        PreparedData.open(recipe.out)
