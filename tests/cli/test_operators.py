"""Networks with other operators through the real commands: trained, stopped and resumed, translated with, shown."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from macaron.models import TranslationConfig
from macaron.models.load import load_config

FIXTURES = Path(__file__).parents[1] / "compatibility" / "fixtures"
NETWORKS = {
    "rotary, swiglu, rms, heavy ball": [
        'attention={ positions = "rotary", qk_norm = true }',
        *("activation=swiglu", "norm_type=rms", "velocity={ beta = 0.5, learned = 'channel' }"),
    ],
    "relative, whole layers by heun": [
        "attention={ positions = 'relative', clip = 2 }",
        "layer_integrator=heun",
        "positions_at=none",
    ],
    "dynamic convolutions": [
        "attention={ kind = 'dynamic', kernels = [3] }",
        "decoder_settings={ activation = 'relu2' }",
    ],
    "weighted": ["attention=weighted", "cross_attention=weighted"],
    "universal": ["tying=depth", "positions_at=layers", "encoder_layers=2"],
}
FIRST, *OTHERS = NETWORKS
OFTEN = [f"--set=train.{key}=4" for key in ("validate_every", "checkpoint_every")]


@pytest.mark.parametrize("name", [FIRST, *(pytest.param(other, marks=pytest.mark.slow) for other in OTHERS)])
@pytest.mark.parametrize("batching", ["pack", pytest.param("bucket", marks=pytest.mark.slow)])
def test_trained_resumed_translated_and_shown(
    name: str,
    batching: str,
    macaron: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.chdir(FIXTURES)
    settings = [f"--set=model.{change}" for change in NETWORKS[name]] + [f"--set=train.batching={batching}", *OFTEN]
    settings += ["--set=train.schedule=constant", "--set=train.row_tokens=64", "--set=train.keep=3"]

    def train(run: str, *options: str) -> Any:
        done = macaron("train", "pairs.toml", "--out", tmp_path / run, *settings, *options)
        assert done.returncode == 0, done.stderr
        return load_file(tmp_path / run / "checkpoints" / "update-00000008" / "weights.safetensors")

    whole = train("whole", "--set=train.max_updates=8")
    macaron("train", "pairs.toml", "--out", tmp_path / "cut", *settings, "--set=train.max_updates=5")
    resumed = train("cut", "--set=train.max_updates=8", "--resume")
    assert whole.keys() == resumed.keys()
    assert all(tensor.equal(resumed[name]) for name, tensor in whole.items())

    model, text = tmp_path / "whole" / "model", tmp_path / "in.de"
    text.write_text("Martin wäscht deine Katze.\nEr schläft.\n", encoding="utf-8")
    done = macaron("translate", model, "--input", text)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    done = macaron("particles", model, "Martin wäscht deine Katze.", "--out", tmp_path / "page.json")
    assert done.returncode == 0, done.stderr
    shown = json.loads((tmp_path / "page.json").read_text(encoding="utf-8"))
    assert [part["name"] for part in shown["models"][0]["parts"]] == ["encoder", "decoder"]
    # A run that starts from it has all of its operators.
    recipe = tmp_path / "next.toml"
    recipe.write_text('[data]\nout = "pairs"\n[train]\nmax_updates = 1\ndevice = "cpu"\nvalidate_every = 9\n')
    done = macaron("train", recipe, "--from", model, "--out", tmp_path / "next")
    assert done.returncode == 0, done.stderr
    assert load_config(tmp_path / "next" / "model", TranslationConfig) == load_config(model, TranslationConfig)


@pytest.mark.parametrize(
    "attention", ["{ positions = 'relative', clip = 2 }", "rotary", "{ kind = 'dynamic', kernels = [3] }"]
)
def test_an_encoder_is_pretrained(
    attention: str, macaron: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(FIXTURES)
    changes = [
        f"--set=model.attention={attention}",
        "--set=model.positions_at=none",
        "--set=model.activation=geglu",
    ]
    done = macaron("train", "text.toml", "--out", tmp_path / "run", *changes, "--set=train.max_updates=4")
    assert done.returncode == 0, done.stderr
    done = macaron("particles", tmp_path / "run", "Martin wäscht.", "--out", tmp_path / "page.json")
    assert done.returncode == 0, done.stderr
