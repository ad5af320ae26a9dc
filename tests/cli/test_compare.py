"""``macaron compare`` and ``macaron twins`` as a user meets them."""

import html
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from forked import macaron_text
from macaron.cli import main
from macaron.data.prepare import prepare
from macaron.recipe import data_recipe

ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}
RECIPE = """
[data]
out = "{data}"
[model]
preset = "macaron-tiny"
hidden_size = 32
num_attention_heads = 2
intermediate_size = 128
[train]
batch_tokens = 512
learning_rate = 0.01
warmup = 2
max_updates = 4
log_every = 2
device = "cpu"
[decode]
beam = 1
max_length = 10
"""


def macaron(*arguments: object) -> subprocess.CompletedProcess[str]:
    return macaron_text(*arguments)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("letters")
    generator = random.Random(1)
    for name, lines in (("train", 100), ("valid", 10), ("test", 20)):
        text = "".join(" ".join(generator.choices("abcdef", k=4)) + "\n" for _ in range(lines))
        for language in ("src", "tgt"):
            (folder / f"{name}.{language}").write_text(text)
    splits: dict[str, Any] = {name: [{"path": name}] for name in ("train", "valid", "test")}
    settings = {"source_lang": "src", "target_lang": "tgt", "out": str(folder / "prepared"), "root": str(folder)}
    settings |= {"vocab_size": 280, "remove_overlap": "none", "remove_duplicates": False, **splits}
    data = prepare(data_recipe({"data": settings}), workers=1).data.folder
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(data=data))
    return path


@pytest.fixture(scope="module")
def twins(recipe: Path) -> Path:
    """A set of two, trained by the command."""
    out = recipe.parent / "set"
    done = macaron("twins", recipe, "--schemes", "transformer, macaron", "--out", out)
    assert done.returncode == 0, done.stderr
    assert "run 2 of 2: strang-gfg, seed 1" in done.stderr
    assert done.stdout.splitlines()[-1] == f"Page: {out / 'comparison.html'}    Numbers: {out / 'comparison.json'}"
    assert done.stdout.splitlines()[0] == json.loads((out / "comparison.json").read_text())["verdict"]
    return out


def test_compare(twins: Path, tmp_path: Path):
    runs = [twins / "strang-gfg-seed1", twins / "lie-fg-seed1"]
    page, numbers = tmp_path / "page.html", tmp_path / "page.json"
    done = macaron("compare", *runs, "--out", page, "--json", numbers, "--data", twins.parent / "prepared")
    assert done.returncode == 0, done.stderr
    verdict, _, head, _, *rows, _, where = done.stdout.splitlines()
    found = json.loads(numbers.read_text())
    assert verdict == found["verdict"]
    assert where == f"Page: {page}    Numbers: {numbers}"
    assert done.stderr.count(": stored translations (") == 2
    # Each system with its size, updates, loss and scores.
    assert head.split("  ")[-1].strip() == "tokenised BLEU"
    assert head.split() == ["parameters", "updates", "valid", "nll", "sacreBLEU", "chrF2", "tokenised", "BLEU"]
    assert [row.split() for row in rows] == [
        [
            kind["label"],
            f"{kind['parameters']:,}",
            "4",
            f"{kind['scores']['validation nll']['mean']:.4f}",
            *(f"{score['mean']:.2f}" for name, score in kind["scores"].items() if name != "validation nll"),
        ]
        for kind in found["kinds"]
    ]
    # Who is first is what others are compared with.
    assert [kind["label"] for kind in found["kinds"]] == ["strang-gfg", "lie-fg"]
    assert "<h1>strang-gfg and lie-fg compared</h1>" in page.read_text()


def test_what_evaluate_measured_is_not_measured_again(twins: Path, tmp_path: Path):
    run, other = (Path(shutil.copytree(twins / f"{name}-seed1", tmp_path / name)) for name in ("lie-fg", "strang-gfg"))
    for folder in (run, other):
        shutil.rmtree(folder / "translations")
    data = twins.parent / "prepared"
    done = macaron("evaluate", run, "--data", data)
    assert done.returncode == 0, done.stderr
    (kept,) = (run / "translations").iterdir()
    assert f"kept in {kept}" in done.stderr
    page, numbers = tmp_path / "page.html", tmp_path / "page.json"
    done = macaron("compare", run, other, "--out", page, "--json", numbers, "--data", data)
    assert f"lie-fg: stored translations ({kept})" in done.stderr
    assert "strang-gfg: translating 20 sentences" in done.stderr
    found = json.loads(macaron("evaluate", run, "--data", data, "--json").stdout)
    assert [kept] == list((run / "translations").iterdir())  # the same measurement replaces it
    scores = {score["metric"]: score["score"] for score in found["scores"]}
    ours = json.loads(numbers.read_text())["kinds"][0]["scores"]
    summary = json.loads((run / "summary.json").read_text())
    loss = summary["candidate_nll"][summary["final_model"]]
    assert {metric: each["mean"] for metric, each in ours.items()} == {**scores, "validation nll": loss}
    # The page of the run has them, once; not those of another model that the run had before.
    assert macaron("report", run, "--no-samples").returncode == 0
    text = (run / "report.html").read_text()
    assert text.count(f"{data} (test), 20 sentences (translations/{kept.name})") == 1
    assert f'<span class="value">{scores["sacreBLEU"]:.2f}</span>' in text
    shutil.copytree(other / "model", run / "model", dirs_exist_ok=True)
    assert macaron("report", run, "--no-samples").returncode == 0
    assert kept.name not in (run / "report.html").read_text()


