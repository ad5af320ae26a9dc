"""A real browser: Debian's chromium without a head, driven by playwright. Pages of files have no network; those of a
server may ask that server only."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from macaron.lab.page import write_page
from macaron.lab.particles.build_data import build_data
from macaron.lab.particles.particles_page import particles_page
from macaron.models.encoder import EncoderForMaskedLM
from macaron.models.presets import preset
from macaron.models.translation import TranslationModel
from macaron.text import MacaronTokenizer
from served import TRANSLATION, Served, start

LINES = ["The cat sits on the mat.", "A dog, a cat and a mouse sleep.", "Where is the big house? It is over there!"]
SENTENCE, TARGET = "The big cat sits on the mat.", "A dog and a mouse sleep."
SIZES = {"vocab_size": None, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64}
NAMES = ("chromium", "chromium-browser", "google-chrome")
# What a page may load: itself, and what is written into it.
LOCAL = ("file:", "data:", "blob:")
#: Characters that the server takes.
TEXT_LIMIT = 600


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("no chromium here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield chromium
        chromium.close()


class Visits:
    """Pages that were opened, and what they complained about."""

    def __init__(self, browser: Any) -> None:
        self.browser, self.contexts, self.allowed = browser, [], LOCAL
        self.complaints: list[str] = []

    def open(
        self, path: Path | str, width: int = 1280, height: int = 800, dark: bool = False, hash: str = "", **context: Any
    ) -> Any:
        """Open a page of a file, or of a server: its address is a string."""
        address = path if isinstance(path, str) else path.resolve().as_uri()
        offline = address.startswith("file:")
        self.allowed = LOCAL if offline else (*LOCAL, address)
        size, scheme = {"width": width, "height": height}, "dark" if dark else "light"
        self.contexts.append(self.browser.new_context(viewport=size, color_scheme=scheme, offline=offline, **context))
        self.contexts[-1].on("page", self._watch)
        page = self.contexts[-1].new_page()
        page.goto(address + (f"#{hash}" if hash else ""))
        return page

    def _watch(self, page: Any) -> None:
        page.set_default_timeout(10_000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url.rpartition('/')[2]}: {error}"))
        page.on("request", self._asked)

    def close(self) -> None:
        for context in self.contexts:
            context.close()

    def _heard(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"console {message.type}: {message.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self.allowed):
            self.complaints.append(f"asks for {request.url}")


@pytest.fixture
def visits(browser: Any) -> Iterator[Visits]:
    """Pages whose complaints a test looks at itself."""
    made = Visits(browser)
    yield made
    made.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open a page of a file; when the test ends, any error in it, or wish for the network, fails the test."""
    made = Visits(browser)
    yield made.open
    made.close()
    if made.complaints:
        pytest.fail("\n".join(made.complaints))


@pytest.fixture
def assert_readable() -> Callable[[Any], None]:
    """Check what every page owes its readers, light and dark: contrast, headings, names, no scrolling sideways."""

    def check(page: Any) -> None:
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == scheme
            audit(page.evaluate(AUDIT))

    def audit(found: dict[str, Any]) -> None:
        assert found["texts"] > 10, "hardly any text: is this the page?"
        assert found["faint"] == [], "text with a contrast below 4.5"
        assert found["wide"] <= found["window"], "the page scrolls sideways"
        assert found["headings"][0] == 1
        assert found["headings"].count(1) == 1
        steps = zip(found["headings"], found["headings"][1:], strict=False)
        assert all(after <= before + 1 for before, after in steps), f"headings out of order: {found['headings']}"
        assert found["twins"] == [], "ids that occur twice"
        assert found["nameless"] == [], "things without a name for a screen reader"
        assert found["landmarks"] == ["HEADER", "MAIN", "FOOTER"]
        assert found["cut"] == [], "wider than its box, without a word of it"
        assert found["unscaled"] == [], "logarithmic axes whose titles do not say so"

    return check


