"""The particle page in a real browser: played, stepped, hovered, with data of real (small, random) models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from macaron.lab.page import write_page
from macaron.lab.particles.build_data import build_data
from macaron.lab.particles.page import particles_page
from macaron.models.encoder import EncoderForMaskedLM
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer

pytestmark = pytest.mark.browser

LINES = ["The cat sits on the mat.", "A dog, a cat and a mouse sleep.", "Where is the big house? It is over there!"]
SENTENCE, TARGET = "The big cat sits on the mat.", "A dog and a mouse sleep."
SIZES = {"vocab_size": None, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
#: Attention of so many per cent is drawn: for all words, for one.
ALL, ONE = 25, 2
CALM = {"reduced_motion": "reduce"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A Macaron, a Transformer and an encoder. Their weights are large, so that attention has something to choose."""
    place = tmp_path_factory.mktemp("models")
    torch.manual_seed(1)
    found = {}
    for name, layers in {"macaron-tiny": 3, "transformer-tiny": 3, "macaron-bert-tiny": 2}.items():
        encoder = "bert" in name
        tokenizer = MacaronTokenizer.train(LINES, 300, kind="encoder" if encoder else "translation")
        depth = {"num_hidden_layers": layers} if encoder else {"encoder_layers": layers, "decoder_layers": layers}
        own = {"vocab_size": len(tokenizer), "tokenizer_fingerprint": tokenizer.fingerprint()}
        config = preset(name, **(SIZES | own | depth))
        model = (EncoderForMaskedLM if encoder else TranslationModel)(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(3.0)
        found[name] = place / name
        model.save_pretrained(found[name])
        tokenizer.save_pretrained(found[name])
    return found


@pytest.fixture(scope="module")
def make(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, dict]]:
    """The page of some of the models, and the data it was made of."""
    made: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}

    def page(*names: str) -> tuple[Path, dict[str, Any]]:
        if names not in made:
            target = None if "macaron-bert-tiny" in names else TARGET
            data = build_data([folders[name] for name in names], SENTENCE, target=target)
            file = tmp_path_factory.mktemp("pages") / "particles.html"
            write_page(file, particles_page(data))
            made[names] = file, data
        return made[names]

    return page


@pytest.fixture
def macaron(make) -> tuple[Path, dict[str, Any]]:
    return make("macaron-tiny")


def at(file: Path, hash: str) -> "Hashed":
    return Hashed(file, hash)


class Hashed:
    """A file with something behind the #, as `open_page` takes it."""

    def __init__(self, file: Path, hash: str) -> None:
        self.file, self.hash, self.name = file, hash, file.name

    def resolve(self) -> "Hashed":
        return self

    def as_uri(self) -> str:
        return f"{self.file.resolve().as_uri()}#{self.hash}"


def ready(page: Any) -> Any:
    page.wait_for_selector("#particles.ready")
    return page


def frame_of(page: Any) -> int:
    return int(page.input_value("#frame"))


def until(page: Any, expression: str) -> None:
    """Wait for something to become true. (Playwright's own way evaluates text in the page, whose policy forbids it.)"""
    for _ in range(500):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(20)
    pytest.fail(f"never true: {expression}")


def settled(page: Any, frame: int) -> None:
    until(page, f"document.querySelector('#frame').value === '{frame}'")


def places(page: Any, panel: int = 0) -> list[str]:
    return page.eval_on_selector_all(
        f".panel:nth-of-type({panel + 1}) .particle", "list => list.map((each) => each.getAttribute('transform'))"
    )


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


def test_loads_and_counts_frames(open_page, macaron):
    file, data = macaron
    page = ready(open_page(file, **CALM))
    for part in data["models"][0]["parts"]:
        page.click(f"[data-part-choice='{part['name']}']")
        assert int(page.get_attribute("#frame", "max")) + 1 == len(part["frames"])
        assert page.locator(".particle").count() == len(part["tokens"])
        assert page.locator(".sentence button").all_inner_texts() == part["tokens"]
        # A block of the strip for every move: the first frame has none.
        operators = [frame["operator"] for frame in part["frames"][1:]]
        assert page.locator(".steps .step").all_inner_texts() == [
            "\u00a0" if operator == "end" else operator for operator in operators
        ]
        for k, frame in enumerate(part["frames"]):
            assert page.inner_text(".now") == frame["label"]
            assert page.inner_text(".count") == f"{k + 1} / {len(part['frames'])}"
            page.keyboard.press("ArrowRight")


