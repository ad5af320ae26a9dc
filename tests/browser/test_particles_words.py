"""The words on the particle page: selected, hovered, compared, read in the table and the charts."""

from typing import Any

import pytest
import torch

pytestmark = pytest.mark.browser

#: Attention is drawn from this percentage on: for all words, for one.
ALL, ONE = 25, 2


def drawn_at(page: Any, word: int, panel: int = 0) -> tuple[float, float]:
    """The middle of a particle on the screen."""
    dot = page.locator(f".panel:nth-of-type({panel + 1}) .particle[data-word='{word}'] .dot").bounding_box()
    return dot["x"] + dot["width"] / 2, dot["y"] + dot["height"] / 2


def lone_word(places: list[list[float]]) -> int:
    """The word that stands farthest from all others: a pointer can mean no other."""
    points = torch.tensor(places, dtype=torch.float64)
    return int(torch.cdist(points, points).fill_diagonal_(torch.inf).amin(1).argmax())


def shown(value: float) -> str:
    """A number to four digits, as the page writes it."""
    return f"{float(f'{value:.4g}'):g}"


def test_words_by_keyboard(open_particles, macaron_page, settled):
    file, data = macaron_page
    page = open_particles(file, "frame=2")
    part = data["models"][0]["parts"][0]
    page.locator(".switch button").last.focus()
    for _ in range(4):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.dataset.word") == "0"
    assert page.inner_text(".readout .token b") == part["tokens"][0]
    page.keyboard.press("ArrowDown")
    assert page.inner_text(".readout .token b") == part["tokens"][1]
    assert page.inner_text(".readout .norm") == shown(part["frames"][2]["norm"][1])
    said = page.inner_text("[role=status]")
    assert said.startswith(f"{part['tokens'][1]}: norm {shown(part['frames'][2]['norm'][1])}")
    page.keyboard.press("Enter")
    assert page.get_attribute(".particle[data-word='1']", "aria-selected") == "true"
    page.keyboard.press("ArrowRight")
    settled(page, 3)
    assert page.inner_text(".readout .norm") == shown(part["frames"][3]["norm"][1])
    page.keyboard.press("Tab")
    assert page.inner_text(".readout .token b") == part["tokens"][1]
    page.keyboard.press("Escape")
    assert page.inner_text(".readout .token b") == "All words"


@pytest.mark.parametrize("which", [0, 1], ids=["encoder", "decoder"])
def test_hover(open_particles, macaron_page, which):
    file, data = macaron_page
    part = data["models"][0]["parts"][which]
    page = open_particles(file, f"frame=3&part={part['name']}")
    word, frame = lone_word(part["frames"][3]["normalised"]), part["frames"][3]
    page.mouse.move(*drawn_at(page, word))
    assert page.inner_text(".readout .token b") == part["tokens"][word]
    assert f"word {word + 1} of {len(part['tokens'])}" in page.inner_text(".readout .token")
    assert page.inner_text(".readout .norm") == shown(frame["norm"][word])
    assert page.inner_text(".readout .move") == shown(frame["move"][word])
    # Against the norm it had before, as in the curves: a norm that follows would make the last move look huge.
    before = part["frames"][2]["norm"][word]
    share = f"({frame['move'][word] / before:.0%} of norm)".replace("%", " %")
    assert page.inner_text(".readout dd small").strip() == share
    text = page.inner_text(".readout")
    x, y = frame["normalised"][word]
    assert f"{shown(x)}, {shown(y)}" in text
    first = part["tokens"][frame["nearest"][word][0]]
    assert first in page.locator(".readout dd").last.inner_text()
    for index, percent in frame["lens"][word]:
        assert data["words"][index] in text
        assert f"{percent} %" in text
    page.mouse.move(2, 2)
    assert page.inner_text(".readout .token b") == "All words"


@pytest.mark.parametrize("operator", ["F", "H"])
def test_attention_lines(open_particles, macaron_page, operator, settled):
    file, data = macaron_page
    part = data["models"][0]["parts"][1]
    k = max(i for i, frame in enumerate(part["frames"]) if frame["operator"] == operator)
    weights = part["frames"][k]["attention"]["weights"]
    page = open_particles(file, f"frame={k}&part=decoder")
    source = page.locator(".source text")
    assert source.all_text_contents() == data["models"][0]["source"]

    def expected(least: int, words: list[int]) -> int:
        return sum(
            weight >= least and (operator == "H" or i != j) for i in words for j, weight in enumerate(weights[i])
        )

    everyone = list(range(len(weights)))
    lines = page.locator(f".attention .thread.op-{operator}")
    assert lines.count() == expected(ALL, everyone) > 0
    for word in everyone:
        page.locator(".sentence button").nth(word).click()
        assert lines.count() == expected(ONE, [word])
        page.keyboard.press("Escape")
    page.mouse.move(2, 2)
    page.uncheck("#attention")
    assert lines.count() == 0
    page.check("#attention")
    page.keyboard.press("ArrowRight")  # a feed-forward network or the end: nobody attends
    settled(page, k + 1)
    assert page.locator(".attention .thread").count() == 0 or part["frames"][k + 1]["attention"] is not None


