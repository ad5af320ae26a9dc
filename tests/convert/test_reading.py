"""Checkpoints are data: what is pickled in them is never run, and what is wrong with them is said."""

import argparse
import os
import pickle
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from macaron.convert.fairseq_checkpoint import read_checkpoint
from macaron.errors import MacaronError

LEGACY = pytest.mark.parametrize("legacy", [True, False], ids=["legacy", "zip"])


# Weapons, and what the refusal must name.
NAMED = {
    "system": "posix.system",
    "eval": "__builtin__.eval",
    "getattr": "__builtin__.getattr",
    "numpy": "numpy.save",
    "torch": "torch.serialization.load",
    "hub": "torch.hub.load",
    "dotted": "torch._utils._import_dotted_name",
}


class Hostile:
    """Runs a function when it is unpickled."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def hostile(how: str, marker: Path) -> Hostile:
    if how == "system":
        return Hostile(os.system, f"touch {marker}")
    if how == "eval":
        return Hostile(eval, f"open({str(marker)!r}, 'w')")
    if how == "getattr":
        return Hostile(getattr, marker, "touch")
    if how == "torch":
        return Hostile(torch.load, str(marker))
    if how == "hub":
        return Hostile(torch.hub.load, "owner/repository", "model")
    if how == "dotted":
        return Hostile(torch._utils._import_dotted_name, "os.system")
    return Hostile(np.save, str(marker), 1)


def save(content: Any, path: Path, legacy: bool) -> Path:
    torch.save(content, path, _use_new_zipfile_serialization=not legacy)
    return path


@LEGACY
@pytest.mark.parametrize("how", list(NAMED))
@pytest.mark.parametrize("where", ["top", "args", "model", "meters"])
def test_hostile_pickles_do_not_run(how: str, where: str, legacy: bool, golden: Path, tmp_path: Path):
    marker = tmp_path / "marker.npy"
    weapon = hostile(how, marker)
    content: Any = {"args": argparse.Namespace(), "model": {"weight": torch.ones(1)}, "extra_state": {}}
    if where == "top":
        content = weapon
    elif where == "args":
        content["args"].seed = weapon
    elif where == "model":
        content["model"]["weight"] = weapon
    else:
        content["extra_state"]["train_meters"] = weapon
    path = save(content, tmp_path / "checkpoint.pt", legacy)
    message = rf"checkpoint\.pt: refused, and nothing in it was run: it names .*{re.escape(NAMED[how])}"
    with pytest.raises(MacaronError, match=message):
        read_checkpoint(path)
    assert not marker.exists()


def test_the_weapons_of_these_tests_are_sharp(tmp_path: Path):
    for how in ("system", "eval", "numpy"):
        marker = tmp_path / f"{how}.npy"
        pickle.loads(pickle.dumps(hostile(how, marker)))
        assert marker.exists()


@LEGACY
def test_a_plain_pickle_is_no_checkpoint_and_does_not_run(legacy: bool, tmp_path: Path):
    marker, path = tmp_path / "marker", tmp_path / "checkpoint.pt"
    path.write_bytes(pickle.dumps(hostile("system", marker), protocol=2 if legacy else 4))
    with pytest.raises(MacaronError, match=r"checkpoint\.pt: not a PyTorch checkpoint"):
        read_checkpoint(path)
    assert not marker.exists()


@LEGACY
def test_memory_that_a_pickle_asks_for_is_not_given(legacy: bool, tmp_path: Path):
    """300 bytes can ask for a bytearray, or a tensor, of gigabytes."""
    for ask, message in (
        (Hostile(bytearray, 2**40), "bytearray"),
        (Hostile(torch.FloatTensor, 2**30), "more than the file"),
    ):
        content = {"args": argparse.Namespace(), "model": {"weight": ask}}
        with pytest.raises(MacaronError, match=message):
            read_checkpoint(save(content, tmp_path / "checkpoint.pt", legacy))


@LEGACY
def test_any_class_of_fairseq_and_numbers_of_numpy(legacy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A training checkpoint holds objects of classes that are not installed here."""
    module = ModuleType("fairseq.odd_place")

    class WithState:
        def __init__(self) -> None:
            self.value = np.float64(3)

    class WithArguments(dict):  # type: ignore[type-arg]
        def __reduce__(self) -> Any:
            return (WithArguments, (1, "two"))

    for made in (WithState, WithArguments):
        made.__module__, made.__qualname__ = module.__name__, made.__name__
        setattr(module, made.__name__, made)
    monkeypatch.setitem(sys.modules, "fairseq", ModuleType("fairseq"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    extra = {"meters": [WithState(), WithArguments()], "best": np.float32(1.5), "history": np.arange(3.0)}
    content = {"args": argparse.Namespace(seed=1), "model": {"weight": torch.ones(2)}, "extra_state": extra}
    path = save(content, tmp_path / "checkpoint.pt", legacy)
    monkeypatch.undo()
    read = read_checkpoint(path)
    assert read.args == {"seed": 1}
    assert torch.equal(read.tensors["weight"], torch.ones(2))


@pytest.mark.parametrize("name", ["checkpoint_min.pt", "checkpoint_full_legacy.pt"])
def test_truncated(name: str, golden: Path, tmp_path: Path):
    whole = (golden / "tiny_macaron_v2_trained" / name).read_bytes()
    path = tmp_path / "checkpoint.pt"
    for size in (1, 3, 5, 20, 100, 1000, len(whole) // 2, len(whole) - 1000, len(whole) - 1):
        path.write_bytes(whole[:size])
        message = "damaged or cut short" if size > 4 else "not a PyTorch checkpoint"
        with pytest.raises(MacaronError, match=rf"checkpoint\.pt: .*{message}"):
            read_checkpoint(path)


def test_damaged_in_the_middle(golden: Path, tmp_path: Path):
    """Whatever the damage, it is either read as data or refused."""
    random = np.random.default_rng(0)
    path = tmp_path / "checkpoint.pt"
    for name in ("checkpoint_min.pt", "checkpoint_full_legacy.pt"):
        whole = (golden / "tiny_macaron_v2_trained" / name).read_bytes()
        for place in random.integers(0, 6000, 40):
            path.write_bytes(whole[:place] + random.bytes(3) + whole[place + 3 :])
            try:
                read_checkpoint(path)
            except MacaronError as error:
                assert "checkpoint.pt" in str(error)  # noqa: PT017


def test_foreign_files(tmp_path: Path):
    path = tmp_path / "file.pt"
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: path.write_bytes(b""), "empty"),
        (lambda: path.write_text("Ein Satz, kein Modell.\n" * 50), "not a PyTorch checkpoint"),
        (lambda: path.write_text('{"a": 1}'), "not a PyTorch checkpoint"),
        (lambda: path.write_bytes(np.random.default_rng(0).bytes(5000)), "not a PyTorch checkpoint"),
        (lambda: safetensors.torch.save_file({"weight": torch.ones(2)}, path), "safetensors"),
        (lambda: torch.save(torch.nn.Linear(2, 2).state_dict(), path), "expected the entries 'args' and 'model'"),
        (lambda: torch.save(torch.ones(3), path), "expected the entries"),
        (lambda: torch.save({"args": {}, "model": {}}, path), "'args' should hold"),
        (
            lambda: torch.save({"args": argparse.Namespace(), "model": [1]}, path),
            "'model' the weights by name, .* and list$",
        ),
        (
            lambda: torch.save({"args": argparse.Namespace(), "model": {}}, path),
            "'model' the weights by name, .* and empty$",
        ),
        (lambda: torch.save({"args": argparse.Namespace(), "model": {"a": 1}}, path), "'a' in 'model' is not"),
        (
            lambda: torch.save({"args": argparse.Namespace(), "model": {"a": torch.ones(1).expand(10**12)}}, path),
            "'a' in 'model' is not a plain tensor",
        ),
    ]
    for write, message in cases:
        write()
        with pytest.raises(MacaronError, match=message) as caught:
            read_checkpoint(path)
        assert "file.pt" in str(caught.value)


@LEGACY
def test_a_pickle_of_great_length_is_refused_before_it_is_read(legacy: bool, tmp_path: Path):
    """A few kilobytes of zip can hold a gigabyte of opcodes; so can a plain file, at its own cost."""
    path = tmp_path / "checkpoint.pt"
    content = {"args": argparse.Namespace(), "model": {"weight": torch.ones(1)}}
    small = save(content, tmp_path / "small.pt", legacy)
    length = 11 * 2**20
    opcodes = b"\x80\x02" + b"N0" * (length // 2) + b"."
    if legacy:
        whole = small.read_bytes()
        magic = pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2)
        assert whole.startswith(magic)
        path.write_bytes(magic + b"\x80\x02X" + length.to_bytes(4, "little") + b"a" * length + b"." + whole)
    else:
        with zipfile.ZipFile(small) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
            for entry in old.namelist():
                new.writestr(entry, opcodes if entry.endswith("data.pkl") else old.read(entry))
        assert path.stat().st_size < 2**20
    message = "refused, .* more than 4 MB of pickled data" if legacy else "claims to hold more than the file has"
    with pytest.raises(MacaronError, match=rf"checkpoint\.pt: {message}"):
        read_checkpoint(path)


@pytest.mark.parametrize("size", [1, 10**4, 10**6])
def test_a_long_string_is_read(size: int, tmp_path: Path):
    args = argparse.Namespace(source_lang="d" * size)
    path = save({"args": args, "model": {"weight": torch.ones(1)}}, tmp_path / "checkpoint.pt", False)
    assert read_checkpoint(path).args == vars(args)


def test_no_file(tmp_path: Path):
    with pytest.raises(MacaronError, match=r"nowhere\.pt: No such file"):
        read_checkpoint(tmp_path / "nowhere.pt")
    with pytest.raises(MacaronError, match="a folder; give the checkpoint file"):
        read_checkpoint(tmp_path)
