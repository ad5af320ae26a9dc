"""Digests: every flipped bit is noticed by whatever reads the file; unmodified folders load."""

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from macaron import seal
from macaron.data.prepared import open_prepared
from macaron.decode import Translator
from macaron.errors import MacaronError
from macaron.models.load import load_model
from macaron.models.translation import TranslationModel
from macaron.seal import DamagedFile, begin, check, damaged, fingerprint, folders_within, recorded
from macaron.tasks.classifier import Predictor
from macaron.text.tokenizer import MacaronTokenizer
from macaron.train import checkpoint

FIXTURES = Path(__file__).parent / "compatibility" / "fixtures"
KINDS = ("translation", "classifier", "pairs", "text", "stopped-pairs")


def read(folder: Path) -> None:
    """Read everything that a folder holds, with the functions that the commands use."""
    if (folder / "prepared.json").is_file():
        data = open_prepared(folder)
        data.check()
    elif (folder / "state.json").is_file():
        check(folder)
        with pytest.raises(MacaronError, match="a checkpoint of format 1, this version reads"):
            checkpoint.load(folder)
    elif folder.name == "classifier":
        Predictor(folder, "cpu")
    elif folder.name == "tokenizer":
        MacaronTokenizer.from_pretrained(folder)
    else:
        Translator(folder, device="cpu")


def flips(folder: Path, seed: int, each: int) -> Iterator[tuple[Path, str]]:
    """The recorded files of a folder, in which one bit is flipped; the file is mended afterwards."""
    draw = random.Random(seed)
    for name in recorded(folder) or {}:
        path = folder / name
        whole = path.read_bytes()
        for place in (draw.randrange(len(whole)) for _ in range(each)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
            yield path, f"byte {place:,}"
        path.write_bytes(whole)


@pytest.fixture
def sealed(tmp_path: Path) -> Callable[[str], Path]:
    """A folder of an earlier version, with digests of its files."""

    def make(kind: str) -> Path:
        folder = Path(shutil.copytree(FIXTURES / kind, tmp_path / kind))
        for each in folders_within(folder):
            seal.seal(each)
        return folder

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_every_flipped_bit_is_noticed(kind: str, sealed: Callable[[str], Path]):
    """By the digests, at many places of each file; by the reader of every kind of folder, at one."""
    for folder in folders_within(sealed(kind)):
        read(folder)
        for path, place in flips(folder, 1, 30):
            name = path.relative_to(folder).as_posix()
            assert list(damaged(folder, [name])) == [name], place
        for path, place in flips(folder, 2, 1):
            with pytest.raises(MacaronError, match=r"damaged|not valid JSON") as caught:
                read(folder)
            assert path.name in str(caught.value), place
        read(folder)


def test_damaged_digests_are_noticed_or_mean_the_same(sealed: Callable[[str], Path]):
    folder = sealed("translation")
    path = folder / "digests.json"
    whole, before = path.read_bytes(), recorded(folder)
    draw = random.Random(4)
    for _ in range(200):
        place = draw.randrange(len(whole))
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << draw.randrange(8)]) + whole[place + 1 :])
        with suppress(DamagedFile):  # named in the message below
            assert damaged(folder) or recorded(folder) == before
    for content in (
        "[]",
        "{}",
        '{"format": 1}',
        '{"format": 1, "files": {}}',
        '{"format": 2, "files": {}}',
        "[" * 100_000,
        '{"format": 1, "files": 3}',
        '{"format": 1, "files": {}, "files": {}}',
        '{"format": 1, "files": {}, "more": 1}',
        '{"format": 1, "files": {"\\ud800": {"bytes": 0, "sha256": ""}}}',
        f'{{"format": 1, "files": {{}}}}{" " * (16 << 20)}',
    ):
        path.write_text(content)
        with pytest.raises(DamagedFile, match=r"digests\.json: damaged"):
            check(folder)
    outside = {"format": 1, "files": {"../../x": {"bytes": 0, "sha256": ""}}}
    path.write_text(json.dumps(outside))
    with pytest.raises(DamagedFile, match=r"digests\.json: damaged"):
        check(folder)


def test_what_may_be_in_a_folder(sealed: Callable[[str], Path]):
    folder = sealed("translation")
    (folder / "README.md").write_text("# A model card")
    (folder / ".gitattributes").write_text("*.safetensors filter=lfs")
    (folder / "modules.json").write_text("[]")
    seal.seal(folder)
    assert set(recorded(folder) or {}) >= {"config.json", "model.safetensors", "tokenizer.json"}
    (folder / "README.md").write_text("# Another")
    (folder / ".gitattributes").unlink()
    (folder / "notes.txt").write_text("not recorded")
    (folder / "modules.json").write_text("[1]")  # recorded, but of sentence-transformers, which may write it again
    Translator(folder, device="cpu")
    (folder / "README.md").unlink()
    Translator(folder, device="cpu")
    (folder / "generation_config.json").unlink()
    with pytest.raises(MacaronError, match=r"generation_config\.json: damaged \(missing.*verify .* --accept"):
        Translator(folder, device="cpu")


def test_saving_over_a_folder_records_what_was_written(sealed: Callable[[str], Path]):
    folder = sealed("translation")
    (folder / "trainer_state.json").write_text("{}")
    tokenizer = MacaronTokenizer.from_pretrained(folder)
    model, _ = load_model(folder, TranslationModel)
    model.generation_config.num_beams = 3
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "trainer_state.json").write_text('{"epoch": 1}')  # somebody else's: it was not recorded
    assert Translator(folder, device="cpu").settings.beam == 3
    assert "trainer_state.json" not in (recorded(folder) or {})