def test_points_stand_where_the_data_say(open_page, macaron):
    """On one scale for both axes: distances on the screen are those of the data, times a constant."""
    file, data = macaron
    page = ready(open_page(at(file, "frame=4"), **CALM))
    for view in ("raw", "normalised"):
        page.click(f"[data-view-choice='{view}']")
        screen = [[float(x) for x in place[10:-1].split()] for place in places(page)]
        ours = torch.pdist(torch.tensor(screen, dtype=torch.float64))
        theirs = torch.pdist(torch.tensor(data["models"][0]["parts"][0]["frames"][4][view], dtype=torch.float64))
        scale = float((ours @ theirs) / (theirs @ theirs))
        assert torch.allclose(ours, scale * theirs, atol=0.3)
        assert scale > 0


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_every_point_of_every_frame_is_on_the_stage(open_page, make, width, height):
    file, data = make("macaron-tiny", "transformer-tiny")
    page = ready(open_page(file, width, height, **CALM))
    for part in data["models"][0]["parts"]:
        page.click(f"[data-part-choice='{part['name']}']")
        for view in ("raw", "normalised"):
            page.click(f"[data-view-choice='{view}']")
            page.keyboard.press("Home")
            for _ in range(int(page.get_attribute("#frame", "max")) + 1):
                assert page.evaluate("""() => [...document.querySelectorAll(".stage svg")].every((svg) => {
                    const box = svg.getBoundingClientRect();
                    return [...svg.querySelectorAll(".dot")].map((dot) => dot.getBoundingClientRect())
                      .every(({ left, right, top, bottom }) =>
                        left >= box.left && right <= box.right && top >= box.top && bottom <= box.bottom);
                  })""")
                page.keyboard.press("ArrowRight")


def test_speed(open_page, macaron):
    """So many layers in so many pictures of 100 ms each, which are asked for here and not by the screen."""
    file, _ = macaron
    page = ready(open_page(file))
    page.keyboard.press("Home")
    page.evaluate("() => { window.requestAnimationFrame = (next) => { window.pending = next; return 0; }; }")
    reached = {}
    for speed in ("0.5", "1", "2"):
        page.select_option("#speed", speed)
        page.locator("#play").press("Home")
        page.click("#play")
        now = 1000
        while "3 of" not in page.inner_text(".now"):  # the third layer begins
            page.evaluate(f"() => window.pending({now})")
            now += 100
            assert now < 20_000
        reached[speed] = now - 1000
        page.click("#play")
    assert reached["0.5"] == pytest.approx(2 * reached["1"], rel=0.1)
    assert reached["2"] == pytest.approx(reached["1"] / 2, rel=0.1)


def test_plays_once_and_stops(open_page, macaron):
    """By itself, when it comes into sight; at the end it stops, and Play begins again."""
    file, data = macaron
    page = ready(open_page(file))
    page.wait_for_selector("#particles.playing")
    page.select_option("#speed", "4")
    last = len(data["models"][0]["parts"][0]["frames"]) - 1
    page.wait_for_selector("#particles:not(.playing)")
    assert frame_of(page) == last
    assert page.inner_text("#play") == "Play"
    page.select_option("#speed", "1")
    page.click("#play")
    assert page.inner_text("#play") == "Pause"
    until(page, f"Number(document.querySelector('#frame').value) < {last}")
    until(page, "Number(document.querySelector('#frame').value) >= 2")
    page.click("#play")
    stopped = frame_of(page)
    assert 0 < stopped < last
    page.wait_for_timeout(400)
    assert frame_of(page) == stopped


