"""Articles out of a Wikipedia dump: the markup, the stream, and the recipe that fetches a dump from a server."""

import bz2
import gzip
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from macaron.data.prepare import prepare, wikipedia
from macaron.data.prepare.wikipedia import extract_dump, paragraphs
from macaron.data.prepared import PreparedText
from macaron.data.settings import TextFileSettings, TextSettings
from macaron.errors import MacaronError
from macaron.processes import Progress, Workers
from macaron.recipe import load_data_recipe

RECIPES = Path(__file__).parents[3] / "recipes"
QUIET = Progress(quiet=True)

MARKUP = {
    "links": ("A [[cat]], a [[Dog|big dog]], [[cat]]s and [[a#b|c]].", ["A cat, a big dog, cats and c."]),
    "emphasis": ("'''Anna''' was ''very'' '''''old'''''. It's hers.", ["Anna was very old. It's hers."]),
    "references": ("One<ref>See [[x]].</ref> two<ref name=a/> three<REF name='b'>{{c|d}}</REF>.", ["One two three."]),
    "comments": ("One<!-- no\n\n no --> two.", ["One two."]),
    "templates": ("{{a|{{b|c={{d}}}}\n|e}}One {{f}}two.{{g\n|h=[[i]]}}", ["One two."]),
    "infobox": ("{{Infobox\n| name = x\n| y = {{z}}\n}}\nText.", ["Text."]),
    "templates in a sentence": (
        "It is {{convert|5|km|mi|abbr=on}} long{{snd}}{{lang|fr|très}} {{nowrap|long}}.",
        ["It is 5 km long – très long."],
    ),
    "links in templates": ("A {{nowrap|[[b|c]] d}} {{lang|de|[[e]]}}.", ["A c d e."]),
    "sounds": ("Anna ([[Help:IPA|[ˈana]]]) sang.", ["Anna ([ˈana]) sang."]),
    "tables": ('One.\n{| class="a"\n|-\n| b || c {{d}}\n{|\n| e\n|}\n|}\nTwo.', ["One.", "Two."]),
    "files": ("[[File:a.jpg|thumb|A [[b|caption]] of {{c}} [[d]].]]Text [[Image:x.png]]here.", ["Text here."]),
    "categories": ("Text.\n\n[[Category:A]]\n[[category:B|key]]\n[[fr:Texte]] [[zh-yue:x]]", ["Text."]),
    "shown categories": ("See [[:Category:A]] and [[:fr:Texte|it]].", ["See Category:A and it."]),
    "headings": ("One.\n== Two ==\nThree.\n=== Four ===\n", ["One.", "Three."]),
    "lists": ("One:\n* two\n# three\n: four\n; five\nSix.", ["One:", "Six."]),
    "lines of a paragraph": ("One\ntwo.\n\nThree.", ["One two.", "Three."]),
    "external links": ("[https://a.b/c?d=e The page] and [http://x.y] [//z.a it].", ["The page and it."]),
    "entities": ("A&nbsp;b &amp; c &lt; d &#8211; e &eacute;.", ["A b & c < d – e é."]),
    "tags": (
        "<div class='a'>One<br />two <span>three</span> <small>four</small> H<sub>2</sub>O.</div>",
        ["One two three four H2O."],
    ),
    "elements": ("One <math>x^2</math>two.\n<gallery>\nFile:a.jpg|b\n</gallery>\n<timeline>c</timeline>", ["One two."]),
    "magic words": ("__NOTOC__One.__FORCETOC__", ["One."]),
    "empty brackets": (
        "Anna ({{lang-x|y}}; {{ipa}}) was born ( , 1900; ) there , too.",
        ["Anna was born (1900) there, too."],
    ),
    "rules and debris": ("----\n| x\n! y\n}}\n1234.\nText.", ["1234. Text."]),
    "redirect": ("#REDIRECT [[Other]]", []),
    "nothing": ("", []),
    "unclosed template": ("One {{two three.\n\nFour.", ["One two three.", "Four."]),
    "unclosed link": ("One [[two three.\n\nFour]] five.", ["One two three.", "Four five."]),
    "unclosed reference": ("One <ref>two.\n\nThree.", ["One two.", "Three."]),
    "unclosed comment": ("One <!-- two.\n\nThree.", ["One <!-- two.", "Three."]),
    "closed only": ("One }} two ]] three |} four.", ["One two three |} four."]),
}


@pytest.mark.parametrize("name", MARKUP)
def test_markup(name: str) -> None:
    markup, expected = MARKUP[name]
    assert paragraphs(markup) == expected


