"""The page of trajectories as text. How it behaves is tested in a browser."""

import json
import re

import numpy as np
import pytest

from macaron.lab.ode_pages import write_trajectory_page
from macaron.ode.trajectories import PARTICLES, SEED, STEPS, compare


@pytest.fixture(scope="module")
def found():
    return compare(["lie-fg", "strang-gfg", "lie-fg:euler", "strang-gfg:euler"])


def test_the_page_holds_all_trajectories_and_is_the_same_each_time(found, tmp_path):
    write_trajectory_page(tmp_path / "a.html", (), SEED, 4)
    write_trajectory_page(tmp_path / "b.html", (), SEED, 4)
    text = (tmp_path / "a.html").read_text()
    assert text == (tmp_path / "b.html").read_text()
    assert len(text) < 250_000
    data = json.loads(re.search(r'id="data-trajectories">(.*?)</script>', text)[1])
    assert data["steps"] == list(STEPS)
    assert [group["name"] for group in data["groups"]] == ["Euler, as in layers", "exact, as in the theorem"]
    for group, schemes in zip(data["groups"], (found[1][2:], found[1][:2]), strict=True):
        for drawn, each in zip(group["schemes"], schemes, strict=True):
            assert [one["ratio"] for one in drawn] == [f"{one.ratio:.2f}" for one in each.trajectories]
            assert [len(one["nodes"][0]) for one in drawn] == [2 * (n + 1) for n in STEPS]
    # All in one scale, so that lengths can be compared: a unit is the same in both directions.
    way = np.array(data["groups"][1]["schemes"][0][2]["nodes"]).reshape(PARTICLES, -1, 2)
    real = np.swapaxes(found[1][0].trajectories[2].nodes, 0, 1) * [1, -1]
    drawn, meant = np.diff(way, axis=1).ravel(), np.diff(real, axis=1).ravel()
    scale = drawn @ meant / (meant @ meant)
    assert drawn == pytest.approx(scale * meant, abs=0.11)


def test_a_page_of_ones_own_schemes(tmp_path):
    write_trajectory_page(tmp_path / "a.html", ["ruth3-fg:rk4", "sws"], 3, 8)
    text = (tmp_path / "a.html").read_text()
    assert "ruth3-fg and sws on five particles" in text
    assert "seed 3" in text
