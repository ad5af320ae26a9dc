"""What is right: a command that accepts a changed file gives the old result, or one that the change explains.

Each oracle reads the changed file by means of its own (Python's json, zipfile, csv, NumPy) and returns what is wrong.
"""

import bz2
import csv
import gzip
import io
import json
import lzma
import math
import re
import struct
import tarfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

#: What a command has printed and written, by name.
Result = dict[str, bytes]


@dataclass(frozen=True)
class Accepted:
    """A command that ended well, but with another result than that of the unchanged file."""

    before: bytes
    after: bytes
    expected: Result
    found: Result
    folder: Path


Oracle = Callable[[Accepted], str | None]


def equal(case: Accepted) -> str | None:
    """Nothing but the old result is right: a fingerprint or a digest protects the file."""
    differ = [name for name in case.expected if case.expected[name] != case.found.get(name)]
    return f"another result: {', '.join(differ)}"


def anything(case: Accepted) -> str | None:
    """Whatever is readable is right."""
    return None


def same_files(case: Accepted) -> str | None:
    """The files are the same; what is said about them may differ."""
    files = {name: content for name, content in case.expected.items() if name != "output"}
    differ = [name for name, content in files.items() if case.found.get(name) != content]
    return f"another {differ[0]}" if differ else None


def same_output(case: Accepted) -> str | None:
    """What is said is the same; files may say more."""
    return None if case.expected["output"] == case.found["output"] else "another output"


#: Keys of a recipe that a line of another section makes when it is repeated here.
_ELSEWHERE = {".train.max_length", ".model.vocab_size"}


def _retyped(old: Any, new: Any, path: str = "", others: bool = False) -> str | None:
    """Where a value has another type than before, or is not finite, or a key is unknown.

    :param others: unknown keys at the top are legal
    """
    if isinstance(old, dict) and isinstance(new, dict):
        if others:
            new = {key: value for key, value in new.items() if key in old}
        if unknown := sorted(key for key in new.keys() - old.keys() if f"{path}.{key}" not in _ELSEWHERE):
            return f"unknown key {path}.{unknown[0]}"
        return next(filter(None, (_retyped(old[key], new[key], f"{path}.{key}") for key in new if key in old)), None)
    if isinstance(old, list) and isinstance(new, list):
        kinds = old or [None]
        # An object may be like any other in its list: a tokenizer's template has special tokens and sequences.
        like = [kinds if isinstance(item, dict) else [kinds[min(i, len(kinds) - 1)]] for i, item in enumerate(new)]
        found = ([_retyped(kind, item, f"{path}[{i}]") for kind in like[i]] for i, item in enumerate(new))
        return next((said[0] for said in found if all(said)), None)
    if isinstance(new, float) and not math.isfinite(new):
        return f"{path} is not finite"
    free = (
        old is None
        or new is None
        or new == "auto"
        or type(old) is type(new)
        or (isinstance(old, float) and type(new) is int)
    )
    return None if free else f"{path} was {type(old).__name__}, is {type(new).__name__}"


def _parsed(parse: Callable[[str], Any], others: bool = False) -> Oracle:
    def oracle(case: Accepted) -> str | None:
        try:
            return _retyped(parse(case.before.decode()), parse(case.after.decode("utf-8-sig")), others=others)
        except (ValueError, RecursionError) as error:
            return f"it cannot be parsed ({str(error)[:80]})"

    return oracle


typed = _parsed(json.loads)
#: Of generation_config.json: it is transformers' file, which may hold any of its settings and those of other programs.
typed_among_others = _parsed(json.loads, others=True)
#: What a program sends may have other types, such as one text for a list of texts.
readable = _parsed(lambda text: json.loads(text) and None)
typed_toml = _parsed(tomllib.loads)
typed_lines = _parsed(lambda text: [json.loads(line) for line in text.split("\n") if line.strip()])


