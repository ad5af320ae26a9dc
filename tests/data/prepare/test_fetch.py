"""Fetching from a server on this machine, with archives in the official layouts."""

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from macaron.data.prepare import fetch as download_module
from macaron.data.prepare import prepare
from macaron.data.prepare.archive import extract
from macaron.data.prepare.fetch import download
from macaron.data.prepared import PreparedData
from macaron.data.settings import CorpusSettings, PairsSettings, file_name
from macaron.errors import MacaronError
from macaron.processes import Progress
from macaron.recipe import load_data_recipe

RECIPES = Path(__file__).parents[3] / "recipes"
QUIET = Progress(quiet=True)


class Server(ThreadingHTTPServer):
    """Serves `files`; breaks the connection after so many bytes as `breaks` says, once for each entry."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.breaks: list[int] = []
        self.failures: list[int] = []
        self.ranges = True
        self.log: list[tuple[str, str | None]] = []

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.log.append((self.path, wanted))
        content = self.server.files.get(self.path.lstrip("/"))
        if self.server.failures:
            self.send_error(self.server.failures.pop(0))
            return
        if content is None:
            self.send_error(404)
            return
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        start = 0
        if wanted and self.server.ranges and self.headers.get("If-Range", tag) == tag:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", tag)
        self.end_headers()
        body = content[start:]
        if self.server.breaks:
            body = body[: self.server.breaks.pop(0)]
            self.close_connection = True
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(download_module, "PAUSE", 0.001)
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def tgz(files: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def sgm(lines: list[str]) -> str:
    segments = "\n".join(f'<seg id="{i}"> {line} </seg>' for i, line in enumerate(lines, 1))
    return (
        f'<?xml version="1.0"?>\n<mteval>\n<refset setid="x">\n<doc docid="1">\n<talkid>7</talkid>\n{segments}\n</doc>'
    )


def words(language: str, name: str, count: int) -> list[str]:
    return [f"{language} {name} Satz {'und so weiter ' * (i % 4)}{i} ." for i in range(count)]


# Downloads

CONTENT = bytes(range(256)) * 800


def test_a_broken_download_goes_on_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT
    server.breaks = [100_000, 5_000]
    download(server.url("a.bin"), tmp_path / "a.bin", None, QUIET)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.log == [("/a.bin", None), ("/a.bin", "bytes=100000-"), ("/a.bin", "bytes=105000-")]
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


def test_the_next_run_goes_on_too(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files["a.bin"] = CONTENT
    server.breaks = [70_000]
    server.failures = []
    with monkeypatch.context() as patch:
        patch.setattr(download_module.time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            download(server.url("a.bin"), tmp_path / "a.bin", None, QUIET)
    assert (tmp_path / "a.bin.part").stat().st_size == 70_000
    download(server.url("a.bin"), tmp_path / "a.bin", None, QUIET)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    assert server.log[-1] == ("/a.bin", "bytes=70000-")


def test_a_file_that_has_changed_meanwhile_is_fetched_anew(server: Server, tmp_path: Path) -> None:
    url, path = server.url("a.bin"), tmp_path / "a.bin"
    (tmp_path / "a.bin.part").write_bytes(b"old" * 100)
    (tmp_path / "a.bin.part.json").write_text(json.dumps({"url": url, "validator": '"old"', "total": 5000}))
    server.files["a.bin"] = CONTENT
    download(url, path, None, QUIET)
    assert path.read_bytes() == CONTENT
    # Another file's leftovers, or those of nobody knows what.
    partly = {"url": url, "validator": None, "total": 300}
    for note in ("{", json.dumps({"url": "http://other/a.bin"}), *(json.dumps({**partly, key: []}) for key in partly)):
        path.unlink()
        (tmp_path / "a.bin.part").write_bytes(b"old" * 100)
        (tmp_path / "a.bin.part.json").write_text(note)
        download(url, path, None, QUIET)
        assert path.read_bytes() == CONTENT


def test_servers_without_ranges(server: Server, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT
    server.ranges = False
    server.breaks = [50_000]
    download(server.url("a.bin"), tmp_path / "a.bin", None, QUIET)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_a_complete_part_is_taken(server: Server, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT
    for content, total in ((CONTENT, len(CONTENT)), (CONTENT + b"more", 5)):
        (tmp_path / "a.bin.part").write_bytes(content)
        note = {"url": server.url("a.bin"), "validator": None, "total": total}
        (tmp_path / "a.bin.part.json").write_text(json.dumps(note))
        download(server.url("a.bin"), tmp_path / "a.bin", None, QUIET)
        assert (tmp_path / "a.bin").read_bytes() == CONTENT


def test_passing_failures_are_tried_again(server: Server, tmp_path: Path) -> None:
    server.files["a.bin"] = CONTENT
    server.failures = [503, 500, 429]
    download(server.url("a.bin"), tmp_path / "a.bin", None, QUIET)
    assert (tmp_path / "a.bin").read_bytes() == CONTENT
    server.failures = [503] * 10
    with pytest.raises(MacaronError, match=r"b\.bin: 503"):
        download(server.url("b.bin"), tmp_path / "b.bin", None, QUIET)


def test_nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download_module, "PAUSE", 0.001)
    with pytest.raises(MacaronError, match="cannot fetch http://127"):
        download("http://127.0.0.1:9/a.bin", tmp_path / "a.bin", None, QUIET)
    with pytest.raises(MacaronError, match="only http and https"):
        download("file:///etc/passwd", tmp_path / "a.bin", None, QUIET)


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_checksums(server: Server, tmp_path: Path, algorithm: str) -> None:
    server.files["a.bin"] = CONTENT
    right = f"{algorithm}:{hashlib.new(algorithm, CONTENT).hexdigest()}"
    download(server.url("a.bin"), tmp_path / "a.bin", right, QUIET)
    wrong = f"{algorithm}:{hashlib.new(algorithm, b'').hexdigest()}"
    with pytest.raises(MacaronError, match=f"wrong checksum {right}, expected {wrong}"):
        download(server.url("a.bin"), tmp_path / "b.bin", wrong, QUIET)
    assert [path.name for path in tmp_path.iterdir()] == ["a.bin"]


# Archives


def test_formats(tmp_path: Path) -> None:
    ted = (
        "<url>http://x</url>\n<keywords>a, b</keywords>\n<speaker>Eva</speaker>\n<talkid>1</talkid>\n"
        "<title>Ein Titel</title>\n<description>Worum es geht</description>\n Ein Satz. \n\nNoch & einer\u2028da\n"
    )
    archive = tmp_path / "x.tgz"
    members = {"./d/ted": ted, "d/x.sgm": sgm(["Eins &amp; zwei", "‚drei’"]), "d/lines": "a\r\n b\nc", "d/other": "x"}
    archive.write_bytes(tgz(members))
    wanted = {
        "d/ted": (tmp_path / "ted.de", CorpusSettings("c", format="ted")),
        "d/x.sgm": (tmp_path / "sgm.de", CorpusSettings("c", format="sgm", replace={"’": "'"})),
        "d/lines": (tmp_path / "new" / "lines.de", CorpusSettings("c")),
    }
    expected = {
        "ted.de": "Ein Titel\nWorum es geht\nEin Satz.\n\nNoch & einer\u2028da\n",
        "sgm.de": "Eins &amp; zwei\n‚drei'\n",
        "new/lines.de": "a\n b\nc\n",
    }
    extract(archive, wanted)
    assert {name: (tmp_path / name).read_bytes().decode() for name in expected} == expected
    zipped = tmp_path / "x.zip"
    with zipfile.ZipFile(zipped, "w") as file:
        for name, text in members.items():
            file.writestr(name, text)
    for name in expected:
        (tmp_path / name).unlink()
    extract(zipped, wanted)
    assert {name: (tmp_path / name).read_bytes().decode() for name in expected} == expected


def test_bad_archives(tmp_path: Path) -> None:
    good = tgz({"de-en/train.de": "x" * 9999, "README": "read me"})
    archive = tmp_path / "x.tgz"
    wanted = {"train.de": (tmp_path / "train.de", CorpusSettings("c"))}
    for content in (b"no archive", good[: len(good) // 2], b""):
        archive.write_bytes(content)
        with pytest.raises(MacaronError, match=r"x\.tgz: not an archive, or damaged"):
            extract(archive, wanted)
    archive.write_bytes(good)
    with pytest.raises(MacaronError, match=r"no train\.de in it. It holds de-en/train\.de"):
        extract(archive, wanted)
    assert not (tmp_path / "train.de").exists()


# The shipped recipes, from a server with the official layout


def served(recipe: PairsSettings, server: Server, root: Path, **changes: object) -> PairsSettings:
    """The recipe, with its archives on the server (and no checksums, which small ones cannot have)."""
    archives = tuple(
        replace(archive, urls=(server.url(file_name(archive.urls)),), checksum=None) for archive in recipe.archives
    )
    return replace(recipe, archives=archives, root=root, out=root / "out", **changes)


def iwslt_archive() -> bytes:
    files = {"de-en/README": "hello"}
    for language in ("de", "en"):
        talks = []
        for talk in range(4):
            head = f"<url>u</url>\n<keywords>k</keywords>\n<talkid>{talk}</talkid>\n<title>{language} {talk}</title>\n"
            talks.append(f"{head}<description>D {talk}</description>\n" + "\n".join(words(language, f"T{talk}", 30)))
        files[f"de-en/train.tags.de-en.{language}"] = "\n".join(talks) + "\n"
        for name in ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012"):
            files[f"de-en/IWSLT14.{name}.de-en.{language}.xml"] = sgm([f"{name} it’s {language}"] * 2)
    return tgz(files)


def test_iwslt14(server: Server, tmp_path: Path) -> None:
    server.files["de-en.tgz"] = iwslt_archive()
    server.breaks = [300]
    recipe = served(load_data_recipe(RECIPES / "iwslt14-de-en.toml"), server, tmp_path)
    data = prepare(recipe, workers=1).data
    lines = []
    for talk in range(4):
        lines += [f"de {talk}", f"D {talk}", *words("de", f"T{talk}", 30)]
    assert data.text("valid", "de") == lines[22::23]
    names = ("TED.dev2010", "TEDX.dev2012", "TED.tst2010", "TED.tst2011", "TED.tst2012")
    assert data.text("test", "en") == [f"{name} it's en" for name in names for _ in range(2)]
    assert len(data.pairs("train")) == len(lines) - len(lines) // 23
    assert data.tokenizer.lower
    assert not data.tokenizer.normalize
    [record] = data.manifest["downloads"]
    assert record == {
        "url": server.url("de-en.tgz"),
        "file": "de-en.tgz",
        "sha256": hashlib.sha256(server.files["de-en.tgz"]).hexdigest(),
        "checked": "trusted on first use",
    }
    # Nothing is fetched a second time; the record stays.
    before = len(server.log)
    assert prepare(recipe, workers=1).reason is None
    assert prepare(replace(recipe, vocab_size=300), workers=1).data.manifest["downloads"] == [record]
    assert len(server.log) == before
    # Fetched again, it must be what it was the first time.
    for path in (*tmp_path.glob("train.tags*"), tmp_path / "downloads" / "de-en.tgz"):
        path.unlink()
    server.files["de-en.tgz"] = tgz({"de-en/evil": "x"})
    with pytest.raises(MacaronError, match="that of the first download is sha256:"):
        prepare(recipe, workers=1)


def test_wmt14(server: Server, tmp_path: Path) -> None:
    training = {
        "training-parallel-europarl-v7.tgz": "training/europarl-v7.de-en",
        "training-parallel-commoncrawl.tgz": "commoncrawl.de-en",
        "training-parallel-nc-v9.tgz": "training/news-commentary-v9.de-en",
    }
    for archive, member in training.items():
        text = {f"{member}.{language}": "\n".join(words(language, archive, 20)) for language in ("en", "de")}
        server.files[archive] = tgz({**text, "training/other.fr-en.fr": "non"})
    server.files["dev.tgz"] = tgz({f"dev/newstest2013.{language}": f"Valid {language}\n" for language in ("en", "de")})
    sides = {"src.en": "A well-known test", "ref.de": "Ein bekannter Test"}
    server.files["test-full.tgz"] = tgz(
        {f"test-full/newstest2014-deen-{side}.sgm": sgm([line]) for side, line in sides.items()}
    )
    recipe = served(load_data_recipe(RECIPES / "wmt14-en-de-base.toml"), server, tmp_path)
    data = prepare(recipe, workers=1).data
    assert len(data.pairs("train")) == 60
    assert data.text("valid", "en") == ["Valid en"]
    assert data.text("test", "de") == ["Ein bekannter Test"]
    assert not data.tokenizer.lower
    assert len(data.manifest["downloads"]) == 5


def test_multi30k(server: Server, tmp_path: Path) -> None:
    import gzip

    for name, count in (("train", 40), ("val", 2), ("test_2016_flickr", 3)):
        for language in ("de", "en"):
            text = "\n".join(words(language, name, count))
            server.files[f"raw/{name}.{language}.gz"] = gzip.compress(text.encode())
    recipe = load_data_recipe(RECIPES / "multi30k-de-en.toml")
    changed = {
        split: tuple(
            replace(corpus, url=server.url(f"raw/{corpus.path}.{{lang}}.gz")) for corpus in getattr(recipe, split)
        )
        for split in ("train", "valid", "test")
    }
    data = prepare(served(recipe, server, tmp_path, **changed), workers=1).data
    assert [len(data.pairs(split)) for split in data.splits] == [40, 2, 3]
    assert (tmp_path / "train.de.gz").is_file()
    assert len(data.manifest["downloads"]) == 6


def test_mirrors_and_the_manual_way(server: Server, tmp_path: Path) -> None:
    recipe = served(load_data_recipe(RECIPES / "iwslt14-de-en.toml"), server, tmp_path)
    [archive] = recipe.archives
    with pytest.raises(MacaronError) as caught:
        prepare(recipe, workers=1)
    message = str(caught.value)
    assert f"cannot fetch {server.url('de-en.tgz')}: 404 Not Found" in message
    assert f"put it at {tmp_path / 'downloads' / 'de-en.tgz'}" in message
    assert str(tmp_path / "train.tags.de-en") in message
    assert not (tmp_path / "out").exists()

    server.files["mirror/de-en.tgz"] = iwslt_archive()
    mirrored = replace(archive, urls=(*archive.urls, server.url("mirror/de-en.tgz")))
    data = prepare(replace(recipe, archives=(mirrored,)), workers=1).data
    assert data.manifest["downloads"][0]["url"] == server.url("mirror/de-en.tgz")

    by_hand = tmp_path / "by-hand"
    (by_hand / "downloads").mkdir(parents=True)
    (by_hand / "downloads" / "de-en.tgz").write_bytes(iwslt_archive())
    requests = len(server.log)
    prepare(replace(recipe, root=by_hand, out=by_hand / "out"), workers=1)
    assert len(server.log) == requests
    assert PreparedData.open(by_hand / "out").splits == ("train", "valid", "test")


def test_an_archive_of_ones_own_is_checked_and_kept(server: Server, tmp_path: Path) -> None:
    recipe = served(load_data_recipe(RECIPES / "iwslt14-de-en.toml"), server, tmp_path)
    path = tmp_path / "downloads" / "de-en.tgz"
    path.parent.mkdir()
    path.write_bytes(iwslt_archive())
    strict = replace(recipe.archives[0], checksum="md5:" + "0" * 32)
    with pytest.raises(MacaronError, match=r"de-en\.tgz: its checksum is md5:[0-9a-f]+, the recipe's is md5:0000"):
        prepare(replace(recipe, archives=(strict,)), workers=1)
    assert path.exists()
