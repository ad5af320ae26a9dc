"""Token stores come back as they were written, and damaged or foreign ones are refused."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from macaron.data.store import StoreWriter, TokenStore, id_dtype
from macaron.errors import MacaronError


def flat(sequences: list[list[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Concatenated ids, and the lengths of the sequences."""
    return np.array([token for each in sequences for token in each], np.int64), np.array(
        [len(each) for each in sequences], np.int64
    )


sequences_of = st.lists(st.lists(st.integers(0, 299), max_size=12), max_size=20)


@settings(max_examples=60, deadline=None)
@given(sequences_of, st.sampled_from([300, 70_000]), st.integers(1, 7))
def test_round_trip(sequences: list[list[int]], vocab_size: int, step: int) -> None:
    with TemporaryDirectory() as folder:
        base = Path(folder) / "train.de"
        with StoreWriter(base, vocab_size) as writer:
            for start in range(0, len(sequences), step):
                writer.append(*flat(sequences[start : start + step]))
        store = TokenStore(base, vocab_size, len(sequences), writer.tokens)
        assert len(store) == len(sequences)
        assert writer.tokens == sum(map(len, sequences))
        assert [store[i].tolist() for i in range(len(store))] == sequences
        assert store.lengths().tolist() == [len(sequence) for sequence in sequences]
        assert store.ids.dtype == np.dtype("<u2" if vocab_size == 300 else "<i4")
        if sequences:
            assert store[-1].tolist() == sequences[-1]
        with pytest.raises(IndexError):
            store[len(sequences)]


def test_the_dtype_fits_the_vocabulary() -> None:
    assert [id_dtype(size) for size in (10, 65_536, 65_537)] == ["<u2", "<u2", "<i4"]


def test_files_are_little_endian_and_flat(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "x", 1000) as writer:
        writer.append(*flat([[1, 258], [], [2]]))
    assert (tmp_path / "x.ids").read_bytes() == bytes([1, 0, 2, 1, 2, 0])
    assert np.frombuffer((tmp_path / "x.offsets").read_bytes(), "<u8").tolist() == [0, 2, 2, 3]


def test_a_sequence_is_ready_for_torch(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "x", 1000) as writer:
        writer.append(*flat([[5, 2]]))
    sequence = TokenStore(tmp_path / "x", 1000, 1, 2)[0]
    assert sequence.dtype == np.int64
    assert sequence.flags.writeable


def test_an_unfinished_store_does_not_exist(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "x", 1000)
    writer.append(*flat([[1, 2]]))
    with pytest.raises(MacaronError, match=r"x\.ids: no such file.*macaron prepare"):
        TokenStore(tmp_path / "x", 1000, 1, 2)
    with pytest.raises(RuntimeError, match="no more"), StoreWriter(tmp_path / "y", 1000):
        raise RuntimeError("no more")
    assert not list(tmp_path.glob("y*"))


@pytest.mark.parametrize("ids", [[1000], [-1]])
def test_ids_beyond_the_vocabulary_are_refused(tmp_path: Path, ids: list[int]) -> None:
    with pytest.raises(MacaronError, match=r"ids must be in \[0, 999\]"), StoreWriter(tmp_path / "x", 1000) as writer:
        writer.append(*flat([ids]))
    assert not list(tmp_path.iterdir())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with StoreWriter(tmp_path / "x", 1000) as writer:
        writer.append(*flat([[1, 2], [3, 4, 2]]))
    return tmp_path / "x"


def opened(base: Path) -> TokenStore:
    return TokenStore(base, 1000, sequences=2, tokens=5)


def test_truncated_files_are_refused(store: Path) -> None:
    for name in ("x.ids", "x.offsets"):
        path = store.with_name(name)
        content = path.read_bytes()
        path.write_bytes(content[:-1])
        with pytest.raises(MacaronError, match=f"{name}: truncated.*bytes instead of"):
            opened(store)
        path.write_bytes(content + b"\0\0")
        with pytest.raises(MacaronError, match=f"{name}: foreign or damaged"):
            opened(store)
        path.unlink()
        with pytest.raises(MacaronError, match=f"{name}: no such file"):
            opened(store)
        path.write_bytes(content)
    assert len(opened(store)) == 2


def test_offsets_of_other_ids_are_refused(store: Path) -> None:
    store.with_name("x.offsets").write_bytes(np.array([0, 2, 4], "<u8").tobytes())
    with pytest.raises(MacaronError, match="belongs to other ids"):
        opened(store)
    store.with_name("x.offsets").write_bytes(np.array([0, 9, 5], "<u8").tobytes())
    with pytest.raises(MacaronError, match="do not grow"):
        opened(store).check()
    store.with_name("x.offsets").write_bytes(np.array([0, 0, 5], "<u8").tobytes())  # an empty sequence
    with pytest.raises(MacaronError, match="do not grow"):
        opened(store).check()
    # Of int64, these differences would be right again as int32.
    store.with_name("x.offsets").write_bytes(np.array([0, 2**32 + 2, 5], "<u8").tobytes())
    with pytest.raises(MacaronError, match="do not grow"):
        opened(store).check()


def test_stored_ids_beyond_the_vocabulary_are_refused(store: Path) -> None:
    opened(store).check()
    store.with_name("x.ids").write_bytes(np.array([1, 2, 3, 1000, 2], "<u2").tobytes())
    with pytest.raises(MacaronError, match=r"x\.ids: damaged, an id is beyond the vocabulary"):
        opened(store).check()


def test_documents(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "d", 10, documents=True) as writer:
        for lengths, starts in (([1, 2, 1], [0, 2]), ([1, 1], []), ([], []), ([1, 3], [1])):
            writer.append(np.ones(sum(lengths), int), np.array(lengths, int), np.array(starts, np.int64))
    assert np.fromfile(tmp_path / "d.documents", "<u8").tolist() == [0, 2, 6, 7]
    assert (writer.documents, writer.sequences) == (3, 7)
