"""The clients of npm, as they are, where node and the packages are to be had."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from served import Served

CLIENTS = Path(__file__).parent / "npm"
TEXT, TRANSLATED = "Ein Salat ist teuer.", "A salad is expensive."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The clients, installed."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("no node and npm here")
    place = tmp_path_factory.mktemp("npm")
    for file in CLIENTS.iterdir():
        shutil.copy(file, place)
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    try:
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip("npm install takes too long here")
    if done.returncode:
        pytest.skip(f"npm cannot install the clients here: {done.stderr.strip()[-200:]}")
    yield place
    shutil.rmtree(place)


@pytest.mark.slow
def test_npm_clients(server: Served, folder: Path):
    done = subprocess.run(
        ["node", "clients.js", server.url, TEXT], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["libretranslate-ts"]["translatedText"] == TRANSLATED
    assert found["libretranslate-ts alternatives"]["translatedText"] == TRANSLATED
    assert len(found["libretranslate-ts alternatives"]["alternatives"]) == 2
    assert "xx is not supported" in found["libretranslate-ts error"]["error"]
    assert found["libretranslate-ts detect"]["language"] == "de"
    assert [each["code"] for each in found["libretranslate-ts languages"]] == ["de", "en"]
    assert found["translate"] == TRANSLATED
    assert "fr is not supported" in found["translate error"]
    assert [found["libretranslate"], found["libretranslate auto"]] == [TRANSLATED, TRANSLATED]
    assert [each["text"] for each in found["deepl-node"]] == [TRANSLATED, TRANSLATED]
    assert [each["detectedSourceLang"] for each in found["deepl-node"]] == ["de", "de"]
    assert [each["billedCharacters"] for each in found["deepl-node"]] == [len(TEXT), len(TEXT)]
    assert found["deepl-node usage"]["count"] >= 2 * len(TEXT)
    assert [each["code"] for each in found["deepl-node sources"]] == ["de"]
    assert [each["code"] for each in found["deepl-node targets"]] == ["en-US", "en-GB"]
    assert "fr is not supported" in found["deepl-node error"].lower()
