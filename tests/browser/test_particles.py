"""The particle page in a real browser: opened, played, stepped, with data of real (small, random) models."""

from typing import Any

import pytest
import torch

pytestmark = pytest.mark.browser


def frame_of(page: Any) -> int:
    return int(page.input_value("#frame"))


def places(page: Any, panel: int = 0) -> list[str]:
    return page.eval_on_selector_all(
        f".panel:nth-of-type({panel + 1}) .particle", "list => list.map((each) => each.getAttribute('transform'))"
    )


def all_frames(page: Any, expression: str) -> list[Any]:
    """The value of an expression in every frame, in turn."""
    return page.evaluate(f"""() => {{
      const slider = document.querySelector("#frame"), seen = [];
      for (let frame = 0; frame <= Number(slider.max); frame += 1) {{
        slider.value = frame;
        slider.dispatchEvent(new Event("input"));
        seen.push({expression});
      }}
      return seen;
    }}""")


def test_loads_and_counts_frames(open_particles, macaron_page):
    file, data = macaron_page
    page = open_particles(file)
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
        assert all_frames(page, "['.now', '.count'].map((name) => document.querySelector(name).innerText)") == [
            [frame["label"], f"{k + 1} / {len(part['frames'])}"] for k, frame in enumerate(part["frames"])
        ]


def test_points_stand_where_the_data_say(open_particles, macaron_page):
    """On one scale for both axes: distances on the screen are those of the data, times a constant."""
    file, data = macaron_page
    page = open_particles(file, "frame=4")
    for view in ("raw", "normalised"):
        page.click(f"[data-view-choice='{view}']")
        screen = [[float(x) for x in place[10:-1].split()] for place in places(page)]
        ours = torch.pdist(torch.tensor(screen, dtype=torch.float64))
        theirs = torch.pdist(torch.tensor(data["models"][0]["parts"][0]["frames"][4][view], dtype=torch.float64))
        scale = float((ours @ theirs) / (theirs @ theirs))
        assert torch.allclose(ours, scale * theirs, atol=0.3)
        assert scale > 0


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_every_point_of_every_frame_is_on_the_stage(open_particles, particle_page, width, height):
    file, data = particle_page("macaron-tiny", "transformer-tiny")
    page = open_particles(file, width=width, height=height)
    for part in data["models"][0]["parts"]:
        page.click(f"[data-part-choice='{part['name']}']")
        for view in ("raw", "normalised"):
            page.click(f"[data-view-choice='{view}']")
            script = """[...document.querySelectorAll(".stage svg")].map((svg) => {
              const box = svg.getBoundingClientRect();
              const dots = [...svg.querySelectorAll(".dot")].map((dot) => dot.getBoundingClientRect());
              return [dots[0].left, dots.every(({ left, right, top, bottom }) =>
                left >= box.left && right <= box.right && top >= box.top && bottom <= box.bottom)];
            })"""
            for panel in zip(*all_frames(page, script), strict=True):
                assert all(inside for _, inside in panel)
                assert len({left for left, _ in panel}) > 2, "the points do not move"


def test_speed(open_particles, macaron_page):
    """So many layers in so many pictures of 100 ms each, which are asked for here and not by the screen."""
    file, _ = macaron_page
    page = open_particles(file, calm=False)
    page.keyboard.press("Home")
    page.evaluate("() => { window.requestAnimationFrame = (next) => { window.pending = next; return 0; }; }")
    reached = {}
    for speed in ("0.5", "1", "2"):
        page.select_option("#speed", speed)
        page.locator("#play").press("Home")
        page.click("#play")
        reached[speed] = page.evaluate("""() => {
          let now = 1000;
          for (; now < 20000 && !document.querySelector(".now").innerText.includes("3 of"); now += 100) pending(now);
          return now - 1000;  // when the third layer begins
        }""")
        assert reached[speed] < 19_000
        page.click("#play")
    assert reached["0.5"] == pytest.approx(2 * reached["1"], rel=0.1)
    assert reached["2"] == pytest.approx(reached["1"] / 2, rel=0.1)


def test_plays_once_and_stops(open_particles, macaron_page, until):
    """By itself, when it comes into sight; at the end it stops, and Play begins again."""
    file, data = macaron_page
    page = open_particles(file, calm=False)
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


def test_words_glide_between_frames(open_particles, macaron_page, until):
    file, data = macaron_page
    page = open_particles(file, "frame=1", calm=False)
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


def test_calm_for_those_who_ask(open_particles, macaron_page, settled):
    """With reduced motion nothing plays by itself, and words jump."""
    file, _ = macaron_page
    page = open_particles(file)
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


def test_keyboard(open_particles, macaron_page, settled, until):
    file, _ = macaron_page
    page = open_particles(file, "frame=3")
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


def test_views_and_zoom_move_points(open_particles, macaron_page):
    file, _ = macaron_page
    page = open_particles(file, "frame=1")
    normalised = places(page)
    page.click("[data-view-choice='raw']")
    raw = places(page)
    assert all(a != b for a, b in zip(raw, normalised, strict=True))
    page.click("[data-view-choice='normalised']")
    assert places(page) == normalised
    page.check("#follow")
    assert places(page) != normalised


def test_link_restores(open_particles, macaron_page, settled):
    file, data = macaron_page
    page = open_particles(file, "frame=5&view=normalised&part=decoder")
    assert frame_of(page) == 5
    for group, value in {"view": "normalised", "part": "decoder"}.items():
        assert page.get_attribute(f"[data-{group}-choice='{value}']", "aria-pressed") == "true"
    assert page.inner_text(".now") == data["models"][0]["parts"][1]["frames"][5]["label"]
    page.keyboard.press("ArrowRight")
    settled(page, 6)
    assert page.evaluate("location.hash") == "#frame=6&view=normalised&part=decoder"
    page.evaluate("location.hash = '#frame=999&view=none&part=none'")
    settled(page, len(data["models"][0]["parts"][1]["frames"]) - 1)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)], ids=["laptop", "phone"])
@pytest.mark.parametrize("models", [("macaron-tiny",), ("transformer-tiny", "macaron-tiny")], ids=["one", "two"])
def test_readable(open_particles, assert_readable, particle_page, models, width, height):
    file, _ = particle_page(*models)
    page = open_particles(file, "frame=4&part=decoder", width=width, height=height)
    for part in ("encoder", "decoder"):
        page.click(f"[data-part-choice='{part}']")
        for summary in page.query_selector_all("summary"):
            if summary.is_visible() and not summary.evaluate("each => each.parentElement.open"):
                summary.click()
        assert_readable(page)
    # On a phone there is no room for the sentence above two pictures.
    words = ".sentence button" if len(models) == 1 or width > 1000 else ".labels text:not(.crowded)"
    page.locator(words).nth(3).click()
    assert page.locator(".readout .token b").first.inner_text() != "All words"
    assert_readable(page)
    # The stage and the clock are in one view.
    page.evaluate("scrollTo(0, 0)")
    if width > 1000:
        assert page.locator("#play").bounding_box()["y"] < height
