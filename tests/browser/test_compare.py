"""The page of a comparison, of real small runs, in a real browser."""

import random
import re
from pathlib import Path
from typing import Any

import pytest

from macaron.data.prepare import prepare
from macaron.lab.compare.comparison_page import write_comparison
from macaron.recipe import data_recipe, load_recipe
from macaron.tasks.run import run

pytestmark = pytest.mark.browser

RECIPE = """
[data]
out = "{data}"
[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 128
dropout = 0.0
attention_dropout = 0.0
activation_dropout = 0.0
[train]
batch_tokens = 512
learning_rate = 0.01
warmup = 10
max_updates = 40
log_every = 5
validate_every = 10
label_smoothing = 0.0
device = "cpu"
[decode]
beam = 1
max_length = 10
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("letters")
    generator = random.Random(1)
    for name, lines in (("train", 300), ("valid", 20), ("test", 80)):
        text = "".join(" ".join(generator.choices("abcdef", k=generator.randint(3, 9))) + "\n" for _ in range(lines))
        for language in ("src", "tgt"):
            (folder / f"{name}.{language}").write_text(text)
    splits: dict[str, Any] = {name: [{"path": name}] for name in ("train", "valid", "test")}
    settings = {"source_lang": "src", "target_lang": "tgt", "out": str(folder / "prepared"), "root": str(folder)}
    settings |= {"vocab_size": 280, "remove_overlap": "none", "remove_duplicates": False, **splits}
    data = prepare(data_recipe({"data": settings}), workers=1).data.folder
    recipe = folder / "recipe.toml"
    recipe.write_text(RECIPE.format(data=data))
    found = {}
    for name, changes in {
        "Transformer": ["model.scheme=lie-fg"],
        "Macaron <b>&": ["model.scheme=strang-gfg"],
        "other": ["train.learning_rate=0.002"],
        "second seed": ["model.scheme=lie-fg", "train.seed=2"],
        "third seed": ["model.scheme=lie-fg", "train.seed=3"],
        "Macaron-2": ["model.scheme=strang-gfg", "train.seed=2"],
        "Macaron-3": ["model.scheme=strang-gfg", "train.seed=3"],
    }.items():
        found[name] = folder / name.replace(" ", "-").replace("<b>&", "b")
        run(load_recipe(recipe, changes), found[name], False)
    return found


@pytest.fixture(scope="module")
def page_file(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "two.html"
    write_comparison({name: runs[name] for name in list(runs)[:2]}, None, "test", out, trials=300)
    return out


@pytest.fixture(scope="module")
def unfair_file(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three kinds, one of them with two seeds and one that is not fair to compare."""
    out = tmp_path_factory.mktemp("pages") / "three.html"
    chosen = [runs[name] for name in ("Transformer", "second seed", "Macaron <b>&", "other")]
    write_comparison(chosen, None, "test", out, trials=300)
    return out