def shown(parse: Callable[[str], Any]) -> Oracle:
    """A page shows what a file says, whatever it is; it says so where it cannot be read."""
    words = (b"damaged", b"could not be read", b"ignored", b"left out", b"cannot be read")

    def oracle(case: Accepted) -> str | None:
        try:
            parse(case.after.decode("utf-8-sig"))
        except (ValueError, RecursionError) as error:
            known = b"".join(case.expected.values())
            said = any(word in text and word not in known for text in case.found.values() for word in words)
            return None if said else f"the page does not say that the file is damaged ({str(error)[:80]})"
        return None

    return oracle


def _unpacked(name: str, data: bytes) -> bytes:
    for ending, unpack in ((".gz", gzip.decompress), (".xz", lzma.decompress)):
        if name.endswith(ending):
            return unpack(data)
    return data


def _lines(data: bytes) -> list[bytes]:
    lines = data.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    return [line.removesuffix(b"\r") for line in (lines if lines[-1] else lines[:-1])]


def _close(one: bytes, other: bytes) -> bool:
    """Whether two lines are the same, but for the rounding of numbers in another batch."""
    if one == other:
        return True
    try:
        pairs = zip(one.split(b"\t"), other.split(b"\t"), strict=True)
        return all(a == b or math.isclose(float(a), float(b), rel_tol=1e-3, abs_tol=1e-5) for a, b in pairs)
    except ValueError:
        return False


def aligned(file: str, header: int = 0) -> Oracle:
    """As many lines out as in, and those of unchanged lines are unchanged.

    :param header: lines of the input without an answer
    """

    def oracle(case: Accepted) -> str | None:
        try:
            before, after = (_lines(_unpacked(file, data))[header:] for data in (case.before, case.after))
            [line.decode() for line in after]
        except Exception as error:
            return f"the text cannot be read ({error})"
        answers, found = (result["out.txt"].split(b"\n")[:-1] for result in (case.expected, case.found))
        if len(found) != len(after):
            return f"{len(found)} lines for {len(after)}"
        known = dict(zip(before, answers, strict=True))
        wrong = [i for i, line in enumerate(after) if not _close(known.get(line, found[i]), found[i])]
        return f"the answer to line {wrong[0] + 1} has changed" if wrong else None

    return oracle


def prepared(file: str, out: str = "data") -> Oracle:
    """All lines of a corpus are accounted for."""

    def oracle(case: Accepted) -> str | None:
        try:
            lines = len(_lines(_unpacked(file, case.after)))
        except Exception as error:
            return f"the text cannot be read ({error})"
        read = json.loads((case.folder / out / "prepared.json").read_text())["cleaning"]["read"]
        return None if read == lines else f"{read} of {lines} lines were read"

    return oracle


def unpacked(case: Accepted) -> str | None:
    """What was extracted is what Python finds in the archive."""
    data = io.BytesIO(case.after)
    try:
        if zipfile.is_zipfile(data):
            with zipfile.ZipFile(data) as archive:
                content = {name: archive.read(name) for name in archive.namelist()}
        else:
            data.seek(0)
            with tarfile.open(fileobj=data) as tar:
                content = {m.name: tar.extractfile(m).read() for m in tar if m.isfile()}  # type: ignore[union-attr]
    except Exception as error:
        # A damage behind what is wanted need not be met.
        return None if case.found == case.expected else f"the archive cannot be read ({error})"
    for side in ("src", "tgt"):
        wanted = content.get(f"in/train.{side}")
        found = (case.folder / "packed" / f"x.{side}").read_bytes()
        lines = None if wanted is None else wanted.split(b"\n")
        if lines and found != b"".join(
            line.removesuffix(b"\r") + b"\n" for line in (lines if lines[-1] else lines[:-1])
        ):
            return f"x.{side} is not what the archive holds"
    return None


def kept(pattern: bytes, but: bytes = rb"(?!)") -> Oracle:
    """What looks like this in a document is in its translation, as often, unless it is inside of something else."""

    def oracle(case: Accepted) -> str | None:
        case.found["out.txt"].decode()
        before = re.sub(but, b"", case.after)
        lost = Counter(re.findall(pattern, before)) - Counter(re.findall(pattern, case.found["out.txt"]))
        return f"lost: {list(lost)[:3]}" if lost else None

    return oracle


