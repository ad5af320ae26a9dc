"""Damage to archives, compressed files and pickles."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from random import Random

from faults.mutations import Mutation, any_bytes, text


def zipped(draw: Random, data: bytes) -> bytes:
    """Damage to a zip: the fields of its headers, a member that grows beyond all bounds, its bytes."""
    kind = draw.random()
    if kind < 0.4:
        return any_bytes(draw, data)
    if kind < 0.5:
        return _bomb(draw, data)
    # Local headers: flags at 6, method at 8, sizes at 18; central ones: two bytes later; the end: 4 to 20.
    sign, fields = draw.choice(
        (
            (b"PK\3\4", (4, 6, 8, 14, 18, 22, 26, 28)),
            (b"PK\1\2", (6, 8, 10, 16, 20, 24, 28, 42)),
            (b"PK\5\6", (8, 10, 12, 16)),
        )
    )
    places = [i for i in range(len(data)) if data.startswith(sign, i)] or [0]
    start = draw.choice(places) + draw.choice(fields)
    value = draw.choice((0, 1, 8, 9, 12, 14, 99, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF))
    width = 2 if value <= 0xFFFF else 4
    return data[:start] + value.to_bytes(width, "little") + data[start + width :]


def _bomb(draw: Random, data: bytes) -> bytes:
    """The zip with a member of 3 GB of zeros."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    chosen = draw.choice(list(members))
    coder = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = coder.compress(bytes(1 << 22)) + coder.flush(zlib.Z_FULL_FLUSH)
    body, size = block * 768 + coder.flush(), 768 << 22
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, body if name == chosen else content, zipfile.ZIP_STORED if name == chosen else None)
    made = bytearray(out.getvalue())
    for sign, method, length in ((b"PK\3\4", 8, 22), (b"PK\1\2", 10, 24)):
        start = -1
        while (start := made.find(sign, start + 1)) >= 0:
            if int.from_bytes(made[start + length : start + length + 4], "little") == len(body):
                made[start + method : start + method + 2] = (8).to_bytes(2, "little")
                made[start + length : start + length + 4] = size.to_bytes(4, "little")
    return bytes(made)


def inside(unpack: Callable[[bytes], bytes], pack: Callable[[bytes], bytes], mutation: Mutation) -> Mutation:
    """Damage to a compressed file, or to what it holds."""

    def mutate(draw: Random, data: bytes) -> bytes:
        if draw.random() < 0.5:
            return any_bytes(draw, data)
        return pack(mutation(draw, unpack(data)))

    return mutate


gz = inside(gzip.decompress, lambda data: gzip.compress(data, mtime=0), text)
bz = inside(bz2.decompress, bz2.compress, any_bytes)


def xz(draw: Random, data: bytes) -> bytes:
    """The same, and a dictionary of 4 GB that the header asks for."""
    if draw.random() < 0.1:
        changed = bytearray(data)
        size = 4 * (changed[12] + 1)  # of the block's header, which follows the stream's 12 bytes
        changed[16] = 40  # after size, flags, filter and the size of its properties
        changed[12 + size - 4 : 12 + size] = struct.pack("<I", zlib.crc32(bytes(changed[12 : 12 + size - 4])))
        return bytes(changed)
    return inside(lzma.decompress, lzma.compress, text)(draw, data)


def tar(draw: Random, data: bytes) -> bytes:
    """Damage to a tar.gz: its bytes, those of the tar inside, or the text of a member."""
    kind = draw.random()
    if kind < 0.3:
        return any_bytes(draw, data)
    plain = gzip.decompress(data)
    if kind < 0.5:
        return gzip.compress(any_bytes(draw, plain[:2048]) + plain[2048:], mtime=0)
    if kind < 0.75 or len(plain) > 1 << 20:  # headers that were added before: opening it would take long
        return gzip.compress(_extended(draw) + plain, mtime=0)
    out = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(plain)) as old, tarfile.open(fileobj=out, mode="w:gz") as new:
        chosen = draw.choice(old.getnames())
        for member in old:
            content = old.extractfile(member).read()  # type: ignore[union-attr]
            if member.name == chosen:
                content = sgm(draw, content) if chosen.endswith(".sgm") else text(draw, content)
                member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    return out.getvalue()


def _extended(draw: Random) -> bytes:
    """Headers of a tar that belong to its next file, or to all: names, sizes, sparse files; one or thousands."""
    name = draw.choice(("in/train.src", "in/train.tgt", "../x", "/x", "n" * 3000, "\0", "\udc80"))
    values = ("", "1", "-1", "7" * 30, "7" * 5000, "x", "1e9", "1,2", ",".join(map(str, range(900))))
    keys = "path linkpath size mtime uid hdrcharset comment GNU.sparse.major GNU.sparse.map GNU.sparse.size"
    pairs = [(key, draw.choice((name, *values))) for key in draw.sample(keys.split(), draw.randint(1, 4))]
    if draw.random() < 0.2:
        pairs = [(f"{draw.random():.6f}", "") for _ in range(320)]
    if draw.random() < 0.2:
        pairs = [("GNU.sparse.major", "1"), ("GNU.sparse.minor", "0")]
    records = b"".join(_record(key, value) for key, value in pairs)
    kind = draw.choice((b"x", b"x", b"x", b"g", b"L", b"K", b"X", b"S", b"V"))
    content = name.encode("utf-8", "surrogateescape") + b"\0" if kind in (b"L", b"K") else records
    if draw.random() < 0.2:
        content = any_bytes(draw, content)
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, draw.choice((len(content),) * 8 + (0, len(content) + 1, 1 << 33))
    block = header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)
    empty = tarfile.TarInfo("empty").tobuf() if draw.random() < 0.5 else b""
    return (block + empty) * draw.choice((1, 1, 1, 2, 100, 10_000))


def _record(key: str, value: str) -> bytes:
    text = f" {key}={value}\n".encode("utf-8", "surrogateescape")
    size = len(text) + len(str(len(text)))
    return str(size + (len(str(size)) > len(str(len(text))))).encode() + text


def sgm(draw: Random, data: bytes) -> bytes:
    """Damage to ``<seg>`` elements."""
    if draw.random() < 0.5:
        return text(draw, data)
    odd = (b"<seg>" * 200_000, b"<seg" * 200_000, b"</seg>", b"<seg id=1>", b"<seg id='>'>", b"<seg><seg>")
    start = draw.randrange(len(data))
    return data[:start] + draw.choice(odd) + data[start:]


def pickled(draw: Random, data: bytes) -> bytes:
    """Damage to a checkpoint of torch: a zip with a pickle, to which opcodes that ask for much are added."""
    if draw.random() < 0.6:
        return zipped(draw, data) if draw.random() < 0.7 and data.startswith(b"PK") else any_bytes(draw, data)
    start = data.find(b"\x80\x02", draw.randrange(min(len(data), 2000)))
    start = max(start, 0) + 2
    size = struct.pack("<Q", 3 << 30)
    odd = (
        b"\x96" + size,
        b"\x8e" + size,
        b"\x8d" + size,
        b"X" + size[:4],
        b"cos\nsystem\n",
        b"(" * 300,
        b"\x95" + size,
        b"0",
        b"r\xff\xff\xff\x7f",
    )
    return data[:start] + draw.choice(odd) + data[start + draw.choice((0, 9)) :]