def test_the_fingerprint_of_a_model_does_not_depend_on_its_digests(sealed: Callable[[str], Path]):
    """Stored scores stay valid when a folder is sealed."""
    assert fingerprint(sealed("translation")) == fingerprint(FIXTURES / "translation")


def test_what_was_verified_is_not_read_again(sealed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch):
    folder = sealed("pairs")
    monkeypatch.setattr(seal, "_SETTLED", -(10**12))
    data = open_prepared(folder)
    data.check()
    assert (folder / ".verified.json").is_file()
    monkeypatch.setattr(seal, "_known", {})
    with monkeypatch.context() as patch:
        patch.setattr(seal, "_sha256", lambda path: pytest.fail(f"{path} is read again"))
        data.verify(["train", "valid", "test"])
    times = (folder / "train.de.ids").stat()
    for path, _ in flips(folder, 5, 2):
        if path.name == "train.de.ids":  # of the same size and time
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            with pytest.raises(DamagedFile, match=r"train\.de\.ids"):
                open_prepared(folder).stores("train")
    content = json.loads((folder / ".verified.json").read_text())
    content["train.de.ids"] = [0]
    for noted in (json.dumps(content), "{", "[1]"):
        (folder / ".verified.json").write_text(noted)
        open_prepared(folder).check()


def test_a_folder_that_cannot_be_written_is_verified_each_time(
    sealed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(seal, "_SETTLED", -(10**12))
    folder = sealed("pairs")
    (folder / ".verified.json").mkdir()
    open_prepared(folder).check()
    open_prepared(folder).check()


def test_digests_are_shared_by_threads(sealed: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch):
    folder = sealed("translation")
    monkeypatch.setattr(seal, "_SETTLED", -(10**12))
    monkeypatch.setattr(seal, "_known", {})
    begin(folder, ["*"])
    check(folder)
    with monkeypatch.context() as patch:
        patch.setattr(seal, "_sha256", lambda path: pytest.fail(f"{path} is read again"))
        fingerprint(folder)
        check(folder)


# The commands


def test_verify_and_accept(macaron: Callable[..., Any], sealed: Callable[[str], Path], tmp_path: Path):
    for kind in KINDS:
        done = macaron("verify", sealed(kind))
        assert done.returncode == 0, done.stderr
        assert "unchanged" in done.stdout
    run = tmp_path / "stopped-pairs"
    checkpoints = checkpoint.checkpoints(run / "checkpoints")
    assert all(f"{folder}: " in done.stdout for folder in checkpoints)
    state = checkpoints[-1] / "state.json"
    state.write_text(state.read_text() + "\n")
    done = macaron("verify", run)
    assert (done.returncode, f"{state}: " in done.stdout) == (1, True)
    assert "1 damaged. Copy the files again; if they were changed on purpose" in done.stderr
    assert macaron("verify", run, "--accept").returncode == 0
    assert macaron("verify", run).returncode == 0
    (checkpoints[-1] / "digests.json").write_text("{")
    assert macaron("verify", run).returncode == 1
    assert macaron("verify", run, "--accept").returncode == 0
    assert macaron("verify", run).returncode == 0

    done = macaron("verify", FIXTURES / "translation")
    assert (done.returncode, "no digests to compare" in done.stderr) == (1, True)
    (run / os.fsdecode(b"checkpoints/\xff")).mkdir()
    shutil.copy(state, checkpoints[-1] / os.fsdecode(b"\xff.json"))
    done = macaron("verify", run, "--accept")
    assert (done.returncode, "is not UTF-8. Rename the file, or remove it" in done.stderr) == (1, True)
    (tmp_path / "empty").mkdir()
    assert "no model, checkpoint or prepared data" in macaron("verify", tmp_path / "empty").stderr
    assert "no such folder" in macaron("verify", tmp_path / "nothing").stderr


def test_an_edited_setting_is_refused_until_it_is_accepted(macaron: Callable[..., Any], sealed: Callable[[str], Path]):
    folder = sealed("translation")
    path = folder / "generation_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "num_beams": 2}))
    source = FIXTURES / "corpus" / "test.de"
    done = macaron("translate", folder, "-i", source, "--device", "cpu")
    assert (done.returncode, f"macaron: {path}: damaged" in done.stderr) == (1, True)
    assert macaron("verify", folder, "--accept").returncode == 0
    assert macaron("translate", folder, "-i", source, "--device", "cpu").returncode == 0


def test_damaged_data_are_refused_by_train_and_evaluate_and_repaired_by_prepare(
    macaron: Callable[..., Any], sealed: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = sealed("pairs")
    for name in ("corpus", "pairs.toml"):
        source = FIXTURES / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert "up to date" in macaron("prepare", "pairs.toml").stdout
    good = (data / "train.de.ids").read_bytes()

    def damage(name: str) -> None:
        content = (data / name).read_bytes()
        (data / name).write_bytes(content[:4] + bytes([content[4] ^ 1]) + content[5:])

    damage("train.de.ids")
    damage("test.en")
    done = macaron("train", "pairs.toml", "--out", tmp_path / "run")
    assert (done.returncode, "train.de.ids: damaged" in done.stderr) == (1, True)
    assert not (tmp_path / "run").exists()
    done = macaron("evaluate", FIXTURES / "translation", "--data", data, "--device", "cpu")
    assert (done.returncode, "test.en: damaged" in done.stderr) == (1, True)
    done = macaron("prepare", "pairs.toml", "--verify")
    assert (done.returncode, "test.en: damaged" in done.stderr) == (0, True)
    assert (data / "train.de.ids").read_bytes() == good
    assert macaron("verify", data).returncode == 0
    assert "up to date" in macaron("prepare", "pairs.toml", "--verify").stdout