AUDIT = """() => {
  const parse = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const over = (top, share, below) => top.map((value, i) => share * value + (1 - share) * below[i]);
  const light = (rgb) => rgb.map((value) => value / 255)
    .map((value) => value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const background = (element) => {
    if (!element) return [255, 255, 255];
    const { rgb, a } = parse(getComputedStyle(element).backgroundColor);
    return a === 1 ? rgb : over(rgb, a, background(element.parentElement));
  };
  const faint = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
    if (!text || element.closest("script, style, noscript, title, desc, .visually-hidden, .skip")) continue;
    if (!element.checkVisibility({ visibilityProperty: true })) continue;
    const style = getComputedStyle(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color);
    let share = ink.a;
    for (let each = element; each; each = each.parentElement) share *= Number(getComputedStyle(each).opacity);
    const below = background(element instanceof SVGElement ? element.ownerSVGElement : element);
    const [a, b] = [light(over(ink.rgb, share, below)), light(below)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    texts += 1;
    if (contrast < 4.5) faint.push(`${text.slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  const all = (selector) => [...document.querySelectorAll(selector)];
  // A box that cuts its content can be scrolled by keyboard, has a name, and shows a hint and a shadow. Only the names
  // of bars are shortened, with dots.
  const announced = (box) => box.tabIndex === 0 && box.getAttribute("aria-label")
    && getComputedStyle(box.querySelector("caption span"), "::after").content.includes("Scroll")
    && getComputedStyle(box).backgroundImage.includes("gradient");
  const boxes = all("main *").filter((each) => each.checkVisibility() && !each.closest("svg, .visually-hidden"));
  const cut = boxes.filter((each) => {
    const { overflowX, textOverflow } = getComputedStyle(each), { left, right } = each.getBoundingClientRect();
    const outside = (left < -1 || right > innerWidth + 1) && !each.closest(".scroll[tabindex]");
    const hides = overflowX !== "visible" && textOverflow !== "ellipsis" && each.scrollWidth > each.clientWidth + 1;
    return outside || (hides && !announced(each));
  });
  const unscaled = all(".chart[data-read]").filter((chart) => {
    const axes = JSON.parse(chart.querySelector("script").textContent);
    const titles = [...chart.querySelectorAll("text")].filter((text) => text.textContent.endsWith(", log scale"));
    return titles.length !== Number(axes.log_x) + Number(axes.log_y);
  });
  const controls = all("button, select, input, a[href], [tabindex='0'], canvas");
  const ids = all("[id]").map((element) => element.id);
  const named = (element) => element.getAttribute("aria-label") || element.getAttribute("aria-labelledby")
    || element.textContent.trim() || element.labels?.length || element.title;
  return {
    texts, faint, cut: cut.map((each) => each.outerHTML.slice(0, 120)),
    unscaled: unscaled.map((each) => each.querySelector(".name").textContent),
    wide: document.documentElement.scrollWidth, window: innerWidth,
    headings: all("h1, h2, h3, h4, h5").filter((each) => each.checkVisibility()).map((each) => Number(each.tagName[1])),
    twins: ids.filter((id, i) => ids.indexOf(id) !== i),
    nameless: [
      ...controls.filter((each) => each.checkVisibility() && !named(each)),
      ...all("table").filter((each) => !each.caption?.textContent.trim()),
      ...all("svg[role=img]:not([aria-label])").filter((each) => !each.querySelector(":scope > title")),
      ...all("img").filter((each) => !each.hasAttribute("alt")),
    ].map((each) => each.outerHTML.slice(0, 120)),
    landmarks: [...document.body.children].map((each) => each.tagName)
      .filter((tag) => ["HEADER", "MAIN", "FOOTER"].includes(tag)),
  };
}"""


@pytest.fixture(scope="session")
def particle_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
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


@pytest.fixture(scope="session")
def particle_page(
    particle_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., tuple[Path, dict]]:
    """The page of some of the models, and the data it was made of."""
    made: dict[tuple[str, ...], tuple[Path, dict[str, Any]]] = {}

    def make(*names: str) -> tuple[Path, dict[str, Any]]:
        if names not in made:
            target = None if "macaron-bert-tiny" in names else TARGET
            data = build_data([particle_folders[name] for name in names], SENTENCE, target=target)
            file = tmp_path_factory.mktemp("pages") / "particles.html"
            write_page(file, particles_page(data))
            made[names] = file, data
        return made[names]

    return make


@pytest.fixture
def macaron_page(particle_page) -> tuple[Path, dict[str, Any]]:
    return particle_page("macaron-tiny")


@pytest.fixture
def open_particles(open_page: Callable[..., Any]) -> Callable[..., Any]:
    """Open a particle page at a hash such as ``frame=3``; calm: the reader asks for reduced motion."""

    def open(file: Path, hash: str = "", calm: bool = True, **options: Any) -> Any:
        page = open_page(file, hash=hash, reduced_motion="reduce" if calm else "no-preference", **options)
        page.wait_for_selector("#particles.ready")
        return page

    return open


@pytest.fixture(scope="session")
def until() -> Callable[[Any, str], None]:
    """Wait for something to become true. (Playwright's own way evaluates text in the page, whose policy forbids it.)"""

    def wait(page: Any, expression: str) -> None:
        for _ in range(500):
            if page.evaluate(expression):
                return
            page.wait_for_timeout(20)
        pytest.fail(f"never true: {expression}")

    return wait


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """German to English, and the same model as if it were English to German. One key may ask twice a minute."""
    keys = tmp_path_factory.mktemp("keys") / "keys.txt"
    keys.write_text("good-key\nslow-key 2\n", encoding="utf-8")
    models = f"de-en={TRANSLATION}", f"en-de={TRANSLATION}"
    started = start(*models, "--api-keys", keys, "--text-limit", TEXT_LIMIT)
    yield started
    code, errors = started.stop()
    assert code == 0, errors


@pytest.fixture(scope="session")
def enter(served: Served) -> Callable[..., Any]:
    """Open the server's page with `open_page` or `Visits.open`, choose German and give a key."""

    def entered(open: Callable[..., Any], key: str = "good-key", **options: Any) -> Any:
        page = open(served.url + "/", **options)
        page.wait_for_selector("#more:not([hidden])", state="attached")
        page.select_option("#source", "de")
        if key:
            page.fill("#key", key)
            page.press("#key", "Enter")
        page.focus("#text")
        return page

    return entered


@pytest.fixture(scope="session")
def shows(until: Callable[[Any, str], None]) -> Callable[[Any, str], None]:
    """Wait until the server's page shows a translation."""
    return lambda page, text: until(page, f"document.querySelector('#translation').textContent === {json.dumps(text)}")


@pytest.fixture(scope="session")
def settled(until: Callable[[Any, str], None]) -> Callable[[Any, int], None]:
    """Wait until a particle page shows a frame."""
    return lambda page, frame: until(page, f"document.querySelector('#frame').value === '{frame}'")