def test_words_glide_between_frames(open_page, macaron):
    file, data = macaron
    page = ready(open_page(at(file, "frame=1")))
    word = max(
        range(len(data["models"][0]["parts"][0]["tokens"])),
        key=data["models"][0]["parts"][0]["frames"][2]["move"].__getitem__,
    )
    page.evaluate(
        """(word) => {
          window.seen = new Set();
          const particle = document.querySelector(`.particle[data-word='${word}']`);
          const observer = new MutationObserver(() => window.seen.add(particle.getAttribute("transform")));
          observer.observe(particle, { attributes: true });
        }""",
        word,
    )
    page.keyboard.press("ArrowRight")
    until(page, "window.seen.size > 2")


def test_calm_for_those_who_ask(open_page, macaron):
    """With reduced motion nothing plays by itself, and words jump."""
    file, _ = macaron
    page = ready(open_page(file, **CALM))
    page.wait_for_timeout(500)
    assert frame_of(page) == 0
    assert page.locator("#particles.playing").count() == 0
    page.evaluate(
        """() => {
          window.seen = new Set();
          const particle = document.querySelector(".particle");
          const observer = new MutationObserver(() => window.seen.add(particle.getAttribute("transform")));
          observer.observe(particle, { attributes: true });
        }"""
    )
    page.keyboard.press("ArrowRight")
    settled(page, 1)
    page.wait_for_timeout(100)
    assert page.evaluate("window.seen.size") == 1
    page.select_option("#speed", "4")
    page.click("#play")
    page.wait_for_selector("#particles.playing")
    page.wait_for_selector("#particles:not(.playing)")
    assert frame_of(page) == int(page.get_attribute("#frame", "max"))


def test_keyboard(open_page, macaron):
    file, _ = macaron
    page = ready(open_page(at(file, "frame=3"), **CALM))
    for key, frame in [("ArrowRight", 4), ("ArrowLeft", 3), ("Home", 0), ("ArrowLeft", 0), ("End", None)]:
        page.keyboard.press(key)
        settled(page, int(page.get_attribute("#frame", "max")) if frame is None else frame)
    for key, speed in [("+", "2"), ("+", "4"), ("+", "4"), ("-", "2"), ("-", "1"), ("-", "0.5")]:
        page.keyboard.press(key)
        assert page.input_value("#speed") == speed
    page.keyboard.press("Space")
    page.wait_for_selector("#particles.playing")
    page.keyboard.press("Space")
    page.wait_for_selector("#particles:not(.playing)")
    # In the page's text below the space bar scrolls, as everywhere.
    page.locator("#models").scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    page.keyboard.press("Home")
    until(page, f"scrollY < {before}")


def test_words_by_keyboard(open_page, macaron):
    file, data = macaron
    page = ready(open_page(at(file, "frame=2"), **CALM))
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
def test_hover(open_page, macaron, which):
    file, data = macaron
    part = data["models"][0]["parts"][which]
    page = ready(open_page(at(file, f"frame=3&part={part['name']}"), **CALM))
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
def test_attention_lines(open_page, macaron, operator):
    file, data = macaron
    part = data["models"][0]["parts"][1]
    k = max(i for i, frame in enumerate(part["frames"]) if frame["operator"] == operator)
    weights = part["frames"][k]["attention"]["weights"]
    page = ready(open_page(at(file, f"frame={k}&part=decoder"), **CALM))
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


def test_moves_and_trails(open_page, macaron):
    """Each sub-step's moves in its operator's colour and kind of line; as many as asked for."""
    file, data = macaron
    part = data["models"][0]["parts"][0]
    page = ready(open_page(at(file, "frame=6"), **CALM))

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


def test_views_and_zoom_move_points(open_page, macaron):
    file, _ = macaron
    page = ready(open_page(at(file, "frame=1"), **CALM))
    normalised = places(page)
    page.click("[data-view-choice='raw']")
    raw = places(page)
    assert all(a != b for a, b in zip(raw, normalised, strict=True))
    page.click("[data-view-choice='normalised']")
    assert places(page) == normalised
    page.check("#follow")
    assert places(page) != normalised