def verified(case: Accepted) -> str | None:
    """All files are as their digests say."""
    folder = case.folder / "run" / "model"
    for name, entry in json.loads((folder / "digests.json").read_text("utf-8-sig"))["files"].items():
        content = (folder / name).read_bytes()
        if (len(content), sha256(content).hexdigest()) != (entry["bytes"], entry["sha256"]):
            return f"{name} is not as its digest says"
    return None


def keyed(key: str) -> Oracle:
    """A client is let in whose key is in the file."""

    def oracle(case: Accepted) -> str | None:
        lines = case.after.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        given = [line.partition(b"#")[0].split()[:1] for line in lines]
        status = b"200" if [key.encode()] in given else b"403"
        return None if case.found["output"].startswith(status) else f"not {status.decode()}"

    return oracle


def dump(case: Accepted) -> str | None:
    """The XML is well-formed."""
    try:
        ElementTree.fromstring(bz2.decompress(case.after))
    except Exception as error:
        return f"the dump cannot be read ({error})"
    return None


def table(separator: str, columns: int, header: int, labels: tuple[str, ...] = ()) -> Oracle:
    """All rows have the columns of the header."""

    def oracle(case: Accepted) -> str | None:
        try:
            lines = [line.decode() for line in _lines(case.after)]
            rows = (
                list(csv.reader(lines, strict=True)) if separator == "," else [line.split(separator) for line in lines]
            )
        except Exception as error:
            return f"the table cannot be read ({error})"
        odd = [row for row in rows[header:] if row and row != [""] and len(row) != columns]
        if not odd and labels:
            odd = [row for row in rows[header:] if row[1].strip() not in labels]
        return f"a row is {str(odd[0])[:60]}" if odd else None

    return oracle


def _tensors(data: bytes) -> dict[str, tuple[str, tuple[int, ...], bool]]:
    """Names, dtypes and shapes of a safetensors file, and whether all numbers are finite."""
    size = struct.unpack("<Q", data[:8])[0]
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            finite = entry["dtype"] != "F32" or bool(np.isfinite(np.frombuffer(body[start:end], "<f4")).all())
            found[name] = entry["dtype"], tuple(entry["shape"]), finite
    return found


def tensors(case: Accepted) -> str | None:
    """The same tensors in name, type and shape, and finite: other numbers are legal."""
    try:
        return (
            None if _tensors(case.before) == _tensors(case.after) else "other tensors, or numbers that are not finite"
        )
    except Exception as error:
        return f"it cannot be parsed ({error})"


def converted(case: Accepted) -> str | None:
    """A checkpoint whose checksums hold gives the same tensors."""
    data = io.BytesIO(case.after)
    if case.before.startswith(b"PK"):
        try:
            with zipfile.ZipFile(data) as archive:
                damaged = archive.testzip()
        except Exception as error:
            return f"the zip cannot be read ({error})"
        if damaged:
            return f"{damaged} has another checksum"
    name = next(name for name in case.expected if name.endswith(".safetensors"))
    return None if _tensors(case.expected[name]) == _tensors(case.found[name]) else "other tensors"


def store(case: Accepted) -> str | None:
    """Token stores that fit prepared.json: offsets grow, and ids are in the vocabulary."""
    manifest = json.loads((case.folder / "data/prepared.json").read_text())
    sizes, words = manifest["splits"]["train"], manifest["vocab_size"]
    for language, tokens in (("src", sizes["source_tokens"]), ("tgt", sizes["target_tokens"])):
        base = f"{case.folder}/data/train.{language}"
        ids = np.fromfile(f"{base}.ids", "<u2" if words <= 1 << 16 else "<i4")
        offsets = np.fromfile(f"{base}.offsets", "<u8").astype(object)
        if len(ids) != tokens or len(offsets) != sizes["pairs"] + 1:
            return f"train.{language}: other sizes than in prepared.json"
        if ids.max() >= words or offsets[0] != 0 or offsets[-1] != len(ids):
            return f"train.{language}: ids or offsets out of range"
        if any(b <= a for a, b in pairwise(offsets)):
            return f"train.{language}: offsets that do not grow"
    return None
