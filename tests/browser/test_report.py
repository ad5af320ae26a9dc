"""The page of a real run, in a real browser."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.lab.charts import number
from macaron.lab.report import write_report
from macaron.recipe import data_recipe, recipe_from
from macaron.seal import fingerprint
from macaron.tasks.run import run

pytestmark = pytest.mark.browser
SCREENS = [(1280, 800), (390, 844)]
TRAIN = {"batch_tokens": 128, "warmup": 5, "max_updates": 24, "log_every": 2, "validate_every": 6, "device": "cpu"}
MODEL = {"preset": "macaron-tiny", "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits to be reversed, trained for a moment, with an evaluation in the folder."""
    folder, generator = tmp_path_factory.mktemp("report"), random.Random(1)
    for name, count in (("train", 80), ("valid", 20)):
        lines = [[str(generator.randrange(10)) for _ in range(generator.randint(5, 8))] for _ in range(count)]
        (folder / f"{name}.src").write_text("".join(" ".join(line) + "\n" for line in lines))
        (folder / f"{name}.tgt").write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    data: dict[str, Any] = {"source_lang": "src", "target_lang": "tgt", "root": str(folder), "vocab_size": 280}
    data |= {"out": str(folder / "data"), "remove_duplicates": False, "remove_overlap": "none"}
    data |= {name: [{"path": name}] for name in ("train", "valid")}
    prepare(data_recipe({"data": data}), workers=1)
    settings = {"data": {"out": str(folder / "data")}, "model": MODEL, "train": {**TRAIN, "clip_norm": 1.0}}
    run(recipe_from(settings, "test"), folder / "run", resume=False)
    interval = {"low": 30.1, "high": 32.9}
    score = {"metric": "sacreBLEU", "score": 31.5, "definition": "nrefs:1|case:mixed|tok:13a", "interval": interval}
    found = {"format": 1, "data": "data (test)", "key": {"model": fingerprint(folder / "run" / "model")}, "digest": ""}
    found |= {"translations": ["a"], "search": {}, "scores": [{**score, "rows": []}]}
    (folder / "run" / "translations").mkdir()
    (folder / "run" / "translations" / "test.json").write_text(json.dumps(found))
    return write_report(folder / "run")


@pytest.mark.parametrize(("width", "height"), SCREENS, ids=["laptop", "phone"])
def test_readable_offline(open_page, assert_readable, report, width, height):
    page = open_page(report, width=width, height=height)
    for details in page.query_selector_all("summary"):
        details.click()
    assert_readable(page)


def test_charts_have_content(open_page, report):
    page = open_page(report)
    names = page.locator(".chart .name").all_inner_texts()
    assert names == ["Negative log-likelihood", "Loss", "Learning rate", "Gradient norm", "Speed"]
    for i in range(len(names)):
        chart = page.locator(".chart").nth(i)
        line = chart.locator("path.line").first.bounding_box()
        plot = chart.locator(".plot > svg").bounding_box()
        assert line["width"] == pytest.approx(plot["width"], abs=2)  # from the first update to the last
        assert line["height"] > plot["height"] / 10
        assert plot["y"] - 1 <= line["y"]
        assert line["y"] + line["height"] <= plot["y"] + plot["height"] + 1
        assert chart.locator("text").count() > 5
        assert chart.locator("desc").text_content().count("lowest") >= 1


def test_every_chart_is_read_by_keyboard(open_page, report):
    metrics = [json.loads(line) for line in (report.parent / "metrics.jsonl").read_text().splitlines()]
    first = next(m for m in metrics if "nll" in m)
    page = open_page(report)
    page.locator("button.theme").focus()
    said = []
    for _ in range(5):
        while True:  # the tables between the charts have stops of their own
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('.plot')"):
                break
        page.keyboard.press("Home")
        said.append(page.evaluate("document.activeElement.parentElement.querySelector('output').textContent"))
    assert said[0] == f"update 2, training {first['nll']:.4g}"
    assert said[2] == f"update 2, learning rate {number(first['learning_rate'])}"
    assert said[4].startswith("second ")


def test_a_finger_reads_values_too(open_page, report):
    page = open_page(report, width=390, height=844, has_touch=True)
    plot = page.locator(".plot").first
    plot.scroll_into_view_if_needed()
    box = plot.locator("> svg").bounding_box()
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.locator(".at").first.inner_text() in ("update 12", "update 14")  # in the middle of 2 and 24


def test_sections_and_samples(open_page, report):
    page = open_page(report)
    headings = page.locator("h2").all_inner_texts()
    assert headings == ["Curves", "Throughput", "Scores", "Samples", "Recipe", "Environment"]
    sources = (report.parent.parent / "valid.src").read_text().splitlines()
    shown = page.locator("dd[lang=src]").all_inner_texts()
    assert len(shown) == 6
    assert set(shown) <= set(sources)
    assert page.locator("#scores caption").first.inner_text() == "data (test), 1 sentences (translations/test.json)"
