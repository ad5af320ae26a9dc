"""The page shell and the charts, in a real browser."""

import math
import re
from pathlib import Path

import pytest

from macaron.lab.charts import Dots, Series, dot_chart, line_chart, number
from macaron.lab.page import fill, html_table, section, write_page

pytestmark = pytest.mark.browser
SCREENS = [(1280, 800), (390, 844)]


@pytest.fixture
def page_file(tmp_path: Path) -> Path:
    train = [(50.0 * i, 8 * math.exp(-i / 40) + 2) for i in range(1, 101)]
    valid = [(1000.0 * i, 8 * math.exp(-i / 2) + 2.1) for i in range(1, 6)]
    curves = [Series("training", train), Series("validation", valid)]
    dots = [Dots("Transformer", 27.0, (26, 28)), Dots("Macaron", 28.0, (27, 29), colour=1)]
    charts = [
        line_chart(curves, title="Loss", x_label="update", y_label="nll", log_y=True),
        dot_chart(dots, title="BLEU", x_label="BLEU"),
    ]
    wide = html_table([f"column {i}" for i in range(30)], [["value"] * 30], caption="A wide table")
    narrow = html_table(["name", "value"], [["x", 1]], caption="A small table", numeric=[1])
    records = [[f"row {i}", *(f"value {i}, {j}" for j in range(1, 9))] for i in range(3)]
    stacked = html_table([f"column {j}" for j in range(9)], records, caption="Records", numeric=[2, 3], stack=True)
    body = section("Curves", '<div class="charts">', *charts, "</div>") + section("Numbers", wide, narrow, stacked)
    file = tmp_path / "page.html"
    write_page(
        file,
        fill("page.html", title="A page", body=body, lead="What it shows.", data={"things": {"a": "</script><b>"}}),
    )
    return file


@pytest.mark.parametrize(("width", "height"), SCREENS, ids=["laptop", "phone"])
def test_readable(open_page, assert_readable, page_file, width, height):
    page = open_page(page_file, width=width, height=height)
    for details in page.query_selector_all("summary"):
        details.click()
    assert_readable(page)


def test_lines_stand_out_from_the_page(open_page, page_file):
    """A colour of a line needs a contrast of 3; texts are checked above, with 4.5."""
    script = """() => {
      const parse = (text) => {
        const probe = document.createElement("i");
        probe.style.color = text;
        document.body.append(probe);
        const rgb = getComputedStyle(probe).color.match(/[\\d.]+/g).slice(0, 3).map(Number);
        probe.remove();
        return rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
          .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
      };
      const back = parse("var(--bg)");
      const names = [...Array(8).keys()].map((i) => `--series-${i}`).concat("--op-F", "--op-G", "--op-H", "--accent");
      return names.map((name) => {
        const [a, b] = [parse(`var(${name})`), back].sort((x, y) => y - x);
        return [name, (a + 0.05) / (b + 0.05)];
      });
    }"""
    for dark in (False, True):
        found = open_page(page_file, dark=dark).evaluate(script)
        assert len(found) == 12
        assert [name for name, contrast in found if contrast < 3] == []


def test_values_are_read_by_keyboard(open_page, page_file):
    page = open_page(page_file)
    plot, said = page.locator(".plot[tabindex]"), page.locator("output")
    at, values = page.locator(".at"), page.locator(".legend b")
    assert plot.count() == 1  # the values of a dot chart are text already
    usual = [at.inner_text(), *values.all_inner_texts()]
    assert usual == ["update 5,000", "2.657", "2.757"]
    page.locator("button.theme").focus()
    page.keyboard.press("Tab")
    assert plot.evaluate("(each) => each === document.activeElement")
    assert said.text_content() == "update 5,000, training 2.657, validation 2.757"
    page.keyboard.press("Home")
    assert said.text_content() == "update 50, training 9.802"
    assert values.all_inner_texts() == ["9.802", "–"]  # no validation yet
    page.keyboard.press("ArrowRight")
    assert at.inner_text() == "update 100"
    page.keyboard.press("PageDown")
    assert at.inner_text() == "update 600"
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    assert at.inner_text() == "update 5,000"
    outline = plot.evaluate("(each) => getComputedStyle(each).outlineStyle + getComputedStyle(each).outlineWidth")
    assert outline == "solid2px"
    page.keyboard.press("Home")
    page.keyboard.press("Escape")
    assert [at.inner_text(), *values.all_inner_texts()] == usual


def test_values_are_read_by_pointer(open_page, page_file):
    page = open_page(page_file)
    drawing, at = page.locator(".plot[tabindex] > svg"), page.locator(".at")
    box = drawing.bounding_box()
    places = []
    for share in (0.25, 0.5, 0.75):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 40)
        places.append(int(at.inner_text().split()[1].replace(",", "")))
        cursor = page.locator(".cursor").bounding_box()
        assert cursor["x"] == pytest.approx(box["x"] + share * box["width"], abs=4)
    assert places == pytest.approx([1287, 2525, 3762], abs=30)
    markers = page.locator(".marker")
    assert markers.count() == 2
    assert all(markers.nth(i).is_visible() for i in range(2))
    page.mouse.move(2, 2)
    assert at.inner_text() == "update 5,000"
    assert not markers.first.is_visible()


