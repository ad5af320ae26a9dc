"""What README and the examples say is run."""

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from absolute_links import absolute, relative_links
from hub import TOKEN, running

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = sorted((REPOSITORY / "docs").glob("*.md"))
#: Models for the folders that the pages name.
FIXTURES = {
    f"runs/{name}/model": f"tests/compatibility/fixtures/{fixture}"
    for name, fixture in (("mine", "translation"), ("bert", "classifier"))
}


def python_blocks(name: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / name).read_text(), flags=re.DOTALL)


def run(*command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=REPOSITORY, env=environment
    )


def test_the_ten_lines_of_the_readme():
    (block,) = python_blocks("README.md")
    assert len([line for line in block.splitlines() if line.strip()]) <= 11
    done = run("-c", block)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2 1\n"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The models that the pages name."""
    from macaron.convert.to_ctranslate2 import export_ctranslate2
    from macaron.convert.to_onnx import export_onnx
    from macaron.models import LanguageModel, TranslationModel, preset
    from macaron.text import MacaronTokenizer

    made = tmp_path_factory.mktemp("gpt")
    tokenizer = MacaronTokenizer.train(["Once upon a time"] * 3, 300, kind="language")
    LanguageModel(preset("macaron-gpt-tiny", vocab_size=len(tokenizer))).save_pretrained(made)
    tokenizer.save_pretrained(made)
    if find_spec("onnxruntime") and find_spec("onnxscript") and find_spec("ctranslate2"):
        export_onnx(REPOSITORY / FIXTURES["runs/mine/model"], made / "mine-onnx")
        words = MacaronTokenizer.train(["Guten Morgen! Once upon a time"] * 3, 300)
        TranslationModel(preset("transformer-tiny", vocab_size=len(words))).save_pretrained(made / "mine")
        words.save_pretrained(made / "mine")
        export_ctranslate2(made / "mine", made / "mine-ct2")
    return {**FIXTURES, "runs/gpt/model": str(made), **{name: str(made / name) for name in ("mine-onnx", "mine-ct2")}}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", *(f"docs/{p.name}" for p in PAGES)])
def test_python_on_other_pages_runs(page: str, folders: dict[str, str], tmp_path: Path):
    if page == "docs/exporting.md" and not Path(folders["mine-ct2"]).exists():
        pytest.skip("the extra export is not installed: make setup")
    blocks = [re.sub("|".join(folders), lambda found: folders[found[0]], block) for block in python_blocks(page)]
    if blocks:  # each with names of its own
        with running() as hub:
            variables = {"HF_ENDPOINT": hub.address, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path)}
            done = run("-c", f"for block in {blocks!r}: exec(block, {{}})", **variables, HF_HUB_DISABLE_XET="1")
        assert done.returncode == 0, done.stderr


def test_the_files_to_read_first_exist():
    table = re.findall(
        r"^\| `(\w+)/` .* `(\w+\.py)` \|$", (REPOSITORY / "docs/architecture.md").read_text(), flags=re.M
    )
    assert len(table) >= 10
    for room, file in table:
        assert (REPOSITORY / "src/macaron" / room / file).is_file()


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in PAGES)])
def test_links_lead_to_files(page: str):
    path = REPOSITORY / page
    for target in relative_links(path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_the_readme_for_a_place_without_files():
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert relative_links(text)
    page = absolute(text, "https://host/macaron/blob/v1/")
    assert not relative_links(page)
    assert "(https://host/macaron/blob/v1/docs/tutorial.md)" in page
    assert "![" in page
    assert "docs/tutorial/particles-page.png?raw=true)" in page
    assert "(https://arxiv.org/abs/1906.02762)" in page  # as it was


@pytest.mark.slow
def test_the_example_trains():
    done = run("examples/own_scheme.py")
    assert done.returncode == 0, done.stderr
    share = re.search(r"sorted without a mistake: (\d+)%", done.stdout)
    assert share
    assert int(share[1]) >= 90
