"""The page shell: self-contained, safe with any text, the same bytes every time."""

import html.parser
import json
import math
import re
from importlib.resources import files

import pytest
from markupsafe import Markup

from macaron import __version__
from macaron.errors import MacaronError, UsageError
from macaron.lab.page import check_page_path, fill, html_table, section, write_page

EVIL = """</script><script>alert("1")</script><b title='x'>&amp;"""
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Tree(html.parser.HTMLParser):
    """Tags in order; complains about one that is closed without being open, or never."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes.append(dict(attrs))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def test_a_page_is_whole_and_asks_nobody_for_anything():
    text = fill("page.html", title="A <b> title", body=section("One", "<p>body</p>"), lead="A & B", data={"x": [1]})
    tree = Tree(text)
    assert text.startswith('<!doctype html>\n<html lang="en">')
    assert "default-src &#x27;none&#x27;" in text or "default-src 'none'" in text
    assert text.count("<title>A &lt;b&gt; title</title>") == 1
    assert text.count("<h1>A &lt;b&gt; title</h1>") == 1
    assert '<p class="lead">A &amp; B</p>' in text
    assert f"Made by macaron {__version__}" in text
    assert [tag for tag in tree.tags if tag in ("header", "main", "footer")] == ["header", "main", "footer"]
    assert 'name="viewport"' in text
    assert not any({"src", "srcset"} & attributes.keys() for attributes in tree.attributes)
    assert [a["href"] for a in tree.attributes if "href" in a] == ["#main"]
    assert "url(" not in text
    assert "@import" not in text
    assert text == fill(
        "page.html", title="A <b> title", body=section("One", "<p>body</p>"), lead="A & B", data={"x": [1]}
    )


def test_data_may_hold_anything():
    value = {"evil": EVIL, "none": [math.nan, math.inf, None], "tuple": (1, 2.5), 3: "key"}
    text = fill("page.html", title="T", body="", data={"things": value})
    [stored] = re.findall(r'<script type="application/json" id="data-things">(.*?)</script>', text)
    assert json.loads(stored) == {"evil": EVIL, "none": [None, None, None], "tuple": [1, 2.5], "3": "key"}
    Tree(text)


def test_text_is_escaped_and_our_own_html_is_not():
    page = fill("page.html", title=EVIL, body="")
    assert (
        "<title>&lt;/script&gt;&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;&lt;b title=&#39;x&#39;&gt;&amp;amp;"
        in page
    )
    page = fill("page.html", title="A & B", body="", lead=Markup("A <em>word</em> &amp; more"))
    assert "<title>A &amp; B</title>" in page
    assert '<p class="lead">A <em>word</em> &amp; more</p>' in page


def test_tables():
    text = html_table(["name", "value"], [["<x>", 1], [Markup("<b>y</b>"), "2"]], caption="Some & more", numeric=[1])
    tree = Tree(text)
    assert tree.tags[:4] == ["div", "table", "caption", "span"]
    assert "Some &amp; more" in text
    assert text.count('scope="col"') == text.count('scope="row"') == 2
    assert '<th scope="row">&lt;x&gt;</th><td class="number">1</td>' in text
    assert "<b>y</b>" in text


def test_sections_are_named_by_their_headings():
    text = section("What this shows, & more", "<p>a</p>", "<p>b</p>")
    assert '<section id="what-this-shows-more" aria-labelledby="what-this-shows-more-heading">' in text
    assert '<h2 id="what-this-shows-more-heading">What this shows, &amp; more</h2>' in text
    assert 'id="own"' in section("Heading", id="own")


def test_styles_and_scripts_are_read_from_the_package():
    text = fill("page.html", title="T", body="", styles=["report.css"], scripts=["trajectories.js"])
    place = files("macaron.lab") / "assets"
    for name in ("base.css", "base.js", "report.css", "trajectories.js"):
        assert (place / name).read_text() in text
    assert text.index("window.macaron") < text.index("<body>") < text.index('macaron.data("trajectories")')


def test_no_asset_can_end_its_element_or_reach_out():
    for asset in (files("macaron.lab") / "assets").iterdir():
        text = asset.read_text().lower()
        # Templates have elements, which the others are put into.
        whole = asset.name.endswith(".html")
        for element in ("script", "style"):
            assert text.count(f"</{element}") == (text.count(f"<{element}") if whole else 0), asset.name
        found = set(re.findall(r"https?://[^\s\"'`)]+", text))
        assert found <= {"http://www.w3.org/2000/svg"}, asset.name  # the name of SVG, which nobody fetches


def test_a_page_is_written_whole_into_folders_that_are_made(tmp_path):
    path = tmp_path / "new" / "folder" / "page.html"
    write_page(path, "first")
    write_page(path, "second")
    assert path.read_text() == "second"
    assert [each.name for each in path.parent.iterdir()] == ["page.html"]


def test_what_cannot_be_a_page_is_refused_and_what_is_there_stays(tmp_path):
    with pytest.raises(UsageError, match=r"page\.txt: a page is FILE\.html"):
        write_page(tmp_path / "page.txt", "x")
    (tmp_path / "folder.html").mkdir()
    with pytest.raises(UsageError, match="is a folder: name a file in it"):
        check_page_path(tmp_path / "folder.html")
    (tmp_path / "file").write_text("kept")
    with pytest.raises(MacaronError, match=r"cannot be written: .*Choose another path"):
        write_page(tmp_path / "file" / "page.html", "x")
    assert (tmp_path / "file").read_text() == "kept"


def test_a_disk_that_is_full_leaves_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_page(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(MacaronError, match="No space left on device"):
        write_page(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
