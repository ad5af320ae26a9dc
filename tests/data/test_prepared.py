"""The digest of a prepared folder sees every token and every boundary; the legacy one is what old checkpoints hold."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from macaron.data.prepared import FORMAT, MANIFEST, PreparedData, PreparedText, open_prepared
from macaron.data.store import OFFSET, StoreWriter
from macaron.errors import MacaronError

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"
SOURCE, TARGET = [[5, 6, 2], [7, 2], [8, 9, 10, 2]], [[4, 2], [5, 6, 7, 2], [8, 2]]


def write_store(base: Path, sequences: list[list[int]]) -> int:
    with StoreWriter(base, 20) as writer:
        writer.append(np.concatenate(sequences), np.array([len(each) for each in sequences]))
    return sum(map(len, sequences))


def pairs(folder: Path, source: list[list[int]] = SOURCE, target: list[list[int]] = TARGET) -> PreparedData:
    folder.mkdir()
    tokens = [write_store(folder / f"train.{name}", side) for name, side in (("de", source), ("en", target))]
    sizes = {"pairs": len(source), "source_tokens": tokens[0], "target_tokens": tokens[1]}
    write_manifest(folder, {"source_lang": "de", "target_lang": "en", "splits": {"train": sizes}})
    return PreparedData.open(folder)


def text(folder: Path, sentences: list[list[int]] = SOURCE, documents: tuple[int, ...] = (0, 1, 3)) -> PreparedText:
    folder.mkdir()
    tokens = write_store(folder / "train", sentences)
    (folder / "train.documents").write_bytes(np.array(documents, OFFSET).tobytes())
    sizes = {"documents": len(documents) - 1, "sentences": len(sentences), "tokens": tokens}
    write_manifest(folder, {"kind": "text", "lang": "en", "splits": {"train": sizes}})
    return PreparedText.open(folder)


def write_manifest(folder: Path, values: dict[str, object]) -> None:
    common = {"format": FORMAT, "pipeline": "raw", "vocab_size": 20, "tokenizer_fingerprint": "x"}
    (folder / MANIFEST).write_text(json.dumps({**common, **values}))


def test_the_digest_sees_tokens_and_boundaries(tmp_path: Path) -> None:
    whole = pairs(tmp_path / "same").digest
    assert len(whole) == 32
    folders = {
        "again": pairs(tmp_path / "again"),
        "token": pairs(tmp_path / "token", [[5, 6, 2], [7, 2], [8, 9, 11, 2]]),
        "boundary": pairs(tmp_path / "boundary", [[5, 6, 2], [7, 2, 8], [9, 10, 2]]),
        "sides": pairs(tmp_path / "sides", TARGET, SOURCE),
        "text": text(tmp_path / "text"),
        "documents": text(tmp_path / "documents", documents=(0, 2, 3)),
    }
    found = {name: data.digest for name, data in folders.items()}
    assert found.pop("again") == whole
    assert len({whole, *found.values()}) == 6


def test_the_digest_is_computed_once(tmp_path: Path) -> None:
    data = pairs(tmp_path / "x")
    first = data.digest
    (tmp_path / "x" / "train.de.ids").write_bytes(b"")
    assert data.digest == first


def test_a_folder_of_either_kind_is_opened(tmp_path: Path) -> None:
    pairs(tmp_path / "pairs"), text(tmp_path / "text")
    assert isinstance(open_prepared(tmp_path / "pairs"), PreparedData)
    assert isinstance(open_prepared(tmp_path / "text"), PreparedText)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda each: each.pop("pipeline"), "missing key 'pipeline'"),
        (lambda each: each.update(vocab_size="320"), "vocab_size must be a whole number, not '320'"),
        (lambda each: each.update(kinds="pairs"), "unknown key 'kinds'; did you mean 'kind'"),
        (lambda each: each.update(format=True), "format must be a whole number"),
        (lambda each: each["splits"].pop("train"), "missing key 'splits.train'"),
        (lambda each: each["splits"]["valid"].pop("text_state"), "missing key 'splits.valid.text_state'"),
        (lambda each: each["splits"]["train"].update(pairs=-1), "splits.train.pairs must be at least 0"),
        (lambda each: each["splits"]["train"].update(corpora=[{"path": "a", "pairs": 1}]), "do not add up"),
        (lambda each: each["settings"]["train"][0].pop("path"), r"missing key 'settings.train\[0\].path'"),
        (lambda each: each["inputs"][0].update(bytes=None), r"inputs\[0\].bytes must be a whole number"),
    ],
)
def test_a_damaged_manifest_is_refused_with_its_key(change: Any, message: str, tmp_path: Path):
    content = json.loads((FIXTURES / "pairs" / MANIFEST).read_text())
    change(content)
    (tmp_path / MANIFEST).write_text(json.dumps(content))
    with pytest.raises(MacaronError, match=rf"prepared\.json: .*{message}.* Run 'macaron prepare' again"):
        open_prepared(tmp_path)


def test_documents_that_overlap_are_refused(tmp_path: Path):
    shutil.copytree(FIXTURES / "text", tmp_path / "text")
    file = tmp_path / "text" / "train.documents"
    starts = np.fromfile(file, "<u8")
    starts[2] = starts[1]
    starts.tofile(file)
    with pytest.raises(MacaronError, match=r"train\.documents: damaged, its offsets do not grow"):
        open_prepared(tmp_path / "text").check()