@pytest.fixture(scope="module")
def seeds_file(runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two kinds of three seeds, whose losses are tested, too."""
    out = tmp_path_factory.mktemp("pages") / "seeds.html"
    chosen = [runs[name] for name in runs if name != "other"]
    write_comparison(chosen, None, "test", out, trials=300)
    return out


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)], ids=["laptop", "phone"])
def test_readable(open_page, assert_readable, page_file, unfair_file, seeds_file, width, height):
    for file in (page_file, unfair_file, seeds_file):
        page = open_page(file, width=width, height=height)
        for details in page.query_selector_all("summary"):
            details.click()
        assert_readable(page)


def test_the_verdict_comes_first_and_all_the_rest_is_there(open_page, page_file):
    page = open_page(page_file)
    assert page.locator("h1").inner_text() == "Transformer and Macaron <b>& compared"
    headings = page.locator("h2").all_inner_texts()
    assert headings == [
        *("Verdict", "Is it fair?", "Scores", "Curves", "By length of the sentence", "By frequency of the word"),
        *("Sentences", "How it was made"),
    ]
    assert "for these two trained models" in page.locator(".verdict").inner_text()
    assert page.locator("#fair strong").first.inner_text() == "Yes."
    assert page.locator("#curves svg path.line").count() == 8  # training and validation of two, in two charts
    assert page.locator("#scores .dots li").count() == 3
    captions = page.locator("caption").all_inner_texts()
    for words in ("The runs.", "Every setting in which they differ", "Scores: score", "Tests of"):
        assert any(caption.startswith(words) for caption in captions), words


def test_sentences_are_chosen_and_ordered(open_page, page_file):
    page = open_page(page_file)
    visible = page.locator(".sentence:visible")
    first, second, drawn = page.locator(".choose button").all()
    assert first.get_attribute("aria-pressed") == "true"

    def values(name: str) -> list[float]:
        return [float(card.get_attribute(f"data-{name}")) for card in visible.all()]

    def sorts() -> set[str]:
        return {card.get_attribute("data-sort") for card in visible.all()}

    assert sorts() == {"first"}
    assert values("difference") == sorted(values("difference"), reverse=True)
    count = visible.count()
    second.click()
    assert sorts() == {"second"}
    assert visible.count() == count
    assert page.locator(".choose output").inner_text() == f"{count} sentences"
    drawn.focus()
    page.keyboard.press("Enter")
    assert sorts() == {"drawn"}
    assert visible.count() == 10
    assert [button.get_attribute("aria-pressed") for button in (first, second, drawn)] == ["false", "false", "true"]
    for order in ("line", "length"):
        page.locator(".choose select").select_option(order)
        assert values(order) == sorted(values(order))


def test_words_are_marked_by_more_than_colour(open_page, page_file):
    page = open_page(page_file)
    styles = {
        kind: page.locator(f"mark.{kind}").first.evaluate("e => getComputedStyle(e).textDecorationStyle")
        for kind in ("right", "other")
    }
    assert styles == {"right": "solid", "other": "wavy"}


def test_without_script_every_sentence_is_shown(open_page, page_file):
    page = open_page(page_file, java_script_enabled=False)
    cards = page.locator(".sentence")
    assert cards.count() == page.locator(".sentence:visible").count() > 10
    assert not page.locator(".choose").is_visible()


def test_an_unfair_comparison_says_so_and_shows_no_p(open_page, unfair_file):
    page = open_page(unfair_file)
    labels = ["lie-fg", "strang-gfg (Macaron-b)", "strang-gfg (other)"]
    assert page.locator("h1").inner_text() == f"{labels[0]}, {labels[1]} and {labels[2]} compared"
    text = page.locator(".verdict").inner_text()
    said = page.locator(".verdict li").first.inner_text()
    assert said.startswith(
        "This is not a fair comparison of lie-fg and strang-gfg (other), so nothing is concluded: train."
    )
    assert "for these 3 trained models" in text
    assert "--vary" in text
    # It is said once.
    page.locator("#fair").wait_for()
    assert page.locator("main").inner_text().count("not a fair comparison") == 1
    assert "not fair" not in page.locator("main").inner_text()
    assert page.locator("#fair strong").all_inner_texts() == ["Yes (strang-gfg (Macaron-b) and lie-fg)."]
    # One row of differences and of tests: that of the fair pair, over three metrics.
    assert page.locator("#scores table").nth(1).locator("tbody tr").count() == 3
    # The kind of two seeds has a dot for each.
    assert page.locator("#scores .dots li").first.locator("circle").count() == 2


def test_every_model_has_its_column_on_a_phone(open_page, page_file):
    """Nothing is cut: each score is inside the screen, without scrolling."""
    page = open_page(page_file, width=390, height=844)
    for section in ("scores", "by-length-of-the-sentence", "by-frequency-of-the-word"):
        cells = page.locator(f"#{section} table").first.locator("tbody td:last-child")
        boxes = [cells.nth(i).bounding_box() for i in range(cells.count())]
        assert boxes
        assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)


def test_the_validation_loss_stands_beside_the_scores(open_page, seeds_file):
    page = open_page(seeds_file)
    assert re.match(
        r"(Decided by|By) (sacreBLEU|validation nll): over 3 seeds", page.locator(".verdict p").inner_text()
    )
    scores = page.locator("#scores")
    titles = [name for metric in ("sacreBLEU", "validation nll") for name in (metric, f"Difference in {metric}")]
    assert scores.locator(".chart-title, figcaption, h3").all_inner_texts()[:4] == titles
    assert re.search(r"validation nll\s+\d\.\d{4} ± 0\.\d{4}", scores.locator("table").first.inner_text())
    over_seeds = scores.locator("table").nth(2)
    heads = over_seeds.locator("thead th").all_inner_texts()
    assert heads[4:7] == ["Hedges' g", "g, low", "g, high"]
    row = over_seeds.locator("tbody tr", has_text="validation nll")
    assert row.count() == 1
    # The numbers of the interval are inside a phone's screen.
    page = open_page(seeds_file, width=390, height=844)
    for number in page.locator("#scores .dots .number").all():
        box = number.bounding_box()
        assert box["x"] + box["width"] <= 390