def test_a_marker_is_where_the_line_is(open_page, page_file):
    """The script's scales are those that the line was drawn with."""
    page = open_page(page_file)
    page.locator(".plot[tabindex]").focus()
    for key, point in (("Home", "shift"), ("End", "pop")):
        page.keyboard.press(key)
        marker = page.locator(".marker").first.bounding_box()
        line = page.locator("path.line").first
        ways = re.findall(r"[\d.]+ [\d.]+", line.get_attribute("d"))
        x, y = map(float, (ways[0] if point == "shift" else ways[-1]).split())
        box = page.locator(".plot[tabindex] > svg").bounding_box()
        assert marker["x"] + marker["width"] / 2 == pytest.approx(box["x"] + x / 1000 * box["width"], abs=1)
        assert marker["y"] + marker["height"] / 2 == pytest.approx(box["y"] + y / 1000 * box["height"], abs=1)


def test_texts_of_a_chart_stay_inside_a_phone(open_page, page_file):
    page = open_page(page_file, width=390, height=844)
    boxes = page.evaluate(
        "[...document.querySelectorAll('.chart text')].map((e) => e.getBoundingClientRect().toJSON())"
    )
    assert len(boxes) > 10
    assert all(box["left"] >= 0 and box["right"] <= 390 for box in boxes)
    sizes = page.evaluate(
        "[...document.querySelectorAll('.chart text')].map((e) => parseFloat(getComputedStyle(e).fontSize))"
    )
    assert min(sizes) >= 12


def test_the_theme_button(open_page, page_file):
    page = open_page(page_file, dark=True)
    button, paper = page.locator("button.theme"), "getComputedStyle(document.body).backgroundColor"
    night = page.evaluate(paper)
    seen = [button.inner_text()]
    button.click()
    seen.append(button.inner_text())
    day = page.evaluate(paper)
    assert day != night
    page.reload()
    assert page.evaluate(paper) == day  # remembered
    button.click()
    seen.append(button.inner_text())
    assert page.evaluate(paper) == night
    button.click()
    assert [*seen, button.inner_text()] == ["Theme: auto", "Theme: light", "Theme: dark", "Theme: auto"]


def test_wide_tables_scroll_by_themselves_and_by_keyboard(open_page, page_file, until):
    page = open_page(page_file, width=390, height=844)
    first, second = (page.locator("#numbers .scroll").nth(i) for i in range(2))
    assert first.get_attribute("role") == "region"
    assert first.get_attribute("aria-label") == "A wide table"
    assert second.get_attribute("tabindex") is None
    first.focus()
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('#numbers .scroll').scrollLeft > 0")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # The names of the rows and the caption with its hint stay where they are.
    page.keyboard.press("End")
    for each in (first.locator("tbody th"), first.locator("caption span")):
        assert each.bounding_box()["x"] == pytest.approx(16, abs=1)


def test_a_table_of_records_is_a_list_on_a_phone(open_page, page_file):
    page = open_page(page_file, width=390, height=844)
    box = page.locator("#numbers .scroll").nth(2)
    assert box.get_attribute("tabindex") is None
    cells = box.locator("tbody tr").nth(1).locator("td")
    places = [cells.nth(i).bounding_box() for i in range(8)]
    assert all(place["x"] >= 0 and place["x"] + place["width"] <= 390 for place in places)
    assert [place["y"] for place in places] == sorted({place["y"] for place in places})  # one below the other
    label = "(each) => getComputedStyle(each, '::before').content"
    assert [cells.nth(i).evaluate(label) for i in range(8)] == [f'"column {i}"' for i in range(1, 9)]
    page.set_viewport_size({"width": 1280, "height": 800})
    assert len({cells.nth(i).bounding_box()["y"] for i in range(8)}) == 1
    assert box.locator("thead").is_visible()


def test_the_skip_link_leads_to_the_content(open_page, page_file):
    page = open_page(page_file)
    page.keyboard.press("Tab")
    link = page.locator(".skip")
    assert link.bounding_box()["y"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_page_has_its_charts_without_scripts(open_page, page_file):
    page = open_page(page_file, java_script_enabled=False)
    assert page.locator("path.line").count() == 2
    assert not page.locator("button.theme").is_visible()


def test_numbers_read_the_same_in_python_and_in_the_page(open_page, page_file):
    values = [0, 1, -1, 12.3456, 999.94, 1000, 123456.7, 0.001, 0.00012345, 1e-4, -1e-5, -2.5e-7, 5e-12]
    found = open_page(page_file).evaluate("(values) => values.map(macaron.readable)", values)
    assert found == [number(value) for value in values]


def test_data_are_read_as_they_were_written(open_page, page_file):
    assert open_page(page_file).evaluate("macaron.data('things')") == {"a": "</script><b>"}


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("throw new Error('broken')", "bad.html: broken"),
        ("console.error('worse')", "console error: worse"),
        ("new Image().src = 'http://example.org/x.png'", "asks for http://example.org/x.png"),
    ],
)
def test_errors_are_noticed(visits, tmp_path, script, complaint):
    """The tests' own eyes: without them every test above would pass on a broken page."""
    file = tmp_path / "bad.html"
    file.write_text(f'<!doctype html><link rel="icon" href="data:,"><title>x</title><script>{script}</script>')
    visits.open(file).wait_for_timeout(100)
    assert complaint in visits.complaints