def test_two_models_share_a_clock(open_page, make):
    """Schemes of two and three sub-steps: after each layer both have come to its end."""
    file, data = make("transformer-tiny", "macaron-tiny")
    page = ready(open_page(at(file, "frame=0"), **CALM))
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


def test_models_of_two_kinds(open_page, make):
    """An encoder has no decoder: that part shows the other model alone."""
    file, data = make("macaron-tiny", "macaron-bert-tiny")
    page = ready(open_page(at(file, "frame=2"), **CALM))
    assert page.locator(".panel:visible").count() == 2
    page.click("[data-part-choice='decoder']")
    assert page.locator(".panel:visible h2").all_inner_texts() == ["macaron-tiny strang-gfg"]
    assert int(page.get_attribute("#frame", "max")) + 1 == len(data["models"][0]["parts"][1]["frames"])


def test_encoder_alone(open_page, make, assert_readable):
    file, data = make("macaron-bert-tiny")
    page = ready(open_page(at(file, "frame=2"), **CALM))
    assert page.locator("[data-part-choice]").count() == 0
    assert page.inner_text(".now") == data["models"][0]["parts"][0]["frames"][2]["label"]
    assert_readable(page)


def test_link_restores(open_page, macaron):
    file, data = macaron
    page = ready(open_page(at(file, "frame=5&view=normalised&part=decoder"), **CALM))
    assert frame_of(page) == 5
    for group, value in {"view": "normalised", "part": "decoder"}.items():
        assert page.get_attribute(f"[data-{group}-choice='{value}']", "aria-pressed") == "true"
    assert page.inner_text(".now") == data["models"][0]["parts"][1]["frames"][5]["label"]
    page.keyboard.press("ArrowRight")
    settled(page, 6)
    assert page.evaluate("location.hash") == "#frame=6&view=normalised&part=decoder"
    page.evaluate("location.hash = '#frame=999&view=none&part=none'")
    settled(page, len(data["models"][0]["parts"][1]["frames"]) - 1)


def test_told_to_listeners(open_page, macaron):
    """The live region says each frame that one comes to, and keeps silent while the page plays."""
    file, data = macaron
    page = ready(open_page(at(file, "frame=1")))
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


def test_table(open_page, macaron):
    file, data = macaron
    page = ready(open_page(at(file, "frame=2&view=raw"), **CALM))
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


def test_charts_follow(open_page, macaron):
    """The curves of the part that is shown, with a line at the moment that the stage shows."""
    file, _ = macaron
    page = ready(open_page(at(file, "frame=0&part=decoder"), **CALM))
    assert page.locator("[data-part='encoder']").is_hidden()
    charts = page.locator("[data-part='decoder'] figure.chart")
    assert charts.count() == 7
    line = charts.nth(3).locator(".moment")
    assert float(line.get_attribute("x1").rstrip("%")) == 0
    page.keyboard.press("End")
    settled(page, int(page.get_attribute("#frame", "max")))
    assert float(line.get_attribute("x1").rstrip("%")) == 100


def test_labels_keep_apart(open_page, macaron):
    """No word that is drawn covers much of another."""
    file, _ = macaron
    for width, height in [(1280, 800), (390, 844)]:
        page = ready(open_page(at(file, "frame=0"), width=width, height=height, **CALM))
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


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)], ids=["laptop", "phone"])
@pytest.mark.parametrize("models", [("macaron-tiny",), ("transformer-tiny", "macaron-tiny")], ids=["one", "two"])
def test_readable(open_page, assert_readable, make, models, width, height, dark):
    file, _ = make(*models)
    page = ready(open_page(at(file, "frame=4&part=decoder"), width=width, height=height, dark=dark, **CALM))
    for part in ("encoder", "decoder"):
        page.click(f"[data-part-choice='{part}']")
        for summary in page.query_selector_all("summary"):
            if summary.is_visible() and not summary.evaluate("each => each.parentElement.open"):
                summary.click()
        assert_readable(page)
    page.locator(".sentence button").nth(3).click()
    assert_readable(page)
    # The stage and the clock are in one view.
    page.evaluate("scrollTo(0, 0)")
    if width > 1000:
        assert page.locator("#play").bounding_box()["y"] < height