PIECES = st.sampled_from(
    [
        "{{",
        "}}",
        "{{{",
        "[[",
        "]]",
        "{|",
        "|}",
        "\n",
        "|",
        "<ref>",
        "</ref>",
        "<ref/>",
        "<!--",
        "-->",
        "''",
        "==",
        "a",
        "B.",
        "*",
        " ",
    ]
)


@given(st.lists(PIECES, max_size=60).map("".join))
def test_any_markup_gives_lines(markup: str) -> None:
    for paragraph in paragraphs(markup):
        assert paragraph == " ".join(paragraph.split())
        assert "[[" not in paragraph
        assert "{{" not in paragraph


@pytest.mark.parametrize("opened", ["{{", "[[", "<ref>", "<!--", "{{a|[[b", "\n{|\n", "(", ",", "[http://a ", "{{\n|}"])
def test_time_is_linear(opened: str) -> None:
    paragraphs(opened * 50_000)  # minutes, if it were not
    paragraphs(opened * 25_000 + "\n|}" * 25_000)


def page(title: str, markup: str, ns: int = 0, redirect: bool = False, model: str = "wikitext") -> str:
    other = '<redirect title="x" />' if redirect else ""
    return (
        f"<page><title>{title}</title><ns>{ns}</ns><id>1</id>{other}<revision><id>2</id><model>{model}</model>"
        f'<format>text/x-wiki</format><text bytes="3" xml:space="preserve">{escape(markup)}</text></revision></page>\n'
    )


HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">\n<siteinfo><namespaces>'
    '<namespace key="0" /><namespace key="6">Datei</namespace><namespace key="14">Kategorie</namespace>'
    "</namespaces></siteinfo>\n"
)
TAIL = "</mediawiki>\n"


def articles(count: int) -> list[str]:
    return [
        f"'''Town {i}''' is a [[town]]. It has {i} people.<ref>x</ref>\n\n== History ==\nIt was founded in {1000 + i}. "
        f"[[Datei:x.png|mini|y]]The mayor is Mr. Smith {i}.\n[[Kategorie:Towns]]"
        for i in range(count)
    ]


