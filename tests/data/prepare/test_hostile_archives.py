"""Archives that are damaged, bombs, or try to write elsewhere; XML and SGML that would take forever."""

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import archive as archive_module
from macaron.data.prepare import prepare, wikipedia
from macaron.data.prepare.archive import extract, members
from macaron.data.settings import CorpusSettings
from macaron.errors import MacaronError
from macaron.files import raw_lines, read_lines
from macaron.recipe import data_recipe

TEXT = b"".join(b"<seg id='%d'>Satz %d</seg>\n" % (i, i) for i in range(200))
ZIPS = {"stored": 0, "deflate": 8, "bzip2": 12, "lzma": 14}


def zipped(method: int, content: bytes = TEXT) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as made:
        made.writestr("other", b"x")
        made.writestr("a.de", content)
    return file.getvalue()


def tarred(mode: str, content: bytes = TEXT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{mode}") as made:  # type: ignore[call-overload]
        entry = tarfile.TarInfo("a.de")
        entry.size = len(content)
        made.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def unpack(folder: Path, content: bytes, form: Any = "lines") -> bytes:
    """What is extracted from an archive."""
    (folder / "archive").write_bytes(content)
    corpus = CorpusSettings("a", archive="x", source="a.de", target="a.en", format=form)
    extract(folder / "archive", {"a.de": (folder / "out", corpus)})
    return (folder / "out").read_bytes()


def damaged(content: bytes, draw: random.Random) -> bytes:
    """An archive cut off, or with some bytes changed."""
    changed = bytearray(content)
    for _ in range(draw.randint(1, 6)):
        changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed) if draw.random() < 0.7 else content[: draw.randrange(len(content))]


@pytest.mark.parametrize("name", [*ZIPS, "tar", "gz", "bz2", "xz"])
def test_damaged_archives_are_named(name: str, tmp_path: Path):
    good = zipped(ZIPS[name]) if name in ZIPS else tarred("" if name == "tar" else name)
    assert unpack(tmp_path, good) == TEXT
    draw, said = random.Random(name), list[str]()
    for _ in range(40):
        try:
            unpack(tmp_path, damaged(good, draw))
        except MacaronError as error:
            said.append(str(error))
    assert len(said) > 10
    assert all(str(tmp_path / "archive") in each for each in said)


def test_encrypted_members_and_unknown_methods_matter_only_where_they_are_wanted(tmp_path: Path):
    good = zipped(zipfile.ZIP_STORED)
    directory = good.index(b"PK\x01\x02")
    wanted = good.index(b"PK\x01\x02", directory + 1)
    for first, flags in ((6, b"\1"), (8, b"\x63")):  # where a local header has them; the directory two bytes later
        for local, central, fine in ((0, directory, True), (good.index(b"PK\x03\x04", 1), wanted, False)):
            changed = bytearray(good)
            for place in (local + first, central + first + 2):
                changed[place : place + 1] = flags
            if fine:
                assert unpack(tmp_path, bytes(changed)) == TEXT
            else:
                with pytest.raises(MacaronError, match="archive: not an archive, or damaged"):
                    unpack(tmp_path, bytes(changed))


@pytest.mark.parametrize("name", [*ZIPS, "gz", "bz2", "xz"])
def test_bombs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive_module, "LEAST", 1 << 16)
    zeros = b"\0" * (1 << 23)
    bomb = zipped(ZIPS[name], zeros) if name in ZIPS else tarred(name, zeros)
    if name == "stored":  # as large as it says
        assert unpack(tmp_path, bomb) == zeros + b"\n"
        return
    with pytest.raises(MacaronError, match=r"archive: unpacks to more than the limit of [\d,]+ bytes\."):
        unpack(tmp_path, bomb)
    assert not (tmp_path / "out").exists()


def test_a_header_of_a_tar_is_no_way_around_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive_module, "LEAST", 1 << 16)
    header = tarfile.TarInfo("long")
    for kind in (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME):
        header.size, header.type = 300_000, kind
        slow = header.tobuf(tarfile.GNU_FORMAT) + b"1" * 300_032  # tarfile would search it for minutes
        for before in (b"", tarfile.TarInfo("empty").tobuf()):
            with pytest.raises(MacaronError, match=r"archive: .*\(a header is larger than the limit of 4,096 bytes\)"):
                unpack(tmp_path, gzip.compress(before + slow))
    monkeypatch.setattr(archive_module, "MOST_FILES", 10)
    with pytest.raises(MacaronError, match="archive: holds more than 10 files"):
        unpack(tmp_path, gzip.compress(tarfile.TarInfo("empty").tobuf() * 20))


def block(kind: bytes, content: bytes = b"") -> bytes:
    """A header of a tar, and what belongs to it."""
    header = tarfile.TarInfo("x")
    header.type, header.size = kind, len(content)
    return header.tobuf(tarfile.GNU_FORMAT) + content + b"\0" * (-len(content) % 512)


