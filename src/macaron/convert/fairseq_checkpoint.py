"""Reads a fairseq checkpoint without running the code that is pickled in it.

A checkpoint is a pickle, and a pickle is a program. PyTorch's restricted unpickler (``weights_only=True``) calls
nothing outside an allow-list; it also refuses the meters and settings of a training checkpoint. So the pickle is first
*scanned*, opcode by opcode, for the classes it names. fairseq's classes become inert stand-ins, unexpected ones are
refused here, and what the scan has missed by PyTorch.
"""

import argparse
import io
import pickletools
import re
import warnings
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from macaron.errors import MacaronError, require, shown
from macaron.settings import load_toml

#: The first bytes of the two containers.
_ZIP, _LEGACY = b"PK\x03\x04", b"\x80\x02\x8a\n"

_PICKLED = load_toml(Path(__file__).with_name("fairseq.toml"))[0]["pickled"]
_NOT_NEEDED, _EXPECTED = (re.compile("|".join(_PICKLED[name])) for name in ("not_needed", "expected"))
#: Bytes. Weights are stored apart; the rest is a few hundred kilobytes, and scanning takes 1 s per MB.
_LONGEST_PICKLE = 4 * 2**20
#: Types of weights.
_FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@dataclass
class FairseqCheckpoint:
    """The settings and weights of a checkpoint, with checks. Messages do not name the file: the caller does."""

    path: Path
    args: dict[str, Any]
    tensors: dict[str, Tensor]

    def weight(self, name: str) -> Tensor:
        """A weight, which must be present and finite."""
        require(name in self.tensors, f"{name!r} is missing from 'model'; the checkpoint is incomplete")
        tensor = self.tensors[name]
        kind = f"{name!r} has values of type {str(tensor.dtype).removeprefix('torch.')}, not floating-point numbers"
        remedy = "give the checkpoint as trained, before any quantisation or other conversion"
        require(tensor.dtype in _FLOATS, f"{kind}: {remedy}")
        finite = bool(torch.isfinite(tensor).all())
        require(finite, f"{name!r} has values that are not finite; the training has failed")
        return tensor

    def matrix(self, name: str) -> Tensor:
        """A weight that must be a matrix."""
        tensor = self.weight(name)
        require(tensor.dim() == 2, f"{name!r} should be a matrix, not of shape {tuple(tensor.shape)}")
        return tensor

    def whole_number(self, name: str, default: int | None = None) -> int:
        """A setting that must be a positive integer."""
        value = self.args.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise MacaronError(f"args.{name} should be a positive integer, not {value!r}")
        return value

    def rate(self, name: str) -> float:
        """A dropout rate; 0 if the setting is missing."""
        value = self.args.get(name, 0.0)
        if not isinstance(value, int | float) or not 0 <= value < 1:
            raise MacaronError(f"args.{name} should be a dropout rate in [0, 1), not {value!r}")
        return float(value)

    def agree(self, name: str, found: int) -> None:
        """Refuse a number, or a truth value, that contradicts the weights. It may be missing."""
        given = self.args.get(name, found)
        known = bool(given) if isinstance(found, bool) else self.whole_number(name, found)
        require(known == found, f"args.{name} is {given!r}, but the weights say {found}")


