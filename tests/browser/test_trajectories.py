"""The page of trajectories, in a real browser: its slider moves the paths."""

import json
from pathlib import Path

import pytest

from macaron.lab.ode_pages import write_trajectory_page
from macaron.ode.trajectories import SEED, STEPS

pytestmark = pytest.mark.browser
SCREENS = [(1280, 800), (390, 844)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trajectories") / "page.html"
    write_trajectory_page(path, (), SEED, 4)
    return path


@pytest.mark.parametrize(("width", "height"), SCREENS, ids=["laptop", "phone"])
def test_readable(open_page, assert_readable, file, width, height):
    page = open_page(file, width=width, height=height)
    page.select_option("#moves", "1")
    assert_readable(page)


def ends(page) -> list[tuple[float, float]]:
    """How far the last dot of the first particle is from the exact end, for each scheme, in pixels."""
    return page.evaluate("""() => {
      const last = (path) => {
        const numbers = path.getAttribute("d").split("M")[1].match(/-?[\\d.]+/g).map(Number);
        return numbers.slice(-2);
      };
      const stage = document.querySelector(".trajectories");
      const [x, y] = last(stage.querySelector(".exact path"));
      return [...stage.querySelectorAll(".line")].map((path) => {
        const [u, v] = last(path);
        return Math.hypot(u - x, v - y);
      });
    }""")


def test_the_page_begins_with_what_layers_do(open_page, file):
    """With Euler sub-steps Strang is no better: larger errors than Lie's here, and the same order."""
    page = open_page(file)
    assert page.locator("#group option").all_inner_texts() == ["Euler, as in layers", "exact, as in the theorem"]
    assert page.locator("#group").input_value() == "0"
    page.locator("#steps").focus()
    page.keyboard.press("Home")
    for _ in STEPS:
        lie, strang = (float(text) for text in page.locator(".error").all_inner_texts())
        assert strang > lie
        page.keyboard.press("ArrowRight")
    ratios = [float(text) for text in page.locator(".ratio").all_inner_texts()]
    assert ratios == pytest.approx([2, 2], abs=0.05)


def test_with_exact_flows_the_slider_brings_both_nearer_and_strang_much_sooner(open_page, file):
    page = open_page(file)
    page.select_option("#group", "1")
    slider = page.locator("#steps")
    assert page.locator("#count").inner_text() == "4"
    slider.focus()
    page.keyboard.press("Home")
    seen, distances, errors = [], [], []
    for _ in STEPS:
        seen.append(int(page.locator("#count").inner_text()))
        distances.append(ends(page))
        errors.append([float(text) for text in page.locator(".error").all_inner_texts() if "×" not in text])
        dots = page.locator(".nodes").first.get_attribute("d").count("h0")
        assert dots == 5 * (seen[-1] + 1)
        assert page.locator("#steps").get_attribute("aria-valuetext").startswith(str(seen[-1]))
        page.keyboard.press("ArrowRight")
    assert seen == list(STEPS)
    lie, strang = zip(*distances, strict=True)
    assert list(lie[1:]) == sorted(lie[1:], reverse=True)
    assert strang[2] < lie[2] / 5
    assert strang[-1] < 1  # of a thousand: on the path
    assert page.locator(".ratio").all_inner_texts() == ["2.01", "4.00"]
    assert "Error with 32 steps" in page.locator("caption").first.inner_text()
    assert "error" in page.locator("#said").text_content()


def test_sub_steps_are_coloured_by_operator(open_page, file):
    page = open_page(file)
    assert page.locator(".moves path").count() == 0
    page.select_option("#moves", "1")
    kinds = page.locator(".moves path").evaluate_all("(all) => all.map((each) => each.getAttribute('class'))")
    assert kinds == ["G", "F", "G"] * 4
    colours = page.locator(".moves path").evaluate_all("(all) => all.map((each) => getComputedStyle(each).stroke)")
    assert colours[0] == colours[2] != colours[1]
    assert page.locator(".operators").is_visible()
    page.select_option("#moves", "")
    assert page.locator(".moves path").count() == 0


def test_without_scripts_the_first_picture_is_there(open_page, file):
    page = open_page(file, java_script_enabled=False)
    assert page.locator(".trajectory .line").count() == 2
    assert not page.locator(".controls").is_visible()


def test_the_page_draws_what_the_data_say(open_page, file):
    """The picture that Python drew and the one that the script draws of the same steps are one."""
    still = open_page(file, java_script_enabled=False).locator(".trajectory path")
    moved = open_page(file).locator(".trajectory path")
    for i in range(4):
        numbers = [json.dumps(each.nth(i).get_attribute("d").replace("L", " ").split()) for each in (still, moved)]
        assert numbers[0] == numbers[1]