def test_moves_and_trails(open_particles, macaron_page):
    """Each sub-step's moves in its operator's colour and kind of line; as many as asked for."""
    file, data = macaron_page
    part = data["models"][0]["parts"][0]
    page = open_particles(file, "frame=6")

    def moves() -> list[str]:
        return page.eval_on_selector_all(".trails .move", "list => list.map((each) => each.classList[1])")

    operators = [f"op-{frame['operator']}" for frame in part["frames"]]
    layer = [k for k in range(1, 7) if part["frames"][k]["layer"] == part["frames"][6]["layer"]]
    assert moves() == [operators[k] for k in layer]
    page.select_option("#trails", "path")
    assert moves() == operators[1:7]
    page.select_option("#trails", "off")
    assert moves() == []
    page.select_option("#trails", "move")
    assert moves() == [operators[6]]
    styles = {
        operator: page.eval_on_selector(
            f".operators [data-operator='{operator}'] line",
            "(line) => [getComputedStyle(line).stroke, getComputedStyle(line).strokeDasharray]",
        )
        for operator in "FGH"
    }
    assert len({colour for colour, _ in styles.values()}) == 3
    assert len({dash for _, dash in styles.values()}) == 3


def test_two_models_share_a_clock(open_particles, particle_page, settled):
    """Schemes of two and three sub-steps: after each layer both have come to its end."""
    file, data = particle_page("transformer-tiny", "macaron-tiny")
    page = open_particles(file, "frame=0")
    parts = [model["parts"][0] for model in data["models"]]
    axes = [part["axes"] for part in parts]
    assert axes[0] == axes[1]
    # Ends of sub-steps within a layer: 1/2, 1 and 1/3, 2/3, 1. Then the final norm, and the start.
    layers = 3
    assert int(page.get_attribute("#frame", "max")) == 4 * layers + 1
    labels = [[frame["label"] for frame in part["frames"]] for part in parts]
    for stop, frames in [(1, (0, 1)), (2, (1, 1)), (3, (1, 2)), (4, (2, 3)), (5, (2, 4)), (13, (7, 10))]:
        page.locator("#frame").fill(str(stop))
        settled(page, stop)
        assert page.locator(".now").all_inner_texts() == [
            own[frame] for own, frame in zip(labels, frames, strict=True)
        ], stop
    # One word, in both.
    page.locator(".sentence button").nth(2).click()
    assert page.locator(".readout .token b").all_inner_texts() == [parts[0]["tokens"][2]] * 2
    assert page.locator(".readout .norm").all_inner_texts() == [shown(part["frames"][-1]["norm"][2]) for part in parts]
    boxes = [page.locator(".stage").nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["y"] == boxes[1]["y"]
    assert boxes[0]["x"] < boxes[1]["x"]
    page.set_viewport_size({"width": 390, "height": 844})
    boxes = [page.locator(".stage").nth(i).bounding_box() for i in range(2)]
    assert boxes[0]["x"] == boxes[1]["x"]
    assert boxes[0]["y"] < boxes[1]["y"]


@pytest.mark.parametrize(("width", "height"), [(390, 844), (390, 664), (768, 1024), (1280, 800)])
def test_both_models_are_in_view(open_particles, particle_page, width, height):
    """Both pictures and the transport, all on the screen: at once, or on a low one after scrolling to the pictures."""
    file, _ = particle_page("macaron-tiny", "transformer-tiny")
    page = open_particles(file, "frame=2", width=width, height=height)
    for part in ("encoder", "decoder"):
        page.click(f"[data-part-choice='{part}']")
        page.evaluate("(low) => scrollTo(0, low ? document.querySelector('.panels').offsetTop : 0)", height < 700)
        bar = page.locator(".transport").bounding_box()
        assert bar["y"] + bar["height"] <= height
        for i in range(2):
            box = page.locator(".stage").nth(i).bounding_box()
            assert box["y"] >= 0
            assert box["y"] + box["height"] <= bar["y"]
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            assert box["height"] >= 136


def test_models_of_two_kinds(open_particles, particle_page):
    """An encoder has no decoder: that part shows the other model alone."""
    file, data = particle_page("macaron-tiny", "macaron-bert-tiny")
    page = open_particles(file, "frame=2")
    assert page.locator(".panel:visible").count() == 2
    page.click("[data-part-choice='decoder']")
    assert page.locator(".panel:visible h2").all_inner_texts() == ["macaron-tiny strang-gfg"]
    assert int(page.get_attribute("#frame", "max")) + 1 == len(data["models"][0]["parts"][1]["frames"])


def test_encoder_alone(open_particles, particle_page, assert_readable):
    file, data = particle_page("macaron-bert-tiny")
    page = open_particles(file, "frame=2")
    assert page.locator("[data-part-choice]").count() == 0
    assert page.inner_text(".now") == data["models"][0]["parts"][0]["frames"][2]["label"]
    assert_readable(page)


def test_told_to_listeners(open_particles, macaron_page, settled):
    """The live region says each frame that one comes to, and keeps silent while the page plays."""
    file, data = macaron_page
    page = open_particles(file, "frame=1", calm=False)
    frames = data["models"][0]["parts"][0]["frames"]
    status = page.locator("[role=status]")
    assert frames[1]["label"] in status.inner_text()
    page.keyboard.press("ArrowRight")
    settled(page, 2)
    assert frames[2]["label"] in status.inner_text()
    assert frames[2]["label"] in page.get_attribute("#frame", "aria-valuetext")
    page.evaluate(
        """() => {
          window.said = 0;
          const status = document.querySelector("[role=status]");
          const playing = () => document.querySelector("#particles").classList.contains("playing");
          const observer = new MutationObserver(() => { window.said += playing(); });
          observer.observe(status, { childList: true, characterData: true, subtree: true });
        }"""
    )
    page.select_option("#speed", "4")
    page.locator("#play").click()
    page.wait_for_selector("#particles.playing")
    page.wait_for_selector("#particles:not(.playing)")
    assert page.evaluate("window.said") == 0
    assert frames[-1]["label"] in status.inner_text()


def test_table(open_particles, macaron_page, settled):
    file, data = macaron_page
    page = open_particles(file, "frame=2&view=raw")
    part = data["models"][0]["parts"][0]
    page.locator(".table > summary").click()
    rows = page.locator(".table tbody tr")
    rows.first.wait_for()  # the table is written when the browser says that it has been opened
    assert rows.count() == len(part["tokens"])
    cells = rows.nth(1).locator("th, td").all_inner_texts()
    frame = part["frames"][2]
    assert cells[:5] == [
        part["tokens"][1],
        *(shown(x) for x in frame["raw"][1]),
        shown(frame["norm"][1]),
        shown(frame["move"][1]),
    ]
    page.keyboard.press("ArrowRight")
    settled(page, 3)
    assert rows.nth(1).locator("td").nth(2).inner_text() == shown(part["frames"][3]["norm"][1])


def test_charts_follow(open_particles, macaron_page, settled):
    """The curves of the part that is shown, with a line at the moment that the stage shows."""
    file, _ = macaron_page
    page = open_particles(file, "frame=0&part=decoder")
    assert page.locator("[data-part='encoder']").is_hidden()
    charts = page.locator("[data-part='decoder'] figure.chart")
    assert charts.count() == 7
    line = charts.nth(3).locator(".moment")
    assert float(line.get_attribute("x1").rstrip("%")) == 0
    page.keyboard.press("End")
    settled(page, int(page.get_attribute("#frame", "max")))
    assert float(line.get_attribute("x1").rstrip("%")) == 100


def test_labels_keep_apart(open_particles, macaron_page):
    """No word that is drawn covers much of another."""
    file, _ = macaron_page
    for width, height in [(1280, 800), (390, 844)]:
        page = open_particles(file, "frame=0", width=width, height=height)
        for _ in range(int(page.get_attribute("#frame", "max"))):
            page.keyboard.press("ArrowRight")
            boxes = page.eval_on_selector_all(
                ".labels text:not(.crowded)",
                "list => list.map((e) => e.getBoundingClientRect()).map((b) => [b.left, b.top, b.right, b.bottom])",
            )
            for i, a in enumerate(boxes):
                for b in boxes[:i]:
                    wide = min(a[2], b[2]) - max(a[0], b[0])
                    high = min(a[3], b[3]) - max(a[1], b[1])
                    shared = max(wide, 0) * max(high, 0)
                    assert shared < 0.4 * min((box[2] - box[0]) * (box[3] - box[1]) for box in (a, b))