class _Inert:
    """A stand-in for an object that is not needed: accepts any arguments and state, and keeps none."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def read_checkpoint(path: str | Path) -> FairseqCheckpoint:
    """Read a checkpoint, full or minimal, in the zip container or in that of PyTorch before 1.6."""
    path = Path(path)
    content = read_pickled(path)
    expected = f"{path}: not a fairseq checkpoint: expected the entries 'args' and 'model'"
    if not isinstance(content, dict) or "args" not in content or "model" not in content:
        keys = ", ".join(map(str, list(content)[:4])) if isinstance(content, dict) else type(content).__name__
        raise MacaronError(f"{expected}, found {keys or 'none'}")
    args, model = content["args"], content["model"]
    if not isinstance(args, argparse.Namespace) or not isinstance(model, dict) or not model:
        wanted = "'args' should hold the settings (argparse.Namespace) and 'model' the weights by name"
        found = f"{type(args).__name__} and {'empty' if model == {} else type(model).__name__}"
        raise MacaronError(f"{path}: {wanted}, but they are {found}")
    # Others are for messages alone, and may be endless: lists in lists that are one another.
    simple = (str, int, float, type(None))
    settings = {name: each if isinstance(each, simple) else shown(each) for name, each in vars(args).items()}
    return FairseqCheckpoint(path, settings, plain_tensors(path, model, "'model'"))


def read_pickled(path: Path) -> Any:
    """The content of a file that PyTorch has pickled, if it names nothing beyond what weights and settings need."""
    require(not path.is_dir(), f"{path}: a folder; give the checkpoint file, such as {path}/checkpoint_best.pt")
    try:
        with path.open("rb") as file:
            start = file.read(9)
    except OSError as error:
        raise MacaronError(f"{path}: {error.strerror or error}") from None
    if not start:
        raise MacaronError(f"{path}: the file is empty; copy or fetch it again")
    require(start[8:] != b"{", f"{path}: a safetensors file; this command reads fairseq checkpoints (.pt)")
    require(start[:4] in (_ZIP, _LEGACY), f"{path}: not a PyTorch checkpoint; give the .pt file that fairseq wrote")
    try:
        return _load(path, start[:4] == _ZIP)
    except MacaronError:
        raise
    except Exception as error:  # whatever is raised for a damaged or foreign file, it is not loaded
        # PyTorch's message is left out: it advises to switch the protection off.
        raise MacaronError(f"{path}: the checkpoint is damaged or cut short; copy or fetch it again") from error


def _load(path: Path, zipped: bool) -> Any:
    named = sorted(_names_in(path, zipped))
    inert = list(filter(_NOT_NEEDED.fullmatch, named))
    foreign = [name for name in named if name not in inert and not _EXPECTED.fullmatch(name)]
    refused = f"{path}: refused, and nothing in it was run: it names {', '.join(foreign[:5])}"
    require(not foreign, f"{refused}, which a fairseq checkpoint does not. Get the file from a source you trust.")
    stand_ins = [(type(name.rpartition(".")[2], (_Inert,), {}), name) for name in inert]
    with torch.serialization.safe_globals([argparse.Namespace, *stand_ins]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch warns about, it also refuses
        content = torch.load(path, map_location="cpu", weights_only=True)
    if zipped:
        with zipfile.ZipFile(path) as archive:  # PyTorch does not compare checksums
            if archive.testzip() is not None:
                raise ValueError("a member has another checksum")
    return content


def _names_in(path: Path, zipped: bool) -> set[str]:
    """The classes and functions that the file's pickles name. Nothing is looked up or called."""
    found: set[str] = set()
    with ExitStack() as stack:
        if zipped:
            archive = stack.enter_context(zipfile.ZipFile(path))
            entries = archive.infolist()
            # PyTorch compresses nothing. What would be larger than the file is not read.
            _within(path, sum(max(entry.file_size, entry.compress_size) for entry in entries))
            pickles = [archive.open(entry) for entry in entries if entry.filename.lower().endswith("data.pkl")]
        else:
            pickles = [stack.enter_context(path.open("rb"))]
        for file in pickles:
            stream = io.BytesIO(file.read(_LONGEST_PICKLE + 1))
            try:
                # Not in the zip container: magic number, version, machine and content, then the raw storages.
                for _ in range(1 if zipped else 4):
                    opcodes = pickletools.genops(stream)
                    found |= {str(name).replace(" ", ".") for opcode, name, _ in opcodes if opcode.name == "GLOBAL"}
            finally:
                if stream.tell() > _LONGEST_PICKLE:
                    size = f"besides the weights it has more than {_LONGEST_PICKLE >> 20} MB of pickled data"
                    refused = f"{path}: refused, and nothing in it was run: {size}, far more than a fairseq checkpoint"
                    raise MacaronError(f"{refused}. Get the file from a source you trust.")
    return found


def _within(path: Path, size: int) -> None:
    if size > path.stat().st_size:
        raise MacaronError(f"{path}: claims to hold more than the file has; get the file from a source you trust")


def plain_tensors(path: Path, content: Any, part: str = "the file") -> dict[str, Tensor]:
    """The weights in the content of a file, or in a part of it: tensors by name, and not larger than the file."""
    require(isinstance(content, dict), f"{path}: not weights by name, but {type(content).__name__}")
    for name, tensor in content.items():
        plain = isinstance(name, str) and isinstance(tensor, Tensor)
        plain = plain and tensor.layout == torch.strided and not tensor.is_meta
        # With strides of zero a few bytes can claim to be a tensor of any size, whose values would fill the memory.
        if not plain or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
            raise MacaronError(f"{path}: {name!r} in {part} is not a plain tensor")
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in content.values()}
    _within(path, sum(storages.values()))
    return dict(content)