def dump_of(pages: list[str], streams: int = 1) -> bytes:
    """A dump in one or several bz2 streams, as the official multistream ones."""
    size = -(-len(pages) // streams)
    parts = ["".join(pages[start : start + size]) for start in range(0, len(pages), size)]
    return b"".join(bz2.compress(part.encode()) for part in (HEAD, *parts, TAIL))


def small_dump(count: int = 30, streams: int = 3) -> bytes:
    others = [
        page("Old", "#REDIRECT [[Town 1]]", redirect=True),
        page("Talk:Town", "Chat.", ns=1),
        page("Module", "return 1", model="Scribunto"),
        page("Empty", ""),
        page("List", "* a\n* b"),
    ]
    return dump_of(
        [*others[:3], *(page(f"Town {i}", text) for i, text in enumerate(articles(count))), *others[3:]], streams
    )


def extracted(tmp_path: Path, content: bytes, name: str = "text.txt", **options: int) -> str:
    (tmp_path / "dump.xml.bz2").write_bytes(content)
    with Workers(1) as workers:
        extract_dump(tmp_path / "dump.xml.bz2", tmp_path / name, workers, QUIET, **options)
    path = tmp_path / name
    return (gzip.decompress(path.read_bytes()) if name.endswith(".gz") else path.read_bytes()).decode()


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("name", ["text.txt", "text.txt.gz"])
def test_a_dump(tmp_path: Path, streams: int, name: str) -> None:
    text = extracted(tmp_path, small_dump(5, streams), name)
    assert text == "".join(
        f"Town {i} is a town. It has {i} people.\nIt was founded in {1000 + i}. The mayor is Mr. Smith {i}.\n\n"
        for i in range(5)
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dump.xml.bz2", name]


def test_the_number_of_workers_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "BATCH", 500)
    one = extracted(tmp_path, small_dump())
    with Workers(2) as workers:
        assert extract_dump(tmp_path / "dump.xml.bz2", tmp_path / "two.txt", workers, QUIET) == 30
    assert (tmp_path / "two.txt").read_text() == one


def test_short_articles_can_be_left_out(tmp_path: Path) -> None:
    content = dump_of([page("A", "One two three."), page("B", "One two three four five.")])
    assert extracted(tmp_path, content, min_words=4) == "One two three four five.\n\n"


def test_memory_is_flat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wikipedia, "BATCH", 20_000)
    peaks = []
    for count in (500, 1_500):
        (tmp_path / "dump.xml.bz2").write_bytes(small_dump(count, 10))
        tracemalloc.start()
        with Workers(1) as workers:
            extract_dump(tmp_path / "dump.xml.bz2", tmp_path / "text.txt", workers, QUIET)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (small_dump()[:-40], "dump.xml.bz2: cannot be decompressed .*Delete it to fetch it again"),
        (b"no dump at all", "dump.xml.bz2: .*Delete it to fetch it again"),
        (bz2.compress(b"<html>not found</html>"), "there is no article in it. Is it a ...-pages-articles.xml.bz2"),
        (bz2.compress(b"<mediawiki>\n<page></mediawiki>"), "line 2 of the XML, column .*damaged"),
        (bz2.compress(b""), "line 1 of the XML"),
        (dump_of([page("Talk:A", "x", ns=1)]), "there is no article in it"),
    ],
)
def test_bad_dumps(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(MacaronError, match=message):
        extracted(tmp_path, content)
    assert [path.name for path in tmp_path.iterdir()] == ["dump.xml.bz2"]


def test_no_place_for_the_text(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        MacaronError, match=r"file/text.txt cannot be written: (Not a directory|File exists). Choose another path"
    ):
        extracted(tmp_path, small_dump(), "file/text.txt")


# The recipe, from a server


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def recipe(tmp_path: Path, served: tuple[Path, str]) -> TextSettings:
    folder, address = served
    (folder / "wiki-pages-articles.xml.bz2").write_bytes(small_dump())
    root = tmp_path / "raw"
    root.mkdir()
    (root / "books-1.txt").write_text("A book begins. It ends.\n\nAnother book. It is short.\n")
    shipped = load_data_recipe(RECIPES / "wikipedia-books.toml")
    assert isinstance(shipped, TextSettings)
    assert (shipped.pipeline, shipped.lower, shipped.vocab_size, shipped.valid_every) == ("moses", True, 32_000, 200)
    dump = replace(shipped.wikipedia[0], urls=(f"{address}/wiki-pages-articles.xml.bz2",), min_words=5)
    return replace(shipped, root=root, out=tmp_path / "out", vocab_size=150, valid_every=8, wikipedia=(dump,))


def test_the_shipped_recipe(recipe: TextSettings, served: tuple[Path, str]) -> None:
    data = prepare(recipe, workers=1).data
    assert isinstance(data, PreparedText)
    sizes = data.manifest["splits"]
    assert (sizes["train"]["documents"], sizes["valid"]["documents"]) == (28, 4)
    lines = data.tokenizer.decode_lines(data.sentences("train")[i] for i in range(4))
    assert lines == ["town 0 is a town.", "it has 0 people.", "it was founded in 1000.", "the mayor is mr. smith 0."]
    assert [Path(entry["file"]).name for entry in data.manifest["inputs"]] == ["wikipedia.txt.gz", "books-1.txt"]
    assert data.manifest["downloads"][0]["checked"] == "trusted on first use"

    # Nothing is fetched again: neither with the text here, nor with the dump.
    (served[0] / "wiki-pages-articles.xml.bz2").unlink()
    assert prepare(recipe, workers=1).reason is None
    (recipe.root / "wikipedia.txt.gz").unlink()
    assert prepare(recipe, workers=1).reason is None  # made again, and the same


def test_what_cannot_be_fetched(recipe: TextSettings, served: tuple[Path, str]) -> None:
    (served[0] / "wiki-pages-articles.xml.bz2").unlink()
    with pytest.raises(MacaronError, match=r"404 .*\nOr get the file by other means, and put it at .*wiki-pages"):
        prepare(recipe, workers=1)
    assert not recipe.out.exists()
    wrong = replace(recipe.wikipedia[0], checksum="md5:" + "0" * 32)
    (served[0] / "wiki-pages-articles.xml.bz2").write_bytes(small_dump())
    with pytest.raises(MacaronError, match="wrong checksum"):
        prepare(replace(recipe, wikipedia=(wrong,)), workers=1)


def test_plain_text_is_fetched(recipe: TextSettings, served: tuple[Path, str], tmp_path: Path) -> None:
    from macaron.data.settings import FetchSettings

    (served[0] / "a.txt.gz").write_bytes(gzip.compress(b"One. Two.\n\nThree. Four.\n"))
    fetched = FetchSettings("more/a.txt.gz", (f"{served[1]}/a.txt.gz",))
    plain = replace(recipe, wikipedia=(), fetch=(fetched,), train=(TextFileSettings("more/*.txt.gz"),))
    data = prepare(plain, workers=1).data
    assert data.manifest["cleaning"]["sentences"] == 4
    assert (recipe.root / "more" / "a.txt.gz").is_file()