def numbers_called_differences(value: Any) -> set[str]:
    """The keys of all numbers in a JSON value that are differences or tests of them, but for those of sizes."""
    found: set[str] = set()
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        named = re.search("difference|p_value|higher", str(key)) and key != "difference_in_size"
        if named and any(isinstance(each, float | int) for each in (inner if isinstance(inner, list) else [inner])):
            found.add(str(key))
        found |= numbers_called_differences(inner)
    return found


def signed_numbers(text: str) -> list[str]:
    """All numbers with a sign, but for sizes in per cent, in the visible text of a page or a terminal."""
    plain = html.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<(script|style).*?</\1>", "", text, flags=re.DOTALL)))
    return re.findall(r"(?<![\w.])[+−-]\d[\d.]*(?![\d.]| %)", plain)


@pytest.mark.parametrize("fair", [True, False])
def test_no_difference_is_printed_where_the_comparison_is_unfair(fair: bool, twins: Path, recipe: Path, tmp_path: Path):
    other = twins / "strang-gfg-seed1"
    if not fair:
        other = tmp_path / "other"
        rate = ("--set", "train.learning_rate=0.002", "--set", "model.scheme=strang-gfg")
        assert macaron("train", recipe, *rate, "--out", other).returncode == 0
    page, numbers = tmp_path / "page.html", tmp_path / "page.json"
    done = macaron("compare", twins / "lie-fg-seed1", other, "--out", page, "--json", numbers)
    assert done.returncode == 0, done.stderr
    assert ("not a fair comparison" in done.stdout) != fair
    assert [line.split()[0] for line in done.stdout.splitlines()[4:6]] == ["lie-fg", "strang-gfg"]
    found = json.loads(numbers.read_text())
    assert bool(numbers_called_differences(found)) == fair
    for text in (done.stdout, page.read_text()):
        assert bool(signed_numbers(text)) == fair, signed_numbers(text)
        assert ("strang-gfg − lie-fg" in text) == fair
        assert bool(re.search(r"\bp (=|&lt;|<|≤)", text)) == fair
    assert ("testing the differences" in done.stderr) == fair


def test_a_budget_for_a_recipe_without_a_limit(recipe: Path, tmp_path: Path):
    """It is the length of every run, and the warm-up ends within it."""
    endless = tmp_path / "recipe.toml"
    endless.write_text(recipe.read_text().replace("max_updates = 4\n", "").replace("warmup = 2", "warmup = 4000"))
    done = macaron("twins", endless, "--out", tmp_path / "set")
    assert done.returncode == 1
    assert "the run needs a limit" in done.stderr
    done = macaron("twins", endless, "--budget", 3, "--out", tmp_path / "set")
    assert done.returncode == 0, done.stderr
    assert "train.warmup = 4,000 would not end within the budget: 0 updates instead" in done.stderr
    kinds = json.loads((tmp_path / "set" / "comparison.json").read_text())["kinds"]
    assert [run["updates"] for kind in kinds for run in kind["runs"]] == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["compare", "{lie}", "--out", "{new}/page.html"], 2, "give at least two runs"),
        (["compare", "{lie}", "{strang}", "--out", "{new}/page.txt"], 2, "a page is FILE.html"),
        (["compare", "{lie}", "{strang}", "--out", "{new}/p.html", "--split", "train"], 2, "--split is valid or test"),
        (["compare", "{lie}", "{strang}", "--out", "{new}/p.html", "--json", "{lie}"], 2, "is a folder"),
        (["compare", "{lie}", "{new}/nothing", "--out", "{new}/page.html"], 1, "no such folder"),
        (["compare", "{lie}", "{strang}", "--out", "{new}/p.html", "--vary", "train.rate"], 2, "no such setting"),
        (["twins", "{recipe}", "--schemes", "lie-fg,strangg", "--out", "{new}"], 1, "unknown scheme 'strangg'"),
        (["twins", "{recipe}", "--schemes", "lie-fg", "--out", "{new}"], 2, "at least two"),
        (["twins", "{recipe}", "--seeds", "0", "--out", "{new}"], 2, "'--seeds'"),
        (["twins", "{recipe}", "--budget", "0", "--out", "{new}"], 2, "'--budget'"),
        (["twins", "{new}/none.toml", "--out", "{new}"], 1, "no such recipe"),
    ],
)
def test_mistakes(
    arguments: list[str],
    code: int,
    words: str,
    twins: Path,
    recipe: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    new = tmp_path / "new"
    places = {"lie": twins / "lie-fg-seed1", "strang": twins / "strang-gfg-seed1", "new": new, "recipe": recipe}
    monkeypatch.setattr(sys, "argv", ["macaron", *(argument.format(**places) for argument in arguments)])
    said = io.StringIO()
    # In this process: starting another takes longer than making the mistake.
    with redirect_stdout(said), redirect_stderr(said), pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == code, said.getvalue()
    assert words in said.getvalue()
    assert not new.exists()