def records(*texts: str) -> bytes:
    return b"".join(b"%d %s\n" % (len(text) + 2 + len(str(len(text) + 3)), text.encode()) for text in texts)


def test_many_headers_of_a_tar_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each is small enough; together they would take minutes."""
    monkeypatch.setattr(archive_module, "MOST_HEADERS", 1 << 21)
    good, empty = tarred(""), tarfile.TarInfo("empty").tobuf()
    extended = block(b"x", records(*(f"a{i:03}=" for i in range(500))))
    named, of_all = block(b"L", b"n" * 4_000), block(b"g", records("comment=0123456789"))
    short = block(b"x", records("mtime=1700000000.123456789"))
    assert (
        unpack(tmp_path, of_all + (extended + empty) * 3 + (named + empty) * 3 + (short + empty) * 5_000 + good) == TEXT
    )
    # The time for one grows with the square of its size: long ones count more.
    for header, often in ((extended, 10), (named, 10), (of_all, 140)):
        with pytest.raises(MacaronError, match=r"its headers are larger than the limit of 2,097,152 bytes in all"):
            unpack(tmp_path, gzip.compress((header + empty) * often + good))
    # Maps of sparse files: as long as the archive, or cut off.
    modern = block(b"x", records("GNU.sparse.major=1", "GNU.sparse.minor=0"))
    for sparse in (modern + empty + b"99999999\n" + b"1\n" * 1_000, block(b"S")[:482] + b"\1" + bytes(29)):
        with pytest.raises(MacaronError, match=r"archive: .*damaged"):
            unpack(tmp_path, gzip.compress(sparse + good))


def test_links_devices_and_paths_of_a_tar_lead_nowhere(tmp_path: Path):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for name, kind in (("a.de", tarfile.SYMTYPE), ("a.en", tarfile.LNKTYPE), ("null", tarfile.CHRTYPE)):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, "/etc/passwd"
            made.addfile(entry)
        made.addfile(tarfile.TarInfo("../outside"))
        made.addfile(tarfile.TarInfo("/absolute"))
    with pytest.raises(MacaronError, match=r"archive: no a\.de in it\. It holds \.\./outside, /absolute"):
        unpack(tmp_path, file.getvalue())
    assert [name for name, _ in members(tmp_path / "archive")] == ["../outside", "/absolute"]
    assert [path.name for path in tmp_path.iterdir()] == ["archive"]


@pytest.mark.parametrize("unit", [b"<seg>", b"<seg ", b"<seg<", b"<SEG a='b'", b"</seg>"])
def test_sgm_in_linear_time(unit: bytes, tmp_path: Path):
    """A quarter of a million tags: hours if the time grew with their square."""
    text = unit * 250_000 + b"<seg id=1>a  b</SEG>"
    found = unpack(tmp_path, zipped(zipfile.ZIP_DEFLATED, text), "sgm").splitlines()
    assert found[-1].endswith(b"a b")
    monstrous = b"x" * (archive_module.LARGEST_SGM + 1)
    with pytest.raises(MacaronError, match=r"archive, a\.de: larger than 67,108,864 bytes"):
        next(archive_module._sentences("archive, a.de", io.BytesIO(monstrous), "sgm"))


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip.compress), ("xz", lzma.compress), ("bz2", bz2.compress)])
def test_compressed_text_that_is_garbage_is_named(ending: str, pack: Callable[[bytes], bytes], tmp_path: Path):
    path, good, draw, said = tmp_path / f"text.{ending}", pack(TEXT), random.Random(ending), list[str]()
    path.write_bytes(good)
    assert list(read_lines(path)) == TEXT.decode().splitlines()
    for content in (b"", b"garbage", *(damaged(good, draw) for _ in range(60))):
        path.write_bytes(content)
        for read in (read_lines, raw_lines):
            try:
                list(read(path))
            except MacaronError as error:
                said.append(str(error))
    assert len(said) > 20
    assert all(str(path) in each for each in said)


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_bombs_of_text(ending: str, pack: Callable[[bytes], bytes], tmp_path: Path):
    path = tmp_path / f"a{ending}"
    path.write_bytes(pack(b"\n" * 9_000_000))
    for read in (read_lines, raw_lines):
        with pytest.raises(MacaronError, match=f"a{ending}: unpacks to more than the limit of 8,388,608 bytes"):
            sum(1 for _ in read(path))
    path.write_bytes(pack(b"\n" * 8_000_000))
    assert sum(1 for _ in raw_lines(path)) == 8_000_000


def test_replacements_that_grow_without_limit(tmp_path: Path):
    (tmp_path / "archive").write_bytes(zipped(8, b"e" * 100 + b"\n"))
    corpus = CorpusSettings("a", archive="x", source="a.de", target="a.en", replace={"e": "ee" * 10, "ee": "e" * 9999})
    with pytest.raises(MacaronError, match="replace makes a line longer than 1,048,576 bytes of 'ee'"):
        extract(tmp_path / "archive", {"a.de": (tmp_path / "out", corpus)})
    with pytest.raises(MacaronError, match="replace cannot replace an empty string"):
        replace(corpus, replace={"": "x"})


def test_lines_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for module in ("macaron.files", "macaron.data.prepare.archive"):
        monkeypatch.setattr(f"{module}.LONGEST_LINE", 1_000)
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"x" * 999 + b"\n" + b"x" * 1_001))
    lines = read_lines(path)
    assert len(next(lines)) == 999
    with pytest.raises(MacaronError, match=r"text\.gz, line 2: longer than 1,000 bytes"):
        next(lines)
    with pytest.raises(MacaronError, match=r"archive, a\.de: a line is longer than 1,000 bytes"):
        unpack(tmp_path, zipped(zipfile.ZIP_DEFLATED, b"x" * 1_001))


LAUGHS = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
DUMPS: dict[str, tuple[Sequence[bytes], str]] = {
    "encoding": ([b'<?xml version="1.0" encoding="klingon"?><a/>'], r"cannot be read \(unknown encoding: klingon\)"),
    "bytes": ([b'<?xml version="1.0" encoding="shift_jis"?><a/>'], "cannot be read"),
    "laughs": (
        [f'<!DOCTYPE l [<!ENTITY a "{"ha" * 50}">{LAUGHS}]><l><page>&i;</page></l>'.encode()],
        "limit on input amplification factor|a page has more than",
    ),
    "text": ([b"<a><page><text>", b"x" * (1 << 22)], "a page has more than 1,048,576 bytes"),
    "attribute": ([b'<a><page b="', b"x" * (1 << 22)], "a page has more than 1,048,576 bytes"),
    "elements": ([b"<a><page>" + b"<b/>" * 5_000], "a page has more than 1,000 elements"),
    "depth": ([b"<a>" * 5_000], "a page has more than 1,000 elements"),
    "other elements": ([b"<a>" + b"<b/>" * 5_000], "a page has more than 1,000 elements"),
}


@pytest.mark.parametrize("name", DUMPS)
def test_hostile_dumps(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for limit, value in (("LARGEST_PAGE", 1 << 20), ("MOST_ELEMENTS", 1_000), ("BATCH", 1 << 16)):
        monkeypatch.setattr(wikipedia, limit, value)
    content, message = DUMPS[name]
    (tmp_path / "wiki.xml.bz2").write_bytes(bz2.compress(b"".join(content)))
    with pytest.raises(MacaronError, match=rf"wiki\.xml\.bz2.*({message})"):
        list(wikipedia.batches(tmp_path / "wiki.xml.bz2"))


def corpus(root: Path, path: str, **origin: Any) -> Any:
    languages = {"source_lang": "de", "target_lang": "en", "out": str(root / "prepared"), "root": str(root)}
    return data_recipe({"data": {**languages, "train": [{"path": path, **origin}], "vocab_size": 300}})


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/x"])
def test_nothing_is_fetched_to_a_place_outside_root(path: str, tmp_path: Path):
    """Files that are there already are read from anywhere."""
    root = tmp_path / "root"
    path = path.replace("/x", f"{tmp_path}/x") if path == "/x" else path
    given = corpus(root, path, url="http://127.0.0.1:9/{lang}.txt")
    with pytest.raises(MacaronError, match=rf"'{path}\.de' would be written outside data\.root"):
        prepare(given, workers=1)
    assert not list(tmp_path.rglob("*.part"))
    for language in ("de", "en"):
        (tmp_path / f"x.{language}").write_text("".join(f"{language} {i} a b c\n" for i in range(60)))
    (root / "a").mkdir(parents=True)
    assert prepare(given, workers=1).reason == "new"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://127.0.0.1:9/{lang}/{x}/{lang!r}.txt", r"cannot fetch http://127\.0\.0\.1:9/de/\{x\}/\{lang!r\}\.txt"),
        ("http://[::1/{lang}", "is not the address of a file"),
        ("http://127.0.0.1:9/{lang}/..", "is not the address of a file"),
        ("http://127.0.0.1:x9/{lang}.txt", "cannot fetch .*: not an address"),
        ("http://127.0.0.1:9/ü {lang}.txt", "cannot fetch .*: not an address"),
    ],
)
def test_stray_braces_and_other_addresses(url: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("macaron.data.prepare.fetch.PAUSE", 0.0)
    with pytest.raises(MacaronError, match=message):
        prepare(replace(corpus(tmp_path, "a", url=url)), workers=1)
